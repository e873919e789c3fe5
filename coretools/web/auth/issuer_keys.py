"""The public keys of an authorization server, kept and fetched again: when they are old, and when one is not known.

What a token says decides nothing here but which key is looked up: no address in it is ever asked.
"""

import json
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import anyio
import httpx2
import jwt

from coretools.errors import BadSetting, Unreachable
from coretools.web.common.urls import is_loopback, parsed_url

# Where an authorization server has its keys: its metadata (RFC 8414, OpenID Connect Discovery 1.0), and the fetching.
#
# What is fetched is JSON of a bounded size, over TLS except from this machine, from the place that was named and from
# no other: a redirect is not followed. How long it may take is for the caller to say.


MOST_BYTES = 256 * 1024
"""Of a key set or of metadata; a set of a hundred keys has some 60 KB."""

NOT_THERE = (400, 404, 405, 410)
"""How servers say that they have no document at an address."""

OK = 200


class KeysUnavailable(Unreachable):
    """A document could not be fetched, or is none that can be used; the sentence is for the log."""


async def find_jwks_url(issuer: str) -> str:
    """Where the keys of an issuer are, as its metadata say.

    Raises:
        NotFetched: there are no metadata, or they are of another issuer.
    """
    for url in metadata_urls(issuer):
        found = await fetch_json(url)
        if found is None:
            continue
        # RFC 8414, 3.3: identical, character by character.
        if found.get("issuer") != issuer:
            raise KeysUnavailable(f"{url}: metadata of another issuer")
        keys_url = found.get("jwks_uri")
        if not isinstance(keys_url, str):
            raise KeysUnavailable(f"{url}: no jwks_uri")
        if is_loopback(_host(keys_url)) and not is_loopback(_host(issuer)):
            raise KeysUnavailable(f"{url}: its jwks_uri leads to this machine")
        return keys_url
    raise KeysUnavailable(f"{issuer}: no metadata found")


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where metadata of an issuer may be, in order: RFC 8414, part 3 and 5, then OpenID Connect's own place."""
    parts = parsed_url(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    if path:
        places.append(f"{path}/.well-known/openid-configuration")
    return tuple(origin + place for place in places)


async def fetch_json(url: str) -> dict[str, Any] | None:
    """The JSON object at a URL; None where there is none.

    Raises:
        NotFetched: everything else that is no such object.
    """
    try:
        parts = parsed_url(url)
        # A proxy of the environment is for other machines.
        is_near = is_loopback(parts.hostname or "")
        async with httpx2.AsyncClient(trust_env=not is_near, verify=_tls_context()) as client:
            data = await _fetch(client, url)
        found = None if data is None else json.loads(data)
    except BadSetting as error:
        raise KeysUnavailable(str(error)) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise KeysUnavailable(f"{url}: {type(error).__name__}") from error
    except (ValueError, RecursionError) as error:
        raise KeysUnavailable(f"{url}: no JSON") from error
    if found is not None and not isinstance(found, dict):
        raise KeysUnavailable(f"{url}: no JSON object")
    return found


@cache
def _tls_context() -> ssl.SSLContext:
    """Certificates that are believed. Reading them takes a tenth of a second, in which nothing else is served."""
    return httpx2.create_ssl_context()


async def _fetch(client: httpx2.AsyncClient, url: str) -> bytes | None:
    # What is compressed could be any size when it is not any more.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with client.stream("GET", url, headers=headers, follow_redirects=False) as response:
        if response.status_code in NOT_THERE:
            return None
        if response.status_code != OK:
            raise KeysUnavailable(f"{url}: answered {response.status_code}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise KeysUnavailable(f"{url}: answered in an encoding that was not asked for")
        data = b""
        async for part in response.aiter_raw():
            data += part
            if len(data) > MOST_BYTES:
                raise KeysUnavailable(f"{url}: over {MOST_BYTES} bytes")
        return data


def _host(url: str) -> str:
    try:
        return parsed_url(url).hostname or ""
    except BadSetting as error:
        raise KeysUnavailable(str(error)) from error


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
        # Shielded: who sends a token and leaves must not be able to stop it.
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
        found = await fetch_json(url)
        listed = found.get("keys") if found else None
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


def usable_key(found: Any, algorithm: str) -> jwt.PyJWK | None:
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
