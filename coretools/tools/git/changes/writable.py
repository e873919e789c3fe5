"""Which names a change may write: no hidden file, none that a filter converts, no existing setting of an editor.

git writes whole trees. Before it does, the names that may change are listed, and the call is refused if it would change
one of these. A list has to be complete: git also writes names that no difference shows, and those are found here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from coretools.errors import CoreError, DeniedPath, GitRefused, OutsideRoot
from coretools.roots import directory_access
from coretools.roots.editor_settings import WAY_OUT, existing_settings, protected_settings
from coretools.roots.git_layout import entry_exists
from coretools.roots.resolve import resolve
from coretools.roots.root import RootedPath, join_path
from coretools.tools.git.changes.filters import refuse_filtered
from coretools.tools.git.repository.checkout import Checkout, display_paths, exists, is_outside, path_of
from coretools.tools.git.repository.names import hidden_reason, place_of
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import decoded, quoted, read_names
from coretools.tools.git.repository.results import listed

NAMES = ("--name-only", "-z", "--no-renames", "--ignore-submodules=all", "--no-ext-diff")

_TREES = ("diff-tree", "--stdin", "-r", "-m", "--root", *NAMES, "--no-commit-id")
NO_RENAMES = ("-c", "merge.renames=false")
"""Options with which git finds no renames in a merge. Before git 2.50 only its strategy `recursive` obeys."""

_PATTERNS = "sparse-checkout"
_PATTERN_BYTES = 4 * 1024 * 1024
_CONE = re.compile(rb"(?P<negated>!?)/(?P<directory>(?:[^/*?\[\\]+/)*)(?P<rest>\*/?|)")
"""A pattern of a sparse checkout as git writes it in cone mode: `/*`, `!/*/`, `/a/`, `!/a/*/`."""


async def changed_names(repository: OpenRepository, *what: str, names: Sequence[str] = ()) -> list[bytes]:
    """Return the names that differ: between two trees, or between one and the work tree."""
    return sorted(set(read_names(await repository.output("diff", *NAMES, *what, "--", *names))))


async def picked_names(repository: OpenRepository, commits: Iterable[str], *options: str) -> list[bytes]:
    """Return the names that commits change, of a merge compared with each of its parents.

    `COMMIT OTHER` compares with another commit than the parents.
    """
    stdin = "".join(f"{commit}\n" for commit in commits).encode()
    return sorted(set(read_names(await repository.output(*_TREES, *options, stdin=stdin))))


async def require_visible_names(repository: OpenRepository, names: Iterable[bytes]) -> None:
    """Refuse to read or write hidden files, or files that a filter converts.

    Raises:
        DeniedPath, GitRefused: a name is such a file.
    """
    names = list(names)
    hidden = {name: reason for name in names if (reason := hidden_reason(repository, name))}
    if hidden:
        files = listed([f"{quoted(path_of(repository.checkout, name))} ({reason})" for name, reason in hidden.items()])
        raise DeniedPath(f"would change hidden files: {files}; nothing was changed; use git itself for these files")
    if names:
        await refuse_filtered(repository, names)


async def require_writable_names(repository: OpenRepository, names: Iterable[bytes]) -> None:
    """Refuse a change of the work tree that writes hidden files, files that a filter converts, or existing settings.

    Raises:
        DeniedPath, GitRefused: a name is such a file.
    """
    names = list(names)
    refuse_outside(repository.checkout, names)
    refuse_settings(settings_among(repository, [*names, *await _checked_out_again(repository)]))
    await require_visible_names(repository, names)


def refuse_outside(checkout: Checkout, names: Iterable[bytes]) -> None:
    """Refuse a change of files outside the folder of the work tree that is the caller's root.

    Raises:
        OutsideRoot: there are some.
    """
    outside = [name for name in names if is_outside(checkout, name)]
    if outside:
        top = checkout.directory.path
        raise OutsideRoot(
            f"would change files outside the root, which is the folder {checkout.folder} of the repository {top}:"
            f" {listed(display_paths(checkout, outside))}; nothing was changed; with the root {top} it can be done"
        )


async def refuse_staged_outside(repository: OpenRepository, cure: str = "", *, or_changed: bool = False) -> None:
    """Refuse a change of the whole index if something is staged outside the folder that is the caller's root.

    `cure` is another call that would do; with `or_changed` unstaged changes there are refused too.

    Raises:
        GitRefused: something is.
    """
    checkout = repository.checkout
    if not checkout.folder:
        return
    names = {*await changed_names(repository, "--cached")}
    if or_changed:
        names |= {*await changed_names(repository)}
    outside = sorted(name for name in names if is_outside(checkout, name))
    if outside:
        files = listed(display_paths(checkout, outside))
        state, way = ("changed", "stashes") if or_changed else ("staged", "unstages")
        cure += "; or " if cure else ""
        raise GitRefused(
            f"files are {state} outside the root, in {checkout.directory.path}: {files}; nothing was changed;"
            f" {cure}whoever {state} them commits or {way} them first"
        )


def settings_among(repository: OpenRepository, names: Iterable[bytes]) -> list[str]:
    """Return the existing settings that a change of these names would change, unless the operator allows it."""
    names = list(names)
    places = [place_of(repository, name) for name in names]
    places += _behind_links(repository, names)
    if repository.checkout.settings:
        repository.checkout.settings.add(places)
    return protected_settings(repository.roots, places)


def _behind_links(repository: OpenRepository, names: Iterable[bytes]) -> Iterator[RootedPath]:
    """Yield where names lead whose directories are links in the work tree: git's merges may write through them."""
    is_linked = {"": False}
    for name in names:
        directory, _, last = decoded(name).rpartition("/")
        parts = directory.split("/") if directory else []
        for above in ("/".join(parts[:end]) for end in range(1, len(parts) + 1)):
            if above not in is_linked:
                is_linked[above] = is_linked[above.rpartition("/")[0]] or _is_link(repository.checkout, above)
        if is_linked[directory]:
            path = f"{repository.checkout.directory.path}/{directory}"
            with suppress(CoreError), resolve(repository.roots, path) as resolved:
                yield RootedPath(resolved.root, join_path(resolved.place.relative, last))


