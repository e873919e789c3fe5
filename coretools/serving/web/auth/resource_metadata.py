"""Where a client learns which authorization server has tokens for this one (RFC 9728), without having one."""

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coretools.serving.web.auth.loopback import parsed_url
from coretools.serving.web.config import Config

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MAX_AGE_SECONDS = 3600


def metadata_url(config: Config) -> str | None:
    """Where the document is to be had; None where no authorization server is configured.

    Raises:
        BadSetting: `public_url` is none.
    """
    if config.auth.jwt is None:
        return None
    parts = parsed_url(config.server.public_url, is_plain_allowed=config.server.allow_plain_http)
    return f"{parts.scheme}://{parts.netloc}{_inserted(parts.path)}"


def metadata_routes(config: Config) -> list[Route]:
    """Routes of the document: with the path of the endpoint, as RFC 9728 has it, and without, for older clients.

    Raises:
        BadSetting: `public_url` is none.
    """
    jwt = config.auth.jwt
    if jwt is None:
        return []
    parts = parsed_url(config.server.public_url, is_plain_allowed=config.server.allow_plain_http)
    # Written as configured: a client compares both addresses character by character.
    found = {
        "resource": config.server.public_url,
        "authorization_servers": [jwt.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "coretools",
        **({"scopes_supported": [*jwt.scopes]} if jwt.scopes else {}),
    }
    headers = {"Cache-Control": f"public, max-age={MAX_AGE_SECONDS}"}

    async def answer(_: Request) -> Response:
        return Response(json.dumps(found), media_type="application/json", headers=headers)

    paths = dict.fromkeys((_inserted(parts.path), WELL_KNOWN))
    return [Route(path, answer, methods=["GET"]) for path in paths]


def _inserted(path: str) -> str:
    return WELL_KNOWN + ("" if path == "/" else path)
