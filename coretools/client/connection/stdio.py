"""A local server: a child process that speaks MCP on its standard streams, and ends with us.

The SDK's transport has no limit for a line, logs what is not a message instead of counting it, and drops the exit code.
Here the lines are bounded, and what a failing server wrote can be told. The watchdog of `coretools.process` ends the
child, and all that it started, if this process is killed.
"""

import fcntl
import os
import secrets
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from coretools.client.configuration.launch import LocalLaunch
from coretools.errors import BadSetting
from coretools.process.children.spawn import ChildProcess, check_argv, spawn
from coretools.process.watchdog import Watchdog
from coretools.roots.root import Directory, Root, RootedPath, identity_of

READ_BYTES = 256 * 1024
"""Size of one read."""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longest message of a server; 10,000 tools with their schemas are a few megabytes."""

TAIL_BYTES = 4096
"""Kept of standard error."""

JUNK_CHARACTERS = 200
"""Kept of the first line that is not a message."""

EXIT_SECONDS = 2.0
"""For the server to exit once its input is closed; then it is terminated."""

GRACE_SECONDS = 2.0
"""From SIGTERM to SIGKILL."""

LINGER_SECONDS = 0.5
"""For the rest of the output once the program has exited: a grandchild may hold the pipe for ever."""

FLUSH_SECONDS = 0.5
"""For a last message, such as a cancellation, to reach a server that reads slowly."""

MARKER = "CORETOOLS_MCP_CLIENT"
"""Variable that marks what servers start."""

SLOTS = 512
"""Process groups that the watchdog knows by number; others it finds by their marker."""

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@dataclass(frozen=True, slots=True)
class ChildTracker:
    """How the children of this client are found after its death: by a variable in their environment."""

    marker: tuple[str, str]
    watchdog: Watchdog

    @classmethod
    def create(cls) -> "ChildTracker":
        """Return a tracker; its watchdog starts with the first child."""
        marker = (MARKER, secrets.token_hex(16))
        return cls(marker, Watchdog("=".join(marker), slots=SLOTS, grace_seconds=GRACE_SECONDS))


class LocalServer:
    """The running program."""

    def __init__(self, child: ChildProcess, streams: Streams, on_errors: Callable[[bytes], None] | None) -> None:
        self.streams = streams
        self.exited = anyio.Event()
        """The program has ended, and its last output was read."""
        self._child = child
        self._has_ended = anyio.Event()
        # Shielded: keep reading its output until it exits, even if a caller is cancelled.
        self._reading = anyio.CancelScope(shield=True)
        self._has_read_all = anyio.Event()
        self._writing = anyio.CancelScope(shield=True)
        self._has_written_all = anyio.Event()
        self._watching = anyio.CancelScope(shield=True)
        self._reading_errors = anyio.CancelScope(shield=True)
        self._has_read_errors = anyio.Event()
        self._errors = bytearray()
        self._on_errors = on_errors
        self._written = 0
        self._junk = 0
        self._first_junk = ""
        self.fault = ""
        """Why its output is no longer read; empty while it is."""
        self._was_signalled = False

    async def describe_end(self) -> str:
        """Return what is known of the end of the program, after its connection was lost."""
        with anyio.move_on_after(EXIT_SECONDS):
            await self._has_ended.wait()
        with anyio.move_on_after(LINGER_SECONDS):
            await self._has_read_errors.wait()
        if self.fault:
            end = self.fault
        elif self._was_signalled or not self._child.has_exited:
            end = "it closed its standard output"
        elif self._child.signal_name is not None:
            end = f"it was ended by {self._child.signal_name}"
        else:
            end = f"it ended with exit code {self._child.exit_code}"
        return "; ".join([end, *self.junk(), *self.last_words()])

    def has_read_input(self) -> bool:
        """Whether the program has read anything of what was written to it."""
        descriptor = self._child.stdin
        if descriptor is None or not self._written:
            return False
        unread = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
        return bool(unread < self._written)

    def junk(self) -> list[str]:
        """Return a remark about lines on standard output that are not messages; empty if there are none."""
        if not self._junk:
            return []
        lines = "1 line" if self._junk == 1 else f"{self._junk} lines"
        return [f"it wrote {lines} to standard output that are no messages, the first: {self._first_junk!r}"]

    def last_words(self) -> list[str]:
        """Return the end of standard error; empty if it wrote nothing."""
        tail = self._errors.decode("utf-8", "replace").strip().splitlines()[-3:]
        return [f"its last words on standard error: {' | '.join(tail)}"] if tail else []

    async def read_messages(self, session: MemoryObjectSendStream[Incoming]) -> None:
        """Read standard output to its end; hand the messages to the session while there is one."""
        with self._reading, session:
            buffer = bytearray()
            while data := await read_output(self._child.stdout):
                searched = len(buffer)
                buffer += data
                if buffer.find(b"\n", searched) < 0:
                    if len(buffer) > MAX_LINE_BYTES:
                        self.fault = f"it wrote a line of more than {MAX_LINE_BYTES} bytes"
                        break
                    continue
                *lines, rest = bytes(buffer).split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    await self._deliver(line, session)
            session.close()
            while await read_output(self._child.stdout):  # what follows a fault: the program must not block on it
                continue
        self._has_read_all.set()

    async def write_messages(self, session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write what the session sends; a server that no longer reads is noticed by its output."""
        try:
            with self._writing:
                async with session:
                    async for message in session:
                        line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                        if not await self._write(line.encode() + b"\n"):
                            self._reading.cancel()
                            return
        finally:
            self._has_written_all.set()

    async def read_errors(self) -> None:
        """Keep the end of standard error."""
        try:
            with self._reading_errors:
                while data := await read_output(self._child.stderr):
                    self._errors += data
                    del self._errors[:-TAIL_BYTES]
                    if self._on_errors is not None:
                        self._on_errors(data)
        finally:
            self._has_read_errors.set()

    async def watch_exit(self) -> None:
        """Notice the exit of the program, and close the session then."""
        with self._watching:
            await self._child.wait()
            self._child.reap()
            self._has_ended.set()
            with anyio.move_on_after(LINGER_SECONDS):
                await self._has_read_all.wait()
            self.exited.set()
            self._reading.cancel()

    async def stop(self) -> None:
        """End the program and its process group, and then the tasks that listen to it. Bounded."""
        await self._end()
        with anyio.move_on_after(LINGER_SECONDS):  # its last words are still in the pipe
            await self._has_read_errors.wait()
        for scope in (self._reading, self._reading_errors, self._watching):
            scope.cancel()

    async def _end(self) -> None:
        """End of input, TERM, KILL."""
        for _ in range(2):  # a task that was cancelled before its first step sets no event
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._has_written_all.wait()
            self._writing.cancel()
        self._child.close_stdin()
        if await self._has_exited_within(EXIT_SECONDS) and not self._child.group_exists():
            return
        self._was_signalled = not self._child.has_exited
        self._child.signal_group(signal.SIGTERM)
        if await self._has_exited_within(GRACE_SECONDS) and not self._child.group_exists():
            return
        self._child.signal_group(signal.SIGKILL)
        await self._has_exited_within(GRACE_SECONDS)

    async def _has_exited_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._has_ended.wait()
        return self._child.reap()

    async def _deliver(self, line: bytes, session: MemoryObjectSendStream[Incoming]) -> None:
        if not line.strip():
            return
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._junk += 1
            self._first_junk = self._first_junk or line[:JUNK_CHARACTERS].decode("utf-8", "replace")
            return
        # Once the session is over, output is only drained, so that the program can exit.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await session.send(SessionMessage(message))

    async def _write(self, data: bytes) -> bool:
        left = memoryview(data)
        while left:
            descriptor = self._child.stdin
            if descriptor is None:
                return False
            try:
                count = os.write(descriptor, left)
                self._written += count
                left = left[count:]
            except BlockingIOError:
                await anyio.wait_writable(descriptor)
            except BrokenPipeError:
                return False
        return True


