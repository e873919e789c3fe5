"""Configuration outside the roots that a repository includes: used by git only if it means nothing to our commands.

The runners of GitHub keep their credentials this way (actions/checkout from v6 on: `includeIf.gitdir:*.path` leads to
`$RUNNER_TEMP/git-credentials-*.config`), so such a repository need not be hostile. git reads the files whatever we do.
So the names of their keys are asked for, never a value. What runs programs is overridden as in the repository's own
configuration, what none of our commands reads is left alone, and every other name closes the repository. Nothing of
this may be shown, the names neither: a token stands in `url.https://TOKEN@host/.insteadOf`, and to git 2.39 a file of
one word is a key of that name.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anyio import CapacityLimiter, move_on_after, to_thread

from coretools.errors import GitRefused
from coretools.process.confined import ConfinedRunner
from coretools.roots.file_version import is_harmless_to_open
from coretools.tools.git.checkout import Checkout, file_rules
from coretools.tools.git.commands import Git
from coretools.tools.git.policy import external_overrides
from coretools.tools.git.structure import unusable

MAX_FILES = 16
"""Most files outside the roots that one repository may include; actions/checkout names two."""

FILE_BYTES = 1024 * 1024
"""Longest of them, as for the repository's own."""

PROBE_SECONDS = 5.0
"""Most time for a look at the files, and again for git's answer; ordinarily 2 ms in all."""

_UNSTABLE_TREES = ("proc", "sys", "dev")
"""What git reads there need not be the same twice: `/dev/stdin` is a message that is committed."""


async def with_external_includes(
    git: Git, confined: ConfinedRunner, checkout: Checkout, threads: CapacityLimiter
) -> Checkout:
    """The checkout with what its configuration outside the roots asks for switched off, and git let in to read it.

    Raises:
        GitRefused: a file there is not known to be harmless. One sentence for all reasons: it says nothing of the file.
    """
    files = checkout.policy.external_includes
    if not files:
        return checkout
    overrides = None
    if len(files) <= MAX_FILES and not any(_first_component(file) in _UNSTABLE_TREES for file in files):
        overrides = await _overrides(git, checkout, files, threads)
    if overrides is None:
        raise unusable(
            checkout.policy.included_by,
            "leads to a file outside the roots that is not known to be harmless (only credentials and the like are); "
            "take this key out, or make the directory of the file a root (read-only is enough)",
        )
    enclose = partial(confined.confined_thread, "git", (*checkout.rules, *file_rules(files)))
    return replace(
        checkout,
        confined_thread=await to_thread.run_sync(enclose, limiter=threads),
        policy=replace(checkout.policy, overrides=(*checkout.policy.overrides, *overrides)),
    )


async def _overrides(
    git: Git, checkout: Checkout, files: Sequence[str], threads: CapacityLimiter
) -> tuple[str, ...] | None:
    # git itself would wait for the other end of a FIFO, and take from it what was meant for somebody else.
    are_harmless = False
    with move_on_after(PROBE_SECONDS):
        look = partial(_are_harmless, files)
        are_harmless = await to_thread.run_sync(look, limiter=threads, abandon_on_cancel=True)
    if not are_harmless:
        return None
    try:
        names = await git.key_names(checkout, files, timeout_seconds=PROBE_SECONDS)
    except GitRefused:
        return None
    return external_overrides(names)


def _are_harmless(files: Sequence[str]) -> bool:
    return all(is_harmless_to_open(file, limit_bytes=FILE_BYTES) for file in files)


def _first_component(path: str) -> str:
    return next((part for part in path.split("/") if part not in ("", ".")), "")
