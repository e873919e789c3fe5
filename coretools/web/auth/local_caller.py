"""Who calls a server without tokens: a process of its own user on this machine, or anybody.

The kernel tells which user a loopback connection belongs to. Headers alone would not do: a reverse proxy on this
machine decides which ones it sends, and by default nginx sends none.
"""

import os
import socket
import struct
import sys

from starlette.types import ASGIApp, Receive, Scope, Send

from coretools.web.common.config import Anonymous
from coretools.web.common.error_response import error_response
from coretools.web.common.principals import Principal, set_principal
from coretools.web.common.urls import is_loopback

FORWARDING_HEADERS = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""Sent by reverse proxies and tunnels (RFC 7239; RFC 9110, 7.6.3), by no client of MCP."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
"""`nlmsghdr` (netlink(7)): length, type, flags, sequence, port id."""
_QUESTION = struct.Struct("=BBBxIHH16s16sIII")
"""`inet_diag_req_v2` (sock_diag(7)); the ports and addresses are in network byte order."""
_ANSWER = struct.Struct("=BBBB48xIIIII")
"""`inet_diag_msg` (sock_diag(7)) without its socket id: ..., expires, rqueue, wqueue, uid, inode."""


class LocalCallerMiddleware:
    """Takes the place of `AuthMiddleware` in a server without tokens: every accepted caller is the local principal."""

    def __init__(self, app: ASGIApp, anonymous: Anonymous) -> None:
        self._app = app
        self._anonymous = anonymous

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        refusal = self._refusal(scope)
        if refusal:
            await error_response(403, refusal, kind="not-local")(scope, receive, send)
            return
        set_principal(scope, Principal())
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str:
        if self._anonymous == "machine":
            return ""
        if is_forwarded(scope):
            return _sentence("a proxy forwarded this request")
        if sys.platform == "linux" and not is_of_this_user(scope):
            return _sentence("this request does not come from one")
        return ""


def anonymous_callers(anonymous: Anonymous) -> str:
    """Describe who may call without a token, for the operator."""
    if anonymous == "machine":
        return "no token is required: every process on this machine may call, and whoever reaches a proxy on it"
    who = f"processes of user {os.geteuid()}" if sys.platform == "linux" else "all processes (this system has no check)"
    return f"no token is required: {who} on this machine may call, but not through a proxy"


def is_forwarded(scope: Scope) -> bool:
    """Whether a request shows that a proxy forwarded it."""
    # nginx before 1.29.7 speaks HTTP/1.0 unless it is configured otherwise; no client of MCP does.
    return scope["http_version"] == "1.0" or any(name in FORWARDING_HEADERS for name, _ in scope["headers"])


def is_of_this_user(scope: Scope) -> bool:
    """Whether the connection of a request belongs to a process of the server's user, by the kernel. Linux only."""
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None or not is_loopback(client[0]):
        return False
    try:
        return _owner(client, server) == os.geteuid()
    except OSError:  # the connection is gone, or the kernel can't tell
        return False


def _owner(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the user of the TCP socket with these addresses; None if no process has it open any more.

    Raises:
        OSError: there is no such socket, or this kernel can't tell.
    """
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    source, destination = (socket.inet_pton(family, one[0].partition("%")[0]) for one in (local, remote))
    ports = (socket.htons(local[1]), socket.htons(remote[1]))
    question = _QUESTION.pack(
        family, socket.IPPROTO_TCP, 0, _ANY_COOKIE, *ports, source, destination, 0, _ANY_COOKIE, _ANY_COOKIE
    )
    header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)  # the answer is there when `send` returns
        kernel.sendto(header + question, (0, 0))
        answer = kernel.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        raise OSError("no such connection")
    *_, user, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    # The kernel reports user 0 for a connection that its process has closed, and no inode.
    return int(user) if inode else None


def _sentence(reason: str) -> str:
    return (
        f"without tokens only processes of the server's user on this machine may call, and {reason}; "
        "the operator sets [auth] tokens, or [auth] anonymous"
    )