def refuse_settings(settings: Sequence[str]) -> None:
    """Refuse a change of these existing settings.

    Raises:
        DeniedPath: there are some.
    """
    if settings:
        raise DeniedPath(
            f"would change {listed(settings)}, on which editors and agents act when they open the directory; no file"
            f" was changed; {WAY_OUT}"
        )


def _is_link(checkout: Checkout, path: str) -> bool:
    try:
        return directory_access.entry_kind(checkout.directory.fd, path) == "link"
    except CoreError:  # what is above it is a file
        return False


async def reached_by_rename(repository: OpenRepository, names: Iterable[bytes], commits: Iterable[str]) -> list[str]:
    """Return existing settings that git could take for the new name of a file that `commits` change.

    For each name that a commit changes and the work tree lacks, git looks for a file with a similar content that HEAD
    has and the commit has not, and changes that one. `NO_RENAMES` prevents it.
    """
    if repository.roots.changes_settings or all(exists(repository.checkout, name) for name in names):
        return []
    [head] = await repository.resolved("HEAD")
    only_here = await picked_names(repository, [f"{head} {commit}" for commit in commits], "--diff-filter=A")
    return settings_among(repository, only_here)


async def overwritten_by_reset(repository: OpenRepository) -> list[bytes]:
    """Return names among existing settings that `git reset --hard` writes though git says that they have no changes.

    `git update-index --assume-unchanged` makes every difference leave a file out, and a reset compares it all the same.
    """
    entries = await _index_entries(repository)
    return [name for tag, name in entries if tag == b"h"]


async def _checked_out_again(repository: OpenRepository) -> list[bytes]:
    """Return names beneath existing settings that the work tree lacks, and the patterns of a sparse checkout include.

    git applies changed patterns with the next change of the work tree, whatever differs.
    """
    if not entry_exists(repository.checkout.git_handle, f"info/{_PATTERNS}"):
        return []
    entries = await _index_entries(repository)
    left_out = [name for tag, name in entries if tag in (b"S", b"s")]
    absent = [name for name in left_out if not exists(repository.checkout, name)]
    if not absent:
        return []
    with directory_access.open_subdirectory(repository.checkout.git_handle, "info") as directory:
        patterns = directory_access.read_file(directory, _PATTERNS, limit_bytes=_PATTERN_BYTES)
    return [name for name in absent if _is_included(name, patterns.splitlines())]


async def _index_entries(repository: OpenRepository) -> list[tuple[bytes, bytes]]:
    """Return the tag (git-ls-files(1), `-v`) and name of each tracked file among the existing settings."""
    checkout = repository.checkout
    place = checkout.directory.place
    if checkout.folder:
        place = repository.roots.place(f"{place.path}/{checkout.folder}")
    settings = (
        [] if repository.roots.changes_settings else existing_settings(repository.roots, place.root, place.relative)
    )
    if not settings:
        return []
    names = [join_path(checkout.folder or ".", path.removeprefix(f"{place.relative}/")) for path in settings]
    output = await repository.output("ls-files", "-v", "-z", "--", *names)
    return [(record[:1], record[2:]) for record in read_names(output)]


def _is_included(name: bytes, patterns: Iterable[bytes]) -> bool:
    """Whether a file is checked out by the patterns of a sparse checkout; true if one is not of cone mode."""
    is_included = False
    for line in patterns:
        match = _CONE.fullmatch(line)
        if match is None:
            return True
        directory = match["directory"]
        is_beneath = name.startswith(directory)
        if match["rest"] == b"*/":
            is_beneath = is_beneath and b"/" in name[len(directory) :]
        if is_beneath:
            is_included = not match["negated"]
    return is_included
