"""Client of a fork server: starts it with its config, keeps preforked processes ready, and ends it.

The config of a fork server is fixed, and so are the files hidden in its view. A change in the roots needs a new fork
server; the old one goes on until its last command has ended.
"""

import contextlib
import marshal
import os
import select
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

import coretools
from coretools.confinement.command_confinement import CommandConfinement, ScratchDirectories
from coretools.confinement.namespaces import NamespacePlan
from coretools.process.children import reaper
from coretools.process.fork_server import messages
from coretools.process.fork_server.cgroup import ControlGroup
from coretools.process.fork_server.messages import ForkServerConfig, ForkServerFailed, SocketRules
from coretools.roots.root import Directory

if TYPE_CHECKING:
    from coretools.egress.approvals import HostApprovals
    from coretools.egress.blocked_connections import Refusal
    from coretools.egress.proxy import EgressGateway, EgressProxy

MIN_WAITING = 2
"""Preforked processes that wait for their argv: one for the next call, one for the call after it."""

MAX_WAITING = 6
"""Most supervisors that are kept after their commands, each with a new preforked process; a pair takes 3 MB."""

START_SECONDS = 10.0
"""Deadline for the start of a fork server, which usually takes 20 ms."""

_PATH_BYTES = 8192
"""More than the length of a path that can be covered."""

_SOURCE = str(Path(coretools.__file__).parents[1])
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from coretools.process.fork_server.server import main; main()"


class PreforkedProcess:
    """A preforked process that waits for its argv: our ends of its two sockets. Closing both kills it and its tree."""

    __slots__ = ("_client", "_refusals_before", "_reports_before", "control", "requests")

    def __init__(self, control: socket.socket, requests: socket.socket, client: "ForkServerClient") -> None:
        self.control = control
        self.requests = requests
        self._client = client
        self._reports_before = 0
        self._refusals_before = 0

    def take(self) -> "PreforkedProcess":
        """Attribute reports about covers and refused connections to this command from now on."""
        self._reports_before = self._client.cover_reports
        self._refusals_before = 0 if self._client.proxy is None else self._client.proxy.refusals.count
        return self

    def identity_in_view(self, directory: Directory) -> tuple[int, int]:
        """Device and inode of a directory as a command sees it; 0 for what is not known."""
        status = os.fstat(directory.fd)
        if not self._client.has_overlays:
            return status.st_dev, status.st_ino
        return 0, 0 if directory.place.relative == "." else status.st_ino

    def replaced(self) -> dict[str, bool]:
        """Covered files that were replaced from outside since `take`, and whether they are covered again."""
        return self._client.replaced(self._reports_before)

    def refused(self) -> "tuple[Refusal, ...]":
        """Connections that the proxy refused since `take`, of whichever command in it."""
        proxy = self._client.proxy
        return () if proxy is None else proxy.refusals.since(self._refusals_before)

    @property
    def approvals(self) -> "HostApprovals | None":
        """What a person decided about hosts; None where commands reach none."""
        return self._client.approvals

    def give_back(self) -> None:
        """Return it to the client: only when nothing is left of its command, and its supervisor got no message."""
        self._client.take_back(self)

    def kill_all(self) -> bool:
        """Kill the whole fork server with every command in it: for a tree that its supervisor can't kill.

        False if that is impossible: without a view the tree does not end with its fork server.
        """
        return self._client.kill_all()

    async def wait_until_empty(self) -> bool:
        """Wait until nothing is left of a command whose supervisor was killed; return whether that is certain."""
        return await self._client.wait_until_empty()

    def close(self) -> None:
        """Kill the command if it runs."""
        self.control.close()
        self.requests.close()


