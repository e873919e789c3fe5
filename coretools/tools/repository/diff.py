"""Differences, without the content of what deny globs cover.

git's own exclusion patterns can't say our globs, and literal path names, which keep a caller's text from being a
pattern, switch them off anyway. So the names come first, in a run of their own, and the patch is asked for name by name
when one of them is denied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.errors import TooLarge
from coretools.sandbox.roots import Roots
from coretools.tools.repository.checkout import Checkout
from coretools.tools.repository.commands import Git, checked
from coretools.tools.repository.paths import covering, path_of, prefix, refuse_denied, refuse_unknown, told
from coretools.tools.repository.porcelain import quoted, read_names
from coretools.tools.repository.results import GitText, answer, listed

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

    `what` holds `--cached` and resolved revisions only; `names` limit it, and none of them may be denied.

    Raises:
        DeniedPath: a name is. TooLarge: more names than one command takes.
    """
    refuse_denied(roots, checkout, names)
    words = ("diff", *_SAFE, "--no-renames", "--name-only", "-z", *what, "--", *names)
    changed = sorted(set(read_names(await git.output(checkout, *words))))
    denied = [] if shape.is_summary else _denied(roots, checkout, changed)
    if denied:
        names = _remaining(changed, denied)
    remarks = [f"[not shown, covered by deny globs: {listed(told(checkout, denied))}]"] if denied else []
    if not changed:
        trees = [word for word in what if not word.startswith("-")]
        await refuse_unknown(roots, git, checkout, names, trees=trees)
    if len(changed) == len(denied):
        details = {"files": len(changed), "dropped_bytes": 0}
        return answer(checkout, remarks or ["no differences"], details=details)
    if shape.is_summary:
        output = await git.output(checkout, "diff", *_SAFE, *_SUMMARY, *what, "--", *names)
        return answer(checkout, _summary(checkout, output), details={"files": len(changed), "dropped_bytes": 0})
    format_words = (*_PATCH, *_prefixes(checkout))
    completed = await git.run(checkout, "diff", *_SAFE, *format_words, *what, "--", *names, keep_bytes=shape.most_bytes)
    excerpt = checked(completed, "diff").stdout
    if excerpt.dropped_bytes:
        remarks.append("[for the rest name paths, or ask for stat to see which files there are]")
    details = {"files": len(changed), "dropped_bytes": excerpt.dropped_bytes}
    return answer(checkout, [excerpt.text().rstrip("\n"), *remarks], details=details)


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


def _denied(roots: Roots, checkout: Checkout, changed: Sequence[bytes]) -> list[bytes]:
    """Denied names, and names that stand for denied ones: `a` as a path also means all of `a/`."""
    covered = {name for name in changed if covering(roots, checkout, name) is not None}
    above = {name[:at] for name in covered for at in range(len(name)) if name[at : at + 1] == b"/"}
    return [name for name in changed if name in covered or name in above]


def _remaining(changed: Sequence[bytes], denied: Sequence[bytes]) -> list[str]:
    if sum(len(name) + 1 for name in changed) > ARGUMENT_BYTES:
        raise TooLarge(f"{len(changed)} changed files, denied ones among them; name some paths", files=len(changed))
    left_out = set(denied)
    return [name.decode("utf-8", "surrogateescape") for name in changed if name not in left_out]
