"""Conflicts as data: for each path its kind and the regions in conflict, or the versions that are in git's index."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from anyio import to_thread

from coretools.errors import CoreError
from coretools.operations.content import compact_json
from coretools.roots.read import read_bytes
from coretools.tools.answer_budget import cut_line, cut_lines, fitting, fitting_values
from coretools.tools.git.merging.conflict_answers import MAX_BYTES, SIDES, Stages, stages
from coretools.tools.git.merging.conflict_regions import Region, read_regions
from coretools.tools.git.merging.conflict_sides import sides
from coretools.tools.git.repository.checkout import path_of
from coretools.tools.git.repository.names import hidden_reason, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text, decoded, quoted
from coretools.tools.git.repository.results import GitResult, remarks
from coretools.truncation import Excerpt

KINDS = {
    (1, 2, 3): "both modified",
    (2, 3): "both added",
    (1, 2): "deleted by them",
    (1, 3): "deleted by us",
    (1,): "both deleted",
    (2,): "added by us",
    (3,): "added by them",
}

MAX_PATHS = 10
"""Paths whose content one answer has; the rest are listed by name."""

CONTEXT_LINES = 3
"""Lines shown before and after a region; more if the call names one path alone."""
CONTEXT_LINES_ALONE = 20
_CONTEXT_CHARACTERS = 160
"""Most characters shown of a line of context."""

SIDE_BYTES = 1_200
"""Most bytes of a side, of a region or of a file without regions, in a call that names no single path."""

_ANSWER = (
    "Answer with git_continue resolutions={path: answer}: 'ours', 'theirs', 'base' or 'delete' for the whole file, or a"
    " list with 'ours', 'theirs', 'both' or {'text': ...} for each region in order"
)
_NO_REGIONS = "no regions between markers in the file of the work tree; if it is resolved, git_add it"


class ConflictsResult(GitResult):
    """Paths in conflict: the regions with some lines around them, or where there are none the content of each side."""

    operation: str
    sides: dict[str, str]
    """What `ours` and `theirs` are, by branch or commit."""
    conflicts: list[dict[str, Any]]
    omitted: list[str]


async def conflicts(repository: OpenRepository, *, names: Sequence[str]) -> ConflictsResult:
    """Return the conflicts at or beneath the names (all without any). One path that is named alone gets more.

    Raises:
        DeniedPath: a name is hidden.
    """
    checkout = repository.checkout
    refuse_hidden(repository, names)
    versions = await stages(repository, names)
    facts = {"conflicts": len(versions), "tier": checkout.tier}
    if not versions:
        result = ConflictsResult(operation=checkout.in_progress, sides={}, conflicts=[], omitted=[])
        return result.with_text(["no conflicts", *remarks(checkout)], facts)
    named_sides = await sides(repository, versions)
    shown = list(versions)[:MAX_PATHS]
    is_alone = bool(names) and len(versions) == 1
    most_bytes = repository.git.answer_bytes * 8 // 10 // len(shown)
    reasons = {name: hidden_reason(repository, name) for name in shown}
    files = {name: await _file(repository, name) for name in shown if not reasons[name]}
    wanted = [name for name, file in files.items() if is_alone or not file.regions]
    contents = await _contents(repository, [version[1] for name in wanted for version in versions[name].values()])
    lines = [f"{side} is {text}" for side, text in named_sides.items()]
    records: list[dict[str, Any]] = []
    for name in shown:
        path, kind = path_of(checkout, name), KINDS[tuple(sorted(versions[name]))]
        options = _PathOptions(quoted(path), kind, most_bytes, is_alone=is_alone)
        content = _content(files[name], versions[name], contents, options) if name in files else {}
        lines.append(f"{quoted(path)}: {kind}{f' [hidden: {reasons[name]}]' if reasons[name] else ''}")
        lines += _lines(content)
        records.append({"path": as_text(path), "kind": kind, **content})
    records = fitting_values(records, repository.git.answer_bytes * 9 // 10)
    rest = [quoted(path_of(checkout, name)) for name in list(versions)[len(records) :]]
    omitted = fitting(rest, repository.git.answer_bytes // 10)
    more = [f"[{len(rest)} more; name paths: {', '.join(omitted)}]"] if rest else []
    result = ConflictsResult(operation=checkout.in_progress, sides=named_sides, conflicts=records, omitted=omitted)
    lines = fitting(lines, repository.git.answer_bytes * 9 // 10)
    return result.with_text([*lines, *more, _ANSWER, *remarks(checkout)], facts)


@dataclass(frozen=True, slots=True)
class _PathOptions:
    """How the conflict of one path is shown."""

    path: str
    kind: str
    most_bytes: int
    _: KW_ONLY
    is_alone: bool

    @property
    def way(self) -> str:
        """How to see what is left out."""
        return f"read_file path={self.path!r}" if self.is_alone else "name this path alone"


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the work tree, and its regions in conflict."""

    data: bytes
    regions: Sequence[Region]


async def _file(repository: OpenRepository, name: bytes) -> _File:
    path = f"{repository.checkout.directory.path}/{decoded(name)}"
    with suppress(CoreError):  # there need not be a file
        data = (await to_thread.run_sync(partial(read_bytes, repository.roots, path, limit_bytes=MAX_BYTES))).data
        return _File(data, read_regions(data))
    return _File(b"", ())


