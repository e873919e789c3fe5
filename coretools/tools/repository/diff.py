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
from coretools.tools.repository.paths import covering, refuse_denied
from coretools.tools.repository.porcelain import quoted, read_names
from coretools.tools.repository.results import GitText, answer, listed

ARGUMENT_BYTES = 1024 * 1024
"""Most bytes of names on one command line; Linux takes 2 MiB of words and environment together (execve(2))."""

_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-relative")
_PATCH = ("--patch", "--submodule=short", "--find-renames", "--src-prefix=a/", "--dst-prefix=b/")


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
    remarks = [f"[not shown, covered by deny globs: {listed([quoted(name) for name in denied])}]"] if denied else []
    if len(changed) == len(denied):
        details = {"files": len(changed), "dropped_bytes": 0}
        return answer(checkout, remarks or ["no differences"], details=details)
    format_words = ("--stat=120",) if shape.is_summary else _PATCH
    completed = await git.run(checkout, "diff", *_SAFE, *format_words, *what, "--", *names, keep_bytes=shape.most_bytes)
    excerpt = checked(completed, "diff").stdout
    if excerpt.dropped_bytes:
        remarks.append("[for the rest name paths, or ask for stat to see which files there are]")
    details = {"files": len(changed), "dropped_bytes": excerpt.dropped_bytes}
    return answer(checkout, [excerpt.text().rstrip("\n"), *remarks], details=details)


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
