"""Turn a patch into the changes of files that it means: read, applied in memory and checked, and not written yet."""

from collections.abc import Callable
from dataclasses import dataclass, field

from coretools.config.limits import Limits
from coretools.errors import AlreadyExists, EditRefused, TooLarge
from coretools.roots.file_version import kind_of
from coretools.roots.read import OpenFile, open_file
from coretools.roots.resolve import resolve
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.roots.write_together import FileChange
from coretools.tools.filesystem.apply_hunks import apply_hunks
from coretools.tools.filesystem.patches import FilePatch
from coretools.tools.filesystem.syntax_errors import SyntaxCheck

CheckSyntax = Callable[[str, str | None, str], SyntaxCheck]


@dataclass(slots=True)
class PatchedFile:
    """What is done with one file, and how it is told."""

    did: str
    would: str
    display_path: str
    changes: list[FileChange]
    notes: list[str] = field(default_factory=list)
    syntax: SyntaxCheck = field(default_factory=SyntaxCheck)
    created: list[str] = field(default_factory=list)
    """Paths where a file is created."""

    def text(self, *, would: bool) -> str:
        """One line, and the syntax errors that were introduced."""
        verb = f"would {self.would}" if would else self.did
        line = "; ".join((f"{verb} {self.display_path}", *self.notes))
        note = self.syntax.note(self.display_path, would=would)
        return f"{line}\n{note}" if note else line


class PatchPlanner:
    """Plans the changes of each file of a patch."""

    def __init__(self, roots: Roots, limits: Limits, check_syntax: CheckSyntax) -> None:
        self._roots = roots
        self._limits = limits
        self._check_syntax = check_syntax
        self._size = 0

    def plan(self, patch: FilePatch) -> PatchedFile:
        """Plan one file.

        Raises:
            EditRefused: a hunk does not fit, or introduces a syntax error that the operator does not want.
            AlreadyExists: a file that is to be added exists. NotText, TooLarge, and what `open_file` raises.
        """
        if patch.kind == "add":
            return self._added(patch)
        with open_file(self._roots, patch.path) as file:
            data = file.read(self._limits.file_bytes)
            self._count(len(data))
            if patch.kind == "delete":
                return self._deleted(patch, file, data)
            return self._updated(patch, file, data)

    def _added(self, patch: FilePatch) -> PatchedFile:
        with resolve(self._roots, patch.path) as resolved:
            if resolved.found is not None:
                raise AlreadyExists(
                    f"{resolved.display_path}: the patch adds this file, but a {kind_of(resolved.found.st_mode)} is"
                    " there already; nothing was changed",
                    path=resolved.display_path,
                )
            display_path = resolved.display_path
        text = patch.added_text()
        data = text.encode("utf-8", "surrogatepass")
        self._count(len(data))
        syntax = self._check_syntax(display_path, None, text)
        change = FileChange(path=patch.path, data=data, expected=None)
        return PatchedFile("added", "add", display_path, [change], _mode_notes(patch), syntax, [patch.path])

    def _deleted(self, patch: FilePatch, file: OpenFile, data: bytes) -> PatchedFile:
        if patch.hunks:
            text = decode(data, file.display_path).text
            if apply_hunks(text, patch.hunks, display_path=file.display_path)[0].text:
                raise EditRefused(
                    f"{file.display_path}: the patch deletes this file, but it has more lines than the patch shows;"
                    " nothing was changed"
                )
        change = FileChange(path=patch.path, data=None, expected=file.version)
        return PatchedFile("deleted", "delete", file.display_path, [change])

    def _updated(self, patch: FilePatch, file: OpenFile, data: bytes) -> PatchedFile:
        notes: list[str] = []
        syntax = SyntaxCheck()
        if patch.hunks:
            before = decode(data, file.display_path)
            edited, lines = apply_hunks(before.text, patch.hunks, display_path=file.display_path)
            data = before.encode(edited.text)
            notes.append("1 hunk" if len(lines) == 1 else f"{len(lines)} hunks")
            notes += [
                f"hunk {number} was at line {line}, not {hunk.start}"
                for number, (hunk, line) in enumerate(zip(patch.hunks, lines, strict=True), 1)
                if hunk.start not in (None, 0, line)
            ]
            syntax = self._check_syntax(patch.new_path or file.display_path, before.text, edited.text)
        notes += _mode_notes(patch)
        if patch.new_path is None:
            change = FileChange(path=patch.path, data=data, expected=file.version)
            return PatchedFile("updated", "update", file.display_path, [change], notes, syntax)
        changes = [
            FileChange(path=patch.new_path, data=data, expected=None, mode=file.mode),
            FileChange(path=patch.path, data=None, expected=file.version),
        ]
        name = f"{file.display_path} to {patch.new_path}"
        return PatchedFile("moved", "move", name, changes, notes, syntax, [patch.new_path])

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limits.file_bytes:
            raise TooLarge(f"patch: its files have more than {self._limits.file_bytes} bytes in all; apply it in parts")


def _mode_notes(patch: FilePatch) -> list[str]:
    return [f'the change of its mode is not made ("{line}")' for line in patch.mode_lines]
