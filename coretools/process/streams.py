"""The three pipes of a child: both outputs drained at once into bounded excerpts, the input fed without blocking."""

import os
from collections.abc import Callable

import anyio
from anyio import CancelScope

from coretools.excerpt import Excerpter
from coretools.process.child import Child

PIECE_BYTES = 64 * 1024
"""One read: the capacity of a pipe on Linux (pipe(7)), so more can't be there."""

PIECES_AT_ONCE = 32
"""Reads without a wait: twice what an ordinary user can make a pipe hold (1 MiB, pipe(7)). A process that writes all
the time may keep it full for ever."""

Listener = Callable[[bytes], bool]
"""Sees every piece of an output as it comes; True means that it has seen enough."""


class Output:
    """One output of a child, kept as an excerpt."""

    def __init__(self, descriptor: int, keep_bytes: int, listener: Listener | None) -> None:
        self._descriptor = descriptor
        self._excerpter = Excerpter(keep_bytes)
        self._listener = listener
        self.excerpt = self._excerpter.excerpt
        self.has_ended = False
        self.is_enough = False

    async def drain(self) -> None:
        """Read to the end of output, or until the listener has seen enough."""
        while not self.has_ended and not self.is_enough:
            await anyio.wait_readable(self._descriptor)
            self._read_piece()

    def stop_listening(self) -> None:
        """Keep what comes, without asking the listener any more."""
        self._listener = None
        self.is_enough = False

    def drain_ready(self) -> None:
        """Take what stands in the pipe now, without waiting."""
        for _ in range(PIECES_AT_ONCE):
            if self.has_ended or self.is_enough or not self._read_piece():
                return

    def _read_piece(self) -> bool:
        try:
            data = os.read(self._descriptor, PIECE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.has_ended = True
            return False
        self._excerpter.feed(data)
        if self._listener is not None and self._listener(data):
            self.is_enough = True
        return True


class Input:
    """The standard input of a child that is fed."""

    def __init__(self, child: Child, data: bytes) -> None:
        self._child = child
        self._left = memoryview(data)

    async def feed(self) -> None:
        """Write all of it, waiting for the child to read."""
        self._push()
        while self._child.stdin is not None:
            await anyio.wait_writable(self._child.stdin)
            self._push()

    def _push(self) -> None:
        """Write what fits now; at the end, or when nobody reads any more, close the pipe."""
        while self._left and self._child.stdin is not None:
            try:
                written = os.write(self._child.stdin, self._left[:PIECE_BYTES])
            except BlockingIOError:
                return
            except BrokenPipeError:  # the child does not want the rest: its right (`head -1`)
                break
            self._left = self._left[written:]
        self._child.close_stdin()


class Streams:
    """The pipes of one child together."""

    def __init__(self, child: Child, *, stdin: bytes | None, keep_bytes: int, on_stdout: Listener | None) -> None:
        self._child = child
        self.stdout = Output(child.stdout, keep_bytes, on_stdout)
        self.stderr = Output(child.stderr, keep_bytes, None)
        self._input = Input(child, stdin) if stdin is not None else None

    @property
    def are_held(self) -> bool:
        """Whether somebody has an output open still."""
        return not (self.stdout.has_ended and self.stderr.has_ended)

    async def attend(self, linger_seconds: float) -> None:
        """Carry all three pipes until the child has ended, and both outputs have or `linger_seconds` are over.

        Returns early when the listener has seen enough; what the listener raises comes out of here. May be called again
        after a cancellation: nothing is lost.
        """
        # A short program has often ended when its start is known here. Then no task and no wait is needed, which saves
        # a sixth of the processor time that a run of `true` costs the server.
        self.drain_ready()
        if self.stdout.is_enough or (not self.are_held and self._child.reap()):
            return
        # A grandchild can hold the pipe long after the child: with sh -c 'sleep 30 & echo done' the exit comes at once
        # and the end of output after 30 s.
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain_stdout, tasks.cancel_scope)
                tasks.start_soon(self.stderr.drain)
                if self._input is not None:
                    tasks.start_soon(self._input.feed)
                await self._child.exited()
                tasks.cancel_scope.deadline = anyio.current_time() + linger_seconds
        except ExceptionGroup as group:  # only the listener can raise; the caller knows its error, not a group of one
            raise group.exceptions[0] from None

    def stop_listening(self) -> None:
        """From here on outputs are only drained: the listener is not asked, the input not fed any more."""
        self.stdout.stop_listening()
        self._input = None
        self._child.close_stdin()

    def drain_ready(self) -> None:
        """Take what stands in both pipes now."""
        self.stdout.drain_ready()
        self.stderr.drain_ready()

    async def _drain_stdout(self, scope: CancelScope) -> None:
        await self.stdout.drain()
        if self.stdout.is_enough:
            scope.cancel()
