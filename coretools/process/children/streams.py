"""The three pipes of a child: both outputs drained at once into bounded excerpts, the input fed without blocking.

A terminal stands in for them: its output comes as standard output, its input is standard input.
"""

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import anyio
from anyio import CancelScope

from coretools.excerpt import Excerpter

# Keeps reading what children print to a share of the event loop's time, so that a flood does not hold up the calls.
#
# A program that prints faster waits in its pipe, as it would for a slow terminal. Ordinary outputs never notice: only
# more than a burst is held back.


SHARE = 0.3
"""Of the loop's time, for the outputs of all children together. With one `yes` and no bound, a call of 1 ms took 8."""

BURST_SECONDS = 0.03
"""Owed before anybody waits: about 8 MB after a pause."""

WAKE_SECONDS = 0.0001
"""What the loop itself spends on waking a reader, measured with asyncio's selector loop."""


class ReadThrottle:
    """One for all outputs of a runner."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._paid_at = 0.0
        """When what was spent is paid for, at the rate of the share."""

    def charge(self, seconds: float) -> float:
        """Note that a piece took so long; how many seconds to leave the loop to others now."""
        now = self._clock()
        self._paid_at = max(self._paid_at, now) + (seconds + WAKE_SECONDS) / SHARE
        return max(0.0, self._paid_at - now - BURST_SECONDS)


READ_BYTES = 64 * 1024
"""One read: the capacity of a pipe on Linux (pipe(7)), so more can't be there."""

READS_AT_ONCE = 32
"""Reads without a wait: twice what an ordinary user can make a pipe hold (1 MiB, pipe(7)). A process that writes all
the time may keep it full for ever."""

INPUT_BUFFER_BYTES = 1024 * 1024
"""Most input that waits for a program to read it."""

OutputListener = Callable[[bytes], bool]
"""Sees every piece of an output as it comes; True means that it has seen enough."""


class PipedProcess(Protocol):
    """A started program, as far as its pipes are concerned."""

    stdin: int | None
    stdout: int
    stderr: int

    async def wait(self) -> None:
        """Wait for the end of the program itself."""
        ...

    def reap(self) -> bool:
        """Whether it has ended."""
        ...

    def close_stdin(self) -> None:
        """End its input."""
        ...


class OutputRecorder(Protocol):
    """Sees a run from its start to its last byte, also what a program says while it is being stopped.

    Called on the event loop; must be quick and must not raise.
    """

    def begin(self) -> None:
        """The program has started."""
        ...

    def take(self, data: bytes, *, is_error: bool) -> None:
        """The next piece of standard output, or of standard error."""
        ...


class StreamConsumer(Protocol):
    """What somebody wants of a run while it lasts."""

    @property
    def feed(self) -> "InputBuffer | None":
        """Standard input."""
        ...

    @property
    def on_stdout(self) -> OutputListener | None:
        """Decides when there is enough."""
        ...

    @property
    def recorder(self) -> OutputRecorder | None:
        """Sees all of it."""
        ...

    @property
    def halt(self) -> anyio.Event | None:
        """Set when it is to end."""
        ...


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """How large a terminal is, in characters."""

    rows: int = 24
    columns: int = 80


