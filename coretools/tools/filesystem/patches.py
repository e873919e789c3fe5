"""Read patches: unified diffs, also as git writes them, and the form that begins with `*** Begin Patch`.

Pure: text in, `FilePatch`es out. Paths are text here; the roots decide about them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from coretools.errors import InvalidArguments, Unsupported

MAX_LINES = 200_000
"""Lines of a patch; the largest one of a person's commits has some thousands."""

NOTHING = "/dev/null"

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"
_NO_NEWLINE = "\\"

_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_PREFIXES = re.compile(r"[abciow]/")
_GIT_NAMES = re.compile(r"diff --git (\"?[abciow]/.+?) (\"?[abciow]/.+)")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES = {"a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

Kind = Literal["add", "delete", "update"]


@dataclass(slots=True)
class PatchHunk:
    """Consecutive lines of a file, with those that are removed and added."""

    number: int
    """The line of the patch where it begins."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Mark (space, `-`, `+`) and text, without the line ending."""
    start: int | None = None
    """The line of the old file that it names, from 1; None if it names none."""
    anchors: list[str] = field(default_factory=list)
    """Lines above it, from outer to inner, after which it is."""
    is_at_end: bool = False
    """Whether its last line is the last one of the file."""
    ends_without_newline: dict[str, bool] = field(default_factory=dict)
    """By the mark of its last line before the remark: whether that side has no newline at its end."""

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [text for mark, text in self.lines if mark != "+"]

    @property
    def names_endings(self) -> bool:
        """Whether the lines have a CR where the file has one, as git writes them; else the file's endings are kept."""
        return any(text.endswith("\r") for _, text in self.lines)


@dataclass(slots=True)
class FilePatch:
    """What a patch does with one file."""

    kind: Kind
    path: str
    hunks: list[PatchHunk] = field(default_factory=list)
    new_path: str | None = None
    """Where the file is moved."""
    mode_lines: list[str] = field(default_factory=list)
    """Changes of the mode, which are not made."""

    def added_text(self) -> str:
        """The content of a new file."""
        lines = [text for hunk in self.hunks for mark, text in hunk.lines if mark == "+"]
        has_no_newline = bool(self.hunks) and self.hunks[-1].ends_without_newline.get("+", False)
        return "\n".join(lines) + ("\n" if lines and not has_no_newline else "")


def parse_patch(text: str) -> list[FilePatch]:
    """Read a patch of either form.

    Raises:
        InvalidArguments: it is neither, is incomplete, or changes nothing; with the line of the patch.
        Unsupported: a part of it can't be applied here: binary content, a copy, a link.
    """
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise InvalidArguments(f"patch: {len(lines)} lines; at most {MAX_LINES} at once")
    if all(line.endswith("\r") for line in lines[:-1]):  # a patch that was sent with CRLF
        lines = [line.removesuffix("\r") for line in lines]
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    is_marked = lines[first].strip() == _BEGIN
    patches = _MarkedPatch(lines, first + 1).read() if is_marked else _UnifiedPatch(lines).read()
    if not patches:
        raise InvalidArguments(
            f'patch: no file found in it; write a unified diff ("--- a/FILE", "+++ b/FILE", "@@ ... @@"), or'
            f' "{_BEGIN}", "{_UPDATE}FILE", ..., "{_END}"'
        )
    for patch in patches:
        if patch.kind == "update" and not patch.hunks and patch.new_path is None:
            what = ": the patch only changes its mode, which is not done here" if patch.mode_lines else ""
            raise InvalidArguments(f"{patch.path}: nothing to change{what}")
    return patches


class _MarkedPatch:
    """The form with `*** ` lines, which agents write: no line numbers, and a section for each file."""

    def __init__(self, lines: list[str], at: int) -> None:
        self._lines = lines
        self._at = at

    def read(self) -> list[FilePatch]:
        """Read all sections up to the end mark."""
        patches: list[FilePatch] = []
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip()
            self._at += 1
            if line == _END:
                return patches
            if line.startswith(_ADD):
                patches.append(FilePatch("add", line[len(_ADD) :].strip(), [self._read_hunk()]))
            elif line.startswith(_DELETE):
                patches.append(FilePatch("delete", line[len(_DELETE) :].strip()))
            elif line.startswith(_UPDATE):
                patches.append(self._read_update(line[len(_UPDATE) :].strip()))
            elif line:
                raise _fault(self._at, f"expected {_ADD}, {_DELETE}, {_UPDATE}PATH or {_END}")
        raise InvalidArguments(f"patch: it ends without {_END}; is a part of it missing?")

    def _read_update(self, path: str) -> FilePatch:
        patch = FilePatch("update", path)
        if self._peek().startswith(_MOVE):
            patch.new_path = self._peek()[len(_MOVE) :].strip()
            self._at += 1
        while self._peek() and not self._peek().startswith("*** "):
            anchors = []
            while self._peek().startswith("@@"):
                anchors.append(self._peek()[2:].strip().removesuffix("@@").strip())
                self._at += 1
            hunk = self._read_hunk()
            hunk.anchors = list(filter(None, anchors))
            if not hunk.lines:
                raise _fault(self._at, "a hunk without lines")
            patch.hunks.append(hunk)
        return patch

    def _read_hunk(self) -> PatchHunk:
        hunk = PatchHunk(self._at + 1)
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.rstrip() == _END_OF_FILE:
                hunk.is_at_end = True
                self._at += 1
                break
            if line.startswith(("*** ", "@@")):
                break
            if line[:1] not in ("", " ", "+", "-"):
                raise _fault(self._at + 1, "a line of a file begins with a space, - or +")
            hunk.lines.append((line[:1] or " ", line[1:]))
            self._at += 1
        return hunk

    def _peek(self) -> str:
        return self._lines[self._at] if self._at < len(self._lines) else ""


class _UnifiedPatch:
    """A unified diff. Lines that belong to no file, as the message of a commit, are skipped."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._patches: list[FilePatch] = []
        self._has_names = False
        """Whether the last patch has its `---` and `+++` lines."""

    def read(self) -> list[FilePatch]:
        """Read all files."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                self._begin_git(line)
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                self._read_names(line)
            elif line.startswith("@@ -"):
                self._read_hunk(line)
            elif self._patches and not self._patches[-1].hunks:
                self._read_header(line)
            self._at += 1
        return [patch for patch in self._patches if patch.path]

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _begin_git(self, line: str) -> None:
        names = _GIT_NAMES.fullmatch(line)
        # Only for an empty file: otherwise more certain lines follow.
        path = "" if names is None else _name(names[2])[2:]
        self._patches.append(FilePatch("update", path))
        self._has_names = False

    def _read_names(self, line: str) -> None:
        old, new = _name(line[4:]), _name(self._next()[4:])
        self._at += 1
        if old == NOTHING == new:
            raise _fault(self._at, f"both names are {NOTHING}")
        both = [name for name in (old, new) if name != NOTHING]
        if all(map(_PREFIXES.match, both)):
            old, new = (name if name == NOTHING else name[2:] for name in (old, new))
        if not self._patches or self._patches[-1].hunks or self._has_names:
            self._patches.append(FilePatch("update", ""))
        self._has_names = True
        patch = self._patches[-1]
        patch.kind = "add" if old == NOTHING else "delete" if new == NOTHING else "update"
        patch.path = new if old == NOTHING else old
        if NOTHING not in (old, new) and old != new and not new.startswith(f"{old}."):
            patch.new_path = new

    def _read_header(self, line: str) -> None:
        """Read an extended header of git."""
        patch = self._patches[-1]
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise Unsupported(f"patch, line {self._at + 1}: binary content, which can't be applied")
        if line.startswith(("copy from ", "copy to ")):
            raise Unsupported(f"patch, line {self._at + 1}: a copy; use copy_path, and a patch of the new file")
        if line.startswith("rename from "):
            patch.path = _name(line[len("rename from ") :])
        elif line.startswith("rename to "):
            patch.new_path = _name(line[len("rename to ") :])
        elif line.startswith(("new file mode ", "deleted file mode ", "old mode ", "new mode ")):
            if line.endswith(("120000", "160000")):
                raise Unsupported(f"patch, line {self._at + 1}: a link or a submodule, which is not changed here")
            if line.startswith(("new file", "deleted")):
                patch.kind = "add" if line.startswith("new") else "delete"
            if not line.startswith("deleted") and not line.endswith("100644"):
                patch.mode_lines.append(line)

    def _read_hunk(self, line: str) -> None:
        header = _RANGE.match(line)
        if header is None:
            raise _fault(self._at + 1, "a hunk begins with @@ -LINE,COUNT +LINE,COUNT @@")
        if not self._patches or not self._patches[-1].path:
            raise _fault(self._at + 1, 'a hunk before the lines "--- a/FILE" and "+++ b/FILE"')
        hunk = PatchHunk(self._at + 1, start=int(header[1]))
        missing = {"-": int(header[2] or 1), "+": int(header[3] or 1)}
        while self._at + 1 < len(self._lines) and self._belongs(self._next(), missing):
            self._at += 1
            line = self._lines[self._at]
            mark, text = line[:1] or " ", line[1:]
            if mark == _NO_NEWLINE:
                last = hunk.lines[-1][0] if hunk.lines else " "
                hunk.ends_without_newline.update(dict.fromkeys("-+" if last == " " else last, True))
                continue
            hunk.lines.append((mark, text))
            for side in "-+" if mark == " " else mark:
                missing[side] -= 1
        self._patches[-1].hunks.append(hunk)

    def _belongs(self, line: str, missing: dict[str, int]) -> bool:
        """Whether a line is the next one of a hunk. What is in it counts, if its header counts otherwise."""
        if line.startswith(_NO_NEWLINE):
            return True
        if missing["-"] > 0 or missing["+"] > 0:
            is_next_file = (
                line.startswith("--- ")
                and self._at + 2 < len(self._lines)
                and (self._lines[self._at + 2].startswith("+++ ") and missing["-"] <= 0)
            )
            is_last = line == "" and self._at + 2 >= len(self._lines)
            return line[:1] in ("", " ", "-", "+") and not is_next_file and not is_last
        # More than was counted. "-- " begins the signature of a mail, "--- " the next file.
        return line[:1] in (" ", "-", "+") and not line.startswith(("-- ", "--- ")) and line.rstrip() != "--"


def _name(text: str) -> str:
    """A file name of a header: unquoted, and without the time behind a tab."""
    if not text.startswith('"'):
        return text.partition("\t")[0].rstrip()
    body = text[1:].rpartition('"')[0]
    unescape: Callable[[re.Match[str]], str] = lambda found: (  # noqa: E731
        chr(int(found[1], 8)) if len(found[1]) == 3 else _ESCAPES.get(found[1], found[1])
    )
    # Octal escapes are bytes of UTF-8; other characters stand for themselves.
    raw = b"".join(
        piece.encode("latin-1") if is_escape else piece.encode("utf-8", "surrogatepass")
        for piece, is_escape in _pieces(body, unescape)
    )
    return raw.decode("utf-8", "replace")


def _pieces(body: str, unescape: Callable[[re.Match[str]], str]) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    at = 0
    for found in _ESCAPE.finditer(body):
        pieces += [(body[at : found.start()], False), (unescape(found), True)]
        at = found.end()
    return [*pieces, (body[at:], False)]


def _fault(number: int, what: str) -> InvalidArguments:
    return InvalidArguments(f"patch, line {number}: {what}")
