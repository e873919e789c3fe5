"""Where HEAD is, and names that match nothing."""

from collections.abc import Sequence

from coretools.errors import GitRefused, NotFound
from coretools.process.run import Completed
from coretools.roots.read import kind_at
from coretools.tools.git.repository.checkout import is_beneath, shown_path
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, read_names

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux accepts 2 MiB of arguments and environment together (execve(2))."""

HEADS = "refs/heads/"
_BRANCH_CALLED_HEAD = f"{HEADS}HEAD"


async def head_commit(repository: OpenRepository) -> str:
    """Return HEAD's commit, or "" on an unborn branch."""
    completed = await repository.run("show-ref", "--verify", "--hash", "HEAD")
    return completed.stdout.text().strip() if completed.ok else ""


async def head(repository: OpenRepository) -> tuple[str, str]:
    """Return the branch of HEAD ("" if detached) and its commit ("" on an unborn branch).

    Raises:
        GitRefused: git can't read what HEAD points to.
    """
    completed = await repository.run("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
    if completed.ok:
        commit, name, *_ = *_lines(completed), ""
        if name == "HEAD":
            return "", commit
        if name.startswith(HEADS) and name != _BRANCH_CALLED_HEAD:
            return name.removeprefix(HEADS), commit
    # The branch is unborn, or another reference is called HEAD, which git omits here or mistakes for it.
    completed = await repository.run("symbolic-ref", "--quiet", "HEAD")
    branch = _lines(completed)[0] if completed.ok else ""
    commit = await head_commit(repository)
    if not branch and not commit:
        raise GitRefused("HEAD points to nothing that git can read; check out a branch or a commit")
    return branch.removeprefix(HEADS), commit


def _lines(completed: Completed) -> list[str]:
    return as_text(completed.stdout.head + completed.stdout.tail).removesuffix("\n").split("\n")


async def refuse_unknown(repository: OpenRepository, names: Sequence[str], *, trees: Sequence[str] = ()) -> None:
    """Refuse names that match nothing in the work tree, the index and the commits.

    Raises:
        NotFound: one matches nothing.
    """
    checkout = repository.checkout
    missing = [
        name for name in names if name != "." and kind_at(repository.roots, f"{checkout.directory.path}/{name}") is None
    ]
    if not missing:
        return
    known = read_names(await repository.output("ls-files", "-z", "--", *missing))
    for tree in trees:
        known += read_names(await repository.output("ls-tree", "-z", "--name-only", tree, "--", *missing))
    for name in missing:
        if not any(is_beneath(one, name) for one in known):
            path = shown_path(checkout, name)
            raise NotFound(f"{path}: matches nothing in the work tree or in git", path=path)
