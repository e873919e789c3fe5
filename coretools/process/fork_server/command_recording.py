"""Where the changes of commands are recorded: a directory that each fork server inherits, with the writable roots."""

import os

from coretools.process.fork_server.messages import RecordedChanges
from coretools.process_identity import own_identity
from coretools.roots.root_set import Roots


class CommandRecording:
    """How the commands of one server are recorded. `close` must be called."""

    def __init__(self, spool: str, *, role: str, file_bytes: int, total_bytes: int) -> None:
        """`spool` is the path of the directory, which the first fork server makes.

        `file_bytes` is the size of the largest file that is copied, `total_bytes` the space that the records of one
        command may occupy.
        """
        self._spool, self._role = spool, role
        self._file_bytes, self._total_bytes = file_bytes, total_bytes
        self._handle = -1
        self.error = ""
        """Why there is no such directory; empty if there is, or none was needed yet."""

    def changes(self, roots: Roots) -> RecordedChanges | None:
        """What a fork server records in these roots; None if there is no directory for it, which `error` then says."""
        if self._handle < 0:
            try:
                os.makedirs(os.path.dirname(self._spool), mode=0o700, exist_ok=True)  # the mode is that of the last
                os.makedirs(self._spool, mode=0o700, exist_ok=True)
                self._handle = os.open(self._spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.error = f"{self._spool}: {error.strerror}"
                return None
        recorded = [(os.fsencode(root.path), root.fd) for root in roots if root.writable and not root.only_git]
        return RecordedChanges(recorded, self._handle, self._role, self._file_bytes, self._total_bytes, own_identity())

    def close(self) -> None:
        """Close the directory."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
