"""Sandbox for commands: finds the strongest confinement tier that works here, and keeps preforked processes ready.

The tier is found by trying: a fork server that can't apply its config reports why, and the next weaker tier is tried.
Hidden files and granted paths are looked up before every command; when they have changed, a new fork server takes over.
"""

import asyncio
import errno
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread

from coretools.config.operator_policy import TIERS, ConfinementPolicy
from coretools.confinement import landlock
from coretools.confinement.command_confinement import (
    CommandConfinement,
    ConfinementStatus,
    ScratchDirectories,
    command_confinement,
)
from coretools.confinement.command_variables import command_variables
from coretools.confinement.git_copies import ConfigCopies
from coretools.confinement.masks import MaskFinder, PathsKeepMoving
from coretools.confinement.mount_points import KEEPS_MOVING
from coretools.confinement.protected_paths import ControlFiles, HiddenPath, Masks
from coretools.confinement.toolchains import FoundToolchain
from coretools.confinement.trial_view import TrialView
from coretools.errors import Unconfined, Unsupported
from coretools.process.fork_server.cgroup import group_for_commands
from coretools.process.fork_server.client import (
    ForkServerClient,
    PreforkedProcess,
    fork_server_config,
)
from coretools.process.fork_server.closable_lock import ClosableLock
from coretools.process.fork_server.command_recording import CommandRecording
from coretools.process.fork_server.git_configs import GitConfigs
from coretools.process.fork_server.messages import ForkServerConfig, ForkServerFailed
from coretools.process.fork_server.redirect_guard import RedirectGuard
from coretools.process.fork_server.refusals import CommandRefusals
from coretools.process.fork_server.scratch import create, remove, scratch_path
from coretools.process.fork_server.view_network import ViewNetwork
from coretools.roots.root import Root
from coretools.roots.root_set import Roots

PERMANENT_ERRORS = frozenset({errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EACCES, errno.EUSERS})
"""Errors of a system that gives this user no namespaces. Other errors may be temporary and do not lower the tier."""

MAX_UNDO_ROUNDS = 256
"""Looks at git directories after a command. Each opens one more level of directories that nobody may list."""

MAX_REBUILDS = 8
"""Attempts to build a view while files that have to be covered are being moved."""

REFILL_SECONDS = 0.05
"""Delay before a new process is preforked after one was taken; most commands have exited by then."""


if TYPE_CHECKING:
    from coretools.egress.proxy import EgressGateway

Environment = Mapping[str, str]
Confine = Callable[[Roots, ConfinementPolicy, Environment], CommandConfinement]
"""Derives the confinement of commands; called once, in a worker thread."""


