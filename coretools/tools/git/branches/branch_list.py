"""List branches: the last used first, with upstream, distance and last commit."""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import InvalidArguments
from coretools.operations.content import UnlessEmpty
from coretools.tools.answer_budget import cut_line, fitting, fitting_values
from coretools.tools.git.reading.revisions import commit_argument, require_known
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, read_records, single_line
from coretools.tools.git.repository.results import GitResult

MAX_BRANCHES = 500
"""Branches read; an answer has room for fewer."""

PATTERN_CHARACTERS = 200
"""Longest pattern of names."""

MAX_STARS = 3
"""Most `*` in it: git tries all ways to match them."""

_FIELDS = (
    *("%(HEAD)", "%(refname)", "%(objectname)", "%(upstream:short)", "%(upstream:track,nobracket)"),
    *("%(committerdate:short)", "%(authorname)", "%(contents:subject)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOptions:
    """Which branches."""

    remote: bool
    pattern: str
    merged: str
    no_merged: str
    contains: str


class BranchesResult(GitResult):
    """Branches, the last used first."""

    branches: list[dict[str, object]]
    more: UnlessEmpty[bool]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]], checkout: Checkout, *, budget: int, empty: str) -> "BranchesResult":
        """Build the result with the branches that fit, as text and as structured content."""
        lines = fitting((cut_line(_line(row)) for row in rows), budget)
        records = fitting_values(map(_record, rows), budget)
        count = min(len(lines), len(records), MAX_BRANCHES)
        result = cls(branches=records[:count], more=count < len(rows))
        lines = lines[:count] if rows else [empty]
        if result.more:
            number = f"at least {len(rows) - count}" if len(rows) > MAX_BRANCHES else str(len(rows) - count)
            lines.append(f"[{number} more branches; pattern='name*' narrows the list]")
        return result.with_answer(checkout, lines, details={"branches": count})


async def list_branches(repository: OpenRepository, options: BranchOptions) -> BranchesResult:
    """Return branches.

    Raises:
        InvalidArguments: not a pattern or revision. NotFound: a revision names no commit.
    """
    given = {"--merged": options.merged, "--no-merged": options.no_merged, "--contains": options.contains}
    asked = [revision for revision in given.values() if revision]
    words = [f"{word}={await commit_argument(repository, rev)}" for word, rev in given.items() if rev]
    words += [f"--count={MAX_BRANCHES + 1}", "--sort=-committerdate", f"--format={'%00'.join(_FIELDS)}%00"]
    completed = await repository.run("for-each-ref", *words, *_patterns(options))
    known = await require_known(repository, completed, "for-each-ref", *asked)
    output = repository.complete_output(known, "for-each-ref")
    # One record per line. No field holds a newline: each is a name, a number or a summary.
    records = read_records(output.replace(b"\0\n", b"\0"), len(_FIELDS))
    rows = [[as_text(field) for field in record] for record in records]
    empty = "no branches match" if options.pattern or asked else "no branches yet"
    return BranchesResult.of(rows, repository.checkout, budget=repository.git.answer_bytes, empty=empty)


def _patterns(options: BranchOptions) -> list[str]:
    pattern = options.pattern
    if len(pattern) > PATTERN_CHARACTERS or not pattern.isprintable() or pattern.count("*") > MAX_STARS:
        raise InvalidArguments(f"pattern: a name with at most {MAX_STARS} *, and {PATTERN_CHARACTERS} characters")
    spaces = ["refs/heads/", *(["refs/remotes/"] if options.remote else [])]
    # The name of a remote branch begins with the remote.
    spaces += ["refs/remotes/*/"] if options.remote and pattern else []
    return [f"{space}{pattern}" for space in spaces]


def _short_name(name: str) -> str:
    return name.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def _line(row: Sequence[str]) -> str:
    mark, name, commit, upstream, track, date, _, summary = row
    following = f" [{upstream}{': ' + track if track else ''}]" if upstream else ""
    return single_line(f"{mark} {_short_name(name)} {commit[:10]} {date}{following} {summary}")


def _record(row: Sequence[str]) -> dict[str, object]:
    mark, name, commit, upstream, track, date, author, summary = row
    record: dict[str, object] = {"name": _short_name(name), "commit": commit, "date": date, "author": author}
    record |= {"summary": summary}
    record |= {"current": True} if mark == "*" else {}
    record |= {"remote": True} if name.startswith("refs/remotes/") else {}
    record |= {"upstream": upstream} if upstream else {}
    record |= {"track": track} if track else {}
    return record
