"""Show one commit, tag, or file of a revision. Content of hidden files is left out as in `differences`.

Each takes one git process. A revision may name any object, so what git printed is shown only where a mark that is new
for each call proves that it printed a commit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex

from coretools.errors import GitRefused, InvalidArguments, NotFound
from coretools.process.run import Completed
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.reading.differences import Difference, DiffOptions, difference, prefixes, shown
from coretools.tools.git.reading.objects import DIRECTORY, LINK, SUBMODULE, TreeEntry, read_file_at, read_tree
from coretools.tools.git.reading.revisions import object_argument
from coretools.tools.git.repository.checkout import Checkout, path_of, shown_path
from coretools.tools.git.repository.names import refuse_hidden, refuse_unknown
from coretools.tools.git.repository.open_repository import OpenRepository, failure_message
from coretools.tools.git.repository.patches import PATCH
from coretools.tools.git.repository.porcelain import as_text, encoded, quoted, read_changes, single_line
from coretools.tools.git.repository.results import TextResult, answer

MESSAGE_LINES = 200
"""Lines of a message shown; the rest is counted."""

_FIELDS = ("%H", "%P", "%an <%ae>", "%aI", "%cn <%ce>", "%cI", "%D", "%B")
_SHOW = (
    *("show", "-z", "--raw", "-m", "--first-parent", "--root", "--find-renames", "--no-show-signature", "--no-mailmap"),
    *("--decorate=short", "--no-notes"),
)
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class _Printed:
    """What git printed of a commit."""

    tag: str
    """The annotated tag before it, or ""."""
    fields: Sequence[str]
    rest: bytes
    """The changed files and the patch."""
    dropped_bytes: int
    """Bytes of the patch that are missing."""


async def show(repository: OpenRepository, *, revision: str, options: DiffOptions) -> TextResult:
    """Return a commit with its message and difference; before it the message of an annotated tag.

    Raises:
        InvalidArguments: not a revision. NotFound: it names no commit. DeniedPath: a name is hidden.
    """
    refuse_hidden(repository, options.names)
    argument = await object_argument(repository, revision)
    commit = await _printed(repository, revision, (argument, "--", *options.names))
    if commit is None:  # git prints nothing if the commit changes none of these names
        await refuse_unknown(repository, options.names, trees=await repository.resolved(revision))
        commit = await _printed(repository, revision, ("--no-patch", argument, "--"))
    if commit is None:
        raise GitRefused(f"git show: printed nothing for {revision!a}")
    lines = [*_tag_lines(commit.tag), *_commit_lines(commit.fields)]
    lines = [*fitting(map(cut_line, lines), repository.git.answer_bytes // 2), ""]
    left = repository.git.answer_bytes - sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
    options = replace(options, most_bytes=left)
    patch = await _changes(repository, commit, options)
    lines += patch.lines
    parents = commit.fields[1].split()
    if len(parents) > 1:
        lines.append(f"[merge of {len(parents)} commits; the difference is that to the first]")
    details = {"commit": commit.fields[0], "parents": parents, "files": patch.changed, "next_skip": patch.next_skip}
    return answer(repository.checkout, lines, details=details)


async def _printed(repository: OpenRepository, revision: str, end: Sequence[str]) -> _Printed | None:
    """Return what git prints of a commit; None if that is nothing.

    Raises:
        NotFound: the revision names no commit. GitRefused: git can't read it.
    """
    mark = token_hex(8)  # nothing in a repository can contain it
    words = [*_SHOW, *PATCH, *prefixes(repository.checkout), f"--format=tformat:{mark}{'%x00'.join(_FIELDS)}%x00", *end]
    completed = await repository.run(*words)
    output = completed.stdout
    tag, *commits = (output.head if output.dropped_bytes else output.head + output.tail).split(mark.encode())
    if completed.ok and not tag and not commits and end[-1] != "--":
        return None
    if not completed.ok or len(commits) != 1 or tag[:4] not in (b"", b"tag "):
        raise await _refused(repository, revision, completed)
    *fields, rest = commits[0].split(b"\0", len(_FIELDS))
    return _Printed(as_text(tag), [as_text(field) for field in fields], rest, output.dropped_bytes)


async def _refused(repository: OpenRepository, revision: str, completed: Completed) -> GitRefused:
    await repository.objects(revision)
    await repository.resolved(revision)
    why = "; this is a partial clone, and objects that it lacks are not fetched"
    return GitRefused(f"git show: {failure_message(completed)}{why if repository.checkout.is_partial else ''}")


async def _changes(repository: OpenRepository, commit: _Printed, options: DiffOptions) -> Difference:
    if options.is_summary:
        start = commit.fields[1].split(" ")[0] or await _empty_tree(repository)
        sides = (start, commit.fields[0])
        return await difference(repository, replace(options, sides=sides, commits=sides[1:]))
    changes = read_changes(commit.rest.removeprefix(b"\0").removeprefix(b"\n"))
    if changes is None:
        raise GitRefused("git show printed something unknown")
    return await shown(repository, changes[1], options, cut=commit.dropped_bytes)


async def _empty_tree(repository: OpenRepository) -> str:
    output = await repository.output("hash-object", "-t", "tree", "--stdin", stdin=b"")
    return output.decode("ascii").strip()


def _tag_lines(text: str) -> list[str]:
    if not text:
        return []
    head, _, message = text.partition("\n\n")
    return [*map(single_line, head.split("\n")), *_message_lines(message), ""]


def _commit_lines(fields: Sequence[str]) -> list[str]:
    commit, parents, author, date, committer, committed, references, message = fields
    lines = [f"commit {commit}{f' ({references})' if references else ''}", f"author {author} {date}"]
    if (author, date) != (committer, committed):
        lines.append(f"committer {committer} {committed}")
    if len(parents.split()) > 1:
        lines.append(f"parents {parents}")
    return [*map(single_line, lines), *_message_lines(message)]


def _message_lines(message: str) -> list[str]:
    lines = [f"    {single_line(line)}" for line in message.strip("\n").split("\n")]
    more = len(lines) - MESSAGE_LINES
    return lines if more <= 0 else [*lines[:MESSAGE_LINES], f"    [{more} more lines of the message]"]


async def show_file(repository: OpenRepository, *, revision: str, name: str, offset: int) -> TextResult:
    """Return a file as it was in a revision, from a line on; of a directory the names in it.

    Raises:
        DeniedPath: the file is hidden. NotFound: it is not in that revision. GitRefused: git does not have its content.
    """
    checkout = repository.checkout
    refuse_hidden(repository, [name])
    file = await read_file_at(repository, revision, name)
    path = shown_path(checkout, name)
    if file.entry is None:
        await refuse_unknown(repository, [name], trees=[file.commit])
        raise NotFound(f"{path}: not in revision {revision}; git_log path={path!r} lists the commits that have it")
    if file.entry.mode == SUBMODULE:
        return answer(checkout, [f"{path}: a submodule at {file.entry.object}"], details={"commit": file.commit})
    if file.content is None:
        why = "a partial clone leaves objects out; `git fetch` gets them" if checkout.is_partial else "it is damaged"
        raise GitRefused(f"{path}: its content in {revision} is not in this repository; {why}")
    if file.entry.mode == DIRECTORY:
        entries = read_tree(file.content, object_bytes=len(file.commit) // 2)
        return _directory(repository, entries, "" if name == "." else f"{name}/")
    if file.entry.mode == LINK:
        return answer(checkout, [f"{path}: a link to {quoted(file.content)}"], details={"commit": file.commit})
    return _file(checkout, file.content, commit=file.commit, offset=offset, budget=repository.git.answer_bytes)


def _directory(repository: OpenRepository, entries: Iterator[TreeEntry], above: str) -> TextResult:
    checkout = repository.checkout
    before = encoded(above)
    lines = [
        quoted(path_of(checkout, before + entry.name)) + ("/" if entry.mode == DIRECTORY else "") for entry in entries
    ]
    shown = fitting(map(cut_line, lines), repository.git.answer_bytes)
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
    more += ["[a pointer of git-lfs; its content is not in git]"] if content.startswith(_LFS_POINTER) else []
    return answer(checkout, [*shown, *more], details={**details, "lines": len(lines)})
