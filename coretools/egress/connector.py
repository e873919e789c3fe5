"""Decide about a destination, look its name up once, and connect to exactly the addresses that were judged."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.egress.allow_list import AllowList
from coretools.egress.blocked_connections import Refusal, Refused
from coretools.egress.hosts import Address, is_public

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, in the order of preference; raises OSError if there are none."""

Decision = Callable[[Refusal], Awaitable[bool]]
"""Asked about a destination that is not listed: whether to admit it, this time. It decides about the name only: what
the name leads to is judged afterwards."""

MAX_ADDRESSES = 8
"""Addresses of a name that are tried."""

RESOLVER_THREADS = 16
"""Concurrent look-ups of one proxy: getaddrinfo(3) blocks, up to 30 s if a name server does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectLimits:
    """How long it may take to reach a destination, in seconds."""

    resolve_seconds: float = 10.0
    address_seconds: float = 10.0
    """For each address."""
    connect_seconds: float = 30.0
    """For all addresses together."""


class SystemResolver:
    """Look names up as other programs of the machine do."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(RESOLVER_THREADS)

    async def __call__(self, name: str, port: int) -> Sequence[str]:
        """Return the addresses of a name.

        Raises:
            OSError: there are none, or no name server answers.
        """
        infos = await to_thread.run_sync(_look_up, name, port, limiter=self._limiter, abandon_on_cancel=True)
        return list(dict.fromkeys(str(entry[4][0]) for entry in infos))


def _look_up(name: str, port: int) -> list[tuple[object, object, object, str, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:  # its codec refuses labels that DNS would refuse too
        raise OSError(f"{name}: no host name") from error


class Connector:
    """Opens connections to what the list allows."""

    def __init__(
        self,
        allowed: AllowList,
        *,
        resolver: Resolver | None = None,
        decide: Decision | None = None,
        limits: ConnectLimits | None = None,
    ) -> None:
        self._allowed = allowed
        self._resolver = resolver or SystemResolver()
        self._decide = decide
        self._limits = limits or ConnectLimits()

    async def open(self, target: str | Address, port: int) -> socket.socket:
        """Connect to a host and return the socket, which does not block.

        Raises:
            Refused: not listed, no admissible address, or none that answers.
        """
        if not self._allowed.allows(target, port):
            refused = Refused("not listed", target, port)
            if self._decide is None or not await self._decide(refused.refusal):
                raise refused
        with anyio.move_on_after(self._limits.connect_seconds):
            for address in await self._addresses(target, port):
                if connected := await self._connect(address, port):
                    return connected
        raise Refused("unreachable", target, port)

    async def _addresses(self, target: str | Address, port: int) -> list[Address]:
        """Return the addresses to try: public ones, and those that are listed themselves."""
        if not isinstance(target, str):
            return [target]  # it was judged as it is
        addresses = await self._resolve(target, port)
        good = [one for one in addresses if is_public(one) or self._allowed.allows(one, port)]
        if not good:
            raise Refused("not public", target, port, str(addresses[0]))
        return good[:MAX_ADDRESSES]

    async def _resolve(self, name: str, port: int) -> list[Address]:
        addresses: list[Address] = []
        with anyio.move_on_after(self._limits.resolve_seconds), suppress(OSError):
            for text in await self._resolver(name, port):
                with suppress(ValueError):  # with a zone id; such an address is link-local
                    addresses += [] if "%" in text else [ip_address(text)]
        if not addresses:
            raise Refused("unresolved", name, port)
        return addresses

    async def _connect(self, address: Address, port: int) -> socket.socket | None:
        with anyio.move_on_after(self._limits.address_seconds), suppress(OSError):
            return await _connected(address, port)
        return None


async def _connected(address: Address, port: int) -> socket.socket:
    """Connect to one address.

    Raises:
        OSError: it refuses, or is not reachable.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with ExitStack() as undo:
        connection = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
        undo.pop_all()
    return connection
