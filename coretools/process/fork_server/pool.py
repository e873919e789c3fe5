"""Holds commands: finds the strongest tier that works here, and has a cell ready for the next command.

The tier is found by doing: a spawner that can't carry out its orders says why, and the next weaker tier is tried. What
is masked in the view, and what stands at the granted paths, is looked up before every command; when it has changed, the
next cell takes over.
"""

import asyncio
import errno
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from secrets import token_hex
from typing import NamedTuple

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.config.operator_policy import TIERS, ConfinementPolicy
from coretools.confinement import landlock
from coretools.confinement.control_files import ControlFiles
from coretools.confinement.git_copies import ConfigCopies
from coretools.confinement.hidden import HiddenPath
from coretools.confinement.masks import MaskFinder, Masks
from coretools.confinement.plan import CommandConfinement, ScratchDirectories, command_confinement
from coretools.errors import Unconfined
from coretools.process.children.reaper import CONTROL_GROUPS_FILE
from coretools.process.fork_server.cgroup import ControlGroup, own_group
from coretools.process.fork_server.client import ForkServerClient, ForkServerFailed, PreforkedProcess
from coretools.process.fork_server.git_configs import GitConfigs
from coretools.process.fork_server.scratch import create, directory_outside_roots, remove
from coretools.process.fork_server.server import ForkServerConfig
from coretools.process.fork_server.sliced_scan import list_changed, scan_in_slices
from coretools.process.fork_server.sockets import SocketRules
from coretools.roots.root_set import Roots

PERMANENT_ERRORS = frozenset({errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EACCES, errno.EUSERS})
"""Of a system that gives this user no namespaces. Another failure may pass, and is no reason to hold commands worse."""

MAX_REBUILDS = 8
"""A view in which what is to be covered was moved meanwhile is built again so many times."""

REFILL_SECONDS = 0.05
"""A cell is filled up this long after a command was taken, when the command that was taken has mostly ended."""


class ConfinementStatus(NamedTuple):
    """How commands are held here."""

    tier: str
    missing: Mapping[str, str]
    """Stronger tiers, and why they can't be had."""
    is_permitted: bool
    """Whether commands may run in it, by the operator's word."""
    is_whole: bool
    """Whether everything beneath the roots was looked through for what is to be masked."""
    bounds: Mapping[str, bool] | None = None
    """What a control group bounds for all commands together, by controller; None where there is no group."""
    polled: tuple[str, ...] = ()
    """Why directories are polled for changes, in words; empty where all are watched."""
    hidden: tuple[HiddenPath, ...] = ()
    """What commands can't read beneath the roots; only known in the tier `full`."""


