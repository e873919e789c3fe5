"""Patches as text and as structured content: whole hunks with numbers, and summaries of generated and large files.

Pure. What a program wrote (lock files, generated and minified files), and a file that takes more than an answer among
others, is summarised unless the caller names the file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.repository.patches import FilePatch, Hunk
from coretools.tools.git.repository.porcelain import as_text, quoted

LOCK_FILES = frozenset(
    b"package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock Cargo.lock poetry.lock uv.lock pdm.lock"
    b" Pipfile.lock pixi.lock composer.lock Gemfile.lock go.sum flake.lock mix.lock Podfile.lock Package.resolved"
    b" packages.lock.json gradle.lockfile pubspec.lock conan.lock deno.lock .terraform.lock.hcl".split()
)

MINIFIED_LINE = 1_000
"""Length of lines from which a changed file counts as minified, if its name does not say so."""

MOST_LINES = 10_000
"""Lines at the start, and at the end, of a hunk that are looked at: an answer holds fewer."""

_REMARK = 80
"""Bytes for the remark within a hunk that is cut."""

_LONG_LINE = re.compile(rb"[^\n]{%d}" % MINIFIED_LINE)
_MINIFIED = re.compile(rb".*[.-]min\.(js|css|mjs)|.*\.(js|css)\.map", re.DOTALL)
_WORDS = {b"-": ("[-", "-]"), b"+": ("{+", "+}"), b" ": ("", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchOptions:
    """How patches are shown."""

    budget: int
    """Bytes of text, and again of structured content."""
    skip: int
    """Hunks left out at the start."""
    path: Callable[[bytes], bytes]
    """Converts one of git's names to a path."""
    named: frozenset[bytes]
    """Names that the caller wrote: they are shown in any case."""
    generated: frozenset[bytes]
    """Names that an attribute says are generated."""
    by_word: bool
    is_single: bool
    """Only one file changed."""


@dataclass(slots=True)
class PatchText:
    """What fits of a patch."""

    lines: list[str] = field(default_factory=list)
    files: list[dict[str, object]] = field(default_factory=list)
    next_skip: int = 0
    """The `skip` that continues; 0 at the end."""
    cut_lines: int = 0
    """Lines left out of a hunk that is too long for an answer."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What is shown or left out as one: a hunk, or a file without shown hunks."""

    file: FilePatch
    reason: str
    """Why only a summary of the file is shown, or ""."""
    hunk: Hunk | None


