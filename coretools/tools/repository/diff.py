"""Differences, without the content of what is hidden.

git's own exclusion patterns can't say our rules, and literal path names, which keep a caller's text from being a
pattern, switch them off anyway. So git prints the names before the patch, and the patch is asked for again, name by
name, when one of them is hidden. What a file holds now decides, for each side: committed content of a file that is not
hidden now is in git for everybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.errors import TooLarge
from coretools.excerpt import Excerpt
from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git, checked
from coretools.tools.repository.paths import hidden, path_of, prefix, refuse_hidden, refuse_unknown
from coretools.tools.repository.porcelain import quoted, read_names, read_raw
from coretools.tools.repository.results import GitText, answer, hidden_line

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux takes 2 MiB of words and environment together (execve(2))."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-relative")
_PATCH = ("--patch", "--submodule=short", "--find-renames")
_SUMMARY = ("--numstat", "-z", "--no-renames")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a difference is told."""

    is_summary: bool
    most_bytes: int


async def difference(
    roots: Roots, git: Git, checkout: Checkout, *, what: Sequence[str], names: Sequence[str], shape: Shape
) -> GitText:
    """The patch, its head and tail where it is long, or a summary by file.

    `what` holds `--cached` and resolved revisions only; `names` limit it, and none of them may be hidden.

    Raises:
        DeniedPath: a name is. TooLarge: more names than one command takes.
    """
    refuse_hidden(roots, checkout, names)
    if shape.is_summary:
        changed, patch = await _summed(git, checkout, what, names)
    else:
        changed, patch = await _compared(git, checkout, what, names, most_bytes=shape.most_bytes)
    if not changed:
        trees = [word for word in what if not word.startswith("-")]
        await refuse_unknown(roots, git, checkout, names, trees=trees)
        return answer(checkout, ["no differences"], details={"files": 0, "dropped_bytes": 0})
    remarks = []
    denied = {} if shape.is_summary else _denied(roots, checkout, changed)
    if denied:
        remarks.append(hidden_line(checkout, "not shown", denied))
        names = _remaining(changed, denied)
        patch = None if names else Excerpt(b"", b"", 0)
    if patch is None:
        patch = await _patch(git, checkout, *what, "--", *names, most_bytes=shape.most_bytes)
    if patch.dropped_bytes:
        remarks.append("[for the rest name paths, or ask for stat to see which files there are]")
    shown = patch.text().rstrip("\n")
    details = {"files": len(changed), "dropped_bytes": patch.dropped_bytes}
    return answer(checkout, [shown, *remarks] if shown else remarks, details=details)


async def _compared(
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str], *, most_bytes: int
) -> tuple[list[bytes], Excerpt | None]:
    """The names of what is changed, and the patch where it came with them: short, and without conflicts."""
    both = await _patch(git, checkout, "--raw", "-z", *what, "--", *names, most_bytes=most_bytes)
    found = None if both.dropped_bytes else read_raw(both.head + both.tail)
    if found is not None:
        return sorted(set(found[0])), Excerpt(found[1], b"", 0)
    words = ("diff", *_SAFE, "--no-renames", "--name-only", "-z", *what, "--", *names)
    return sorted(set(read_names(await git.output(checkout, *words)))), None


async def _patch(git: Git, checkout: Checkout, *words: str, most_bytes: int) -> Excerpt:
    shape = (*_SAFE, *_PATCH, *_prefixes(checkout))
    return checked(await git.run(checkout, "diff", *shape, *words, keep_bytes=most_bytes), "diff").stdout


async def _summed(
    git: Git, checkout: Checkout, what: Sequence[str], names: Sequence[str]
) -> tuple[list[bytes], Excerpt | None]:
    """The names of what is changed, and a summary of it."""
    output = await git.output(checkout, "diff", *_SAFE, *_SUMMARY, *what, "--", *names)
    changed = sorted({record.split(b"\t", 2)[2] for record in read_names(output)})
    return changed, Excerpt("\n".join(_summary(checkout, output)).encode(), b"", 0)


def _prefixes(checkout: Checkout) -> tuple[str, str]:
    """Options that make git name files as every other tool does."""
    before = prefix(checkout)
    letters = ("", "") if before.startswith("/") else ("a/", "b/")
    return f"--src-prefix={letters[0]}{before}", f"--dst-prefix={letters[1]}{before}"


def _summary(checkout: Checkout, output: bytes) -> list[str]:
    """Each changed file with its lines added and removed, and the sums."""
    lines, added, removed = [], 0, 0
    for record in read_names(output):
        more, less, name = record.split(b"\t", 2)
        is_binary = more == b"-"
        added, removed = (added, removed) if is_binary else (added + int(more), removed + int(less))
        change = "binary" if is_binary else f"+{int(more)} -{int(less)}"
        lines.append(f"{quoted(path_of(checkout, name))} | {change}")
    return [*lines, f"{len(lines)} files changed, +{added} -{removed} lines"]


def _denied(roots: Roots, checkout: Checkout, changed: Sequence[bytes]) -> dict[bytes, str]:
    """Hidden names, and names that stand for hidden ones: `a` as a path also means all of `a/`. With the reasons."""
    reasons = {name: reason for name in changed if (reason := hidden(roots, checkout, name))}
    above = {name[:at]: name for name in reasons for at in range(len(name)) if name[at : at + 1] == b"/"}
    return {name: reasons.get(name) or reasons[above[name]] for name in changed if name in reasons or name in above}


def _remaining(changed: Sequence[bytes], denied: Mapping[bytes, str]) -> list[str]:
    if sum(len(name) + 1 for name in changed) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(changed)} changed files, hidden ones among them; name some paths", files=len(changed))
    return [name.decode("utf-8", "surrogateescape") for name in changed if name not in denied]
