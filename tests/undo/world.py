"""A root with its file tools, and a journal of their changes."""

import hashlib
import os
import stat
from functools import partial
from pathlib import Path

from coretools.config.limits import Limits
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import remove_temporary
from coretools.roots.write_notes import WriteNotes
from coretools.tools.filesystem.tools import FilesystemTools
from coretools.tools.undo.tools import UndoTools
from coretools.undo.change import Bounds
from coretools.undo.journal import Journal
from coretools.undo.recorder import ChangeRecorder

BOUNDS = Bounds(size=1 << 30, days=14, changes=10_000)


class World:
    """A root, its tools, and a journal elsewhere."""

    def __init__(
        self, top: Path, *, bounds: Bounds = BOUNDS, most_copied: int = 1 << 26, busy_seconds: float = 10
    ) -> None:
        self.root = top / "root"
        self.root.mkdir(exist_ok=True)
        self.store = top / "changes"
        self.roots = Roots([RootSpec(str(self.root))], deny=DenyRules(DEFAULT_DENY, by_content=True))
        self.recorder = ChangeRecorder(
            lambda: Journal(str(self.store), bounds, most_copied=most_copied, busy_seconds=busy_seconds),
            role="",
            most_bytes=bounds.size,
        )
        self.roots.changes = self.recorder
        self.roots.write_notes = WriteNotes(str(top / "writes"))
        self.roots.write_notes.remove_leftovers(partial(remove_temporary, self.roots))
        self.files = FilesystemTools(self.roots, Limits())
        self.undo = UndoTools(self.roots, Limits(), self.recorder)

    def close(self) -> None:
        self.recorder.close()
        self.roots.close()

    def state(self) -> dict[str, tuple[object, ...]]:
        """Every entry with kind, permissions and content; of files and links the time too."""
        found: dict[str, tuple[object, ...]] = {}
        for above, directories, files in os.walk(self.root):
            for name in directories + files:
                path = os.path.join(above, name)
                status = os.lstat(path)
                what: object = b""
                if stat.S_ISREG(status.st_mode):
                    what = hashlib.sha256(Path(path).read_bytes()).digest(), status.st_mtime_ns
                elif stat.S_ISLNK(status.st_mode):
                    what = os.readlink(path)
                found[os.path.relpath(path, self.root)] = (stat.S_IFMT(status.st_mode), status.st_mode & 0o777, what)
        return found
