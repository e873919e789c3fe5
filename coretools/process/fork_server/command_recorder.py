"""Records what a command is about to change, before the kernel continues: the supervisor's side of undo (ADR 0055).

The record lies in a directory of its own in the spool: a log, and the contents that it names. It is made by the first
change, so that a command that changes nothing leaves nothing. The log is locked (flock(2)) as long as the supervisor
lives: whoever gets the lock may read it. Runs in the supervisor; standard library only.
"""

import errno
import fcntl
import marshal
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from secrets import token_hex

from coretools.process.fork_server.changing_calls import (
    CREATE,
    EXCHANGE,
    LINK,
    METADATA,
    REMOVE,
    WRITE,
    CallReader,
    CannotTell,
    ChangingCall,
    leads_nowhere,
)
from coretools.process.fork_server.messages import RecordedChanges
from coretools.process.fork_server.notifications import CallListener, InterceptedCall
from coretools.process.fork_server.preimages import PreimageLimits, Preimages, RecordedRoot
from coretools.undo.change_log import BEGUN, LOG, NOT_KEPT, ChangeLog, ChangeRecord

MOST_RECORDS = 200_000
"""Changes of one command that are recorded: a log of 40 MB, and 100 MB of memory."""
MOST_LOG_BYTES = 64 << 20
"""Size of the log, for long paths: the server reads it as a whole."""
_TRIES = 3
"""Looks at a path that is exchanged meanwhile."""
_COMMAND_LINE_BYTES = 4096


class CommandRecorder:
    """Records the changes of one command. `close` must be called."""

    def __init__(
        self, changes: RecordedChanges, listener: CallListener, leader: int, progress: Callable[[], None]
    ) -> None:
        """`leader` is the process of the command. `progress` is called between the pieces of a large copy."""
        self._changes, self._listener, self._leader, self._progress = changes, listener, leader, progress
        self._roots = [RecordedRoot(path, handle) for path, handle in changes.roots]
        self._reader = CallReader([os.fsdecode(path) for path, _ in changes.roots])
        self._preimages: Preimages | None = None
        self._log: ChangeLog | None = None
        self._handles: list[int] = []
        self._name = ""
        self._reasons = set[str]()

    def handle(self, call: InterceptedCall) -> None:
        """Record what a call changes, then have the kernel execute it; or have it fail with the error of the record."""
        try:
            self._record(call)
        except OSError as error:
            self._listener.answer(call, error.errno or errno.EIO)
        except (ValueError, LookupError, ArithmeticError, MemoryError):  # no call may end the supervisor
            self._listener.answer(call, errno.EIO)
        else:
            self._listener.let_pass(call)

    def close(self) -> str:
        """Close the log; return its directory in the spool, empty if nothing was recorded. May be called again."""
        while self._handles:
            os.close(self._handles.pop())
        self._preimages, self._log = None, None
        return self._name

    def _record(self, call: InterceptedCall) -> None:
        change = self._read(call)
        if change is None or not (self._is_recorded(change.path) or self._is_recorded(change.other)):
            return
        if not self._listener.is_valid(call):
            return
        preimages = self._open()
        if self._is_full():
            self._note_unrecorded(f"more than {MOST_RECORDS} changes, or {MOST_LOG_BYTES} bytes of their paths")
            return
        for tries in range(_TRIES):
            try:
                _keep(preimages, change)
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.ELOOP, errno.ENOENT) or tries == _TRIES - 1:
                    raise
            else:
                break

    def _is_full(self) -> bool:
        return self._log is not None and (self._log.records >= MOST_RECORDS or self._log.bytes >= MOST_LOG_BYTES)

    def _read(self, call: InterceptedCall) -> ChangingCall | None:
        """Return what a call changes; None if it changes nothing, or that can't be found out."""
        try:
            return self._reader.read(call)
        except CannotTell as reason:
            self._note_unrecorded(str(reason))
        except OSError as error:
            if not leads_nowhere(error):
                raise
        return None

    def _is_recorded(self, path: bytes) -> bool:
        return any(path.startswith(root.path.rstrip(b"/") + b"/") for root in self._roots)

    def _note_unrecorded(self, reason: str) -> None:
        """Record once that not everything is recorded, and why."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            self._open()
            if self._log is not None:
                self._log.append(ChangeRecord(NOT_KEPT, -1, b"", None, reason.encode()))

    def _open(self) -> Preimages:
        if self._preimages is None:
            try:
                self._preimages = self._begin()
            except OSError:
                self.close()
                raise
        return self._preimages

    def _begin(self) -> Preimages:
        """Make the directory and the log.

        Raises:
            OSError: impossible; nothing is left of the attempt.
        """
        name, place = token_hex(16), self._changes.spool
        hidden = f".{name}"  # nobody may take it for left over before it is locked
        os.mkdir(hidden, 0o700, dir_fd=place)
        with ExitStack() as undo:
            undo.callback(_discard, hidden, place)
            spool = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
            self._handles.append(spool)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            handle = os.open(LOG, flags, 0o600, dir_fd=spool)
            self._handles.append(handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._log = ChangeLog(handle)
            facts = (self._changes.role, [path for path, _ in self._changes.roots], time.time(), self._changes.server)
            self._log.append(ChangeRecord(BEGUN, -1, self._command_line(), None, marshal.dumps(facts)))
            os.rename(hidden, name, src_dir_fd=place, dst_dir_fd=place)
            undo.pop_all()
        self._name = name
        limits = PreimageLimits(self._changes.file_bytes, self._changes.total_bytes)
        return Preimages(self._roots, spool, self._log, limits, self._progress)

    def _command_line(self) -> bytes:
        with suppress(OSError), open(f"/proc/{self._leader}/cmdline", "rb", buffering=0) as file:
            return file.read(_COMMAND_LINE_BYTES)
        return b""


def _discard(name: str, place: int) -> None:
    for path in (f"{name}/{LOG}", name):
        with suppress(OSError):
            (os.rmdir if path == name else os.unlink)(path, dir_fd=place)


def _keep(preimages: Preimages, change: ChangingCall) -> None:
    if change.kind == WRITE:
        preimages.before_write(change.path)
    elif change.kind == REMOVE:
        preimages.before_removal(change.path)
    elif change.kind == CREATE:
        preimages.before_creation(change.path)
    elif change.kind == METADATA:
        preimages.before_metadata(change.path)
    elif change.kind == LINK:
        preimages.before_link(change.path, change.other)
    elif change.kind == EXCHANGE:
        preimages.before_exchange(change.path, change.other)
    else:
        preimages.before_move(change.path, change.other, replaces=change.replaces)
