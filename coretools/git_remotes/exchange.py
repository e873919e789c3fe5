"""Run git with one end of a socket pair as its remote, and pass bytes between the other end and the remote.

git itself has no network and starts no program but git: it speaks its protocol to a descriptor that it inherits
(git-remote-fd(1)). What the descriptor leads to is decided here, and never by the repository.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, Protocol

import anyio

from coretools.egress.blocked_connections import Refusal, Refused
from coretools.egress.peer import Closed, Peer
from coretools.errors import CoreError, TooLarge, Unreachable
from coretools.process.run import Completed

Service = Literal["git-upload-pack", "git-receive-pack"]
"""What the remote does: send objects, or receive them."""

LINGER_SECONDS = 5.0
"""For the remote to end after git has."""

StartGit = Callable[[int], Awaitable[Completed]]
"""Runs git with this descriptor as its remote."""


class Transport(Protocol):
    """A way to a remote repository."""

    async def serve(self, service: Service, git: Peer) -> None:
        """Connect to the service and pass bytes until both sides have ended.

        Raises:
            CoreError, Refused: the remote is not reached, or sends too much.
        """
        ...


async def exchange(start_git: StartGit, transport: Transport, service: Service) -> Completed:
    """Run git to its end with a connection to the service.

    Raises:
        Unreachable, TooLarge, ...: git failed because the transport did.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    peer = Peer(ours)
    failures: list[CoreError] = []
    completed: Completed | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_serve, transport, service, peer, failures)
            try:
                completed = await start_git(theirs.fileno())
            except CoreError as error:  # raised below: a task group would wrap it
                failures.append(error)
            theirs.close()
            group.cancel_scope.deadline = anyio.current_time() + LINGER_SECONDS
    finally:
        theirs.close()
        peer.close()
    if completed is None or (failures and not completed.ok):
        raise failures[0]
    return completed


async def _serve(transport: Transport, service: Service, git: Peer, failures: list[CoreError]) -> None:
    try:
        await transport.serve(service, git)
    except CoreError as error:
        failures.append(error)
    except Refused as error:
        failures.append(Unreachable(_reason(error.refusal)))
    except (Closed, OSError):
        pass  # git or the remote is gone; the other one reports that
    finally:
        git.close()


def _reason(refusal: Refusal) -> str:
    """Return why a host is not reached, and the key of the remote's rule that would help."""
    where = f"{refusal.target}:{refusal.port}"
    if refusal.reason == "not public":
        key = f'addresses = ["{refusal.detail}"] in the [[remote]]'
        return f"{where}: leads to {refusal.detail}, which is not public; the operator allows it with {key}"
    return f"{where}: {'has no address' if refusal.reason == 'unresolved' else 'does not answer'}"


async def pass_bytes(git: Peer, remote: Peer, *, limit_bytes: int) -> None:
    """Pass bytes both ways until both sides have ended; at most `limit_bytes` from the remote.

    Raises:
        TooLarge: the remote sent more.
    """
    is_within = False
    async with anyio.create_task_group() as both:
        both.start_soon(_pass_on, git, remote)
        is_within = await _pass_limited(remote, git, limit_bytes)
        if not is_within:
            both.cancel_scope.cancel()
    if not is_within:
        raise too_large(limit_bytes)


async def _pass_on(git: Peer, remote: Peer) -> None:
    with suppress(OSError):
        while piece := await git.receive():
            await remote.send(piece)
    remote.send_end()


async def _pass_limited(remote: Peer, git: Peer, limit_bytes: int) -> bool:
    """Pass bytes on until the end; False if there are too many."""
    left = limit_bytes
    with suppress(OSError):
        while piece := await remote.receive():
            left -= len(piece)
            if left < 0:
                return False
            await git.send(piece)
    git.send_end()
    return True


def too_large(limit_bytes: int) -> TooLarge:
    """Return the error for a remote that sends more than the limit."""
    return TooLarge(
        f"the remote sent more than {limit_bytes} bytes, and nothing was kept; fetch less (branch, depth), or the "
        "operator raises the limit transfer_bytes",
        limit=limit_bytes,
    )
