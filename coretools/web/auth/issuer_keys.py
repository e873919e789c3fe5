"""The public keys of an authorization server: cached, and fetched again when they are old or a key is unknown.

A token decides only which key is looked up; no URL from a token is ever requested.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import jwt

from coretools.errors import Unreachable
from coretools.web.auth.issuer_metadata import KeysUnavailable, fetch_json, find_jwks_url

ASYMMETRIC = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Asymmetric algorithms, whose public key can't sign (RFC 7518, RFC 8037)."""

FRESH_SECONDS = 600.0
"""Longest time that a withdrawn key is still accepted."""

AGAIN_SECONDS = 10.0
"""Minimum time between fetches: anybody can send a token that names an unknown key."""

FETCH_SECONDS = 5.0
"""Timeout for metadata and keys together; a request waits for it."""

STALE_SECONDS = 24 * 3600.0
"""How long keys are used after their server was last reached."""

_logger = logging.getLogger(__name__)

Keys = dict[tuple[str, str], jwt.PyJWK]
"""Keys by id and algorithm. A key is bound to its algorithm: a token can't make it be used with another."""


class IssuerKeys:
    """The keys of one issuer, for the configured algorithms."""

    def __init__(
        self, issuer: str, *, url: str = "", algorithms: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without a URL, each fetch looks it up in the metadata of the issuer."""
        self._clock = clock
        self._issuer = issuer
        self._url = url
        self._algorithms = algorithms
        self._keys: Keys = {}
        self._fetching = anyio.Lock()
        self._tried_at = self._got_at = float("-inf")

    async def key(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        """Return the key with this id for this algorithm; None if the issuer has none.

        Raises:
            Unreachable: the keys can't be fetched now and this one is unknown.
        """
        wanted = (kid, algorithm)
        # A request with a known key does not wait for a refresh; requests with unknown keys share one fetch.
        if wanted not in self._keys or (self._needs_fetch(wanted) and not self._fetching.locked()):
            async with self._fetching:
                if self._needs_fetch(wanted):
                    await self._fetch()
        return self._known(wanted)

    async def fetch_now(self) -> int:
        """Fetch the keys and return their number.

        Raises:
            KeysUnavailable: the keys can't be fetched; names the URL.
        """
        where = self._url or self._issuer
        try:
            with anyio.fail_after(FETCH_SECONDS):
                self._keys = await self._read()
        except TimeoutError:
            raise KeysUnavailable(f"{where}: no answer within {FETCH_SECONDS:g} s") from None
        return len({kid for kid, _ in self._keys})

    def _needs_fetch(self, wanted: tuple[str, str]) -> bool:
        now = self._clock()
        is_wanted = wanted not in self._keys or now - self._got_at > FRESH_SECONDS
        return is_wanted and now - self._tried_at > AGAIN_SECONDS

    def _known(self, wanted: tuple[str, str]) -> jwt.PyJWK | None:
        is_down = self._got_at < self._tried_at
        if is_down and (wanted not in self._keys or self._clock() - self._got_at > STALE_SECONDS):
            raise Unreachable("the authorization server can't be reached; try again later")
        return self._keys.get(wanted)

    async def _fetch(self) -> None:
        self._tried_at = self._clock()
        # Shielded: a client that disconnects must not stop the fetch that others wait for.
        try:
            with anyio.fail_after(FETCH_SECONDS, shield=True):
                keys = await self._read()
        except (KeysUnavailable, TimeoutError) as error:
            _logger.warning("keys of %s: %s", self._issuer, error or "no answer in time")
            return
        self._keys, self._got_at = keys, self._tried_at
        _logger.info("keys of %s: %s", self._issuer, ", ".join(sorted({kid for kid, _ in keys})))

    async def _read(self) -> Keys:
        url = self._url or await find_jwks_url(self._issuer)
        document = await fetch_json(url)
        listed = document.get("keys") if document else None
        if not isinstance(listed, list):
            raise KeysUnavailable(f"{url}: no key set")
        keys = {
            (one["kid"], algorithm): key
            for one in listed
            for algorithm in self._algorithms
            if (key := usable_key(one, algorithm)) is not None
        }
        if not keys:
            raise KeysUnavailable(f"{url}: no key with an id for {', '.join(self._algorithms)}")
        return keys


def usable_key(entry: Any, algorithm: str) -> jwt.PyJWK | None:
    """Return a key of a key set (RFC 7517) for an algorithm; None if it is for another use or not a public key."""
    # `d` is the private part of a key (RFC 7518, 6.2.2 and 6.3.2): what is published can sign for anybody.
    if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str) or "d" in entry:
        return None
    if entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm or algorithm not in ASYMMETRIC:
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        return jwt.PyJWK(entry, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
