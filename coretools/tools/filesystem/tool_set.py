"""What the sets of file tools share: their services, and the parameters that are paths."""

import hashlib
import threading
from typing import Annotated

from pydantic import Field

from coretools.config.limits import Limits
from coretools.errors import Conflict
from coretools.operations.call import Call, SilentCall
from coretools.operations.completion import Completes
from coretools.operations.declare import Aliases
from coretools.process.decoding.decoder import Decoder
from coretools.roots.editor_settings import new_settings_note, settings_at
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.change_checks import ChangeChecks
from coretools.tools.filesystem.known_files import KnownFiles

LARGE_READS = 2
"""Larger files read at the same time. Each read holds several times the size of the file, and the interpreter's lock
while it counts lines: one in every worker thread would take gigabytes and block other calls for most of a minute."""

FILE_NAMES = Aliases(
    "file_path", "filename", "file", "target_file", "absolute_path", ignored=("explanation", "should_read_entire_file")
)
DIRECTORY_NAMES = Aliases(
    *("directory", "dir", "dir_path", "directory_path", "folder", "target_directory", "relative_workspace_path"),
    ignored=("explanation",),
)

ExpectedHash = Annotated[
    str | None,
    Field(
        description="SHA-256, in hexadecimal, that the present content of the file must have; otherwise "
        "nothing is written. Answers of read_file and read_files have it as the fact `sha256`, for files up to "
        "256 KiB; sha256sum prints it. Default: no such check",
    ),
    Aliases("sha256", "expected_sha256"),
]

AnyPath = Annotated[str, Completes("paths")]
FilePath = Annotated[
    AnyPath, Field(description="Path of the file: relative to the first root, or absolute beneath any root"), FILE_NAMES
]
DirectoryPath = Annotated[
    AnyPath,
    Field(description="Path of the directory: relative to the first root (the default), or absolute beneath any root"),
    DIRECTORY_NAMES,
]

NOBODY: Call = SilentCall()
"""The call of a method that is called directly, without a dispatcher."""


def large_read_slots() -> threading.Semaphore:
    """Slots for reading large files. A server has one such semaphore for all its roles, since it bounds the memory."""
    return threading.BoundedSemaphore(LARGE_READS)


class FileToolSet:
    """Tools for files beneath the roots."""

    def __init__(
        self,
        roots: Roots,
        limits: Limits,
        *,
        large_reads: threading.Semaphore | None = None,
        known_files: KnownFiles | None = None,
        checks: ChangeChecks | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        """`large_reads` and `known_files` are those of the server; by default these tools have their own.

        Without a `decoder` pictures and PDF are described as other binary files are.
        """
        self._roots = roots
        self._limits = limits
        self._large_reads = large_reads or large_read_slots()
        self._known_files = known_files or KnownFiles()
        self._decoder = decoder
        self._checks = checks or ChangeChecks()

    def _change(self) -> dict[str, int]:
        """The fact that names the change just made, by which undo takes it back; none without a journal."""
        last = self._roots.changes.last
        return {"change": last} if last else {}

    def _way_back(self) -> str:
        """The clause of an answer that says how to take a deletion back; usually wanted soon."""
        last = self._roots.changes.last
        return f"; undo change={last} brings it back" if last else ""

    def _settings_note(self, path: str) -> str:
        """The note to add to the answer of a change that created settings of editors or agents; usually empty."""
        settings = settings_at(self._roots, path)
        return f"; {new_settings_note(self._roots, settings)}" if settings else ""


def require_hash(data: bytes, expected: str | None, display_path: str) -> None:
    """Refuse to change a file that has another content than expected.

    Raises:
        Conflict: its SHA-256 is not `expected`.
    """
    digest = "" if expected is None else hashlib.sha256(data).hexdigest()
    if expected is not None and digest != expected.lower().removeprefix("sha256:"):
        raise Conflict(
            f"{display_path}: its content has the SHA-256 {digest}, not the expected one; nothing was written. Read it"
            " again",
            path=display_path,
            sha256=digest,
        )


def with_foreign_change(message: str, foreign: str) -> str:
    """Add what somebody else changed to the message of a refusal."""
    return f"{message}\nChanged since you last read or wrote it:\n{foreign}" if foreign else message
