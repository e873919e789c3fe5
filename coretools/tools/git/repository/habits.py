"""Settings of user and repository that decide how an operation works if a call leaves it open."""

from typing import Literal

from coretools.tools.git.repository.open_repository import OpenRepository

_FALSE = frozenset({"false", "no", "off", "0"})
"""A key without a value is true."""


PullMode = Literal["ff-only", "merge", "rebase"]
"""How changes of an upstream are integrated."""


async def pull_mode(repository: OpenRepository, branch: str) -> PullMode:
    """Return how the upstream of this branch is integrated: by `branch.NAME.rebase`, else `pull.rebase` and `pull.ff`.

    Without any of them only by fast-forward: git-pull(1) refuses to choose there.

    Raises:
        GitRefused: git can't read its configuration.
    """
    settings = await repository.settings(r"^(pull\.(rebase|ff)|branch\..*\.rebase)$")
    rebase = settings.get(f"branch.{branch}.rebase", settings.get("pull.rebase"))
    fast_forward = settings.get("pull.ff")
    if rebase is not None and rebase.lower() not in _FALSE:
        return "rebase"
    if fast_forward == "only" or (rebase is None and fast_forward is None):
        return "ff-only"
    return "merge"


async def rebase_autosquash(repository: OpenRepository) -> bool:
    """Return whether `git rebase` moves fixups by default here."""
    settings = await repository.settings(r"^rebase\.autosquash$")
    return settings.get("rebase.autosquash", "false").lower() not in _FALSE
