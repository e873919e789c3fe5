"""Conflicts as data: for each path its kind and the three versions of its content, as git keeps them in the index."""

import json
from collections.abc import Mapping, Sequence

from pydantic import PrivateAttr

from coretools.operations.content import Result
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import cut_lines, fitting, fitting_values
from coretools.tools.git.repository.checkout import Checkout, hidden_reason, path_of, refuse_hidden
from coretools.tools.git.repository.commands import Git, require_success
from coretools.tools.git.repository.porcelain import as_text, quoted
from coretools.tools.git.repository.results import remarks
from coretools.truncation import Excerpt

SIDES = {1: "base", 2: "ours", 3: "theirs"}
"""git's numbers of the versions (gitrevisions(7), `:<n>:<path>`)."""

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


class ConflictsResult(Result):
    """Paths in conflict, with bounded content of each side; a side that is not there is left out."""

    operation: str
    conflicts: list[dict[str, str]]
    omitted: list[str]
    _text: str = PrivateAttr("")
    _facts: Mapping[str, object] = PrivateAttr({})

    @classmethod
    def of(
        cls,
        operation: str,
        conflicts: list[dict[str, str]],
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
    found = await _stages(git, checkout, names)
    shown = list(found)[:MAX_PATHS]
    budget = git.answer_bytes * 7 // 10 // (3 * len(shown)) - 100 if shown else 0
    lines: list[str] = [] if found else ["no conflicts"]
    records: list[dict[str, str]] = []
    for name in shown:
        reason = hidden_reason(roots, checkout, name)
        path, kind = path_of(checkout, name), KINDS[tuple(sorted(found[name]))]
        versions = {} if reason else await _versions(git, checkout, found[name], budget)
        lines.append(f"{quoted(path)}: {kind}{f' [hidden: {reason}]' if reason else ''}")
        for side, text in versions.items():
            lines += [f"<<< {side}", cut_lines(text.removesuffix("\n")), ">>>"]
        records.append({"path": as_text(path), "kind": kind, **versions})
    records = fitting_values(records, git.answer_bytes * 9 // 10)
    rest = [quoted(path_of(checkout, name)) for name in list(found)[len(records) :]]
    omitted = fitting(rest, git.answer_bytes // 10)
    lines = fitting(lines, git.answer_bytes * 9 // 10)
    lines += [f"[{len(rest)} more; name paths: {', '.join(omitted)}]"] if rest else []
    body = "\n".join([*lines, *remarks(checkout)])
    facts = {"conflicts": len(found), "tier": checkout.tier}
    return ConflictsResult.of(checkout.in_progress, records, omitted, body=body, facts=facts)


async def _versions(git: Git, checkout: Checkout, stages: Mapping[int, str], budget: int) -> dict[str, str]:
    return {SIDES[stage]: await _content(git, checkout, name, budget) for stage, name in sorted(stages.items())}


async def _stages(git: Git, checkout: Checkout, names: Sequence[str]) -> dict[bytes, dict[int, str]]:
    """Return the object names of the versions of each path in conflict."""
    found: dict[bytes, dict[int, str]] = {}
    output = await git.output(checkout, "ls-files", "--unmerged", "-z", "--", *names)
    for record in output.split(b"\0"):
        fields, _, name = record.partition(b"\t")
        if name:
            _, object_name, stage = fields.decode("ascii").split(" ")
            found.setdefault(name, {})[int(stage)] = object_name
    return found


async def _content(git: Git, checkout: Checkout, object_name: str, budget: int) -> str:
    """Return the content, head and tail of a long one, in at most about `budget` bytes, also as JSON."""
    excerpt = await _excerpt(git, checkout, object_name, budget)
    if b"\0" in excerpt.head:
        return f"[binary, {len(excerpt.head) + len(excerpt.tail) + excerpt.dropped_bytes} bytes]"
    size = len(json.dumps(excerpt.text(), ensure_ascii=False).encode("utf-8", "replace"))
    if size > budget:  # newlines, quotes and control characters take more there
        excerpt = await _excerpt(git, checkout, object_name, budget * budget // size)
    more = f"[{excerpt.dropped_bytes} bytes left out; name this path alone, or git_show path=]"
    return excerpt.text() + (more if excerpt.dropped_bytes else "")


async def _excerpt(git: Git, checkout: Checkout, object_name: str, most_bytes: int) -> Excerpt:
    completed = await git.run(checkout, "cat-file", "blob", object_name, keep_bytes=most_bytes)
    return require_success(completed, "cat-file").stdout
