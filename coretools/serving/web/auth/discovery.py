"""Where an authorization server has its keys: its metadata (RFC 8414, OpenID Connect Discovery 1.0), and the fetching.

What is fetched is JSON of a bounded size, over TLS except from this machine, from the place that was named and from no
other: a redirect is not followed. How long it may take is for the caller to say.
"""

import json
import ssl
from functools import cache
from typing import Any

import httpx2

from coretools.errors import BadSetting, Unreachable
from coretools.serving.web.auth.loopback import is_loopback, parsed_url

MOST_BYTES = 256 * 1024
"""Of a key set or of metadata; a set of a hundred keys has some 60 KB."""

NOT_THERE = (400, 404, 405, 410)
"""How servers say that they have no document at an address."""

OK = 200


class NotFetched(Unreachable):
    """A document could not be fetched, or is none that can be used; the sentence is for the log."""


async def keys_url_of(issuer: str) -> str:
    """Where the keys of an issuer are, as its metadata say.

    Raises:
        NotFetched: there are no metadata, or they are of another issuer.
    """
    for url in metadata_urls(issuer):
        found = await fetched(url)
        if found is None:
            continue
        # RFC 8414, 3.3: identical, character by character.
        if found.get("issuer") != issuer:
            raise NotFetched(f"{url}: metadata of another issuer")
        keys_url = found.get("jwks_uri")
        if not isinstance(keys_url, str):
            raise NotFetched(f"{url}: no jwks_uri")
        if is_loopback(_host(keys_url)) and not is_loopback(_host(issuer)):
            raise NotFetched(f"{url}: its jwks_uri leads to this machine")
        return keys_url
    raise NotFetched(f"{issuer}: no metadata found")


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where metadata of an issuer may be, in order: RFC 8414, part 3 and 5, then OpenID Connect's own place."""
    parts = parsed_url(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    if path:
        places.append(f"{path}/.well-known/openid-configuration")
    return tuple(origin + place for place in places)


async def fetched(url: str) -> dict[str, Any] | None:
    """The JSON object at a URL; None where there is none.

    Raises:
        NotFetched: everything else that is no such object.
    """
    try:
        parts = parsed_url(url)
        # A proxy of the environment is for other machines.
        is_near = is_loopback(parts.hostname or "")
        async with httpx2.AsyncClient(trust_env=not is_near, verify=_trusted()) as client:
            data = await _data(client, url)
        found = None if data is None else json.loads(data)
    except BadSetting as error:
        raise NotFetched(str(error)) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise NotFetched(f"{url}: {type(error).__name__}") from error
    except (ValueError, RecursionError) as error:
        raise NotFetched(f"{url}: no JSON") from error
    if found is not None and not isinstance(found, dict):
        raise NotFetched(f"{url}: no JSON object")
    return found


@cache
def _trusted() -> ssl.SSLContext:
    """Certificates that are believed. Reading them takes a tenth of a second, in which nothing else is served."""
    return httpx2.create_ssl_context()


async def _data(client: httpx2.AsyncClient, url: str) -> bytes | None:
    # What is compressed could be any size when it is not any more.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with client.stream("GET", url, headers=headers, follow_redirects=False) as response:
        if response.status_code in NOT_THERE:
            return None
        if response.status_code != OK:
            raise NotFetched(f"{url}: answered {response.status_code}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise NotFetched(f"{url}: answered in an encoding that was not asked for")
        data = b""
        async for part in response.aiter_raw():
            data += part
            if len(data) > MOST_BYTES:
                raise NotFetched(f"{url}: over {MOST_BYTES} bytes")
        return data


def _host(url: str) -> str:
    try:
        return parsed_url(url).hostname or ""
    except BadSetting as error:
        raise NotFetched(str(error)) from error
