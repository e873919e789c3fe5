"""The listener on loopback to which the browser comes back from a login."""

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketListener, SocketStream
from mcp.client.auth import AuthorizationCodeResult

from coretools.client.common.errors import AuthenticationRequired
from coretools.client.common.failures import LOST, first_leaf
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.errors import BadSetting

MAX_REQUEST_BYTES = 16 * 1024
REQUEST_SECONDS = 10.0
"""For a browser to send its request, once it is connected."""

ShowAddress = Callable[[str], Coroutine[Any, Any, None]]
"""Shows a person the address of a login, or opens it."""

_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{page}"
)
_DONE = "<!doctype html><title>coretools</title><p>coretools has the answer. You can close this page."
_REFUSED = "<!doctype html><title>coretools</title><p>The login was refused. You can close this page."
_STRANGE = "<!doctype html><title>coretools</title><p>This address belongs to no login that is under way."


class LoginListener:
    """Waits for one request: the one with the state of the login. Others are refused and change nothing."""

    def __init__(self, client: OAuthClient, listener: SocketListener, port: int) -> None:
        self._listener = listener
        self.address = f"http://{client.redirect_host}:{port}{client.redirect_path}"
        self._path = client.redirect_path
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._address = ""
        self._state = ""
        self._is_answered = anyio.Event()
        self._sent = anyio.Event()
        self._answer: dict[str, str] = {}

    def expect(self, authorization_url: str) -> None:
        """Accept the answer to this request only."""
        self._address = authorization_url
        self._state = _parameters(urlsplit(authorization_url).query).get("state", "")

    async def result(self, show_address: ShowAddress) -> AuthorizationCodeResult:
        """Wait for the answer, while `show_address` leads a person to the login.

        Raises:
            AuthenticationRequired: the authorization server refused the login.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listener.serve, self._serve)
                tasks.start_soon(show_address, self._address)
                await self._is_answered.wait()
                await self._sent.wait()  # the browser has its page before the listener is gone
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise first_leaf(group) from None
        error = self._answer.get("error")
        if error is not None:
            text = self._answer.get("error_description", "")
            raise AuthenticationRequired(f"the login was refused: {error[:200]}" + (f": {text[:500]}" if text else ""))
        answer = self._answer
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))

    async def _serve(self, stream: SocketStream) -> None:
        """Answer one request of a browser."""
        async with stream:
            with anyio.move_on_after(REQUEST_SECONDS), suppress(*LOST, ValueError):
                await stream.send(self._respond(await _head(stream)).encode())
        if self._is_answered.is_set():
            self._sent.set()

    def _respond(self, head: str) -> str:
        first, *lines = head.split("\r\n")
        headers = dict(line.lower().split(":", 1) for line in lines if ":" in line)
        method, _, rest = first.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        parameters = _parameters(target.query)
        is_expected = (
            method == "GET"
            and target.path == self._path
            and headers.get("host", "").strip() in self._hosts
            and bool(self._state)
            and secrets.compare_digest(parameters.get("state", "").encode(), self._state.encode())
        )
        if not is_expected or self._is_answered.is_set():
            return _PAGE.format(status="400 Bad Request", length=len(_STRANGE), page=_STRANGE)
        self._answer = parameters
        self._is_answered.set()
        page = _REFUSED if "error" in parameters else _DONE
        return _PAGE.format(status="200 OK", length=len(page), page=page)


@asynccontextmanager
async def login_listener(client: OAuthClient) -> AsyncIterator[LoginListener]:
    """Listen on 127.0.0.1 while the body runs.

    Raises:
        BadSetting: the port that the entry wants is taken.
    """
    try:
        listening = socket.create_server(("127.0.0.1", client.redirect_port))
    except OSError as error:
        raise BadSetting(f"oauth: port {client.redirect_port} of the login is taken: {error.strerror}") from error
    port = listening.getsockname()[1]
    async with await SocketListener.from_socket(listening) as listener:
        yield LoginListener(client, listener, port)


def _parameters(query: str) -> dict[str, str]:
    """Return the parameters that occur once: of a repeated one, none is the right one."""
    return {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}


async def _head(stream: SocketStream) -> str:
    data = b""
    while b"\r\n\r\n" not in data and len(data) < MAX_REQUEST_BYTES:
        data += await stream.receive(MAX_REQUEST_BYTES)
    return data.partition(b"\r\n\r\n")[0].decode("ascii")