async def _contents(repository: OpenRepository, objects: Sequence[str]) -> dict[str, Excerpt]:
    """Return the content of objects: all by one process, or, if that is too much, head and tail of each by its own."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return {}
    stdin = "".join(f"{name}\n" for name in wanted).encode("ascii")
    output = require_success(await repository.run("cat-file", "--batch", stdin=stdin), "cat-file").stdout
    contents: dict[str, Excerpt] = {}
    if not output.dropped_bytes:
        rest = output.head + output.tail
        for name in wanted:
            head, _, rest = rest.partition(b"\n")
            size = int(head.split(b" ")[2])
            contents[name], rest = Excerpt(rest[:size], b"", 0), rest[size + 1 :]
        return contents
    for name in wanted:
        completed = await repository.run("cat-file", "blob", name, keep_bytes=repository.git.answer_bytes)
        contents[name] = require_success(completed, "cat-file").stdout
    return contents


def _content(file: _File, versions: Stages, contents: Mapping[str, Excerpt], options: _PathOptions) -> dict[str, Any]:
    """Return the regions of the file in the work tree; without any, or if the path is alone, its versions too."""
    content: dict[str, Any] = {}
    left = options.most_bytes
    if file.regions:
        content = _shown_regions(file, options)
        left -= len(compact_json(content))
    elif {2, 3} <= versions.keys():
        content["note"] = _NO_REGIONS
    if file.regions and (not options.is_alone or left < SIDE_BYTES):
        return content
    most = left // (2 * len(versions)) if options.is_alone else min(left // (2 * len(versions)), SIDE_BYTES)
    way = f"git_show path={options.path!r} with the revision of that side" if options.is_alone else options.way
    for side, stage in SIDES.items():
        if stage in versions:
            content[side] = _excerpt(contents[versions[stage][1]], most, way)
    return content


def _shown_regions(file: _File, options: _PathOptions) -> dict[str, Any]:
    """Return the regions that fit, each with lines around it."""
    lines, regions = file.data.splitlines(keepends=True), file.regions
    most_bytes = options.most_bytes // 2 if options.is_alone else SIDE_BYTES
    context = CONTEXT_LINES_ALONE if options.is_alone else CONTEXT_LINES
    ends = [0, *(region.last for region in regions)]
    starts = [*(region.first for region in regions[1:]), len(lines) + 1]
    records = []
    for region, end_before, start_after in zip(regions, ends, starts, strict=False):
        before = lines[max(end_before, region.first - 1 - context) : region.first - 1]
        after = lines[region.last : min(region.last + context, start_after - 1)]
        way = f"read_file path={options.path!r} offset={region.first}" if options.is_alone else options.way
        texts = {side: _excerpt(Excerpt(text, b"", 0), most_bytes, way) for side, text in region.texts.items()}
        records.append(
            {"lines": f"{region.first}-{region.last}", "before": _context(before), **texts, "after": _context(after)}
        )
    shown = fitting_values(records, options.most_bytes)
    content: dict[str, Any] = {"regions": shown}
    if len(shown) < len(records):
        line = regions[len(shown)].first
        content["note"] = (
            f"{len(records) - len(shown)} more of {len(records)} regions;"
            f" {f'read_file path={options.path!r} offset={line}' if options.is_alone else options.way}"
        )
    return content


def _context(lines: Sequence[bytes]) -> str:
    texts = (line.decode("utf-8", "replace").rstrip("\r\n") for line in lines)
    return "".join(f"{cut_line(text, longest=_CONTEXT_CHARACTERS)}\n" for text in texts)


def _lines(content: Mapping[str, Any]) -> list[str]:
    lines = []
    for number, region in enumerate(content.get("regions", ()), 1):
        lines.append(f"region {number}, lines {region['lines']} of the file:")
        lines += _indented(region["before"]) + _side_lines(region) + _indented(region["after"])
    lines += [f"[{content['note']}]"] if "note" in content else []
    if content.get("regions") and "ours" in content:
        lines.append("the whole file on each side:")
    return lines + _side_lines(content)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _side_lines(texts: Mapping[str, Any]) -> list[str]:
    present = [side for side in SIDES if side in texts]
    return [line for side in present for line in (f"<<< {side}", cut_lines(texts[side].removesuffix("\n")), ">>>")]


def _excerpt(content: Excerpt, budget: int, way: str) -> str:
    """Return the content, head and tail of a long one, in at most about `budget` bytes, also as JSON."""
    if b"\0" in content.head[:8000]:
        return f"[binary, {content.total_bytes} bytes]"
    short = _shortened(content, budget)
    size = len(json.dumps(short.text(), ensure_ascii=False).encode("utf-8", "replace"))
    if size > budget:  # newlines, quotes and control characters take more there
        short = _shortened(content, budget * budget // size)
    return short.text() + (f"[{short.dropped_bytes} bytes left out; {way}]" if short.dropped_bytes else "")


def _shortened(content: Excerpt, most_bytes: int) -> Excerpt:
    """Return head and tail of a content, half of the bytes each."""
    data, half = content.head + content.tail, max(most_bytes, 2) // 2
    if len(data) <= 2 * half:
        return content
    return Excerpt(data[:half], data[len(data) - half :], content.total_bytes - 2 * half)
