"""Fetch the documents of an authorization server: its metadata (RFC 8414, OpenID Connect Discovery 1.0) and its keys.

JSON is bounded in size, comes over TLS except from this machine, and redirects are not followed. The caller sets the
timeout.
"""

import json
import ssl
from functools import cache
from typing import Any

import httpx2

from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.web.common.urls import is_loopback, parsed_url

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
