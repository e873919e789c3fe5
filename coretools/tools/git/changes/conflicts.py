"""Conflicts as data: for each path its kind, the versions that git keeps in the index, and the regions of the file."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from anyio import to_thread
from pydantic import PrivateAttr

from coretools.errors import CoreError
from coretools.operations.content import Result
from coretools.roots.read import read_bytes
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import cut_lines, fitting, fitting_values
from coretools.tools.git.changes.conflict_answers import MAX_BYTES, SIDES, Stages, stages
from coretools.tools.git.changes.conflict_regions import Region, read_regions
from coretools.tools.git.repository.checkout import Checkout, hidden_reason, path_of, refuse_hidden
from coretools.tools.git.repository.commands import Git, require_success
from coretools.tools.git.repository.porcelain import as_text, quoted
from coretools.tools.git.repository.results import remarks
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

_ANSWER = (
    "Answer: git_continue resolutions={path: 'ours', 'theirs', 'base', {'text': ...}, or a list, one for each region}"
)


class ConflictsResult(Result):
    """Paths in conflict, with bounded content of each side; a side that is not there is left out."""

    operation: str
    conflicts: list[dict[str, Any]]
    omitted: list[str]
    _text: str = PrivateAttr("")
    _facts: Mapping[str, object] = PrivateAttr({})

    @classmethod
    def of(
        cls,
        operation: str,
        conflicts: list[dict[str, Any]],
        omitted: list[str],
        *,
        body: str,
        facts: Mapping[str, object],
    ) -> "ConflictsResult":
        """Build the result with its text and facts."""
        result = cls(operation=operation, conflicts=conflicts, omitted=omitted)
        result._text, result._facts = body, facts
        return result

    def text(self) -> str:
        """Each path with its versions."""
        return self._text

    def facts(self) -> dict[str, object]:
        """Counts, and the tier in which git was confined."""
        return dict(self._facts)


async def conflicts(roots: Roots, git: Git, checkout: Checkout, *, names: Sequence[str]) -> ConflictsResult:
    """Return the conflicts at or beneath the names (all without any).

    Raises:
        DeniedPath: a name is hidden.
    """
    refuse_hidden(roots, checkout, names)
    found = await stages(git, checkout, names)
    shown = list(found)[:MAX_PATHS]
    reasons = {name: hidden_reason(roots, checkout, name) for name in shown}
    objects = [version[1] for name in shown if not reasons[name] for version in found[name].values()]
    contents = await _contents(git, checkout, objects)
    budget = git.answer_bytes * 7 // 10 // (5 * len(shown)) - 100 if shown else 0
    lines: list[str] = [] if found else ["no conflicts"]
    records: list[dict[str, Any]] = []
    for name in shown:
        path, kind = path_of(checkout, name), KINDS[tuple(sorted(found[name]))]
        lines.append(f"{quoted(path)}: {kind}{f' [hidden: {reasons[name]}]' if reasons[name] else ''}")
        texts = {} if reasons[name] else await _texts(roots, checkout, name, found[name], contents, budget)
        lines += _lines(texts)
        records.append({"path": as_text(path), "kind": kind, **texts})
    records = fitting_values(records, git.answer_bytes * 9 // 10)
    rest = [quoted(path_of(checkout, name)) for name in list(found)[len(records) :]]
    omitted = fitting(rest, git.answer_bytes // 10)
    body = _body(checkout, fitting(lines, git.answer_bytes * 9 // 10), rest, omitted, is_any=bool(found))
    facts = {"conflicts": len(found), "tier": checkout.tier}
    return ConflictsResult.of(checkout.in_progress, records, omitted, body=body, facts=facts)


def _body(
    checkout: Checkout, lines: Sequence[str], rest: Sequence[str], omitted: Sequence[str], *, is_any: bool
) -> str:
    more = [f"[{len(rest)} more; name paths: {', '.join(omitted)}]"] if rest else []
    return "\n".join([*lines, *more, *([_ANSWER] if is_any else []), *remarks(checkout)])


async def _contents(git: Git, checkout: Checkout, objects: Sequence[str]) -> dict[str, Excerpt]:
    """Return the content of objects: all by one process, or, if that is too much, head and tail of each by its own."""
    wanted = list(dict.fromkeys(objects))
    if not wanted:
        return {}
    stdin = "".join(f"{name}\n" for name in wanted).encode("ascii")
    output = require_success(await git.run(checkout, "cat-file", "--batch", stdin=stdin), "cat-file").stdout
    found: dict[str, Excerpt] = {}
    if not output.dropped_bytes:
        rest = output.head + output.tail
        for name in wanted:
            head, _, rest = rest.partition(b"\n")
            size = int(head.split(b" ")[2])
            found[name], rest = Excerpt(rest[:size], b"", 0), rest[size + 1 :]
        return found
    for name in wanted:
        completed = await git.run(checkout, "cat-file", "blob", name, keep_bytes=git.answer_bytes)
        found[name] = require_success(completed, "cat-file").stdout
    return found


async def _texts(
    roots: Roots, checkout: Checkout, name: bytes, versions: Stages, contents: Mapping[str, Excerpt], budget: int
) -> dict[str, Any]:
    """Return the versions of a path, and the regions of the file in the work tree if it has any."""
    texts: dict[str, Any] = {
        side: _excerpt(contents[versions[stage][1]], budget) for side, stage in SIDES.items() if stage in versions
    }
    path = f"{checkout.directory.path}/{name.decode('utf-8', 'surrogateescape')}"
    regions: list[Region] = []
    with suppress(CoreError):  # there need not be a file
        content = await to_thread.run_sync(partial(read_bytes, roots, path, limit_bytes=MAX_BYTES))
        regions = read_regions(content.data)
    if regions:
        texts["regions"] = [_region(region, budget // (2 * len(regions))) for region in regions]
    return texts


def _region(region: Region, budget: int) -> dict[str, str]:
    texts = {side: _excerpt(Excerpt(text, b"", 0), budget) for side, text in region.texts.items()}
    return {"lines": f"{region.first}-{region.last}", **texts}


def _lines(texts: Mapping[str, Any]) -> list[str]:
    lines = _side_lines(texts)
    for number, region in enumerate(texts.get("regions", ()), 1):
        lines += [f"region {number}, lines {region['lines']} of the file:", *_side_lines(region)]
    return lines


def _side_lines(texts: Mapping[str, Any]) -> list[str]:
    sides = [side for side in SIDES if side in texts]
    return [line for side in sides for line in (f"<<< {side}", cut_lines(texts[side].removesuffix("\n")), ">>>")]


def _excerpt(content: Excerpt, budget: int) -> str:
    """Return the content, head and tail of a long one, in at most about `budget` bytes, also as JSON."""
    if b"\0" in content.head[:8000]:
        return f"[binary, {content.total_bytes} bytes]"
    short = _shortened(content, budget)
    size = len(json.dumps(short.text(), ensure_ascii=False).encode("utf-8", "replace"))
    if size > budget:  # newlines, quotes and control characters take more there
        short = _shortened(content, budget * budget // size)
    more = f"[{short.dropped_bytes} bytes left out; name this path alone, or git_show path=]"
    return short.text() + (more if short.dropped_bytes else "")


def _shortened(content: Excerpt, most_bytes: int) -> Excerpt:
    """Return head and tail of a content, half of the bytes each."""
    data, half = content.head + content.tail, max(most_bytes, 2) // 2
    if len(data) <= 2 * half:
        return content
    return Excerpt(data[:half], data[len(data) - half :], content.total_bytes - 2 * half)
