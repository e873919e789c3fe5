"""The log: commits of a revision or range, selected by author, date, message, path or changed text.

A search for changed text (git's pickaxe) also looks into files that are hidden from tools. git lists the files that
matched with each commit; a commit in which only hidden files matched is left out, and neither the count nor the paging
shows that there was one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex

from coretools.errors import InvalidArguments
from coretools.operations.content import UnlessEmpty
from coretools.tools.answer_budget import cut_line, fitting_values
from coretools.tools.git.reading.references import head_commit
from coretools.tools.git.reading.revisions import Range, range_argument, require_known
from coretools.tools.git.repository.checkout import Checkout, path_of
from coretools.tools.git.repository.names import hidden_reason, refuse_hidden, refuse_unknown
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, quoted, single_line
from coretools.tools.git.repository.results import GitResult

TEXT_CHARACTERS = 500
"""Longest text to search for."""

MAX_SKIP = 1_000_000
"""Most commits skipped."""

BODY_LINES = 50
"""Lines of a message shown for each commit."""

_FIELDS = ("%H", "%h", "%aI", "%an", "%ae", "%D", "%P", "%s", "%b")
_OPTIONS = (
    *("-z", "--abbrev=10", "--no-show-signature", "--no-color", "--decorate=short", "--no-mailmap", "--no-notes"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-renames", "--fixed-strings", "--no-follow"),
)
_EVERYTHING = ("--exclude=refs/stash", "--exclude=refs/notes/*", "--all")

_UNITS = r"(second|minute|hour|day|week|month|year)s?"
_DATE = re.compile(
    r"\d{4}-\d\d?-\d\d?([T ]\d\d:\d\d(:\d\d)?( ?Z| ?[+-]\d\d:?\d\d)?)?"
    rf"|@?\d{{9,11}}|\d{{1,6}}[ .]{_UNITS}[ .]ago|now|yesterday|today"
)
_DAY = re.compile(r"\d{4}-\d\d?-\d\d?|today")

_RAW = re.compile(rb"\n?:[0-7]{6} [0-7]{6} [0-9a-f.]+ [0-9a-f.]+ [A-Z][0-9]*")
_COUNT = re.compile(rb"\n?(\d+|-)\t(\d+|-)\t(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which commits, and what of them."""

    revision: str
    """Empty: HEAD."""
    names: Sequence[str]
    limit: int
    skip: int
    author: str
    since: str
    until: str
    message: str
    """Text in the message."""
    changed: str
    """Text that the commit adds or removes: its number of occurrences differs (`-S`)."""
    in_lines: bool
    """Text in an added or removed line instead (`-G`)."""
    all_branches: bool
    follow: bool
    stat: bool
    body: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a log."""

    fields: Sequence[str]
    files: Sequence[tuple[bytes, str, str]]
    """Name, lines added and lines removed; `-` for a binary file."""
    matched: Sequence[bytes]
    """Names of the files in which a search for changed text matched."""

    def lines(self, checkout: Checkout, *, body: bool) -> list[str]:
        """The commit as lines of text."""
        _, short, date, author, _, names, _, summary, message = self.fields
        lines = [single_line(f"{short} {date} {author}: {summary}{f' ({names})' if names else ''}")]
        if body:
            text = message.strip("\n").split("\n") if message.strip() else []
            lines += [f"    {single_line(line)}".rstrip() for line in text[:BODY_LINES]]
            lines += [f"    [{len(text) - BODY_LINES} more lines]"] if len(text) > BODY_LINES else []
        lines += [f"    {quoted(path_of(checkout, name))} | {_change(more, less)}" for name, more, less in self.files]
        return [cut_line(line) for line in lines]

    def record(self, checkout: Checkout, *, body: bool) -> dict[str, object]:
        """The commit as structured content: `parents` of a merge alone, and the address only with the message."""
        commit, _, date, author, address, names, parents, summary, message = self.fields
        record: dict[str, object] = {"commit": commit, "date": date, "author": author, "summary": summary}
        record |= {"parents": parents.split()} if " " in parents else {}
        record |= {"refs": names.split(", ")} if names else {}
        record |= {"email": address, "body": message.strip("\n")} if body else {}
        if self.files:
            record["files"] = [
                {"path": as_text(path_of(checkout, name)), "added": more, "removed": less}
                for name, more, less in self.files
            ]
        return record


class LogResult(GitResult):
    """Commits, newest first."""

    commits: list[dict[str, object]]
    next_skip: UnlessEmpty[int]
    """The `skip` that continues; 0 at the end."""

    @classmethod
    def of(cls, commits: Sequence[Commit], checkout: Checkout, options: LogOptions, *, budget: int) -> "LogResult":
        """Build the result with the commits that fit, as text and as structured content."""
        if not commits:
            return cls.without(f"no commits {_empty(options)}", checkout)
        records = fitting_values((one.record(checkout, body=options.body) for one in commits[: options.limit]), budget)
        lines: list[str] = []
        shown = 0
        for commit in commits[: len(records)]:
            more = commit.lines(checkout, body=options.body)
            budget -= sum(len(line.encode("utf-8", "replace")) + 1 for line in more)
            if budget < 0:
                break
            lines += more
            shown += 1
        if not shown:
            lines = [commits[0].lines(checkout, body=False)[0], "    [too long for an answer: git_show]"]
            records, shown = [{"commit": commits[0].fields[0]}], 1
        next_skip = options.skip + shown if len(commits) > shown else 0
        lines += [f"[more commits; go on with skip={next_skip}]"] if next_skip else []
        result = cls(commits=records[:shown], next_skip=next_skip)
        return result.with_answer(checkout, lines, details={"commits": shown})

    @classmethod
    def without(cls, text: str, checkout: Checkout) -> "LogResult":
        """The result without commits."""
        return cls(commits=[], next_skip=0).with_answer(checkout, [text], details={"commits": 0})


async def log(repository: OpenRepository, options: LogOptions) -> LogResult:
    """Return commits.

    Raises:
        InvalidArguments: not a revision, date or text. NotFound: no such revision; a name matches nothing.
        DeniedPath: changed text is searched in a hidden file.
    """
    _require_valid(options)
    if options.changed:
        refuse_hidden(repository, options.names)
    start = await range_argument(repository, options.revision) if options.revision else Range("HEAD", ["HEAD"], [])
    if options.changed:
        commits = await _changing(repository, options, start)
    else:
        commits = await _commits(repository, options, start, counts=(options.skip, options.limit + 1))
    if commits is None:
        return LogResult.without("no commits yet", repository.checkout)
    if not commits:
        await refuse_unknown(repository, options.names, trees=() if options.all_branches else start.sides)
    return LogResult.of(commits, repository.checkout, options, budget=repository.git.answer_bytes)


async def _changing(repository: OpenRepository, options: LogOptions, start: Range) -> list[Commit] | None:
    """Return the commits in which a file that is not hidden matched.

    git counts the others too. It is asked again for more until enough are left, so the answer does not depend on them.
    """
    wanted = options.skip + options.limit + 1
    most = wanted
    while True:
        commits = await _commits(repository, options, start, counts=(0, most))
        if commits is None:
            return None
        seen: dict[bytes, bool] = {}
        for name in {name for commit in commits for name in commit.matched}:
            seen[name] = not hidden_reason(repository, name)
        visible = [commit for commit in commits if any(seen[name] for name in commit.matched)]
        if len(visible) >= wanted or len(commits) < most:
            return visible[options.skip : wanted]
        most *= 4


async def _commits(
    repository: OpenRepository, options: LogOptions, start: Range, *, counts: tuple[int, int]
) -> list[Commit] | None:
    """Run git once; None if there is no commit yet."""
    mark = token_hex(8)  # nothing in a repository can contain it, so it separates the commits exactly
    skip, most = counts
    words = ["log", f"--format=tformat:{mark}{'%x00'.join(_FIELDS)}%x00", *_OPTIONS, *_selection(options)]
    words += [f"--skip={skip}", f"--max-count={most}", *(_EVERYTHING if options.all_branches else [start.argument])]
    completed = await repository.run(*words, "--", *options.names)
    # Only the text of git's error says that there is no commit yet, so that is checked separately.
    if not completed.ok and not options.revision and not await head_commit(repository):
        return None
    await require_known(repository, completed, "log", *start.given)
    return list(_read(repository.complete_output(completed, "log"), mark.encode()))


def _selection(options: LogOptions) -> Iterator[str]:
    texts = {"--author=": options.author, "--grep=": options.message}
    texts |= {"--since=": _with_time(options.since, "00:00:00")}
    texts |= {"--until=": _with_time(options.until, "23:59:59")}
    yield from (f"{option}{text}" for option, text in texts.items() if text)
    if options.changed:
        yield from (f"-G{_literal(options.changed)}" if options.in_lines else f"-S{options.changed}", "--raw")
    if options.stat:
        yield "--numstat"
    if options.follow:
        yield "--follow"


def _read(output: bytes, mark: bytes) -> Iterator[Commit]:
    for part in output.split(mark)[1:]:
        *fields, rest = part.split(b"\0", len(_FIELDS))
        matched: list[bytes] = []
        files: list[tuple[bytes, str, str]] = []
        records = iter(rest.split(b"\0"))
        for record in records:
            if _RAW.fullmatch(record):
                matched.append(next(records, b""))
            elif (count := _COUNT.fullmatch(record)) is not None:
                files.append((count[3], count[1].decode("ascii"), count[2].decode("ascii")))
        yield Commit([as_text(field) for field in fields], files, matched)


def _require_valid(options: LogOptions) -> None:
    """Refuse what git would take in another way than the caller means it.

    Raises:
        InvalidArguments: a text that is too long or has more than one line, something that is no date, or arguments
            that do not go together.
    """
    for name, text in {"by": options.author, "grep": options.message, "changed": options.changed}.items():
        if len(text) > TEXT_CHARACTERS or not {"\0", "\n", "\r"}.isdisjoint(text):
            raise InvalidArguments(f"{name}: must be one line of at most {TEXT_CHARACTERS} characters")
    for name, text in {"since": options.since, "until": options.until}.items():
        if text and not _DATE.fullmatch(text):
            raise InvalidArguments(
                f"{name} {text[:40]!a}: not a date; 2026-11-01, 2026-11-01T12:00 or '2 weeks ago' are"
            )
    together = {
        "follow: goes with the path of one file": options.follow and list(options.names) in ([], ["."]),
        "all_branches: goes without a revision": options.all_branches and options.revision,
        "in_lines: goes with changed, the text to search for": options.in_lines and not options.changed,
    }
    for message, is_wrong in together.items():
        if is_wrong:
            raise InvalidArguments(message)


def _with_time(date: str, time: str) -> str:
    # git takes the present time of day for a date without one.
    return f"{date} {time}" if _DAY.fullmatch(date) else date


def _literal(text: str) -> str:
    """Return an extended regular expression of git that matches only this text."""
    return re.sub(r"([][\\.*^$+?(){}|])", r"\\\1", text)


def _change(more: str, less: str) -> str:
    return "binary" if more == "-" else f"+{more} -{less}"


def _empty(options: LogOptions) -> str:
    if options.skip:
        return f"after skip={options.skip}"
    if any((options.author, options.since, options.until, options.message, options.changed)):
        return "match"
    return "touch this path" if options.names else "in this range"