class SandboxPool:
    """One for a server. `close` must be called; it does not block for long."""

    def __init__(self, roots: Roots, policy: ConfinementPolicy, environment: Mapping[str, str]) -> None:
        self._roots = roots
        self._policy = policy
        self._environment = environment
        self._masks = MaskFinder(roots)
        self._configs = GitConfigs(roots)
        self._copies: dict[ForkServerClient, ConfigCopies] = {}
        self._lock = anyio.Lock()
        self._limiter = CapacityLimiter(1)
        self._commands: CommandConfinement | None = None
        self._scratch = ScratchDirectories(
            os.path.join(directory_outside_roots(roots, policy), f"coretools-{token_hex(8)}")
        )
        self._client: ForkServerClient | None = None
        self._masks_in_view: Masks | None = None
        self._scanned_ns = 0
        """When the last look began."""
        self._control: ControlFiles = {}
        self._listed_ns = 0
        """When the last look for them began."""
        self.scans = 0
        """How many looks for hidden files there were."""
        self._grants: tuple[object, ...] = ()
        self._retired: list[ForkServerClient] = []
        self._is_closed = False
        self.has_fork_server = sys.platform == "linux"
        """Elsewhere commands are started like everything else, in tier `none`."""
        self._numbers = count(1)
        self.bounds: Mapping[str, bool] | None = None
        """What the control group of commands bounds, by controller; None where there is no group."""
        self.tier: str | None = None if self.has_fork_server else "none"
        """The one in force; None until it was looked for."""
        self.missing: dict[str, str] = {} if self.has_fork_server else {"landlock": "needs Linux"}
        """Stronger tiers than the one in force, and why they can't be had."""

    @property
    def scratch(self) -> str:
        """Where commands have their temporary files and their home; there from the first command on."""
        return self._scratch.path

    @property
    def is_permitted(self) -> bool:
        """Whether commands may run in the tier that is in force, by the operator's word."""
        if self.tier is None:
            return True
        if self.tier == "none" and not self._policy.allow_unconfined:
            return False
        return self._policy.require is None or TIERS.index(self.tier) <= TIERS.index(self._policy.require)

    async def prepare(self) -> ConfinementStatus:
        """Find the tier, have commands waiting, and say how they are held."""
        if self.has_fork_server:
            async with self._lock:
                try:
                    await self._current_client()
                except ForkServerFailed as error:
                    self.missing.setdefault("full", str(error))
            await self.control_files()  # a first look takes its time, which the first command need not wait for
        is_whole = self._masks_in_view is None or self._masks_in_view.is_complete
        tier = self.tier or "none"
        return ConfinementStatus(
            tier, dict(self.missing), self.is_permitted, is_whole, self.bounds, self._masks.unwatched, self.hidden
        )

    async def take_process(self) -> PreforkedProcess:
        """A command that waits for its argv, in a cell that masks what is to be masked now.

        Raises:
            Unconfined: the tier here is not one in which the operator lets commands run.
            CellFailed: no spawner can be started at all.
            OSError: no descriptors left.
        """
        asked = time.monotonic_ns()
        async with self._lock:
            # A look that began after this command asked saw all that it has to: those who waited share one.
            is_seen = self._scanned_ns > asked
            client = self._client if is_seen and self._client is not None and self._client.is_alive else None
            client = client or await self._current_client()
        self.require()
        asyncio.get_running_loop().call_later(REFILL_SECONDS, self.refill)
        return client.take()

    def command_started(self) -> None:
        """A command is about to be started; `ended` must follow."""
        self._configs.command_started()

    async def command_ended(self, *, is_certain: bool = True) -> tuple[str, ...]:
        """A command has ended, with everything it started if that is certain: take over what it changed for git.

        What is to be said of that, in sentences.
        """
        if is_certain and not self._lock.locked():  # most commands change nothing: no turn of the loop for them
            reports = self._configs.command_ended(())
            if not self._configs.can_write:
                return tuple(reports)
            async with self._lock:
                return (*reports, *await self._write_configs())
        async with self._lock:
            if not is_certain:
                self._masks_in_view = None  # the next command gets another view
            reports = self._configs.command_ended(
                () if is_certain else [*self._retired, *([self._client] if self._client else [])]
            )
            return (*reports, *await self._write_configs())

    async def _write_configs(self) -> list[str]:
        """Write what waits to configurations, if no command runs; what is to be said of that."""
        if not self._configs.can_write or self._is_closed:
            return []
        self._scanned_ns = 0  # what was found before is not what will be there
        return await to_thread.run_sync(self._configs.write, limiter=self._limiter)

    @property
    def hidden(self) -> tuple[HiddenPath, ...]:
        """What the newest view hides from commands."""
        return () if self._masks_in_view is None else self._masks_in_view.hidden

    def variables(self) -> dict[str, str]:
        """What is different in the environment of commands in this tier."""
        if self._commands is None or self.tier is None:
            return {}
        return self._commands.variables(self.tier, self._scratch, has_masked_files=bool(self.hidden))

    def refill(self) -> None:
        """Have commands waiting again; called when one has ended, so as not to be in its way."""
        if self._client is not None and not self._is_closed:
            with suppress(OSError):
                self._client.fill()

    async def control_files(self) -> ControlFiles:
        """What git, an editor or an agent acts on beneath the roots now: nothing can keep a command from making more.

        Lists the directories that changed; empty where that fails.
        """
        asked = time.monotonic_ns()
        with suppress(OSError):
            async with self._lock:
                if self._listed_ns <= asked:  # those who waited share one look
                    began = time.monotonic_ns()
                    await list_changed(self._masks, self._limiter)
                    self._control, self._listed_ns = self._masks.control_files(), began
                    self._configs.replace_links(self._masks.links())
                return self._configs.without_own(self._control)
        return {}

    def sees(self, path: str) -> bool:
        """Whether a path of the machine is one that commands are given."""
        if self._commands is None or self.tier == "none":
            return True
        return self._commands.can_see(path)

    def close(self) -> None:
        """End every cell, and with it every command. Blocks until they are gone, a moment, and cleans up."""
        self._is_closed = True
        clients = [*self._retired, *([self._client] if self._client is not None else [])]
        for client in clients:
            client.close()
        for client in clients:
            client.wait()
        self._retired, self._client = [], None
        self._masks.close()
        self._configs.close()
        if self._commands is not None:
            remove(self._scratch.path)

    def require(self) -> None:
        """Refuse commands where they must not run.

        Raises:
            Unconfined: the tier in force is not one in which the operator lets commands run.
        """
        if self.is_permitted:
            return
        why = "; ".join(f"{tier}: {reason}" for tier, reason in self.missing.items())
        if self._policy.require is not None and self.tier != "none":
            raise Unconfined(f"commands need the tier {self._policy.require} here, by the operator's word ({why})")
        raise Unconfined(
            f"commands can't be confined on this machine ({why}), so none is run; the operator can allow it all the"
            " same with --allow-unconfined"
        )

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
                raise ForkServerFailed(f"no place for the temporary files of commands: {error}") from error
            prefixes = (sys.prefix, sys.base_prefix)
            look = partial(command_confinement, self._roots, self._policy, self._environment, prefixes=prefixes)
            self._commands = await to_thread.run_sync(look, limiter=self._limiter)
            await to_thread.run_sync(self._commands.prepare_home, self._scratch, limiter=self._limiter)
        # Once a tier was had, commands are never held worse: they are refused until it can be had again.
        for tier in TIERS if self.tier is None else (self.tier,):
            reason = await self._try_tier(tier)
            if reason is None:
                break
            self.missing[tier] = reason
        if self._client is None:
            raise ForkServerFailed(self.missing[self.tier or "none"])
        return self._client

    async def _try_tier(self, tier: str) -> str | None:
        """Have a cell of this tier; why that can't be had, None when it can."""
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
        """Take the end of a spawner that could not carry out its orders."""
        for client in self._retired[-1:]:
            client.wait()

    async def _new_client(
        self, tier: str, masks: Masks | None
    ) -> tuple[ForkServerClient, Masks | None, tuple[object, ...]]:
        """A cell, what it masks and what it grants: looked up again when something was moved meanwhile."""
        for _ in range(MAX_REBUILDS):
            grants = self._current_grants(tier)
            try:
                return await self._start_client(tier, masks), masks, grants
            except ForkServerFailed as error:
                if error.number != errno.ESTALE:
                    raise
            await to_thread.run_sync(self._wait_for_failed, limiter=self._limiter)
            self._masks.invalidate()
            masks = await self._scan(tier)
        grants = self._current_grants(tier)
        return await self._start_client(tier, masks), masks, grants

    async def _replace(self, masks: Masks | None) -> None:
        """The next cell; the old one stays for the commands that run in it."""
        client, masks, grants = await self._new_client(self.tier or "none", masks)
        if self._client is not None:
            self._client.retire()
            self._retired.append(self._client)
        self._client, self._masks_in_view, self._grants = client, masks, grants

    def _current_grants(self, tier: str | None) -> tuple[object, ...]:
        if tier in (None, "none") or self._commands is None:
            return ()
        return self._commands.grant_state(self._scratch, in_namespaces=tier == "full")

    async def _start_client(self, tier: str, masks: Masks | None) -> ForkServerClient:
        place = f"{self._scratch.path}/git-{next(self._numbers)}"
        copies = self._configs.make_copies(place, masks) if masks is not None else None
        group = self._new_group()
        client = ForkServerClient(self._config(tier, masks, copies), group=group)
        if copies is not None:
            self._copies[client] = copies
        self.bounds = None if group is None else dict(group.bounds)
        try:
            await client.ready()
        except BaseException:
            # Waited for at the end, or when the next command comes: this may be a cancellation.
            client.close()
            self._retired.append(client)
            raise
        return client

    def _new_group(self) -> ControlGroup | None:
        """A control group for the next cell, where the server may make one. Its name is left for the guard first."""
        above, commands = own_group(), self._commands
        if above is None or commands is None:
            return None
        path = f"{above}/{os.path.basename(self._scratch.path)}-{next(self._numbers)}"
        with suppress(OSError):
            with open(f"{self._scratch.path}/{CONTROL_GROUPS_FILE}", "a", encoding="utf-8") as file:
                file.write(f"{path}\n")
            return ControlGroup(path, tasks=commands.max_tasks, memory_bytes=commands.memory_bytes)
        return None

    def _config(self, tier: str, masks: Masks | None, copies: ConfigCopies | None) -> ForkServerConfig:
        commands, scratch = self._commands, self._scratch
        assert commands is not None
        is_confined = tier != "none"
        plan = None if masks is None else commands.namespace_plan(scratch, masks, is_polled=bool(self._masks.unwatched))
        return ForkServerConfig(
            view=plan if plan is None or copies is None else copies.added_to(plan),
            rules=commands.rules(scratch, in_namespaces=tier == "full") if is_confined else None,
            tcp=tier == "full" or commands.has_network,
            families=commands.socket_families(tier) if is_confined else None,
            socket_rules=SocketRules(not commands.has_network, commands.socket_directories(scratch))
            if tier == "landlock"
            else None,
            limits=commands.limits(tier) if is_confined else (),
            processes=commands.max_processes,
        )

    async def _scan(self, tier: str | None) -> Masks | None:
        if tier != "full":
            return None
        self.scans += 1
        return await scan_in_slices(self._masks, self._configs, self._limiter)

    def _drop_retired(self) -> None:
        gone = [client for client in self._retired if client.is_gone]
        for client in gone:
            client.close()
            client.wait()
            self._retired.remove(client)
            self._configs.drop(self._copies.pop(client, None))