class InputBuffer:
    """Input for a program, given before its start or while it runs."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._is_ended = False
        self._news = anyio.Event()
        self.is_closed = False
        """Nobody reads any more: the program closed its end, or is gone."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """This and nothing more."""
        feed = cls()
        feed._waiting += data
        feed._is_ended = True
        return feed

    @property
    def is_open(self) -> bool:
        """Whether more may be given."""
        return not (self._is_ended or self.is_closed)

    @property
    def room(self) -> int:
        """Bytes that may be given now."""
        return max(0, INPUT_BUFFER_BYTES - len(self._waiting)) if self.is_open else 0

    def write(self, data: bytes) -> None:
        """Give more, at most `room` bytes; who gives more than that keeps memory with it."""
        self._waiting += data
        self._news.set()

    def end(self) -> None:
        """Nothing more comes: the program reads the end of its input after what waits."""
        self._is_ended = True
        self._news.set()

    async def wait_ready(self) -> bool:
        """Wait until there is something to write; False at the end."""
        while not self._waiting and not self._is_ended:
            self._news = anyio.Event()
            await self._news.wait()
        return bool(self._waiting)

    def next_piece(self) -> bytes:
        """What to write next; stays until `took`."""
        return bytes(self._waiting[:READ_BYTES])

    def consumed(self, count: int) -> None:
        """So many bytes of the piece were written."""
        del self._waiting[:count]

    def close(self) -> None:
        """Nobody reads any more."""
        self.is_closed = True
        self._waiting.clear()


class CapturedOutput:
    """One output of a child, kept as an excerpt."""

    def __init__(
        self,
        descriptor: int,
        *,
        keep_bytes: int,
        throttle: ReadThrottle,
        listener: OutputListener | None,
        record: Callable[[bytes], None] | None,
    ) -> None:
        self._descriptor = descriptor
        self._excerpter = Excerpter(keep_bytes)
        self._throttle = throttle
        self._listener = listener
        self._record = record
        self.excerpt = self._excerpter.excerpt
        self.has_ended = False
        self.has_enough = False
        self._is_stopping = False

    async def drain(self) -> None:
        """Read to the end of output, or until the listener has seen enough."""
        while not self.has_ended and not self.has_enough:
            await anyio.wait_readable(self._descriptor)
            # Processor time: a moment in which the machine did something else is not to be paid for again.
            began = time.thread_time()
            self._read_once()
            pause = self._throttle.charge(time.thread_time() - began)
            if pause and not self.has_ended and not self._is_stopping:
                await anyio.sleep(pause)

    def stop_listening(self) -> None:
        """Keep what comes, without asking the listener any more, and without a pause: a last word has little time."""
        self._listener = None
        self.has_enough = False
        self._is_stopping = True

    def drain_ready(self) -> None:
        """Take what stands in the pipe now, without waiting."""
        for _ in range(READS_AT_ONCE):
            if self.has_ended or self.has_enough or not self._read_once():
                return

    def _read_once(self) -> bool:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # a terminal that nobody has open any more (Linux, n_tty)
        if not data:
            self.has_ended = True
            return False
        self._excerpter.feed(data)
        if self._record is not None:
            self._record(data)
        if self._listener is not None and self._listener(data):
            self.has_enough = True
        return True


class StdinWriter:
    """The standard input of a child that is fed."""

    def __init__(self, child: PipedProcess, feed: InputBuffer) -> None:
        self._child = child
        self._feed = feed

    async def run(self) -> None:
        """Write all that is given, waiting for the child to read; at the end close the pipe."""
        while await self._feed.wait_ready() and (descriptor := self._child.stdin) is not None:
            if not self._push(descriptor):
                await anyio.wait_writable(descriptor)
        self.close()

    def close(self) -> None:
        """Nothing more is written."""
        self._feed.close()
        self._child.close_stdin()

    def _push(self, descriptor: int) -> bool:
        """Write what fits now; False when nothing did. When nobody reads any more, close the pipe."""
        try:
            self._feed.consumed(os.write(descriptor, self._feed.next_piece()))
        except BlockingIOError:
            return False
        except OSError as error:  # the child does not want the rest: its right (`head -1`)
            if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: a terminal that nobody has open any more
                raise
            self.close()
        return True


class Streams:
    """The pipes of one child together."""

    def __init__(
        self, child: PipedProcess, consumer: StreamConsumer, *, keep_bytes: int, throttle: ReadThrottle
    ) -> None:
        self._child = child
        recorder, feed = consumer.recorder, consumer.feed
        out = partial(recorder.take, is_error=False) if recorder is not None else None
        err = partial(recorder.take, is_error=True) if recorder is not None else None
        listener = consumer.on_stdout
        self.stdout = CapturedOutput(
            child.stdout, keep_bytes=keep_bytes, throttle=throttle, listener=listener, record=out
        )
        self.stderr = CapturedOutput(child.stderr, keep_bytes=keep_bytes, throttle=throttle, listener=None, record=err)
        self._input = StdinWriter(child, feed) if feed is not None else None
        self._halt = consumer.halt
        if recorder is not None:
            recorder.begin()

    @property
    def are_open(self) -> bool:
        """Whether somebody has an output open still."""
        return not (self.stdout.has_ended and self.stderr.has_ended)

    async def communicate(self, linger_seconds: float) -> None:
        """Carry all three pipes until the child has ended, and both outputs have or `linger_seconds` are over.

        Returns early when the listener has seen enough or `halt` is set; what the listener raises comes out of here.
        May be called again after a cancellation: nothing is lost.
        """
        # A short program has often ended when its start is known here. Then no task and no wait is needed, which saves
        # a sixth of the processor time that a run of `true` costs the server.
        self.drain_ready()
        if self.stdout.has_enough or (not self.are_open and self._child.reap()):
            return
        try:
            if self._input is None and self._halt is None:
                await self._finish(linger_seconds)
                return
            async with anyio.create_task_group() as tasks:
                if self._input is not None:
                    tasks.start_soon(self._input.run)
                if self._halt is not None:
                    tasks.start_soon(self._wait_for_halt, self._halt, tasks.cancel_scope)
                await self._finish(linger_seconds)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:  # only the listener can raise; the caller knows its error, not a group of one
            error: Exception = group
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    def stop_listening(self) -> None:
        """From here on outputs are only drained: nobody is asked for the end, the input is not fed any more."""
        self.stdout.stop_listening()
        self.stderr.stop_listening()
        self._halt = None
        if self._input is not None:
            self._input.close()
            self._input = None
        self._child.close_stdin()

    def drain_ready(self) -> None:
        """Take what stands in both pipes now."""
        self.stdout.drain_ready()
        self.stderr.drain_ready()

    async def _finish(self, linger_seconds: float) -> None:
        """Drain both outputs and wait for the exit."""
        # A grandchild can hold the pipe long after the child: with sh -c 'sleep 30 & echo done' the exit comes at once
        # and the end of output after 30 s.
        async with anyio.create_task_group() as drains:
            drains.start_soon(self._drain_stdout, drains.cancel_scope)
            drains.start_soon(self.stderr.drain)
            await self._child.wait()
            drains.cancel_scope.deadline = anyio.current_time() + linger_seconds

    async def _drain_stdout(self, scope: CancelScope) -> None:
        await self.stdout.drain()
        if self.stdout.has_enough:
            scope.cancel()

    async def _wait_for_halt(self, halt: anyio.Event, scope: CancelScope) -> None:
        await halt.wait()
        scope.cancel()
