"""Stash commits: how uncommitted content is kept that a change of the work tree overwrites.

The answer names the commit, and says how to get the content back.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex

from anyio import to_thread

from coretools.errors import GitRefused, NotFound
from coretools.roots import directory_access
from coretools.roots.git_index import MAX_INDEX_BYTES
from coretools.tools.git.changes.identity import identity
from coretools.tools.git.changes.position import Position, position
from coretools.tools.git.changes.writable import changed_names, require_visible_names
from coretools.tools.git.repository.checkout import display_paths, is_outside
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, encoded, read_names, terminated
from coretools.tools.git.repository.results import listed

_INDEX = "coretools-index-"
"""Beginning of the name of a second index in the git directory, in which a stash commit is put together."""

_NO_IDENTITY = ("-c", "user.name=git stash", "-c", "user.email=git@stash")
"""What git itself uses for a stash if it knows no author."""


async def stash_identity(repository: OpenRepository) -> tuple[str, ...]:
    """Return options with an identity for a stash commit."""
    try:
        return await identity(repository)
    except GitRefused:
        return _NO_IDENTITY


async def kept(repository: OpenRepository, *, names: Sequence[str] = ()) -> str:
    """Return a stash commit of the uncommitted changes of tracked files, or "" if there are none or none is possible.

    None is possible before the first commit, and while a conflict is not resolved.

    Raises:
        DeniedPath, GitRefused: see `require_visible_names`.
    """
    here = await position(repository)
    if not here.commit:
        return ""
    changed = await changed_names(repository, here.commit, names=names)
    await require_visible_names(repository, changed)
    if not changed or await conflicted(repository):
        return ""
    return await stash_commit(repository, here, changed=changed, message="kept before a change")


async def conflicted(repository: OpenRepository, names: Sequence[str] = (), *, stage: int = 0) -> list[bytes]:
    """Return the names that are in conflict, or those of which there is a version with this number."""
    output = await repository.output("ls-files", "--unmerged", "-z", "--", *names)
    records = (record.partition(b"\t") for record in read_names(output))
    return sorted({name for fields, _, name in records if not stage or fields.endswith(b" %d" % stage)})


async def stash_commit(
    repository: OpenRepository, here: Position, *, changed: Sequence[bytes], message: str, untracked: str = ""
) -> str:
    """Create a stash commit (git-stash(1), "Discussion") of changed names; index and work tree stay as they are.

    Raises:
        GitRefused: a conflict is not resolved.
    """
    checkout = repository.checkout
    conflicts = await conflicted(repository)
    if conflicts:
        raise GitRefused(
            f"conflicts are not resolved: {listed(display_paths(checkout, conflicts))}; nothing was stashed"
        )
    options = await stash_identity(repository)
    index = await _text(repository, "write-tree")
    others = [name for name in await changed_names(repository, "--cached", here.commit) if is_outside(checkout, name)]
    if others:
        index = await _as_committed(repository, index, here.commit, others)
    tree = await tree_of(repository, changed, start=index)
    where = here.branch or "(no branch)"
    staged = await commit_tree(repository, index, here.commit, message=f"index on {where}", options=options)
    parents = [here.commit, staged, *([untracked] if untracked else [])]
    return await commit_tree(repository, tree, *parents, message=f"On {where}: {message}", options=options)


async def _as_committed(repository: OpenRepository, tree: str, commit: str, names: Sequence[bytes]) -> str:
    """Write a tree, with these names as they are in a commit: applied later, it leaves these files alone."""
    output = await repository.output("ls-tree", "-r", "-z", commit, "--", *(as_text(name) for name in names))
    absent = b"0 " + b"0" * len(commit) + b"\t"
    lines = [*(absent + name for name in names), *read_names(output)]
    return await _written_tree(repository, tree, ("--index-info",), terminated(lines))


async def index_commit(repository: OpenRepository) -> str:
    """Create a commit of the index; it is in no branch.

    Raises:
        GitRefused: a conflict is not resolved.
    """
    options = await stash_identity(repository)
    tree = await _text(repository, "write-tree")
    return await commit_tree(repository, tree, message="staged before a change", options=options)


async def untracked_commit(repository: OpenRepository, names: Sequence[bytes]) -> str:
    """Create the commit in which a stash keeps untracked files."""
    options = await stash_identity(repository)
    tree = await tree_of(repository, names)
    return await commit_tree(repository, tree, message="untracked files", options=options)


async def without_untracked(repository: OpenRepository, stash: str) -> str:
    """Create a copy of a stash commit that has no untracked files."""
    options = await stash_identity(repository)
    parents = (f"{stash}^1", f"{stash}^2")
    return await commit_tree(repository, f"{stash}^{{tree}}", *parents, message="tracked files", options=options)


async def tree_of(repository: OpenRepository, names: Sequence[bytes], *, start: str = "") -> str:
    """Write a tree: `start` (or nothing), with these names as they are in the work tree."""
    return await _written_tree(repository, start, ("--add", "--remove", "--replace", "--stdin"), terminated(names))


async def _written_tree(repository: OpenRepository, start: str, options: Sequence[str], stdin: bytes) -> str:
    with _private_index(repository) as own:
        await own.output("read-tree", start or "--empty")
        await own.output("update-index", "-z", *options, stdin=stdin)
        return await _text(own, "write-tree")


async def staged_tree(repository: OpenRepository) -> str:
    """Write the tree of the index, from a copy, for a call that changes nothing: `write-tree` locks the index it reads.

    Raises:
        TooLarge, GitRefused: it can't be copied.
    """
    with _private_index(repository) as own:
        name = own.checkout.environment["GIT_INDEX_FILE"].rpartition("/")[2]
        await to_thread.run_sync(_copy_index, repository.checkout.git_handle, name)
        return await _text(own, "write-tree")


def _copy_index(directory: int, name: str) -> None:
    with suppress(NotFound):  # git takes an index that is missing for an empty one
        data = directory_access.read_file(directory, "index", limit_bytes=MAX_INDEX_BYTES)
        directory_access.create_file(directory, name, data)


async def patched_tree(repository: OpenRepository, patch: bytes) -> str:
    """Write the tree of HEAD with a patch.

    Raises:
        GitRefused: the patch does not fit.
    """
    with _private_index(repository) as own:
        await own.output("read-tree", "HEAD")
        await own.output("apply", "--cached", "--whitespace=nowarn", "--no-ignore-whitespace", "-p1", stdin=patch)
        return await _text(own, "write-tree")


@contextmanager
def _private_index(repository: OpenRepository) -> Iterator[OpenRepository]:
    """Yield the repository with an index of its own, beside those of other calls; it is deleted at the end."""
    name = f"{_INDEX}{token_hex(8)}"
    try:
        yield repository.with_environment({"GIT_INDEX_FILE": f"{repository.checkout.git_path}/{name}"})
    finally:
        directory_access.remove_file(repository.checkout.git_handle, name)


async def commit_tree(
    repository: OpenRepository, tree: str, *parents: str, message: str, options: Sequence[str]
) -> str:
    """Create a commit of a tree with these parents; return its name."""
    words = [word for parent in parents for word in ("-p", parent)]
    completed = await repository.run(
        "commit-tree", "--no-gpg-sign", tree, *words, options=options, stdin=encoded(message)
    )
    return repository.complete_output(completed, "commit-tree").decode("ascii").strip()


async def _text(repository: OpenRepository, *words: str) -> str:
    return (await repository.output(*words)).decode("ascii").strip()
