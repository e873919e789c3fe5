"""References: where HEAD is, which there are, and what may be the name of one."""

from coretools.errors import GitRefused, InvalidArguments
from coretools.process.run import Completed
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision
from coretools.tools.git.repository.porcelain import as_text

HEADS = "refs/heads/"
TAGS = "refs/tags/"
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


async def has_reference(repository: OpenRepository, name: str) -> bool:
    """Whether there is a reference with this full name."""
    return (await repository.run("show-ref", "--verify", "--quiet", name)).ok


async def require_name(repository: OpenRepository, space: str, name: str) -> None:
    """Refuse an invalid name of a branch (`space` HEADS) or a tag (TAGS).

    Raises:
        InvalidArguments: not a name.
    """
    check_revision(name)
    # The full name, so that no shorthand of a revision (`-`, `@{-1}`) is expanded.
    if not (await repository.run("check-ref-format", f"{space}{name}")).ok or name == "HEAD":
        kind = "tag" if space == TAGS else "branch"
        raise InvalidArguments(f"{kind} {name!r}: not a valid name (git check-ref-format)")