class ForkServerClient:
    """Client of one fork server, used on the event loop.

    `close` must be called; it does not block, and may be called from any thread.
    """

    def __init__(
        self, config: ForkServerConfig, *, group: ControlGroup | None = None, gateway: "EgressGateway | None" = None
    ) -> None:
        """Start the fork server, in the control group if there is one; await `ready` afterwards.

        `gateway` serves the connections of commands, if there is a listener for them.

        Raises:
            ForkServerFailed: no processes or descriptors left.
        """
        self._waiting: deque[PreforkedProcess] = deque()
        self._is_ready = False
        self._is_retired = False
        self._is_recording = config.changes is not None
        self.records_changes = False
        """Whether the changes of its commands are recorded; known when it is ready."""
        self._exit_handle: int | None = None
        """Pidfd of process 1 of its namespace: when it has exited, everything in the view has."""
        self._has_view = config.view is not None
        self.has_overlays = config.view is not None and any(bind.upper for bind in config.view.binds)
        self._group = group
        self._gateway = gateway
        self.proxy: EgressProxy | None = None
        """Serves the connections of commands, if they may reach listed hosts."""
        self._cover_reports = 0
        self._replaced: dict[str, tuple[int, bool]] = {}
        """Covered files that were replaced from outside: the number of the last report about each, and whether it is
        covered."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise ForkServerFailed(f"no fork server: {error.strerror}") from error
        ours.setblocking(False)
        self._control = ours
        try:
            with theirs:
                self._process = _start_process(config, theirs)
            if group is not None:
                with contextlib.suppress(OSError):  # runs without a group, which the protections show
                    group.add(self._process.pid)
        except OSError as error:
            ours.close()
            raise ForkServerFailed(f"no fork server: {error.strerror}") from error

    @property
    def approvals(self) -> "HostApprovals | None":
        """What a person decided about hosts; None where commands reach none."""
        return None if self.proxy is None or self._gateway is None else self._gateway.approvals

    async def ready(self) -> None:
        """Wait until the fork server has applied its config.

        Raises:
            ForkServerFailed: it could not, and why.
        """
        if self._is_ready:
            return
        reply = b"it did not answer"
        with anyio.move_on_after(START_SECONDS):
            await anyio.wait_readable(self._control)
            reply, handles, _, _ = socket.recv_fds(self._control, 512, 2, socket.MSG_CMSG_CLOEXEC)
            self._exit_handle = next(iter(handles), None)
            if len(handles) > 1 and self._gateway is not None:
                self.proxy = self._gateway.serve(socket.socket(fileno=handles[1]))
            reply = reply or b"it ended at its start"
        self.records_changes = self._is_recording and reply == messages.READY
        if reply not in (messages.READY, messages.READY_UNRECORDED):
            number, _, why = reply.decode("utf-8", "replace").partition(" ")
            raise (
                ForkServerFailed(why, int(number))
                if number.isdigit()
                else ForkServerFailed(reply.decode("utf-8", "replace"))
            )
        self._is_ready = True
        self.fill()

    @property
    def is_alive(self) -> bool:
        """Whether the fork server runs and listens; one that is stuck in its exit does neither."""
        return self._process.poll() is None and not _is_ready(self._control.fileno(), 0)

    def fill(self) -> None:
        """Prefork processes up to `MIN_WAITING`; one where overlays are for one command."""
        while not self._is_retired and len(self._waiting) < (1 if self.has_overlays else MIN_WAITING):
            self._add_waiting(self._request_process())

    def take(self) -> PreforkedProcess:
        """A preforked process, or one that is about to be.

        Raises:
            OSError: no descriptors left, or the fork server is gone.
        """
        try:
            return self._waiting.popleft().take()
        except IndexError:
            return self._request_process().take()

    @property
    def cover_reports(self) -> int:
        """Number of reports about covers so far."""
        with contextlib.suppress(OSError):  # no more for now
            while word := self._control.recv(_PATH_BYTES, socket.MSG_DONTWAIT):
                self._cover_reports += 1
                self._replaced[os.fsdecode(word[1:])] = self._cover_reports, word[:1] == messages.COVER_RESTORED
        return self._cover_reports

    def replaced(self, since: int) -> dict[str, bool]:
        """Files that were replaced after that many reports, and whether they are covered again."""
        if self.cover_reports == since:
            return {}
        return {path: is_covered for path, (number, is_covered) in self._replaced.items() if number > since}

    def take_back(self, process: PreforkedProcess) -> None:
        """Keep a process whose supervisor has preforked the next one, or close it if enough are waiting."""
        if self._is_retired or len(self._waiting) >= MAX_WAITING:
            process.close()
        else:
            self._add_waiting(process)

    def retire(self) -> None:
        """Take no more commands; the fork server exits after the last one."""
        self._is_retired = True
        self._close_waiting()
        with contextlib.suppress(OSError):
            self._control.send(messages.RETIRE)

    def kill_all(self) -> bool:
        """Kill the fork server with its control group or namespaces; False if it has neither."""
        if self._group is not None and self._group.kill():
            return True
        if self._has_view:
            self._process.kill()
        return self._has_view

    async def wait_until_empty(self) -> bool:
        """Wait until nothing is left of commands whose supervisors were killed, or of any if the fork server was.

        Returns whether that is certain: False after a timeout, or without a descriptor for the request.
        """
        is_certain = False
        with contextlib.suppress(OSError), contextlib.ExitStack() as ours:
            reading, writing = socket.socketpair()
            ours.enter_context(reading)
            with writing:
                end = None if self._exit_handle is None else os.dup(self._exit_handle)
                if end is not None:
                    ours.callback(os.close, end)
                with contextlib.suppress(OSError):  # it has ended
                    socket.send_fds(self._control, [messages.REPORT_WHEN_EMPTY], [writing.fileno()])
            with anyio.move_on_after(reaper.EXIT_SECONDS):
                await anyio.wait_readable(reading)
                is_certain = bool(reading.recv(1))
                if end is not None and not is_certain:
                    await anyio.wait_readable(end)
                    # Without a view its exit proves something only if it was orderly.
                    is_certain = self._has_view or self._process.poll() == 0
        return is_certain

    async def make_socket(self, family: int) -> socket.socket:
        """Have the fork server make a TCP socket in its network namespace; it does not block.

        Raises:
            OSError: the fork server is gone, or does not answer.
        """
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._control, [messages.SOCKETS[family]], [theirs.fileno()])
            with anyio.fail_after(START_SECONDS):
                await anyio.wait_readable(ours)
            _, handles, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not handles:
            raise ConnectionResetError
        connection = socket.socket(fileno=handles[0])
        connection.setblocking(False)
        return connection

    async def wait_gone(self) -> bool:
        """Wait until nothing is left in the view of a fork server that was retired; return whether that is certain."""
        with anyio.move_on_after(reaper.EXIT_SECONDS):
            if self._exit_handle is not None:
                await anyio.wait_readable(self._exit_handle)
                return True
        return False

    @property
    def is_gone(self) -> bool:
        """Whether the fork server, its namespaces and its control group are gone."""
        if self._process.poll() is None or (
            self._exit_handle is not None and not _is_ready(self._exit_handle, select.POLLIN)
        ):
            return False
        return self._group is None or self._group.remove()

    def close(self) -> None:
        """End the fork server and everything in it. `wait` must follow."""
        self._is_retired = True
        self._close_waiting()
        self._control.close()
        if self.proxy is not None:
            self.proxy.close()

    def wait(self) -> None:
        """Reap the fork server after `close`. Blocks shortly."""
        try:
            self._process.wait(reaper.EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            self._group.close()
        if self._exit_handle is not None:
            os.close(self._exit_handle)
            self._exit_handle = None

    def _add_waiting(self, process: PreforkedProcess) -> None:
        self._waiting.append(process)
        if self._is_retired:  # by another thread, which may not have seen this process
            self._close_waiting()

    def _close_waiting(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft().close()

    def _request_process(self) -> PreforkedProcess:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                requests, command = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            except OSError:
                control.close()
                raise
            process = PreforkedProcess(control, requests, self)
            with command:
                try:
                    socket.send_fds(self._control, [messages.COMMAND], [theirs.fileno(), command.fileno()])
                except OSError:
                    process.close()
                    raise
        control.setblocking(False)
        requests.setblocking(False)
        return process


def _start_process(config: ForkServerConfig, channel: socket.socket) -> subprocess.Popen[bytes]:
    # A file in memory: a config with thousands of masks would fill a pipe that nobody reads yet.
    with open(os.memfd_create("config"), "w+b") as file:
        file.write(marshal.dumps(_plain(config)))
        file.flush()
        # Without environment: the variables of a command are in its spawn request.
        passed = config.changes.handles if config.changes is not None else ()
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _SOURCE, str(file.fileno())],
            stdin=channel.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            cwd="/",
            pass_fds=(file.fileno(), *passed, *(rule[0] for rule in config.rules or () if isinstance(rule[0], int))),
            start_new_session=True,
        )


def fork_server_config(
    commands: CommandConfinement, scratch: ScratchDirectories, tier: str, view: NamespacePlan | None
) -> ForkServerConfig:
    """Return the config of a fork server of a tier; `view` is the plan of its namespaces, in tier `full`."""
    is_confined = tier != "none"
    return ForkServerConfig(
        view=view,
        rules=commands.rules(scratch, in_namespaces=tier == "full") if is_confined else None,
        tcp=tier == "full" or commands.has_network,
        families=commands.socket_families(tier) if is_confined else None,
        socket_rules=SocketRules(not commands.has_network, commands.socket_directories(scratch))
        if tier == "landlock"
        else None,
        limits=commands.limits(tier) if is_confined else (),
        processes=commands.max_processes,
    )


def _is_ready(handle: int, events: int) -> bool:
    """Whether an event is pending, the peer has closed (poll(2)), or the descriptor is closed."""
    if handle < 0:
        return True
    poll = select.poll()
    poll.register(handle, events)
    return bool(poll.poll(0))


def _plain(value: Any) -> Any:
    """The value with lists in place of named tuples, which `marshal` does not know."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
