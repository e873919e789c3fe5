"""Sparse checkout: which directories of a repository are in the work tree (git-sparse-checkout(1), cone mode)."""

from collections.abc import Sequence

from coretools.errors import GitRefused, InvalidArguments
from coretools.tools.git.changes.writable import (
    refuse_outside,
    refuse_settings,
    require_visible_names,
    settings_among,
)
from coretools.tools.git.repository.checkout import Checkout, prefix
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text, decoded, encoded, read_names, single_line
from coretools.tools.git.repository.results import TextResult, answer


async def sparse_checkout(repository: OpenRepository, *, action: str, names: Sequence[str]) -> TextResult:
    """List, set, add to or disable the directories that are checked out.

    Raises:
        InvalidArguments: no directories. GitRefused: git refuses, or hidden files would be written.
    """
    checkout = repository.checkout
    before = await _directories(repository)
    if action == "list":
        return answer(checkout, _lines(checkout, before), details={"directories": before})
    if checkout.is_linked:
        raise GitRefused("a linked work tree shares its configuration, which is not written; use the main one")
    if (action in ("set", "add")) != bool(names):
        raise InvalidArguments("paths: directories go with 'set' and 'add', and only with these")
    tracked = [(one[:1], one[2:]) for one in read_names(await repository.output("ls-files", "-t", "-z"))]
    left_out = [name for tag, name in tracked if tag == b"S"]
    await require_visible_names(repository, left_out)
    changed = left_out
    if action == "set":  # deletes what is there and not wanted, too
        changed = [name for tag, name in tracked if (tag == b"S") == _is_wanted(name, names)]
    refuse_outside(checkout, (name for _, name in tracked))
    refuse_settings(settings_among(repository, changed))
    words = ["sparse-checkout", action]
    stdin = None
    if names:
        words += [*(["--cone"] if action == "set" else []), "--stdin"]
        stdin = encoded("".join(f"{_quoted(name)}\n" for name in names))
    require_success(await repository.run(*words, stdin=stdin), "sparse-checkout")
    now = await _directories(repository)
    lines = [*_lines(checkout, now), _undo(checkout, before)]
    return answer(checkout, lines, details={"directories": now})


def _is_wanted(name: bytes, directories: Sequence[str]) -> bool:
    """Whether a file is checked out with these directories: in one of them, or directly in a directory above one."""
    above = decoded(name).rpartition("/")[0]
    return not above or any(f"{above}/".startswith(f"{one}/") or one.startswith(f"{above}/") for one in directories)


def _quoted(name: str) -> str:
    """Return a directory as git reads it: C-style quotes where a line would not do."""
    if name == ".":
        raise InvalidArguments("paths: name directories of the work tree; action 'disable' checks out all of it")
    plain = name.isprintable() and not name.startswith('"') and "\\" not in name
    if plain:
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


async def _directories(repository: OpenRepository) -> list[str] | None:
    """Return the directories, or None if everything is checked out."""
    completed = await repository.run("sparse-checkout", "list")
    if not completed.ok:  # "this worktree is not sparse"
        return None
    return as_text(completed.stdout.head + completed.stdout.tail).splitlines()


def _lines(checkout: Checkout, directories: Sequence[str] | None) -> list[str]:
    if directories is None:
        return ["everything is checked out"]
    paths = [single_line(f"{prefix(checkout)}{one}/") for one in directories]
    return ["checked out are the files at the top, and these directories:", *(paths or ["none"])]


def _undo(checkout: Checkout, before: Sequence[str] | None) -> str:
    if before is None:
        return "Undo: git_sparse_checkout action='disable'"
    paths = [f"{prefix(checkout)}{one}" for one in before]
    return f"Undo: git_sparse_checkout action='set' paths={paths!r}"