def patch_text(files: Iterable[FilePatch], options: PatchOptions) -> PatchText:
    """Return the hunks that fit, whole. Only one that is longer than an answer is cut, to its head and tail."""
    text = PatchText()
    room, room_of_data = options.budget, options.budget
    current: FilePatch | None = None
    for position, block in enumerate(_blocks(files, options)):
        if position < options.skip:
            continue
        is_first = block.file is not current
        lines = [cut_line(as_text(line)) for line in block.file.header] if is_first else []
        lines += _lines(block, options)
        record = _record(block, options) if is_first else _hunk_record(block.hunk)
        size, size_of_data = _size(lines), len(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
        if text.lines and (size > room or size_of_data > room_of_data):
            text.next_skip = position
            break
        if size > room:
            lines, text.cut_lines = _cut(lines, room, block.hunk)
        current, room, room_of_data = block.file, room - size, room_of_data - size_of_data
        text.lines += lines
        if is_first:
            text.files.append(record)
        else:
            text.files[-1]["hunks"] = [*_list(text.files[-1]["hunks"]), record]
    return text


def summary_reason(file: FilePatch, options: PatchOptions) -> str:
    """Return why a file is only summarised, or ""."""
    if not file.hunks or file.name in options.named:
        return ""
    base = file.name.rpartition(b"/")[2]
    size = sum(len(hunk.body) + 1 for hunk in file.hunks)
    reasons = {
        "generated": file.name in options.generated,
        "lock file": base in LOCK_FILES,
        "minified": bool(_MINIFIED.fullmatch(base)) or any(_LONG_LINE.search(hunk.body) for hunk in file.hunks),
        "large": size > options.budget and not options.is_single,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _blocks(files: Iterable[FilePatch], options: PatchOptions) -> Iterator[_Block]:
    for file in files:
        reason = summary_reason(file, options)
        if reason or not file.hunks:
            yield _Block(file, reason, None)
        else:
            yield from (_Block(file, "", hunk) for hunk in file.hunks)


def _lines(block: _Block, options: PatchOptions) -> Iterator[str]:
    if block.reason:
        added, removed = _counts(block.file)
        path = quoted(options.path(block.file.name))
        hunks = len(block.file.hunks)
        yield f"[{block.reason}: +{added} -{removed} lines in {hunks} hunks not shown; paths=[{path!r}] shows them]"
    if block.hunk is None:
        return
    hunk = block.hunk
    name = "" if options.by_word else f" [hunk {hunk.number} {hunk.id}]"
    yield cut_line(f"{hunk.position}{name}{' ' if hunk.section else ''}{as_text(hunk.section)}")
    lines = _bounded(hunk)
    yield from map(cut_line, _words(lines) if options.by_word else map(as_text, lines))


def _bounded(hunk: Hunk) -> list[bytes]:
    """Return the lines of a hunk; of a very long one more at its start and end than an answer can hold."""
    if hunk.body.count(b"\n") <= 2 * MOST_LINES:
        return hunk.lines
    return hunk.body.split(b"\n", MOST_LINES)[:-1] + hunk.body.rsplit(b"\n", MOST_LINES)[1:]


def _words(lines: Sequence[bytes]) -> Iterator[str]:
    """Join the pieces of `--word-diff=porcelain` to lines: `kept [-removed-]{+added+}`."""
    joined = ""
    for line in lines:
        if line == b"~":
            yield joined
            joined = ""
        else:
            before, after = _WORDS.get(line[:1], ("", ""))
            joined += f"{before}{as_text(line[1:])}{after}"
    if joined:
        yield joined


def _record(block: _Block, options: PatchOptions) -> dict[str, object]:
    file = block.file
    record: dict[str, object] = {"path": as_text(options.path(file.name)), "change": _change(file)}
    if file.old is not None and file.new is not None and file.old != file.new:
        record["from"] = as_text(options.path(file.old))
    if not options.by_word:
        record["added"], record["removed"] = _counts(file)
    if block.reason or file.is_binary:
        record["not_shown"] = block.reason or "binary"
    record["hunks"] = [] if block.hunk is None or options.by_word else [_hunk_record(block.hunk)]
    return record


def _hunk_record(hunk: Hunk | None) -> dict[str, object]:
    if hunk is None:
        return {}
    counts = {"added": hunk.added, "removed": hunk.removed}
    return {"number": hunk.number, "id": hunk.id, "position": hunk.position, **counts}


def _change(file: FilePatch) -> str:
    if file.is_conflict:
        return "conflict"
    if file.old is None:
        return "added"
    if file.new is None:
        return "deleted"
    words = (b"rename from ", "renamed"), (b"copy from ", "copied")
    moves = [word for start, word in words if any(line.startswith(start) for line in file.header)]
    return moves[0] if moves else "modified"


def _counts(file: FilePatch) -> tuple[int, int]:
    return sum(hunk.added for hunk in file.hunks), sum(hunk.removed for hunk in file.hunks)


def _cut(lines: list[str], room: int, hunk: Hunk | None) -> tuple[list[str], int]:
    """Return the first and the last lines that fit, and the number of those between them."""
    head = fitting(lines, room // 2)
    tail = fitting(reversed(lines[len(head) :]), room // 2 - _REMARK)[::-1]
    rest = len(lines) - len(head) - len(tail)
    rest += 0 if hunk is None else max(0, hunk.body.count(b"\n") + 1 - 2 * MOST_LINES)
    return [*head, f"[... {rest} lines of this hunk left out ...]", *tail], rest


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
