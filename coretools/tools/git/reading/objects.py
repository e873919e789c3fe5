"""Read a file or directory of a revision with one `git cat-file`: the commit, the directory above, and the content."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.errors import GitRefused, NotFound, TooLarge
from coretools.tools.git.reading.revisions import commit_argument
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import encoded

LINK, DIRECTORY, SUBMODULE = b"120000", b"40000", b"160000"
"""Modes of entries of a tree, as git stores them."""

_HEADER = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (commit|tree|blob|tag) (\d{1,18})")


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a directory in a commit."""

    mode: bytes
    name: bytes
    object: str
    """The name of its content, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class FileAt:
    """A path as it is in a commit."""

    commit: str
    entry: TreeEntry | None
    """None: there is no such path."""
    content: bytes | None
    """None: the repository does not have it."""


async def read_file_at(repository: OpenRepository, revision: str, name: str) -> FileAt:
    """Read a name of the work tree as of a revision.

    Raises:
        InvalidArguments: not a revision. NotFound: it names no commit. TooLarge: more than git may print.
    """
    argument = await commit_argument(repository, revision)
    start = argument.removesuffix("^{commit}")
    above, _, last = name.rpartition("/")
    asked = [argument, f"{start}^{{tree}}"] if name == "." else [argument, f"{start}:{above}", f"{start}:{name}"]
    contents = await _objects(repository, asked, what=f"{name} in {revision}")
    if contents[0] is None:
        await repository.resolved(revision)
        raise NotFound(f"revision {revision!r}: names no commit of this repository")
    commit = contents[0][0]
    if name == ".":
        tree = contents[1]
        return FileAt(commit, TreeEntry(DIRECTORY, b".", ""), None if tree is None else tree[1])
    if contents[1] is None:
        return FileAt(commit, None, None)
    wanted = encoded(last)
    entries = read_tree(contents[1][1], object_bytes=len(commit) // 2)
    entry = next((entry for entry in entries if entry.name == wanted), None)
    return FileAt(commit, entry, None if contents[2] is None else contents[2][1])


async def _objects(repository: OpenRepository, asked: list[str], *, what: str) -> list[tuple[str, bytes] | None]:
    """Return name and content of each object; None for one that git does not have."""
    has_newline = any("\n" in one for one in asked)
    end = b"\0" if has_newline else b"\n"
    stdin = b"".join(encoded(one) + end for one in asked)
    words = ("cat-file", "--batch", *(("-z",) if has_newline else ()))
    completed = require_success(await repository.run(*words, stdin=stdin), "cat-file")
    if completed.stdout.dropped_bytes:
        size = completed.stdout.total_bytes
        limit = repository.git.output_bytes
        raise TooLarge(f"{what}: has about {size} bytes; run_command with git show reads it", limit=limit)
    return _contents(completed.stdout.head + completed.stdout.tail, asked)


def read_tree(data: bytes, *, object_bytes: int) -> Iterator[TreeEntry]:
    """Parse a tree object.

    Raises:
        GitRefused: it is none.
    """
    at = 0
    while at < len(data):
        space, end = data.find(b" ", at), data.find(b"\0", at)
        if not at < space < end or end + 1 + object_bytes > len(data):
            raise GitRefused("a directory of this commit is damaged")
        mode = data[at:space].lstrip(b"0")
        yield TreeEntry(mode, data[space + 1 : end], data[end + 1 : end + 1 + object_bytes].hex())
        at = end + 1 + object_bytes


def _contents(output: bytes, asked: list[str]) -> list[tuple[str, bytes] | None]:
    contents: list[tuple[str, bytes] | None] = []
    at = 0
    for one in asked:
        end = output.find(b"\n", at)
        header = _HEADER.fullmatch(output[at:end])
        if header is None:
            contents.append(None)
            at = _after_missing(output, at, one)
            continue
        size = int(header[3])
        contents.append((header[1].decode("ascii"), output[end + 1 : end + 1 + size]))
        at = end + 1 + size + 1
    return contents


def _after_missing(output: bytes, at: int, asked: str) -> int:
    """Return where the next object begins after the line that says that one is missing; it repeats what was asked."""
    text = encoded(asked)
    start = at + len(text) if output.startswith(text, at) else at
    end = output.find(b"\n", start)
    return len(output) if end < 0 else end + 1
