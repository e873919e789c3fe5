"""A remote that a program on this machine serves: git's own service in a local repository, or ssh."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import anyio

from coretools.egress.peer import Peer
from coretools.errors import CoreError, TooLarge, Unreachable
from coretools.git_remotes.exchange import Service, pass_bytes
from coretools.process.run import Completed

StartService = Callable[[Service, int], Awaitable[Completed]]
"""Runs the program of a service with this socket as its standard input and output."""


class ProcessTransport:
    """Serves git by a program that runs as long as the connection."""

    def __init__(self, start: StartService, *, limit_bytes: int, explain: Callable[[Completed], str]) -> None:
        """`explain` turns the end of a program that failed into a sentence, empty if git knows better."""
        self._start = start
        self._limit_bytes = limit_bytes
        self._explain = explain

    async def serve(self, service: Service, git: Peer) -> None:
        """Run the program and pass bytes until it has ended.

        Raises:
            TooLarge: it wrote more than the limit. Unreachable: it failed.
        """
        failures: list[CoreError] = []
        completed: Completed | None = None
        with ExitStack() as stack:
            ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
            ours.setblocking(False)
            async with anyio.create_task_group() as group:
                group.start_soon(self._pass, git, Peer(ours), failures)
                try:
                    completed = await self._start(service, theirs.fileno())
                except CoreError as error:  # raised below: a task group would wrap it
                    failures.append(error)
                theirs.close()  # the last descriptor: `ours` now reads what is left, and then the end
        if failures:
            raise failures[0]
        explanation = "" if completed is None or completed.ok else self._explain(completed)
        if explanation:
            raise Unreachable(explanation)

    async def _pass(self, git: Peer, remote: Peer, failures: list[CoreError]) -> None:
        try:
            await pass_bytes(git, remote, limit_bytes=self._limit_bytes)
        except TooLarge as error:
            failures.append(error)
            remote.close()  # the program gets SIGPIPE
            git.close()
