"""An authorization server and an MCP server that wants its tokens, on loopback, each on a port of its own."""

import base64
import hashlib
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from coretools.client.authorization.credentials import ServerAuthorization
from coretools.client.configuration.launch import RemoteLaunch
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.server_connection import Connection
from coretools.errors import CoreError
from tests.client.peers import environment, hub
from tests.client.remote import echo_server, served

SECRET = "a-configured-secret"


class AuthorizationServer:
    """Issues tokens that are counted up, and remembers what it was asked."""

    def __init__(self) -> None:
        self.issuer = ""
        self.seen: list[tuple[str, dict[str, str]]] = []
        """Path, and the parameters or the form."""
        self.metadata: dict[str, Any] = {}
        """Replaces keys of the metadata."""
        self.replies: dict[str, Response] = {}
        """Replaces whole answers, by path."""
        self.redirected: dict[str, str] = {}
        """Replaces parameters of the redirect; an empty one is left out."""
        self.lifetime = 3600
        self.valid: dict[str, str] = {}
        """Tokens that are worth something, each with its scope."""
        self.refresh_tokens: dict[str, str] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self._numbers = itertools.count(1)

    def app(self) -> Any:
        paths = ("/.well-known/{rest:path}", "/register", "/authorize", "/token", "/revoke", "/{rest:path}")
        return Starlette(routes=[Route(path, self._answer, methods=["GET", "POST"]) for path in paths])

    def count(self, path: str) -> int:
        return sum(1 for one, _ in self.seen if one == path)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        body = await request.body()
        is_json = request.headers.get("content-type") == "application/json"
        form = {"json": body.decode()} if is_json else dict(parse_qsl(body.decode()))
        given = dict(request.query_params) | form
        if "authorization" in request.headers:
            given["Authorization"] = request.headers["authorization"]
        self.seen.append((path, given))
        if path in self.replies:
            return self.replies[path]
        known: dict[str, Callable[[dict[str, str]], Response]] = {
            "/.well-known/oauth-authorization-server": self._metadata,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
            "/revoke": self._revoke,
        }
        return known[path](given) if path in known else Response(status_code=404)

    def _metadata(self, given: dict[str, str]) -> Response:
        endpoints = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in ENDPOINTS.items()}
        found = {"issuer": self.issuer, **endpoints, "code_challenge_methods_supported": ["S256"], **self.metadata}
        return JSONResponse({name: value for name, value in found.items() if value is not None})

    def _register(self, given: dict[str, str]) -> Response:
        return JSONResponse({**json.loads(given["json"]), "client_id": "registered"}, status_code=201)

    def _authorize(self, given: dict[str, str]) -> Response:
        code = secrets.token_urlsafe(16)
        self.codes[code] = given
        back = {"code": code, "state": given["state"], "iss": self.issuer, **self.redirected}
        query = urlencode({name: value for name, value in back.items() if value})
        return RedirectResponse(f"{given['redirect_uri']}?{query}", status_code=302)

    def _token(self, given: dict[str, str]) -> Response:
        grant = given["grant_type"]
        scope = given.get("scope", "")
        if grant == "authorization_code":
            asked = self.codes.pop(given["code"], {})
            digest = hashlib.sha256(given["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked.get("code_challenge"):
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
            scope = asked.get("scope", "")
        elif grant == "refresh_token":
            old = self.refresh_tokens.pop(given["refresh_token"], None)
            if old is None:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
            scope = old
        number = next(self._numbers)
        access, refresh = f"access-token-{number}", f"refresh-token-{number}"
        self.valid[access] = scope
        self.refresh_tokens[refresh] = scope
        return JSONResponse(
            {
                "access_token": access,
                "refresh_token": refresh,
                "token_type": "bearer",
                "expires_in": self.lifetime,
                "scope": scope,
            },
            headers={"Cache-Control": "no-store"},
        )

    def _revoke(self, given: dict[str, str]) -> Response:
        self.refresh_tokens.pop(given["token"], None)
        return Response(status_code=200)


ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}


class ResourceServer:
    """An MCP server that wants a token of an authorization server."""

    def __init__(self, authorization: AuthorizationServer) -> None:
        self.url = ""
        self.authorization = authorization
        self.scope = "tools"
        self.wants_scope = ""
        """For calls; another token is refused with 403."""
        self.is_open = False
        """For everything but calls, without a token."""
        self.metadata: dict[str, Any] = {}
        self.reply: Response | None = None
        """Replaces every answer of the MCP server."""
        self.challenge = ""
        """Replaces the challenge."""
        self.seen: list[tuple[str, str]] = []
        """Path, and the header Authorization."""
        self._app = echo_server().streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.seen.append((scope["path"], headers.get("authorization", "")))
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            found = {"resource": self.url, "authorization_servers": [self.authorization.issuer]} | self.metadata
            await JSONResponse(found)(scope, receive, send)
            return
        if self.reply is not None:
            await self.reply(scope, receive, send)
            return
        granted = self.authorization.valid.get(headers.get("authorization", "").removeprefix("Bearer "))
        body = await Request(scope, receive).body() if scope["method"] == "POST" else b""
        if granted is None and not (self.is_open and b"tools/call" not in body):
            await self._refuse(401, f'Bearer scope="{self.scope}"')(scope, receive, send)
        elif self.wants_scope and b"tools/call" in body and self.wants_scope not in (granted or "").split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.wants_scope}"'
            await self._refuse(403, challenge)(scope, receive, send)
        else:
            await self._app(scope, _Replayed(body, receive), send)

    def _refuse(self, status: int, challenge: str) -> Response:
        return Response(status_code=status, headers={"WWW-Authenticate": self.challenge or challenge})


