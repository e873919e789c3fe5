"""Show one commit, tag or file of a revision, and who last changed the lines of a file.

Content of hidden files is left out as in `history`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from coretools.errors import InvalidArguments, NotFound
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.reading.history import DiffOptions, diff, refuse_unknown
from coretools.tools.git.repository.checkout import Checkout, path_of, prefix, refuse_hidden
from coretools.tools.git.repository.commands import Git
from coretools.tools.git.repository.porcelain import as_text, quoted, read_names, read_records, single_line
from coretools.tools.git.repository.results import TextResult, answer

_FORMAT = "%H%x00%P%x00%an <%ae>%x00%aI%x00%cn <%ce>%x00%cI%x00%D%x00%B%x00"
_COMMIT = ("log", "--max-count=1", f"--format={_FORMAT}", "--no-show-signature", "--no-color", "--no-mailmap")

MESSAGE_LINES = 200
"""Lines of a message shown; the rest is counted."""

BLAME_LINES = 200
"""Lines of a file that one call explains by default."""

_ENTRY = re.compile(rb"([0-7]{6}) (blob|tree|commit) ([0-9a-f]+)\t(.*)", re.DOTALL)
_LINKED, _TREE = b"120000", b"tree"


async def show(
    roots: Roots, git: Git, checkout: Checkout, *, revision: str, names: list[str], summary: bool
) -> TextResult:
    """Return a commit with its message and difference; before it the message of an annotated tag.

    Raises:
        InvalidArguments, NotFound: see `Git.resolved`.
    """
    [(name, kind)] = await git.objects(checkout, revision)
    lines = await _tag_lines(git, checkout, name) if kind == "tag" else []
    [commit] = await git.resolved(checkout, revision)
    output = await git.output(checkout, *_COMMIT, "--decorate=short", "--no-notes", commit)
    [fields] = read_records(output, 8)
    parents = as_text(fields[1]).split()
    lines += _commit_lines([as_text(field) for field in fields])
    before = parents[0] if parents else (await git.output(checkout, "hash-object", "-t", "tree", "--stdin", stdin=b""))
    start = before if isinstance(before, str) else before.decode("ascii").strip()
    lines = fitting(map(cut_line, lines), git.answer_bytes // 2)
    left = git.answer_bytes - sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
    shape = DiffOptions(is_summary=summary, most_bytes=left)
    change = await diff(roots, git, checkout, what=(start, commit), names=names, shape=shape)
    if len(parents) > 1:
        lines.append(f"[merge of {len(parents)} commits; the difference is that to the first]")
    details = {**change.details, "commit": commit, "parents": parents}
    return TextResult(body="\n".join((*lines, "", change.body)), details=details)


async def _tag_lines(git: Git, checkout: Checkout, name: str) -> list[str]:
    text = as_text(await git.output(checkout, "cat-file", "tag", name))
    head, _, message = text.partition("\n\n")
    wanted = [line for line in head.split("\n") if line.startswith(("tag ", "tagger "))]
    return [*map(single_line, wanted), *_message_lines(message), ""]


def _commit_lines(fields: list[str]) -> list[str]:
    commit, parents, author, date, committer, committed, references, message = fields
    lines = [f"commit {commit}{f' ({references})' if references else ''}", f"author {author} {date}"]
    if (author, date) != (committer, committed):
        lines.append(f"committer {committer} {committed}")
    if len(parents.split()) > 1:
        lines.append(f"parents {parents}")
    return [*map(single_line, lines), *_message_lines(message)]


def _message_lines(message: str) -> list[str]:
    found = [f"    {single_line(line)}" for line in message.strip("\n").split("\n")]
    more = len(found) - MESSAGE_LINES
    return found if more <= 0 else [*found[:MESSAGE_LINES], f"    [{more} more lines of the message]"]


async def show_file(roots: Roots, git: Git, checkout: Checkout, *, revision: str, name: str, offset: int) -> TextResult:
    """Return a file as it was in a revision, from a line on; of a directory the names in it.

    Raises:
        DeniedPath: the file is hidden. NotFound: it is not in that revision.
    """
    refuse_hidden(roots, checkout, [name])
    [commit] = await git.resolved(checkout, revision)
    if name == ".":
        return await _directory(git, checkout, f"{commit}^{{tree}}", "")
    found = read_names(await git.output(checkout, "ls-tree", "-z", commit, "--", name))
    entry = _ENTRY.fullmatch(found[0]) if found else None
    path = f"{prefix(checkout)}{name}"
    if entry is None:
        await refuse_unknown(roots, git, checkout, [name], trees=[commit])
        raise NotFound(f"{path}: not in revision {revision}; git_log path={path!r} lists the commits that have it")
    if entry[2] == b"commit":
        return answer(checkout, [f"{path}: a submodule at {entry[3].decode('ascii')}"], details={"commit": commit})
    if entry[2] == _TREE:
        return await _directory(git, checkout, entry[3].decode("ascii"), f"{name}/")
    content = await git.output(checkout, "cat-file", "blob", entry[3].decode("ascii"))
    if entry[1] == _LINKED:
        return answer(checkout, [f"{path}: a link to {quoted(content)}"], details={"commit": commit})
    return _file(checkout, content, commit=commit, offset=offset, budget=git.answer_bytes)


async def _directory(git: Git, checkout: Checkout, tree: str, above: str) -> TextResult:
    records = read_names(await git.output(checkout, "ls-tree", "-z", tree))
    lines = []
    for record in records:
        entry = _ENTRY.fullmatch(record)
        if entry is not None:
            lines.append(quoted(path_of(checkout, above.encode() + entry[4])) + ("/" if entry[2] == _TREE else ""))
    shown = fitting(map(cut_line, lines), git.answer_bytes)
    more = [f"[{len(lines) - len(shown)} more entries; name one of the directories]"] if len(shown) < len(lines) else []
    return answer(checkout, [*shown, *more], details={"entries": len(lines)})


def _file(checkout: Checkout, content: bytes, *, commit: str, offset: int, budget: int) -> TextResult:
    details: dict[str, object] = {"commit": commit, "bytes": len(content)}
    if b"\0" in content[:8000]:
        return answer(checkout, [f"[binary, {len(content)} bytes]"], details=details)
    lines = as_text(content).removesuffix("\n").split("\n")
    if offset > len(lines):
        raise InvalidArguments(f"offset: the file has {len(lines)} lines in this revision")
    wanted = lines[offset - 1 :]
    shown = fitting(map(cut_line, wanted), budget)
    rest = len(wanted) - len(shown)
    more = [f"[{rest} more lines; go on with offset={offset + len(shown)}]"] if rest else []
    return answer(checkout, [*shown, *more], details={**details, "lines": len(lines)})


@dataclass(frozen=True, slots=True)
class BlameOptions:
    """Which lines of which version are explained."""

    commit: str
    """Empty: the work tree."""
    first: int
    count: int
    ignore_whitespace: bool


async def blame(roots: Roots, git: Git, checkout: Checkout, name: str, options: BlameOptions) -> TextResult:
    """Return who last changed each line.

    Raises:
        DeniedPath: the file is hidden. GitRefused: it has fewer lines, or is not in git.
    """
    refuse_hidden(roots, checkout, [name])
    where = [options.commit] if options.commit else []
    words = (
        "--porcelain",
        "--no-textconv",
        "--no-ignore-revs-file",  # the empty value in FIXED_SETTINGS counts only after git has read the files before it
        f"-L{options.first},+{options.count}",
        *(("-w",) if options.ignore_whitespace else ()),
    )
    output = await git.output(checkout, "blame", *words, *where, "--", name)
    found = [cut_line(line) for line in _blame_lines(output)]
    shown = fitting(found, git.answer_bytes)
    after = options.first + len(shown)
    more = [f"[for more lines: start={after}]"] if len(shown) < len(found) or len(found) == options.count else []
    return answer(checkout, [*shown, *more], details={"lines": len(shown)})


def _blame_lines(output: bytes) -> Iterator[str]:
    commits: dict[str, dict[str, str]] = {}
    name, number = "", ""
    for raw in output.removesuffix(b"\n").split(b"\n"):
        line = as_text(raw)
        if line.startswith("\t"):
            facts = commits[name]
            who = "not committed" if not name.strip("0") else facts.get("author", "")
            yield single_line(f"{name[:10]} {facts.get('date', '')} {who} {number}: ") + line[1:]
            continue
        key, _, value = line.partition(" ")
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", key):
            name, number = key, value.split(" ")[1]
            commits.setdefault(name, {})
        elif key == "author-time":
            commits[name]["date"] = _day(value)
        else:
            commits[name].setdefault(key, value)


def _day(seconds: str) -> str:
    return datetime.fromtimestamp(int(seconds), tz=UTC).date().isoformat()
