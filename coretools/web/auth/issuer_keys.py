"""The public keys of an authorization server: cached, and fetched again when they are old or a key is unknown.

A token decides only which key is looked up; no URL from a token is ever requested.
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

from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.web.common.urls import is_loopback, parsed_url

# The URL of the keys comes from the issuer's metadata (RFC 8414, OpenID Connect Discovery 1.0). Fetched JSON is bounded
# in size, comes over TLS except from this machine, and redirects are not followed. The caller sets the timeout.


MOST_BYTES = 256 * 1024
"""Largest key set or metadata document, in bytes; a set of a hundred keys has about 60 KB."""

NOT_THERE = (400, 404, 405, 410)
"""Statuses that mean that there is no document at a URL."""

OK = 200


class KeysUnavailable(CoreError):
    """A document could not be fetched or used; the text is for the log."""

    kind = Unreachable.kind
    exit_code = Unreachable.exit_code


async def find_jwks_url(issuer: str) -> str:
    """Find the URL of an issuer's keys in its metadata.

    Raises:
        KeysUnavailable: there are no metadata, or they are of another issuer.
    """
    for url in metadata_urls(issuer):
        metadata = await fetch_json(url)
        if metadata is None:
            continue
        # RFC 8414, 3.3: identical, character by character.
        if metadata.get("issuer") != issuer:
            raise KeysUnavailable(f"{url}: metadata of another issuer")
        keys_url = metadata.get("jwks_uri")
        if not isinstance(keys_url, str):
            raise KeysUnavailable(f"{url}: no jwks_uri")
        # A remote issuer must not make the server request something of its own machine.
        if is_loopback(_host(keys_url)) and not is_loopback(_host(issuer)):
            raise KeysUnavailable(f"{url}: its jwks_uri leads to this machine")
        return keys_url
    raise KeysUnavailable(f"{issuer}: no metadata found")


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return the possible metadata URLs of an issuer, in order: RFC 8414, 3 and 5, then OpenID Connect Discovery."""
    parts = parsed_url(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    if path:
        places.append(f"{path}/.well-known/openid-configuration")
    return tuple(origin + place for place in places)


async def fetch_json(url: str) -> dict[str, Any] | None:
    """Fetch the JSON object at a URL; None if there is no document.

    Raises:
        KeysUnavailable: anything else than a JSON object came back, or nothing did.
    """
    try:
        parts = parsed_url(url)
        # Proxies of the environment do not apply to this machine.
        is_near = is_loopback(parts.hostname or "")
        async with httpx2.AsyncClient(trust_env=not is_near, verify=_tls_context()) as client:
            data = await _fetch(client, url)
        document = None if data is None else json.loads(data)
    except BadSetting as error:
        raise KeysUnavailable(str(error)) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise KeysUnavailable(f"{url}: {type(error).__name__}") from error
    except (ValueError, RecursionError) as error:
        raise KeysUnavailable(f"{url}: no JSON") from error
    if document is not None and not isinstance(document, dict):
        raise KeysUnavailable(f"{url}: no JSON object")
    return document


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context with the trusted certificates. Loading them blocks for a tenth of a second."""
    return httpx2.create_ssl_context()


async def _fetch(client: httpx2.AsyncClient, url: str) -> bytes | None:
    # Compressed data could have any size once decompressed.
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