class _Replayed:
    """The body of a request once more."""

    def __init__(self, body: bytes, receive: Any) -> None:
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive

    async def __call__(self) -> Any:
        return self._messages.pop() if self._messages else await self._receive()


@asynccontextmanager
async def protected() -> AsyncIterator[tuple[ResourceServer, AuthorizationServer]]:
    authorization = AuthorizationServer()
    resource = ResourceServer(authorization)
    async with served(authorization.app()) as issuer, served(resource) as address:
        authorization.issuer = issuer
        resource.url = f"{address}/mcp"
        yield resource, authorization


async def browse(
    address: str, method: str = "GET", headers: Mapping[str, str] = MappingProxyType({})
) -> httpx2.Response:
    """Open an address as a browser does, and follow where it leads."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, verify=False) as http:
        return await http.request(method, address, headers=headers)


@asynccontextmanager
async def logging_in(
    folder: Path,
    url: str,
    visit: Callable[[str], Awaitable[object]] = browse,
    entry: Mapping[str, Any] = MappingProxyType({}),
    seconds: float | None = None,
) -> AsyncIterator[Connection]:
    """A settled connection whose user logs in: `visit` is called with the address."""
    async with anyio.create_task_group() as tasks:

        async def show(address: str) -> None:
            tasks.start_soon(visit, address)

        def authorize(entry: ServerEntry, launch: RemoteLaunch) -> ServerAuthorization:
            assert launch.oauth is not None
            return ServerAuthorization(entry.name, launch.url, launch.oauth, environment(folder), show)

        servers = {"a": {"type": "http", "url": url, **entry}}
        async with hub(folder, servers, authorization=authorize, connect_seconds=seconds) as connections:
            await connections["a"].wait_settled()
            yield connections["a"]


async def login_error(folder: Path, url: str) -> CoreError | None:
    """Log in by one request; return why it failed."""
    async with anyio.create_task_group() as tasks:

        async def show(address: str) -> None:
            tasks.start_soon(browse, address)

        authorization = ServerAuthorization("a", url, OAuthClient(), environment(folder), show)
        async with httpx2.AsyncClient(auth=authorization, verify=False) as http:
            await http.post(url)
        return authorization.failure


@asynccontextmanager
async def connecting(folder: Path, url: str, **entry: Any) -> AsyncIterator[Connection]:
    """A settled connection with what is stored."""
    async with hub(folder, {"a": {"type": "http", "url": url, **entry}}) as connections:
        await connections["a"].wait_settled()
        yield connections["a"]


def stored(folder: Path) -> list[Path]:
    return sorted((folder / ".local/state/coretools/mcp-credentials").glob("*.json"))
