"""Stage exact names: what is changed is listed first, what may not be staged is taken out, the rest goes in by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import GitRefused, NotFound
from coretools.sandbox.reading import exists
from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git
from coretools.tools.repository.paths import hidden, is_beneath, path_of, prefix, refuse_hidden, told
from coretools.tools.repository.porcelain import Entry, quoted, read_records, read_status
from coretools.tools.repository.results import GitText, answer, hidden_line, listed

_LIST = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")

_FILTERS = r"^filter\..*\.(clean|process)$"

LINES_TOLD = 50
"""Staged names that are listed; the rest is counted."""


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Changed paths by what becomes of them."""

    staged: list[Entry]
    denied: dict[bytes, str]
    """Hidden files, with the reasons: staged, they would be in git for everybody."""
    nested: list[bytes]
    """Repositories of their own. Staged, each would be a link to a commit that nobody else has."""


async def add(roots: Roots, git: Git, checkout: Checkout, names: Sequence[str]) -> GitText:
    """Stage everything that is changed at or beneath the names.

    Raises:
        DeniedPath: a name that was written out is hidden. NotFound: nothing is there. GitRefused: a file would be
        stored wrongly, since the filter that should convert it is not run.
    """
    refuse_hidden(roots, checkout, names)
    entries = read_status(await git.output(checkout, *_LIST, "--", *names)).entries
    _require_something(roots, checkout, names, entries)
    found = _sorted(roots, checkout, entries)
    if found.staged:
        await _refuse_filtered(git, checkout, [entry.path for entry in found.staged])
        stdin = b"".join(entry.path + b"\0" for entry in found.staged)
        # Not `git add`: it would take a name for all that lies beneath it too.
        await git.output(checkout, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=stdin)
    details = {"staged": len(found.staged), "left_out": len(found.denied) + len(found.nested)}
    return answer(checkout, _lines(checkout, found), details=details)


def _sorted(roots: Roots, checkout: Checkout, entries: Sequence[Entry]) -> _Sorted:
    found = _Sorted([], {}, [])
    for entry in entries:
        if not entry.unstaged:
            continue
        reason = hidden(roots, checkout, entry.path)
        if reason:
            found.denied[entry.path] = reason
        elif entry.path.endswith(b"/"):  # how git lists another repository in the work tree
            found.nested.append(entry.path)
        else:
            found.staged.append(entry)
    return found


def _lines(checkout: Checkout, found: _Sorted) -> list[str]:
    staged = found.staged
    lines = [f"staged {len(staged)}" if staged else "nothing to stage: unchanged, ignored or staged already"]
    lines += [f"{_letter(entry)} {quoted(path_of(checkout, entry.path))}" for entry in staged[:LINES_TOLD]]
    if len(staged) > LINES_TOLD:
        lines.append(f"[{len(staged) - LINES_TOLD} more]")
    if found.denied:
        lines.append(hidden_line(checkout, "left out", found.denied))
    if found.nested:
        lines.append(f"[left out, repositories of their own: {listed(told(checkout, found.nested))}]")
    return lines


def _require_something(roots: Roots, checkout: Checkout, names: Sequence[str], entries: Sequence[Entry]) -> None:
    """Refuse a name where nothing is: neither in the work tree nor in git's list."""
    for name in names:
        if name == "." or any(is_beneath(entry.path, name) for entry in entries):
            continue
        if exists(roots, f"{checkout.directory.path}/{name}") is None:
            raise NotFound(f"{prefix(checkout)}{name}: nothing is there; name paths as git_status shows them")


async def _refuse_filtered(git: Git, checkout: Checkout, names: Sequence[bytes]) -> None:
    """Refuse files that a filter should convert: git-lfs would store the whole file where a pointer belongs."""
    stdin = b"".join(name + b"\0" for name in names)
    output = await git.output(checkout, "check-attr", "-z", "--stdin", "filter", stdin=stdin)
    wanted = {
        bytes(name): value.decode("utf-8", "replace")
        for name, _, value in read_records(output, 3)
        if value not in (b"unspecified", b"unset", b"set")
    }
    if not wanted:
        return
    known = {key.removeprefix("filter.").rpartition(".")[0] for key in await git.settings(checkout, _FILTERS)}
    filtered = [name for name, driver in wanted.items() if driver in known]
    if filtered:
        drivers = ", ".join(sorted({wanted[name] for name in filtered}))
        files = listed(told(checkout, filtered))
        raise GitRefused(
            f"{files}: the filter {drivers} converts what is staged here, and filters are not run; "
            "nothing was staged; stage these with git itself"
        )


def _letter(entry: Entry) -> str:
    if entry.in_conflict:
        return "resolved"
    return "A" if entry.letters == "??" else entry.letters[1]
