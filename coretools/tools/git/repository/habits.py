"""Settings of user and repository that decide how an operation works if a call leaves it open."""

from dataclasses import dataclass

from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.commands import Git

_FALSE = frozenset({"false", "no", "off", "0"})
"""A key without a value is true."""


@dataclass(frozen=True, slots=True)
class PullHabits:
    """How changes of an upstream are integrated."""

    rebase: bool
    fast_forward: str
    """`only`, `never` (always a merge commit), or "" (where possible)."""


async def pull_habits(git: Git, checkout: Checkout, branch: str) -> PullHabits:
    """Return how git-pull(1) would integrate the upstream of this branch: by `branch.NAME.rebase`, else `pull.*`.

    Raises:
        GitRefused: git can't read its configuration.
    """
    found = await git.settings(checkout, r"^(pull\.(rebase|ff)|branch\..*\.rebase)$")
    rebase = found.get(f"branch.{branch}.rebase", found.get("pull.rebase", "false")).lower()
    fast_forward = found.get("pull.ff", "true").lower()
    never = "never" if fast_forward in _FALSE else ""
    return PullHabits(rebase not in _FALSE, "only" if fast_forward == "only" else never)


async def rebase_autosquash(git: Git, checkout: Checkout) -> bool:
    """Return whether `git rebase` moves fixups by default here."""
    found = await git.settings(checkout, r"^rebase\.autosquash$")
    return found.get("rebase.autosquash", "false").lower() not in _FALSE
