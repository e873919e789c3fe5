"""Trials: commands that ran in overlays over the roots, until they are kept or discarded (docs/adr/0059).

The overlays lie in the state directory of the user, in one directory for each server, which holds a lock on it: what a
server that was killed left there is removed by the next one that needs the directory.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

from anyio import CancelScope, CapacityLimiter, Lock, to_thread

from coretools.config.limits import Limits
from coretools.confinement.control_files import changed_between
from coretools.confinement.trial_view import Layer, TrialView, remove_tree
from coretools.errors import BadSetting, Busy, Conflict, InputOutput, NotFound, ReadOnly, Unsupported
from coretools.mounts import mount_id, read_mounts
from coretools.own_state import state_path
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.trials.differences import Budget
from coretools.process.trials.keep import Kept, keep
from coretools.reach import is_beneath
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds
from coretools.roots.directory_access import DIRECTORY, lock
from coretools.roots.root import Directory, Root
from coretools.roots.root_set import Roots

_INSTEAD = "run it without trial"
_CLOCK_SLACK_NS = 1_000_000
"""A clock that is corrected without a step runs at least this exactly, and 0.1 % of the time that passed."""


@dataclass(slots=True)
class Trial:
    """A command on trial."""

    id: str
    principal: str
    summary: str
    view: TrialView
    mark_ns: int
    """When it began, by the clock of the file system of the roots."""
    clock_offset_ns: int
    """The time of day then, less the time since the start of the machine."""
    expiry: asyncio.TimerHandle | None = None
    """Set while it waits to be kept or discarded."""

    def stop_waiting(self) -> None:
        """Let it neither expire nor be ended by another call."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class TrialTable:
    """The trials of one server. `close` must be called; it blocks."""

    def __init__(
        self,
        roots: Roots,
        sandbox_pool: SandboxPool,
        limits: Limits,
        environment: Mapping[str, str],
        *,
        visible: tuple[str, ...] = (),
        ids: ReplicaScopedIds = LOCAL_IDS,
    ) -> None:
        """`visible` are paths besides the roots that commands can reach."""
        self._roots = roots
        self._sandbox = sandbox_pool
        self.prepare: Callable[[], Awaitable[object]] = sandbox_pool.prepare
        """Finds the tier; whoever runs commands replaces it by its own."""
        self._limits = limits
        self._environment = environment
        self._visible = visible
        self._ids = ids
        self._trials: dict[str, Trial] = {}
        self._directory = ""
        self._held = -1
        self._limiter = CapacityLimiter(1)
        self._beginning = Lock()
        """One at a time: each counts those before it."""

    def close(self) -> None:
        """Discard every trial."""
        for trial in self._trials.values():
            trial.stop_waiting()
        self._trials.clear()
        if self._held >= 0:
            remove_tree(self._directory)
            os.close(self._held)
            self._held = -1

    @property
    def budget(self) -> Budget:
        """What one trial may have."""
        return Budget(self._limits.trial_entries, self._limits.trial_bytes)

    async def begin(self, cwd: Directory, *, principal: str, summary: str) -> Trial:
        """Make the overlays for one command.

        Raises:
            Unsupported: not in this tier, or not on this file system. ReadOnly: nothing could be changed.
            Busy: the limit of trials is reached. InputOutput: they can't be made.
        """
        if self._sandbox.tier is None:
            await self.prepare()
        if self._sandbox.tier != "full":
            raise Unsupported(
                f"a trial needs confinement tier full, and commands here have tier {self._sandbox.tier}: {_INSTEAD}"
            )
        if not cwd.place.root.writable:
            raise ReadOnly(f"{cwd.display_path}: the root is read-only, so nothing would change: {_INSTEAD}")
        async with self._beginning:
            self._require_room(principal)
            trial = self._new(principal, summary, await to_thread.run_sync(self._make, limiter=self._limiter))
            self._trials[trial.id] = trial
        return trial

    def _require_room(self, principal: str) -> None:
        if len(self._trials) >= self._limits.trials:
            names = ", ".join(trial.id for trial in self._trials.values() if trial.principal == principal)
            mine = f"; yours: {names}" if names else ""
            raise Busy(f"{len(self._trials)} trials wait, the most at once: keep or discard one with end_trial{mine}")

    def hold(self, trial: Trial) -> None:
        """Let a trial wait to be kept or discarded, for a limited time."""
        loop = asyncio.get_running_loop()
        trial.expiry = loop.call_later(self._limits.trial_seconds, lambda: self._expire(trial))

    def get(self, trial_id: str, principal: str) -> Trial:
        """A trial of this principal that waits.

        Raises:
            NotFound: there is none, it was ended, or it has expired.
        """
        trial = self._trials.get(trial_id)
        if trial is None or trial.principal != principal or trial.expiry is None:
            reason = self._ids.explain_foreign(trial_id) or (
                "no such trial: it was kept or discarded, or has expired; run the command again with trial=true"
            )
            raise NotFound(f"{trial_id[:60]!r}: {reason}", trial=trial_id[:60])
        return trial

    async def discard(self, trial: Trial) -> None:
        """Remove a trial with everything in it."""
        trial.stop_waiting()
        with CancelScope(shield=True):
            await to_thread.run_sync(trial.view.remove, limiter=self._limiter)
        self._trials.pop(trial.id, None)

    async def keep(self, trial: Trial) -> Kept:
        """Apply a trial to the roots and remove it; after a conflict it stays.

        Raises:
            Conflict: something was changed meanwhile; nothing was applied.
            InputOutput: a part was applied, and why no more.
        """
        self._require_steady_clock(trial)
        trial.stop_waiting()  # no second call, and no expiry meanwhile
        try:
            with CancelScope(shield=True):
                kept = await self._apply(trial)
        except Conflict:
            self.hold(trial)
            raise
        except BaseException:
            await self.discard(trial)
            raise
        await self.discard(trial)
        return kept

    async def _apply(self, trial: Trial) -> Kept:
        """Apply as if a command did it: what is looked for and undone after a command, is here too."""
        before = await self._sandbox.control_files()
        self._sandbox.command_started()
        remarks: tuple[str, ...] = ()
        try:
            arguments = partial(keep, mark_ns=trial.mark_ns, summary=trial.summary)
            applying = partial(arguments, self._roots.for_git, self._roots.changes, trial.view, self.budget)
            kept = await to_thread.run_sync(applying, limiter=self._limiter)
            if trial.view.copies is not None:
                self._sandbox.adopt(trial.view.copies)
        finally:
            remarks = await self._sandbox.command_ended()
            if trial.view.copies is not None:
                self._sandbox.drop(trial.view.copies)
        kept.remarks = remarks
        kept.changed_control_files = changed_between(before, await self._sandbox.control_files())
        return kept

    def _require_steady_clock(self, trial: Trial) -> None:
        """Conflicts are found by the time of change, which a clock that was set back makes useless."""
        offset, elapsed = _clock_offset_ns(), time.time_ns() - trial.mark_ns
        if offset < trial.clock_offset_ns - _CLOCK_SLACK_NS - max(0, elapsed) // 1000:
            raise Conflict(
                "nothing was kept: the clock of this machine was set back since the trial began, so newer changes in"
                " the roots can't be told from older ones; discard the trial and run the command again"
            )

    def _new(self, principal: str, summary: str, view: TrialView) -> Trial:
        trial_id = next(found for found in iter(lambda: self._ids.new_id("trial", 3), "") if found not in self._trials)
        return Trial(trial_id, principal, summary, view, os.stat(view.directory).st_ctime_ns, _clock_offset_ns())

    def _expire(self, trial: Trial) -> None:
        trial.stop_waiting()
        self._trials.pop(trial.id, None)
        asyncio.get_running_loop().run_in_executor(None, trial.view.remove)

    def _make(self) -> TrialView:
        """Make the directories of a trial. Blocks."""
        roots = [root for root in self._roots.for_git if root.writable]
        self._require_no_mounts(roots)
        directory = self._own_directory()
        self._require_same_mount(roots)
        path = f"{directory}/{token_hex(8)}"
        view = TrialView(path, tuple(Layer(root, f"{path}/{number}") for number, root in enumerate(roots)))
        try:
            view.make()
        except OSError as error:
            view.remove()
            raise InputOutput(f"{directory}: no directory for a trial ({error.strerror}); nothing was run") from error
        return view

    def _require_no_mounts(self, roots: list[Root]) -> None:
        for mount in read_mounts():
            for root in roots:
                if mount.path.startswith(f"{root.path}/"):
                    raise Unsupported(
                        f"no trial: {mount.path} is mounted in the root {root.path}, and what it would show in an"
                        f" overlay is something else; nothing was run: {_INSTEAD}"
                    )

    def _require_same_mount(self, roots: list[Root]) -> None:
        """What is kept is renamed from one to the other; and covers are found by inode, which overlays keep then."""
        for root in roots:
            if os.fstat(root.fd).st_dev != os.fstat(self._held).st_dev or mount_id(root.fd) != mount_id(self._held):
                raise Unsupported(
                    f"no trial: {os.path.dirname(self._directory)}, where its changes would go, is not on the file"
                    f" system of the root {root.path}; nothing was run: {_INSTEAD}, or set XDG_STATE_HOME for the"
                    " server to a directory there, outside the roots"
                )

    def _own_directory(self) -> str:
        """The locked directory of this server."""
        if self._held >= 0:
            return self._directory
        try:
            above = state_path(self._environment, "trials")
        except BadSetting as error:
            raise Unsupported(f"no trial: {error}; nothing was run: {_INSTEAD}") from error
        if above is None:
            raise Unsupported(f"no trial: there is no home directory; set HOME or XDG_STATE_HOME, or {_INSTEAD}")
        above = os.path.realpath(above)
        for path in (*(root.path for root in self._roots.for_git), *map(os.path.realpath, self._visible)):
            if is_beneath(above, path):
                raise Unsupported(
                    f"no trial: {above}, where its changes would go, lies in {path}, which commands can reach; nothing"
                    f" was run: {_INSTEAD}, or set XDG_STATE_HOME for the server to a directory outside"
                )
        try:
            os.makedirs(above, 0o700, exist_ok=True)
            _remove_abandoned(above)
            self._directory, self._held = _new_locked(above)
        except OSError as error:
            raise InputOutput(f"{above}: can't be used for a trial ({error.strerror}); nothing was run") from error
        return self._directory


def _new_locked(above: str) -> tuple[str, int]:
    """Make a directory and lock it; return its path, and the descriptor that holds the lock."""
    while True:
        path = f"{above}/{token_hex(8)}"
        os.mkdir(path, 0o700)
        held = os.open(path, DIRECTORY)
        with suppress(FileNotFoundError):  # another server took it for abandoned before it was locked
            if lock(held) and os.path.samestat(os.fstat(held), os.stat(path)):
                return path, held
        os.close(held)


def _remove_abandoned(above: str) -> None:
    """Remove what servers that were killed left: nobody holds a lock on it."""
    for name in os.listdir(above):
        with suppress(OSError):
            held = os.open(f"{above}/{name}", DIRECTORY)
            try:
                if lock(held):
                    remove_tree(f"{above}/{name}")
            finally:
                os.close(held)


def _clock_offset_ns() -> int:
    """The time of day less the time since the start of the machine."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
