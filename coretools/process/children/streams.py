"""The three pipes of a child: drains both outputs into bounded excerpts and writes the input, without blocking.

A pseudoterminal takes the place of all three: its output counts as standard output, its input is standard input.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import anyio
from anyio import CancelScope

from coretools.truncation import Excerpter

SHARE = 0.3
"""Share of the event loop's time for the outputs of all children. Without it one `yes` made a call of 1 ms take 8."""

BURST_SECONDS = 0.03
"""Reading time that is granted before anybody waits: about 8 MB after a pause."""

WAKE_SECONDS = 0.0001
"""Cost of waking a reader, measured with asyncio's selector loop."""


class ReadThrottle:
    """Limits reading to a share of the event loop's time; one for all outputs of a runner.

    A program that writes faster blocks on its pipe, as on a slow terminal. Output below a burst is never delayed.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._paid_at = 0.0
        """When the time spent so far is paid for, at the rate of the share."""

    def charge(self, seconds: float) -> float:
        """Record the time that a read took; return how many seconds the reader has to pause."""
        now = self._clock()
        self._paid_at = max(self._paid_at, now) + (seconds + WAKE_SECONDS) / SHARE
        return max(0.0, self._paid_at - now - BURST_SECONDS)


READ_BYTES = 64 * 1024
"""Size of one read: the capacity of a pipe on Linux (pipe(7))."""

READS_AT_ONCE = 32
"""Most reads without a wait: twice what an ordinary user can make a pipe hold (1 MiB, pipe(7)). A process that keeps
writing may keep it full for ever."""

INPUT_BUFFER_BYTES = 1024 * 1024
"""Most input that is buffered for a program that does not read."""

OutputListener = Callable[[bytes], bool]
"""Called with every chunk of an output; True stops the run."""


class PipedProcess(Protocol):
    """A started program as `Streams` needs it."""

    stdin: int | None
    stdout: int
    stderr: int

    async def wait(self) -> None:
        """Wait until the program itself exits."""
        ...

    def reap(self) -> bool:
        """Whether it has exited."""
        ...

    def close_stdin(self) -> None:
        """Close its standard input."""
        ...


class OutputRecorder(Protocol):
    """Receives the output of a run from its start to its last byte, including the time while it is being stopped.

    Called on the event loop; must be fast and must not raise.
    """

    def begin(self, argv: Sequence[str]) -> None:
        """Called when a program has started."""
        ...

    def take(self, data: bytes, *, is_error: bool) -> None:
        """Take the next chunk of standard output or standard error."""
        ...


class StreamConsumer(Protocol):
    """The parts of `RunOptions` that concern the streams."""

    @property
    def feed(self) -> "InputBuffer | None":
        """Standard input."""
        ...

    @property
    def on_stdout(self) -> OutputListener | None:
        """Sees standard output and may stop the run."""
        ...

    @property
    def recorder(self) -> OutputRecorder | None:
        """Receives both outputs."""
        ...

    @property
    def halt(self) -> anyio.Event | None:
        """Set to stop the run."""
        ...


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """Size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


class InputBuffer:
    """Buffered input for a program, written before its start or while it runs."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._is_ended = False
        self._news = anyio.Event()
        self.is_closed = False
        """The program closed its standard input or has exited."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """A buffer with this content and no more to come."""
        feed = cls()
        feed._waiting += data
        feed._is_ended = True
        return feed

    @property
    def is_open(self) -> bool:
        """Whether more may be written."""
        return not (self._is_ended or self.is_closed)

    @property
    def room(self) -> int:
        """Bytes that may be written now."""
        return max(0, INPUT_BUFFER_BYTES - len(self._waiting)) if self.is_open else 0

    def write(self, data: bytes) -> None:
        """Add input, at most `room` bytes. More is accepted, but stays in memory."""
        self._waiting += data
        self._news.set()

    def end(self) -> None:
        """Mark the end: the program reads the end of file after the buffered input."""
        self._is_ended = True
        self._news.set()

    async def wait_ready(self) -> bool:
        """Wait for buffered input; False at the end."""
        while not self._waiting and not self._is_ended:
            self._news = anyio.Event()
            await self._news.wait()
        return bool(self._waiting)

    def next_piece(self) -> bytes:
        """Return what to write next; it stays until `consumed`."""
        return bytes(self._waiting[:READ_BYTES])

    def consumed(self, count: int) -> None:
        """Record that so many bytes of the piece were written."""
        del self._waiting[:count]

    def close(self) -> None:
        """Drop the input: nobody reads any more."""
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
            # Processor time: time in which the machine did something else is not to be paid for again.
            began = time.thread_time()
            self._read_once()
            pause = self._throttle.charge(time.thread_time() - began)
            if pause and not self.has_ended and not self._is_stopping:
                await anyio.sleep(pause)

    def stop_listening(self) -> None:
        """Keep reading, but without the listener and without pauses: a last message has little time."""
        self._listener = None
        self.has_enough = False
        self._is_stopping = True

    def drain_ready(self) -> None:
        """Read what is in the pipe now, without waiting."""
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
            data = b""  # a terminal that no process has open any more (Linux, n_tty)
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
    """Writes buffered input to the standard input of a child."""

    def __init__(self, child: PipedProcess, feed: InputBuffer) -> None:
        self._child = child
        self._feed = feed

    async def run(self) -> None:
        """Write all input, waiting for the child to read it; close the pipe at the end."""
        while await self._feed.wait_ready() and (descriptor := self._child.stdin) is not None:
            if not self._push(descriptor):
                await anyio.wait_writable(descriptor)
        self.close()

    def close(self) -> None:
        """Stop writing and close the pipe."""
        self._feed.close()
        self._child.close_stdin()

    def _push(self, descriptor: int) -> bool:
        """Write what fits now; False if nothing did. Close the pipe if nobody reads any more."""
        try:
            self._feed.consumed(os.write(descriptor, self._feed.next_piece()))
        except BlockingIOError:
            return False
        except OSError as error:  # the child does not read the rest (`head -1`)
            if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: as for reading
                raise
            self.close()
        return True


class Streams:
    """All pipes of one child."""

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

    @property
    def are_open(self) -> bool:
        """Whether a process still has an output open."""
        return not (self.stdout.has_ended and self.stderr.has_ended)

    async def communicate(self, linger_seconds: float) -> None:
        """Transfer all three streams until the child has exited and both outputs are closed, or `linger_seconds` later.

        Returns early when the listener returns True or `halt` is set; exceptions of the listener propagate. May be
        called again after a cancellation: nothing is lost.
        """
        # A short program has often exited by now. Then no task and no wait is needed, which saves a sixth of the
        # processor time of a run of `true`.
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
        except ExceptionGroup as group:  # only the listener can raise: unwrap its error
            error: Exception = group
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    def stop_listening(self) -> None:
        """From now on only drain the outputs: without listener, stop event and input."""
        self.stdout.stop_listening()
        self.stderr.stop_listening()
        self._halt = None
        if self._input is not None:
            self._input.close()
            self._input = None
        self._child.close_stdin()

    def drain_ready(self) -> None:
        """Read what is in both pipes now."""
        self.stdout.drain_ready()
        self.stderr.drain_ready()

    async def _finish(self, linger_seconds: float) -> None:
        """Drain both outputs and wait for the exit of the child."""
        # A grandchild can hold the pipe long after the child: sh -c 'sleep 30 & echo done' exits at once, but its
        # output ends after 30 s.
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
