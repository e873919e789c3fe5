"""The names of a repository's files: as git knows them, as callers write them, and where they are beneath the roots.

A path means the same in every tool: it is relative to the first root, or absolute. git's own names are relative to the
work tree; one of them is understood too where nothing at or beneath the root has that path. Where the first root is a
folder of the work tree, paths of the rest begin with `..`, as `git status` prints them there.
"""

from collections.abc import Iterable, Sequence

from coretools.errors import CoreError, InvalidPath, NotFound, OutsideRoot
from coretools.roots.path_text import check_path
from coretools.roots.read import kind_at
from coretools.roots.root import RootedPath, join_path
from coretools.roots.root_set import Roots, hidden_error
from coretools.tools.git.repository.checkout import Checkout, is_beneath, is_outside, prefix, shown_path
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import decoded, encoded, read_names

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux accepts 2 MiB of arguments and environment together (execve(2))."""


def git_names(repository: OpenRepository, paths: Sequence[str]) -> list[str]:
    """Translate paths of a caller to git's names, which are relative to the work tree.

    Raises:
        InvalidPath: not a path, or one with `..`. OutsideRoot: a path that is not in the work tree.
    """
    return [_git_name(repository, path) for path in paths]


def place_of(repository: OpenRepository, name: bytes) -> RootedPath:
    """Return where a name in the work tree is: in a nested root, if that contains it."""
    place = repository.checkout.directory.place
    path = join_path(place.root.path, repository.checkout.to_root(decoded(name)))
    return repository.roots.split(path) or place


def hidden_reason(repository: OpenRepository, name: bytes) -> str:
    """Return why a name in the work tree is hidden (deny glob, or the file's present content), or ""."""
    relative = repository.checkout.to_root(name.decode("utf-8", "replace").rstrip("/"))
    place = repository.roots.place(f"{repository.checkout.directory.place.root.path}/{relative}")
    return repository.roots.hidden(place, is_shown=True)


def refuse_hidden(repository: OpenRepository, names: Iterable[str]) -> None:
    """Refuse hidden names that the caller wrote explicitly.

    Raises:
        DeniedPath: one is hidden.
    """
    for name in names:
        reason = hidden_reason(repository, encoded(name)) if name != "." else ""
        if reason:
            raise hidden_error(shown_path(repository.checkout, name), reason)


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


def _git_name(repository: OpenRepository, path: str) -> str:
    checkout, roots = repository.checkout, repository.roots
    check_path(path)
    if ".." in path.split("/"):
        path = _above_folder(checkout, path)
    place, top = roots.place(path), checkout.directory.path
    wanted = place.path
    name = "." if f"{top}/".startswith(f"{wanted}/") else ""  # the work tree, or a directory above it
    if wanted.startswith(f"{top}/"):
        name = wanted.removeprefix(f"{top}/")
    elif not name and not path.startswith("/") and _is_absent(roots, path):
        given = "/".join(part for part in path.split("/") if part not in ("", "."))
        if not _is_absent(roots, f"{top}/{given}") or _is_absent(roots, given.partition("/")[0]):
            name = given
    if name and checkout.is_changing and is_outside(checkout, encoded(name)):
        raise OutsideRoot(
            f"{path}: not in the folder {checkout.folder} of the repository {top}, which is the root here; changes of"
            f" other files need the root {top}"
        )
    if name:
        return name
    raise OutsideRoot(
        f"{path}: not in the work tree {checkout.directory.display_path}; paths are relative to the root, as in every"
        f" tool{_hint(repository, path)}"
    )


def _above_folder(checkout: Checkout, path: str) -> str:
    """Return the absolute path of one with `..`, which is taken where the first root is a folder of the work tree.

    Raises:
        InvalidPath: it is not, or the path leads out of the work tree. Links are not followed: git's names have none.
    """
    names = checkout.folder.split("/")
    for part in path.split("/"):
        if part == "..":
            if checkout.folder_path != "." or path.startswith("/") or not names:
                raise InvalidPath(f"{path}: has '..'; name the path from the root, as git_status shows it")
            names.pop()
        elif part not in ("", "."):
            names.append(part)
    return "/".join((checkout.directory.path, *names))


def _is_absent(roots: Roots, path: str) -> bool:
    try:
        return kind_at(roots, path) is None
    except CoreError:
        return False


def _hint(repository: OpenRepository, path: str) -> str:
    """Return the path that was meant if the caller wrote one relative to the work tree, and the root has it too."""
    if path.startswith("/") or kind_at(repository.roots, f"{repository.checkout.directory.path}/{path}") is None:
        return ""
    return f": name {prefix(repository.checkout)}{path}"
