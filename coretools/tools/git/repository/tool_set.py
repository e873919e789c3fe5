"""What the sets of git tools share: the repositories, completion of branches, profiles and parameters."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from coretools.operations.completion import MAX_VALUES, Completes
from coretools.operations.declare import Aliases
from coretools.tools.git.repository.open_checkout import Access
from coretools.tools.git.repository.open_repository import OpenShared
from coretools.tools.git.repository.repositories import Repositories

DEV = ("dev",)
ALL = ("all",)

Branch = Annotated[str, Completes("branches")]
Paths = Annotated[list[str], Aliases("files", hints=("path", "file_path"))]
Repository = Annotated[
    str,
    Field(
        description="Directory of the repository, or any directory in it; default the root. Needed only when "
        "the root holds several repositories and no path of the call is in one. Other paths stay "
        "relative to the root"
    ),
    Aliases("repo_path", "repo", "repository_path", "cwd", "workdir", "directory", "working_directory"),
]


class GitToolSet:
    """A set of tools for the git repositories beneath the roots."""

    def __init__(self, repositories: Repositories) -> None:
        self.repositories = repositories
        self._opened = repositories.opened

    def _shared(self, repository: str, paths: Sequence[str] = ()) -> OpenShared:
        """Return what opens the repository of a call in progress for deleting references: git locks `packed-refs`.

        Not the call itself: git writes files of the work tree through a link that appears meanwhile.
        """
        access = Access.GIT_DIRECTORY
        return partial(self._opened, repository, paths, access=access, is_shared=True, is_exclusive=False)

    async def branches(self, _: str, given: Mapping[str, str]) -> list[str]:
        """Return branch names for completion, local branches first."""
        async with self._opened(given.get("repository", ".")) as opened:
            words = ("for-each-ref", f"--count={MAX_VALUES}", "--format=%(refname:short)")
            output = await opened.output(*words, "refs/heads", "refs/remotes")
        return output.decode("utf-8", "backslashreplace").splitlines()