@asynccontextmanager
async def start_local(
    launch: LocalLaunch, tracker: ChildTracker, on_errors: Callable[[bytes], None] | None = None
) -> AsyncIterator[LocalServer]:
    """Start the program; at the end it is gone, with all that it started in its process group.

    `on_errors` gets what the program writes to standard error.

    Raises:
        CannotStart, Busy, InputOutput: see `spawn`. BadSetting: the working directory is gone.
    """
    child = spawn_tracked(launch.argv, launch.environment, launch.cwd, tracker)
    slot = tracker.watchdog.register(child.pid)
    from_server, read_stream = anyio.create_memory_object_stream[Incoming](0)
    write_stream, to_server = anyio.create_memory_object_stream[SessionMessage](0)
    server = LocalServer(child, (read_stream, write_stream), on_errors)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.read_messages, from_server)
            tasks.start_soon(server.write_messages, to_server)
            tasks.start_soon(server.read_errors)
            tasks.start_soon(server.watch_exit)
            try:
                yield server
            finally:
                with anyio.CancelScope(shield=True):
                    write_stream.close()
                    read_stream.close()
                    await server.stop()
    finally:
        if not child.group_exists():
            tracker.watchdog.unregister(slot)
        child.close()


def spawn_tracked(argv: Sequence[str], environment: Mapping[str, str], cwd: str, tracker: ChildTracker) -> ChildProcess:
    """Start a program that the watchdog ends with us; its standard input is a pipe.

    Raises:
        CannotStart, Busy, InputOutput: see `spawn`. BadSetting: the working directory is gone.
    """
    environment = {**environment, tracker.marker[0]: tracker.marker[1]}
    check_argv(argv, environment)
    try:
        descriptor = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadSetting(f"cwd: {cwd}: {error.strerror}") from error
    root = Root("", cwd, writable=False, fd=descriptor, identity=identity_of(os.fstat(descriptor)))
    with Directory(descriptor, RootedPath(root, "."), cwd) as directory:
        tracker.watchdog.ensure_running()
        return spawn(argv, cwd=directory, environment=environment, fed=True)


async def read_output(descriptor: int) -> bytes:
    """Wait for output of a child and return it; empty at its end."""
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(descriptor)
        except OSError:
            return b""
