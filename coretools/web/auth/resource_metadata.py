"""Protected resource metadata (RFC 9728): which authorization server issues tokens. It needs no token."""

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coretools.web.common.config import Config
from coretools.web.common.urls import parsed_url

WELL_KNOWN = "/.well-known/oauth-protected-resource"

MAX_AGE_SECONDS = 3600


def metadata_url(config: Config) -> str | None:
    """Return the URL of the metadata; None if no authorization server is configured.

    Raises:
        BadSetting: `public_url` is not a URL.
    """
    if config.auth.jwt is None:
        return None
    parts = parsed_url(config.server.public_url, is_plain_allowed=config.server.allow_plain_http)
    return f"{parts.scheme}://{parts.netloc}{_inserted(parts.path)}"


def metadata_routes(config: Config) -> list[Route]:
    """Return the routes of the metadata: with the path of the endpoint (RFC 9728) and without, for older clients.

    Raises:
        BadSetting: `public_url` is not a URL.
    """
    jwt = config.auth.jwt
    if jwt is None:
        return []
    parts = parsed_url(config.server.public_url, is_plain_allowed=config.server.allow_plain_http)
    # As configured: clients compare both URLs character by character.
    metadata = {
        "resource": config.server.public_url,
        "authorization_servers": [jwt.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "coretools",
        **({"scopes_supported": [*jwt.scopes]} if jwt.scopes else {}),
    }
    headers = {"Cache-Control": f"public, max-age={MAX_AGE_SECONDS}"}

    async def answer(_: Request) -> Response:
        return Response(json.dumps(metadata), media_type="application/json", headers=headers)

    paths = dict.fromkeys((_inserted(parts.path), WELL_KNOWN))
    return [Route(path, answer, methods=["GET"]) for path in paths]


def _inserted(path: str) -> str:
    return WELL_KNOWN + ("" if path == "/" else path)
