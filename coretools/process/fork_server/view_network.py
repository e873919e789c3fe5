"""What connects the network namespaces of commands with the machine: the proxy to listed hosts, and exposed ports."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import anyio

from coretools.config.operator_policy import ConfinementPolicy, NetworkAccess
from coretools.process.fork_server.client import ForkServerClient

if TYPE_CHECKING:
    from coretools.egress.approvals import HostApprovals
    from coretools.egress.exposed_ports import ExposedPorts
    from coretools.egress.proxy import EgressGateway

CONNECT_SECONDS = 10.0
"""To a listener on the commands' loopback: it may be slow to accept."""


class ViewNetwork:
    """The connections of one pool's namespaces. `aclose` must be called."""

    def __init__(
        self,
        policy: ConfinementPolicy,
        clients: Callable[[], Iterable[ForkServerClient]],
        *,
        gateway: "EgressGateway | None" = None,
    ) -> None:
        """`clients` returns the fork servers, the newest first. `gateway` replaces that of the policy."""
        self._clients = clients
        self.gateway = gateway or _gateway_to(policy.network)
        self._exposed = self._exposed_ports(policy)

    @property
    def approvals(self) -> "HostApprovals | None":
        """What a person decided about hosts; None where there is no list of hosts."""
        return None if self.gateway is None else self.gateway.approvals

    def command_starts(self) -> None:
        """Listen on the exposed ports, for a command in a network namespace of its own."""
        if self._exposed is not None:
            self._exposed.open()

    async def aclose(self) -> None:
        """Close all listeners and connections."""
        for one in (self._exposed, self.gateway):
            if one is not None:
                await one.aclose()

    def _exposed_ports(self, policy: ConfinementPolicy) -> "ExposedPorts | None":
        if not policy.expose or policy.network == "allow":  # then commands listen on the machine itself
            return None
        from coretools.egress.exposed_ports import ExposedPorts  # imported here: it would slow down every start

        return ExposedPorts(policy.expose, self._connect)

    async def _connect(self, port: int) -> socket.socket | None:
        """Connect to a port in a namespace: of the newest in which something listens."""
        for client in self._clients():
            for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
                with suppress(OSError):
                    return await _connected(client, family, (host, port))
        return None


def _gateway_to(access: NetworkAccess) -> "EgressGateway | None":
    if isinstance(access, str):
        return None
    from coretools.egress.proxy import EgressGateway  # imported here: it would slow down every start

    return EgressGateway.of(access)


async def _connected(client: ForkServerClient, family: int, address: tuple[str, int]) -> socket.socket:
    """Connect a socket that was made in a namespace.

    Raises:
        OSError: nothing listens there, or the namespace is gone.
    """
    with ExitStack() as undo:
        connection = undo.enter_context(await client.make_socket(family))
        with anyio.fail_after(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(connection, address)
        undo.pop_all()
    return connection
