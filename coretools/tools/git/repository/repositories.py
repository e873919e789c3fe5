"""Open the repository that a call names, for reading or for a change, and hold what every git tool uses.

Files outside the roots that its configuration includes are checked here before git may read them.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from anyio import CapacityLimiter, move_on_after, to_thread

from coretools.config.limits import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.landlock import READ, Rule
from coretools.errors import CoreError, GitRefused
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.file_version import is_harmless_to_open
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.access_rules import file_rules
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.git_directory import unusable
from coretools.tools.git.repository.grants import NO_GRANTS, require_unchanged
from coretools.tools.git.repository.open_checkout import Access, Checkouts
from coretools.tools.git.repository.open_repository import ENVIRONMENT, Git, OpenRepository
from coretools.tools.git.repository.policy import external_overrides
from coretools.tools.git.repository.porcelain import decoded
from coretools.tools.git.repository.results import settings_remark
from coretools.tools.git.repository.setup import GitSetup
from coretools.tools.git.repository.work_tree_lock import open_when_unlocked

# A repository may include configuration files outside the roots; git reads them in any case. It need not be hostile:
# GitHub's runners keep credentials this way (actions/checkout from v6 on: `includeIf.gitdir:*.path` names
# `$RUNNER_TEMP/git-credentials-*.config`). The names of their keys are listed, never a value. Keys that run programs
# are overridden as in the repository's own configuration, keys that none of our commands reads are ignored, and any
# other key makes the repository unusable. Not even the names may be shown: a token can be part of one
# (`url.https://TOKEN@host/.insteadOf`), and git 2.39 takes a file of one word for a key of that name.

MAX_FILES = 16
"""Most files outside the roots that one repository may include; actions/checkout names two."""

FILE_BYTES = 1024 * 1024
"""Largest of them, as for the repository's own configuration."""

PROBE_SECONDS = 5.0
"""Deadline for checking the files, and again for git's answer; ordinarily both take 2 ms."""

ANYWHERE: tuple[Rule, ...] = (("/", READ),)
"""For calls that list the keys of configuration outside the roots. They act on none of it."""

_KEYS_STDIN = b"[coretools]\nstdin\n"
"""Standard input while key names are listed: an include of it yields a key that makes the repository unusable."""

_UNSTABLE_TREES = ("proc", "sys", "dev")
"""Files there may differ from one reading to the next: `/dev/stdin` is the message of a commit."""


class Repositories:
    """The git repositories beneath the roots."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        confined_threads: ConfinedThreadPool,
        setup: GitSetup,
    ) -> None:
        self.roots = roots.with_trees
        """With the work trees of which roots are folders, since git's names can be there."""
        self._confined = ConfinedRunner(runner, confined_threads)
        self.git = Git(runner, self._confined, limits, setup)
        self._checkouts = Checkouts(roots, self._confined, setup)
        self.threads = CapacityLimiter(limits.threads)

    @asynccontextmanager
    async def opened(
        self,
        repository: str,
        paths: Sequence[str] = (),
        *,
        access: Access = Access.READ,
        refreshes: bool = False,
        is_shared: bool = False,
        is_exclusive: bool = True,
    ) -> AsyncIterator[OpenRepository]:
        """Open and examine a checkout in a worker thread: its file system may be slow.

        `paths` are those of the call: they may name the repository where the root holds several. With `refreshes` git
        refreshes the index, where it may be written, as plain `git status` does. `is_shared`: the call also changes
        what all work trees share besides objects and references. A change waits until no other one of the work tree
        runs, in any server of this machine, unless it is not `is_exclusive`: it changes neither HEAD nor the index.
        """
        is_exclusive = is_exclusive and access is not Access.READ
        options = {"refreshes": refreshes, "is_shared": is_shared, "is_exclusive": is_exclusive}
        with ExitStack() as stack:

            def entered() -> Checkout:
                return stack.enter_context(self._checkouts.opened(repository, paths, access=access, **options))

            opening = partial(to_thread.run_sync, entered, limiter=self.threads)
            checkout = await (open_when_unlocked(opening) if is_exclusive else opening())
            if checkout.grants is not NO_GRANTS:
                checkout = await to_thread.run_sync(_with_grants, self.roots, checkout, access, limiter=self.threads)
            try:
                checkout = await _with_external_includes(self.git, self._confined, checkout, self.threads)
                yield OpenRepository(self.roots, self.git, checkout)
            except CoreError as error:
                # git may fail after it has written some of a work tree.
                error.args = ("\n".join((str(error), *settings_remark(checkout))),)
                raise
            if checkout.index_copy is not None and checkout.index_copy.is_refreshed:
                put_in_place = partial(checkout.index_copy.put_in_place, checkout.git_handle)
                await to_thread.run_sync(put_in_place, limiter=self.threads)


