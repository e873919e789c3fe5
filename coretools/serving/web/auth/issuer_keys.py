"""The public keys of an authorization server, kept and fetched again: when they are old, and when one is not known.

What a token says decides nothing here but which key is looked up: no address in it is ever asked.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import jwt

from coretools.errors import Unreachable
from coretools.serving.web.auth.discovery import NotFetched, fetched, keys_url_of

ASYMMETRIC = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Algorithms whose public key can't sign (RFC 7518, RFC 8037)."""

FRESH_SECONDS = 600.0
"""A key that was withdrawn is good for at most so long."""

AGAIN_SECONDS = 10.0
"""Between two fetches, whatever tokens come: anybody can send one with a key that nobody knows."""

FETCH_SECONDS = 5.0
"""For the metadata and the keys together; a request waits for it."""

STALE_SECONDS = 24 * 3600.0
"""Keys are used for so long after their server was last reached."""

_logger = logging.getLogger(__name__)

Keys = dict[tuple[str, str], jwt.PyJWK]
"""By id and algorithm. Each is bound to its algorithm: what a token says can't have it used for another."""


class IssuerKeys:
    """The keys of one issuer, for the algorithms that the operator wants."""

    def __init__(
        self, issuer: str, *, url: str = "", algorithms: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without a URL it is looked up in the metadata of the issuer, each time."""
        self._clock = clock
        self._issuer = issuer
        self._url = url
        self._algorithms = algorithms
        self._keys: Keys = {}
        self._fetching = anyio.Lock()
        self._tried_at = self._got_at = float("-inf")

    async def key(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        """The key of this id, for this algorithm; None when the issuer has none.

        Raises:
            Unreachable: the keys of the issuer can't be fetched now, and this one is not known.
        """
        wanted = (kid, algorithm)
        # Nobody waits for fresh keys who can do without; for an unknown one everybody waits for the same fetch.
        if wanted not in self._keys or (self._needs_fetch(wanted) and not self._fetching.locked()):
            async with self._fetching:
                if self._needs_fetch(wanted):
                    await self._fetch()
        return self._known(wanted)

    async def fetch_now(self) -> int:
        """Fetch the keys, and say how many there are.

        Raises:
            NotFetched: they can't be had; names the address.
        """
        where = self._url or self._issuer
        try:
            with anyio.fail_after(FETCH_SECONDS):
                self._keys = await self._read()
        except TimeoutError:
            raise NotFetched(f"{where}: no answer within {FETCH_SECONDS:g} s") from None
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
        # Shielded: who sends a token and leaves must not be able to stop it.
        try:
            with anyio.fail_after(FETCH_SECONDS, shield=True):
                keys = await self._read()
        except (NotFetched, TimeoutError) as error:
            _logger.warning("keys of %s: %s", self._issuer, error or "no answer in time")
            return
        self._keys, self._got_at = keys, self._tried_at
        _logger.info("keys of %s: %s", self._issuer, ", ".join(sorted({kid for kid, _ in keys})))

    async def _read(self) -> Keys:
        url = self._url or await keys_url_of(self._issuer)
        found = await fetched(url)
        listed = found.get("keys") if found else None
        if not isinstance(listed, list):
            raise NotFetched(f"{url}: no key set")
        keys = {
            (one["kid"], algorithm): key
            for one in listed
            for algorithm in self._algorithms
            if (key := usable(one, algorithm)) is not None
        }
        if not keys:
            raise NotFetched(f"{url}: no key with an id for {', '.join(self._algorithms)}")
        return keys


def usable(found: Any, algorithm: str) -> jwt.PyJWK | None:
    """A key of a key set (RFC 7517) for an algorithm; None where it is not for that, or for nobody to see."""
    if not isinstance(found, dict) or not isinstance(found.get("kid"), str) or "d" in found:
        return None
    if found.get("use", "sig") != "sig" or found.get("alg", algorithm) != algorithm or algorithm not in ASYMMETRIC:
        return None
    operations = found.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        return jwt.PyJWK(found, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
