"""Names in a work tree: what a caller wrote, what deny globs cover."""

from collections.abc import Iterable, Sequence

from coretools.errors import DeniedPath, InvalidPath, OutsideRoot
from coretools.sandbox.names import check_path
from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout


def names_in(checkout: Checkout, paths: Sequence[str]) -> list[str]:
    """Paths as a caller writes them, relative to the work tree; an absolute one must lie in it.

    Raises:
        InvalidPath: no path, or one with `..`. OutsideRoot: an absolute path elsewhere.
    """
    return [_name_in(checkout, path) for path in paths]


def covering(roots: Roots, checkout: Checkout, name: bytes) -> str | None:
    """The deny glob that covers a name in the work tree."""
    relative = checkout.to_root(name.decode("utf-8", "replace").rstrip("/"))
    place = roots.place(f"{checkout.directory.place.root.path}/{relative}")
    return roots.deny.covers(place.relative)


def refuse_denied(roots: Roots, checkout: Checkout, names: Iterable[str]) -> None:
    """Raise for a name that the caller wrote out and a deny glob covers.

    Raises:
        DeniedPath.
    """
    for name in names:
        glob = covering(roots, checkout, name.encode()) if name != "." else None
        if glob is not None:
            raise DeniedPath(f"{name}: covered by the deny glob {glob}; the operator keeps it from every tool")


def _name_in(checkout: Checkout, path: str) -> str:
    check_path(path)
    top = checkout.directory.path
    if path.startswith("/"):
        if path != top and not path.startswith(f"{top}/"):
            raise OutsideRoot(f"{path}: not in the work tree {checkout.directory.shown}; name a path in it")
        path = path.removeprefix(top).lstrip("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidPath(f"{path}: has '..'; name the path as git_status shows it, relative to the work tree")
    return "/".join(parts) or "."
