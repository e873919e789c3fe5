"""Find the work tree that a call refers to."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coretools.errors import CoreError, NotFound
from coretools.roots import directory_access
from coretools.roots.linked_repository import GIT
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import listed


@contextmanager
def work_tree(roots: Roots, repository: str) -> Iterator[tuple[Directory, Directory]]:
    """Open the work tree that contains a directory: the nearest one upwards; above the root only what was opened so.

    Returns:
        It, and the directory in which its files may change: it too, or the root that is a folder of it.

    Raises:
        NotFound: there is none.
    """
    with open_directory(roots, repository) as start:
        place = start.place
        if place.root.is_above:
            raise roots.outside(repository)
        if directory_access.entry_kind(start.fd, GIT) is not None:
            yield start, start
            return
        is_bare = all(directory_access.entry_kind(start.fd, name) for name in ("HEAD", "objects", "refs"))
        below = _repositories_below(roots, start)
    relative = place.relative
    while relative != ".":
        relative = relative.rpartition("/")[0] or "."
        with open_directory(roots, f"{place.root.path}/{relative}") as above:
            if directory_access.entry_kind(above.fd, GIT) is not None:
                yield above, above
                return
    if is_bare:
        raise NotFound(f"{repository}: a bare repository, which has no work tree; clone it, or use git in run_command")
    if tree := roots.trees_above.get(place.root.path):
        with open_directory(roots.with_trees, tree) as above, open_directory(roots, place.root.path) as folder:
            yield above, folder
            return
    if below:
        raise NotFound(f"{repository}: no git work tree here or above; name one with repository: {listed(below)}")
    why = roots.git_refusals.get(place.root.path) or "a repository that begins above the root can't be used"
    raise NotFound(f"{repository}: no git work tree here or above, up to the root; {why}")


def named_directory(roots: Roots, repository: str, paths: Sequence[str]) -> str:
    """Return `repository`; if it is the default, and the root no work tree, the nearest directory of the first path."""
    if repository != "." or not paths:
        return repository
    with open_directory(roots, ".") as top:
        if directory_access.entry_kind(top.fd, GIT) is not None:
            return repository
    path = paths[0]
    while path not in ("", "/"):
        try:
            with open_directory(roots, path):
                return path
        except CoreError:
            path = path.rpartition("/")[0]
    return repository


def _repositories_below(roots: Roots, start: Directory) -> list[str]:
    """Return the work trees directly in a directory, as a caller names them."""
    with directory_access.open_subdirectory(start.fd, ".") as readable:
        names = sorted(name for name, kind in directory_access.entry_kinds(readable).items() if kind == "directory")
    trees = [name for name in names if directory_access.entry_kind(start.fd, f"{name}/{GIT}") is not None]
    prefix = roots.display_path(start.place)
    return [single_line(name if prefix == "." else f"{prefix}/{name}") for name in trees]
