"""Where HEAD is."""

from dataclasses import dataclass

from coretools.errors import GitRefused
from coretools.tools.git.reading.references import head
from coretools.tools.git.repository.open_repository import OpenRepository


@dataclass(frozen=True, slots=True)
class Position:
    """Where HEAD is: the branch ("" if detached) and the commit ("" on an unborn branch)."""

    branch: str
    commit: str

    @property
    def switch_back(self) -> str:
        """The call that returns here."""
        return f"git_switch branch={self.branch!r}" if self.branch else f"git_switch detach={self.commit!r}"


async def position(repository: OpenRepository) -> Position:
    """Return where HEAD is."""
    return Position(*await head(repository))


async def born(repository: OpenRepository) -> Position:
    """Return where HEAD is.

    Raises:
        GitRefused: there is no commit yet.
    """
    here = await position(repository)
    if not here.commit:
        raise GitRefused(f"branch {here.branch} has no commits yet; git_commit makes the first one")
    return here
