"""Translate between a caller's paths and git's names, and find the hidden ones.

A path means the same in every tool: it is relative to the first root, or absolute. git's own names are relative to the
work tree.
"""

from collections.abc import Iterable, Sequence

from coretools.errors import InvalidPath, NotFound, OutsideRoot
from coretools.roots.path_text import check_path
from coretools.roots.read import kind_at
from coretools.roots.root_set import Roots, hidden_error, join_path
from coretools.tools.git.checkout import Checkout
from coretools.tools.git.commands import Git
from coretools.tools.git.porcelain import quoted, read_names


def git_names(roots: Roots, checkout: Checkout, paths: Sequence[str]) -> list[str]:
    """Translate paths of a caller to git's names, which are relative to the work tree.

    Raises:
        InvalidPath: not a path, or one with `..`. OutsideRoot: a path that is not in the work tree.
    """
    return [_git_name(roots, checkout, path) for path in paths]


def prefix(checkout: Checkout) -> str:
    """Return what makes a path of one of git's names: empty if the work tree is the first root."""
    shown = checkout.directory.shown
    return "" if shown == "." else f"{shown}/"


def path_of(checkout: Checkout, name: bytes) -> bytes:
    """Return the path, from the root, of a name that git printed."""
    return prefix(checkout).encode("utf-8", "surrogateescape") + name


def display_paths(checkout: Checkout, names: Iterable[bytes]) -> list[str]:
    """Return the paths of names that git printed, for a line of text."""
    return [quoted(path_of(checkout, name)) for name in names]


def hidden_reason(roots: Roots, checkout: Checkout, name: bytes) -> str:
    """Return why a name in the work tree is hidden (deny glob, or the file's present content), or ""."""
    relative = checkout.to_root(name.decode("utf-8", "replace").rstrip("/"))
    return roots.hidden(roots.place(f"{checkout.directory.place.root.path}/{relative}"))


def refuse_hidden(roots: Roots, checkout: Checkout, names: Iterable[str]) -> None:
    """Refuse hidden names that the caller wrote explicitly.

    Raises:
        DeniedPath: one is hidden.
    """
    for name in names:
        reason = hidden_reason(roots, checkout, name.encode()) if name != "." else ""
        if reason:
            raise hidden_error(f"{prefix(checkout)}{name}", reason)


async def refuse_unknown(
    roots: Roots, git: Git, checkout: Checkout, names: Sequence[str], *, trees: Sequence[str] = ()
) -> None:
    """Refuse names that match nothing in the work tree, the index and the commits.

    Raises:
        NotFound: one matches nothing.
    """
    missing = [name for name in names if name != "." and kind_at(roots, f"{checkout.directory.path}/{name}") is None]
    if not missing:
        return
    known = read_names(await git.output(checkout, "ls-files", "-z", "--", *missing))
    for tree in trees:
        known += read_names(await git.output(checkout, "ls-tree", "-z", "--name-only", tree, "--", *missing))
    for name in missing:
        if not any(is_beneath(found, name) for found in known):
            path = f"{prefix(checkout)}{name}"
            raise NotFound(f"{path}: matches nothing in the work tree or in git", path=path)


def is_beneath(found: bytes, name: str) -> bool:
    """Whether a name that git listed is this name or lies beneath it."""
    wanted = name.encode("utf-8", "surrogateescape")
    return found == wanted or found.startswith(wanted + b"/")


def _git_name(roots: Roots, checkout: Checkout, path: str) -> str:
    check_path(path)
    if ".." in path.split("/"):
        raise InvalidPath(f"{path}: has '..'; name the path as git_status shows it")
    place, top = roots.place(path), checkout.directory.path
    wanted = join_path(place.root.path, place.relative)
    if f"{top}/".startswith(f"{wanted}/"):
        return "."  # the work tree, or a directory above it
    if wanted.startswith(f"{top}/"):
        return wanted.removeprefix(f"{top}/")
    raise OutsideRoot(
        f"{path}: not in the work tree {checkout.directory.shown}; paths are relative to the root, as in every tool"
        f"{_hint(roots, checkout, path)}"
    )


def _hint(roots: Roots, checkout: Checkout, path: str) -> str:
    """Return the path that was meant if the caller wrote one relative to the work tree."""
    if path.startswith("/") or kind_at(roots, f"{checkout.directory.path}/{path}") is None:
        return ""
    return f": name {prefix(checkout)}{path}"