def _with_grants(roots: Roots, checkout: Checkout, access: Access) -> Checkout:
    """Return the checkout; what was granted is not reported as unused.

    Raises:
        GitRefused: a hook is not the one that was granted any more.
    """
    grants = checkout.grants
    if access is not Access.READ:
        overridden = (word.partition("=")[0] for word in checkout.policy.overrides[1::2])
        require_unchanged(roots, checkout.directory.path, grants, overridden)
    not_used = tuple(key for key in checkout.policy.not_used if not grants.covers(key))
    hooks = tuple(name for name in checkout.hooks if name not in grants.hooks)
    return replace(checkout, hooks=hooks, policy=replace(checkout.policy, not_used=not_used))


async def _with_external_includes(
    git: Git, confined: ConfinedRunner, checkout: Checkout, threads: CapacityLimiter
) -> Checkout:
    """Return the checkout with its external includes neutralised and readable for git.

    Raises:
        GitRefused: a file is not known to be harmless. The message is the same for all reasons: it must reveal nothing.
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
            "includes a file outside the roots that is not known to be harmless (only credentials and the like are); "
            "remove this key, or make the directory of the file a root (read-only is enough)",
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
    # git would block on a FIFO, and consume what another reader waits for.
    are_harmless = False
    with move_on_after(PROBE_SECONDS):
        check = partial(_are_harmless, files)
        are_harmless = await to_thread.run_sync(check, limiter=threads, abandon_on_cancel=True)
    if not are_harmless:
        return None
    try:
        names = await _key_names(git, checkout, files)
    except GitRefused:
        return None
    return external_overrides(names)


async def _key_names(git: Git, checkout: Checkout, files: Sequence[str]) -> list[str]:
    """Return the names of the keys in configuration files outside the roots and in their includes, without values.

    `git config` acts on nothing that it reads. It runs outside any repository, so that it reads only these files;
    a missing file has no keys. Neither the result nor git's messages about it may be shown.

    Raises:
        GitRefused: git can't read a file, takes too long, or prints more than the limit.
    """
    options = RunOptions(
        timeout_seconds=min(PROBE_SECONDS, git.limits.git_seconds),
        stdin=_KEYS_STDIN,
        environment={**git.programs, **ENVIRONMENT, "GIT_DIR": "/dev/null"},
        inherit=False,
        confined_thread=git.confined.confined_thread("git", ANYWHERE),
        keep_bytes=git.limits.git_output_bytes,
    )
    included = [word for file in files for word in ("-c", f"include.path={file}")]
    argv = ("git", "--no-pager", *included, "config", "--includes", "--list", "-z", "--name-only", "--show-origin")
    completed = await git.confined.run(argv, cwd=checkout.directory, options=options)
    output = completed.stdout
    records = (output.head + output.tail).split(b"\0")
    pairs = list(zip(records[::2], records[1::2], strict=False))
    # Our own options are listed too: if they are not as many as the files, the format is unknown.
    ours = sum(origin == b"command line:" for origin, _ in pairs)
    if not completed.ok or output.dropped_bytes or len(records) % 2 == 0 or ours != len(files):
        raise GitRefused("git config: can't list the names of keys", exit_code=completed.exit_code)
    return [decoded(name) for origin, name in pairs if origin != b"command line:"]


def _are_harmless(files: Sequence[str]) -> bool:
    return all(is_harmless_to_open(file, limit_bytes=FILE_BYTES) for file in files)


def _first_component(path: str) -> str:
    return next((part for part in path.split("/") if part not in ("", ".")), "")