class SandboxPool:
    """The sandbox of one server. `close` must be called."""

    def __init__(
        self,
        roots: Roots,
        policy: ConfinementPolicy,
        environment: Environment,
        confine: Confine = command_confinement,
        *,
        gateway: "EgressGateway | None" = None,
        scratch: str = "",
    ) -> None:
        """`gateway` replaces the one that the policy's list of hosts stands for; `scratch` the usual directory."""
        self.recording: CommandRecording | None = None
        """How changes that commands make are recorded; None for not at all. Set before the first command."""
        self._roots = roots
        self._policy = policy
        self.network = ViewNetwork(policy, self._clients, gateway=gateway)
        self._confine = partial(confine, roots, policy, environment)
        self._masks = MaskFinder(roots)
        self._configs = GitConfigs(roots, lambda: [client.kill_all() for client in self._clients()])
        self._redirects = RedirectGuard(roots)
        self.refusals = CommandRefusals(roots, policy)
        self._copies: dict[ForkServerClient, ConfigCopies] = {}
        self._lock = ClosableLock()
        self._limiter = CapacityLimiter(1)
        self._commands: CommandConfinement | None = None
        self._scratch = ScratchDirectories(scratch or scratch_path(roots, policy))
        self._client: ForkServerClient | None = None
        self._masks_in_view: Masks | None = None
        self._control: ControlFiles = {}
        self._scanned_ns = self._listed_ns = 0
        """When the last scan for hidden files, and for control files, began."""
        self.scans = 0
        """Number of scans for hidden files."""
        self._grants: tuple[object, ...] = ()
        self._retired: list[ForkServerClient] = []
        self.has_fork_server = sys.platform == "linux"
        """False: commands are plain children, in tier `none`."""
        self._numbers = count(1)
        self.bounds: Mapping[str, bool] | None = None
        """Whether the control group of commands limits each controller; None without a group."""
        self.tier: str | None = None if self.has_fork_server else "none"
        """The tier in force; None until `prepare` or the first command."""
        self.missing: dict[str, str] = {} if self.has_fork_server else {"landlock": "needs Linux"}
        """Tiers stronger than the one in force, and why each is unavailable."""

    @property
    def scratch(self) -> str:
        """Directory of the commands' temporary files and home; created for the first command."""
        return self._scratch.path

    @property
    def is_permitted(self) -> bool:
        """Whether commands may run in the tier in force, as configured by the operator."""
        return not self.refusals.of_tier(self.tier, self.missing)

    async def prepare(self) -> ConfinementStatus:
        """Find the tier, prefork processes, and return how commands are confined."""
        if self.has_fork_server:
            try:
                async with self._lock.until_closed():
                    await self._current_client()
            except ForkServerFailed as error:
                self.missing.setdefault("full", str(error))
            await self.control_files()  # the first scan is slow; the first command need not wait for it
        is_whole = self._masks_in_view is None or self._masks_in_view.is_complete
        return ConfinementStatus(
            *(self.tier or "none", dict(self.missing), self.is_permitted, is_whole, self.bounds),
            *(self._masks.unwatched, self.hidden, self.refusals.readable.files, self.refusals.of_credentials),
        )

    async def take_process(self, trial: TrialView | None = None) -> PreforkedProcess:
        """Take a preforked process, in a view that hides what has to be hidden now; with a `trial`, in its overlays.

        Raises:
            Unconfined: the operator does not allow commands in the tier here, or not while git's credentials are there.
            ForkServerFailed: no fork server can be started at all.
            OSError: no descriptors left.
        """
        asked = time.monotonic_ns()
        async with self._lock.until_closed():
            # A scan that began after this call covers it: calls that waited share one.
            is_seen = self._scanned_ns > asked
            client = self._client if is_seen and self._client is not None and self._client.is_alive else None
            client = client or await self._current_client()
        self.require()
        if refusal := self.refusals.of_credentials:
            raise Unconfined(refusal)
        if self.tier == "full":
            self.network.command_starts()
        if trial is not None:
            async with self._lock.until_closed():
                return await self._take_for_trial(trial)
        asyncio.get_running_loop().call_later(REFILL_SECONDS, self.refill)
        return client.take()

    async def _take_for_trial(self, trial: TrialView) -> PreforkedProcess:
        """Take a process of a fork server of its own, which exits after this command."""
        try:
            client, _, _ = await self._new_client("full", self._masks_in_view, trial)
        except ForkServerFailed as error:
            raise Unsupported(
                f"no trial: no overlay over the roots can be mounted here ({error}); nothing was run: run"
                " it without trial"
            ) from error
        self._retired.append(client)
        trial.wait_gone = client.wait_gone
        process = client.take()
        client.retire()
        return process

    def adopt(self, copies: ConfigCopies) -> None:
        """Carry over the changes to git configurations in a trial's copies, as if a command had just made them."""
        self._configs.adopt(copies)

    def drop(self, copies: ConfigCopies) -> None:
        """Remove the copies of a trial."""
        self._configs.drop(copies)

    def command_started(self) -> None:
        """A command is about to start; `command_ended` must follow."""
        self._configs.command_started()
        self._redirects.command_started()

    async def command_ended(self, *, is_certain: bool = True) -> tuple[str, ...]:
        """A command has ended, with everything it started if that is certain: carry over its changes for git.

        Returns sentences for the result.
        """
        if is_certain and not self._lock.locked():  # most commands change nothing: no checkpoint for them
            reports = self._configs.command_ended(())
            if not self._configs.can_write:
                return (*reports, *await self._undo_redirects())
            async with self._lock:
                reports += await self._write_configs()
            return (*reports, *await self._undo_redirects())
        async with self._lock:
            if not is_certain:
                self._masks_in_view = None  # the next command gets a new view
            reports = self._configs.command_ended(() if is_certain else self._clients())
            reports += await self._write_configs()
        return (*reports, *await self._undo_redirects())

    async def _undo_redirects(self) -> list[str]:
        """Undo what a command left in git directories that leads git elsewhere; return sentences for the result."""
        reports: list[str] = []
        with suppress(OSError, ForkServerFailed):
            async with self._lock.until_closed():
                for _ in range(MAX_UNDO_ROUNDS):
                    self._listed_ns = 0  # what is undone now, no scan before has seen
                    await self._masks.list_in_slices(self._limiter)
                    is_changed, configurations = self._check_redirects()
                    reports += self._configs.repair_new(configurations)
                    if not is_changed:
                        break
        return [*reports, *self._redirects.notes()]

    def _check_redirects(self) -> tuple[bool, list[str]]:
        redirects, inaccessible = self._masks.redirects(), self._masks.inaccessible_in_git()
        return self._redirects.check(redirects, inaccessible, are_running=self._configs.are_running)

    async def _write_configs(self) -> list[str]:
        """Write pending changes to configurations if no command runs; return sentences for the result."""
        if not self._configs.can_write or self._lock.is_closed:
            return []
        self._scanned_ns = 0  # the last scan is outdated
        return await to_thread.run_sync(self._configs.write, limiter=self._limiter)

    @property
    def unrecorded(self) -> str:
        """Why changes of commands are not recorded, though they should be; empty if they are, or it is not known."""
        if self.recording is None or self.tier is None:
            return ""
        if self.tier == "none":
            return "commands are not confined here (tier none)"
        if self._client is None or self._client.records_changes:
            return ""
        return self.recording.error or "this system does not let a filter report system calls (seccomp_unotify(2))"

    @property
    def hidden(self) -> tuple[HiddenPath, ...]:
        """Files that the current view hides from commands."""
        return () if self._masks_in_view is None else self._masks_in_view.hidden

    @property
    def toolchains(self) -> tuple[FoundToolchain, ...]:
        """Toolchains of the user that were found; none before `prepare`."""
        return () if self._commands is None else self._commands.toolchains.found

    def variables(self, root: Root | None = None) -> dict[str, str]:
        """Environment variables that commands get in this tier when they start in this root."""
        if self._commands is None or self.tier is None:
            return {}
        has_masked_files = bool(self.hidden)
        return command_variables(self._commands, self.tier, self._scratch, root, has_masked_files=has_masked_files)

    def refill(self) -> None:
        """Prefork new processes; called after a command has ended, so as not to slow it down."""
        if self._client is not None and not self._lock.is_closed:
            with suppress(OSError):
                self._client.fill()

    async def control_files(self) -> ControlFiles:
        """Control files (of git, editors and agents) in the roots now: nothing can keep commands from creating them.

        Scans the directories that changed; empty if that fails.
        """
        asked = time.monotonic_ns()
        with suppress(OSError, ForkServerFailed):
            async with self._lock.until_closed():
                if self._listed_ns <= asked:  # calls that waited share one scan
                    began = time.monotonic_ns()
                    await self._masks.list_in_slices(self._limiter)
                    self._control, self._listed_ns = self._masks.control_files(), began
                    self._redirects.accept(self._masks.redirects(), self._control)
                    self._configs.replace_links(self._masks.links())
                return self._configs.without_own(self._control)
        return {}

    def sees(self, path: str) -> bool:
        """Whether commands can see a path of the machine."""
        return self._commands is None or self.tier == "none" or self._commands.can_see(path)

    async def close(self) -> None:
        """End every fork server, and with it every command, and clean up."""
        self._lock.close()
        await self.network.aclose()
        self._close_clients()  # even if a scan that hangs never gives the lock back
        # A scan may be using the descriptors that are closed now, and their numbers belong to other files soon.
        async with self._lock:
            self._close_clients()  # the last one may have become ready meanwhile
            await to_thread.run_sync(self._release, limiter=CapacityLimiter(1), abandon_on_cancel=True)

    def _close_clients(self) -> None:
        for client in self._clients():
            client.close()

    def _release(self) -> None:
        clients, self._retired, self._client = self._clients(), [], None
        for client in clients:
            client.wait()
        self._undo_last_redirects()
        self._masks.close()
        self._configs.close()
        if self.recording is not None:
            self.recording.close()
        if self._commands is not None:
            remove(self._scratch.path)

    def _undo_last_redirects(self) -> None:
        """Undo what the commands left that ran until now, and those whose end was not waited for."""
        with suppress(OSError):
            for _ in range(MAX_UNDO_ROUNDS if self._redirects.is_unchecked else 0):
                self._masks.begin()
                self._masks.advance_listing()
                is_changed, configurations = self._check_redirects()
                self._configs.repair_new(configurations, is_last=True)
                if not is_changed:
                    break

    def require(self) -> None:
        """Raise if commands must not run here.

        Raises:
            Unconfined: the operator does not allow commands in the tier in force, or it can't hide our own state.
        """
        if refusal := self.refusals.of_tier(self.tier, self.missing):
            raise Unconfined(refusal)

    def _clients(self) -> list[ForkServerClient]:
        """Return the fork servers that run, the newest first."""
        return [*([self._client] if self._client is not None else []), *reversed(self._retired)]

    async def _current_client(self) -> ForkServerClient:
        if self._client is not None and not self._client.is_alive:
            self._retired.append(self._client)
            self._client.close()
            self._client = None
        began = time.monotonic_ns()
        if self._client is None:
            client = await self._start_first_client()
            self._scanned_ns = began
            return client
        masks = await self._scan(self.tier)
        if masks != self._masks_in_view or self._current_grants(self.tier) != self._grants:
            await self._replace(masks)
        self._scanned_ns = began
        self._drop_retired()
        return self._client

    async def _start_first_client(self) -> ForkServerClient:
        if self._commands is None:
            try:
                self._scratch = create(self._scratch)
            except OSError as error:
                raise ForkServerFailed(f"no directory for the temporary files of commands: {error}") from error
            self._commands = await to_thread.run_sync(self._confine, limiter=self._limiter)
            await to_thread.run_sync(self._commands.prepare_home, self._scratch, limiter=self._limiter)
        # Once a tier was in force, commands never get a weaker one: they are refused until it is available again.
        for tier in TIERS if self.tier is None else (self.tier,):
            reason = await self._try_tier(tier)
            if reason is None:
                break
            self.missing[tier] = reason
        if self._client is None:
            raise ForkServerFailed(self.missing[self.tier or "none"])
        return self._client

    async def _try_tier(self, tier: str) -> str | None:
        """Start a fork server of this tier; return why that is impossible, None if it runs."""
        if tier != "none" and landlock.abi() < landlock.ABI_REQUIRED:
            has = f"has version {landlock.abi()}" if landlock.abi() else "has none, or does not let it be used"
            return f"needs Landlock {landlock.ABI_REQUIRED} (Linux 6.2), and this system {has}"
        try:
            client, masks, grants = await self._new_client(tier, await self._scan(tier))
        except ForkServerFailed as error:
            await to_thread.run_sync(self._wait_for_failed, limiter=self._limiter)
            if self.tier is None and error.number not in PERMANENT_ERRORS:
                raise
            return str(error)
        self._client, self._masks_in_view, self._grants, self.tier = client, masks, grants, tier
        self.missing.pop(tier, None)
        return None

    def _wait_for_failed(self) -> None:
        """Reap a fork server that could not apply its config."""
        for client in self._retired[-1:]:
            client.wait()

    async def _new_client(
        self, tier: str, masks: Masks | None, trial: TrialView | None = None
    ) -> tuple[ForkServerClient, Masks | None, tuple[object, ...]]:
        """Start a fork server; return it with its masks and grants, which are renewed if files were moved meanwhile."""
        for _ in range(MAX_REBUILDS):
            grants = self._current_grants(tier)
            try:
                return await self._start_client(tier, masks, trial), masks, grants
            except ForkServerFailed as error:
                if error.number != errno.ESTALE:
                    raise
            await to_thread.run_sync(self._wait_for_failed, limiter=self._limiter)
            self._masks.invalidate()
            masks = await self._scan(tier)
        grants = self._current_grants(tier)
        return await self._start_client(tier, masks, trial), masks, grants

    async def _replace(self, masks: Masks | None) -> None:
        """Start the next fork server; the old one stays for the commands that run in it."""
        client, masks, grants = await self._new_client(self.tier or "none", masks)
        if self._client is not None:
            self._client.retire()
            self._retired.append(self._client)
        self._client, self._masks_in_view, self._grants = client, masks, grants

    def _current_grants(self, tier: str | None) -> tuple[object, ...]:
        if tier in (None, "none") or self._commands is None:
            return ()
        return self._commands.grant_state(self._scratch, in_namespaces=tier == "full")

    async def _start_client(self, tier: str, masks: Masks | None, trial: TrialView | None = None) -> ForkServerClient:
        place = f"{self._scratch.path}/git-{next(self._numbers)}"
        copies = self._configs.make_copies(place, masks, is_trial=trial is not None) if masks is not None else None
        assert self._commands is not None
        bounds = {"tasks": self._commands.max_tasks, "memory_bytes": self._commands.memory_bytes}
        group = group_for_commands(self._scratch.path, next(self._numbers), **bounds)
        config = self._config(tier, masks, copies)
        if trial is not None and config.view is not None:
            config = config._replace(view=trial.added_to(config.view))
            trial.copies = copies
        elif self.recording is not None:
            config = config._replace(changes=self.recording.changes(self._roots))
        client = ForkServerClient(config, group=group, gateway=self.network.gateway)
        if copies is not None and trial is None:
            self._copies[client] = copies
        self.bounds = None if group is None else dict(group.bounds)
        try:
            await client.ready()
        except BaseException:
            # Reaped at shutdown or by the next command: this may be a cancellation.
            client.close()
            self._retired.append(client)
            raise
        return client

    def _config(self, tier: str, masks: Masks | None, copies: ConfigCopies | None) -> ForkServerConfig:
        commands, scratch = self._commands, self._scratch
        assert commands is not None
        plan = None if masks is None else commands.namespace_plan(scratch, masks, is_polled=bool(self._masks.unwatched))
        view = plan if plan is None or copies is None else copies.added_to(plan)
        return fork_server_config(commands, scratch, tier, view)

    async def _scan(self, tier: str | None) -> Masks | None:
        """Search the roots for what a view has to hide. In tier `landlock`, where there is none, only note it."""
        if tier in (None, "none"):
            return None
        self.scans += 1
        try:
            masks = await self._masks.scan_in_slices(self._configs.apply_to, self._limiter)
        except PathsKeepMoving as error:
            raise ForkServerFailed(KEEPS_MOVING, errno.EBUSY) from error
        if tier != "full":
            self.refusals.note(masks, self._configs.credentials)
        return masks if tier == "full" else None

    def _drop_retired(self) -> None:
        gone = [client for client in self._retired if client.is_gone]
        for client in gone:
            client.close()
            client.wait()
            self._retired.remove(client)
            self._configs.drop(self._copies.pop(client, None))
