"""One workplace for each role: its roots, runner, tools, server and sessions, apart from those of every other role.

Each lives in a task of its own, so that a reload opens and closes some while the others serve. One whose rights change
gets another assembly in place: its sessions, runs and tasks go on.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server

from coretools.app.assembly import Assembly, announce, assembled, prepare, require, succeeding
from coretools.errors import CoreError, Unreachable
from coretools.operations.declare import Surface
from coretools.operations.dispatch import CallObserver
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import Draining
from coretools.protocol.round_trip_questions import Interviews
from coretools.protocol.server import Beside, build_shared
from coretools.replica_ids import ReplicaScopedIds
from coretools.roots.root_set import Root
from coretools.web.common.principals import Role, Verifier
from coretools.web.config_changes import counted
from coretools.web.endpoint import Endpoint
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.response_format import quiet_in
from coretools.web.sessions.session_manager import Admission

LOOK_SECONDS = 1.0
"""Between two looks whether what was replaced is out of use. It is the longest pause of those who look at resources,
too: the first look comes after they have found the new commands."""


REVOKED_SECONDS = 2.0
"""Between two looks whether the owners of runs and tasks are still let in."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all workplaces of a server have in common."""

    environment: Mapping[str, str]
    others: Sequence[Registry]
    stores: Stores
    admission: Admission
    watching: Callable[[str, LiveCatalog], CallObserver]
    """Makes what is told of the calls of a role."""
    draining: Draining
    is_same_for_all: bool
    """Whether everybody who reaches the server has the same role."""


@dataclass(slots=True, kw_only=True, eq=False)
class Workplace:
    """What principals of one role reach."""

    role: Role
    assembly: Assembly
    endpoint: Endpoint
    server: Server[Any]
    interviews: Interviews
    catalog: LiveCatalog
    """What the server serves; the graphs of later assemblies are adopted by it."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set for it to be closed."""

    @property
    def is_ready(self) -> bool:
        """Whether calls can be served: every root is where it was opened, and commands are held as required."""
        return all(self._holds(root) for root in self.assembly.roots)

    def use(self, role: Role, assembly: Assembly) -> frozenset[Surface]:
        """Serve by other rights from now on; says which lists changed."""
        self.role = role
        if assembly is self.assembly:
            return frozenset()
        self.assembly = assembly
        self.server.instructions = assembly.instructions
        self.interviews.use(role.settings.asking)
        return self.catalog.adopt(assembly.catalog)

    def stop_revoked(self, verifier: Verifier) -> None:
        """Stop the runs and tasks of principals who are let in no more. Their calls under way are answered.

        Raises:
            Unreachable: it can't be told now who is let in.
        """
        runs, tasks = self.assembly.runs, self.assembly.tasks
        for name in sorted(runs.principals | tasks.principals):
            if verifier.admits(name, self.role.name):
                continue
            stopped = f"{counted(runs.end_of_principal(name), 'run')}, {counted(tasks.end_of_principal(name), 'task')}"
            logger.warning("access of %s as %s was revoked; stopped: %s", name, self.role.name, stopped)

    def _holds(self, root: Root) -> bool:
        try:
            self.assembly.roots.require_present(root)
        except CoreError:
            return False
        return True


class Workplaces:
    """All workplaces of a server."""

    def __init__(self, hosts: TaskGroup, background: TaskGroup, around: Surroundings) -> None:
        self.opened: dict[str, Workplace] = {}
        """By role: what is served now."""
        self._hosts = hosts
        self._background = background
        self._around = around

    async def open(self, role: Role) -> Workplace:
        """A workplace that is not served yet.

        Raises:
            BadSetting: a root or another setting can't be used.
            Unconfined: commands can't be held as the operator requires.
        """
        workplace: Workplace = await self._hosts.start(self._host, role)
        return workplace

    async def successor(self, before: Workplace, role: Role) -> Assembly:
        """What a workplace is to have instead, by other settings.

        Raises:
            BadSetting: a root or another setting can't be used.
            Unconfined: commands can't be held as the operator requires.
        """
        assembly = await succeeding(before.assembly, role.settings, self._around.environment, self._around.others)
        try:
            await _require(assembly, role)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await assembly.retire()
            raise
        return assembly

    def serve(self, workplace: Workplace) -> None:
        """Serve one that was opened."""
        self.opened[workplace.role.name] = workplace
        self._background.start_soon(prepare, workplace.assembly, workplace.role.name)

    def replace(self, workplace: Workplace, role: Role, assembly: Assembly) -> frozenset[Surface]:
        """Serve by other rights, and close what there was once nothing uses it; says which lists changed."""
        before = workplace.assembly
        changed = workplace.use(role, assembly)
        if before is not assembly:
            announce(assembly, role.settings, role.name)
            self._background.start_soon(_retired, before)
            self._background.start_soon(prepare, assembly, role.name)
        return changed

    def withdraw(self, name: str) -> None:
        """Serve a role no more. Its calls under way are answered; then its sessions end and its runs are stopped."""
        self._background.start_soon(_withdrawn, self.opened.pop(name))

    def stop_revoked(self, verifier: Verifier) -> None:
        """Stop what principals left running who are let in no more; while that can't be told nothing is stopped."""
        try:
            for workplace in self.opened.values():
                workplace.stop_revoked(verifier)
        except Unreachable as error:
            logger.debug("whose access was revoked can't be told: %s", error)

    def watch(self, verifier: Verifier) -> None:
        """Do so again and again: a token file may change without a signal."""
        self._background.start_soon(self._watched, verifier)

    def close(self) -> None:
        """End all of them."""
        for workplace in self.opened.values():
            workplace.over.set()

    async def _watched(self, verifier: Verifier) -> None:
        while True:
            await anyio.sleep(REVOKED_SECONDS)
            self.stop_revoked(verifier)

    async def _host(self, role: Role, *, task_status: TaskStatus[Workplace]) -> None:
        async with _opened(role, self._around) as workplace:
            task_status.started(workplace)
            await workplace.over.wait()


@asynccontextmanager
async def workplaces(roles: Mapping[str, Role], around: Surroundings) -> AsyncIterator[Workplaces]:
    """Open all of them; at the end every session is over, every child gone and every handle closed.

    Raises:
        BadSetting: a root or another setting can't be used.
        Unconfined: commands can't be held as the operator requires.
    """
    failure: CoreError | None = None
    async with anyio.create_task_group() as hosts:
        async with anyio.create_task_group() as background:
            found = Workplaces(hosts, background, around)
            try:
                for role in roles.values():
                    found.serve(await found.open(role))
                yield found
            except CoreError as error:  # as itself, not in a group: it is what ends the start
                failure = error
            background.cancel_scope.cancel()
        found.close()
    if failure is not None:
        raise failure


async def _withdrawn(workplace: Workplace) -> None:
    try:
        await _until(lambda: not workplace.assembly.dispatcher.under_way)
    finally:
        workplace.over.set()


async def _retired(assembly: Assembly) -> None:
    """Close an assembly that another one has replaced, once its last call and its last child are gone."""
    dispatcher = assembly.dispatcher
    try:
        await anyio.lowlevel.checkpoint()  # what found its command before the exchange begins now
        calls = dispatcher.under_way
        await _until(lambda: assembly.is_idle and not calls & dispatcher.under_way)
    finally:
        with anyio.CancelScope(shield=True):
            await assembly.retire()


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait for at least one pause: whoever looks at a resource may do so for a moment longer."""
    while True:
        await anyio.sleep(LOOK_SECONDS)
        if is_so():
            return


async def _require(assembly: Assembly, role: Role) -> None:
    if role.settings.policy.confinement.require is not None:
        await require(assembly)


@asynccontextmanager
async def _opened(role: Role, around: Surroundings) -> AsyncIterator[Workplace]:
    settings = role.settings
    async with assembled(
        settings,
        around.environment,
        around.others,
        watching=partial(around.watching, role.name),
        is_same_for_all=around.is_same_for_all,
        ids=ReplicaScopedIds(around.stores.replica, around.stores.is_alive),
    ) as assembly:
        interviews = Interviews(settings.asking, around.stores.used_states)
        server = _server(assembly, interviews, role.name, around)
        announce(assembly, settings, role.name)
        await _require(assembly, role)
        endpoint = Endpoint(
            server,
            role=role.name,
            stores=around.stores,
            admission=around.admission,
            draining=around.draining,
            is_quiet=quiet_in(assembly.catalog),
        )
        endpoint.manager.session_ended = assembly.runs.end_of_session
        workplace = Workplace(
            role=role,
            assembly=assembly,
            endpoint=endpoint,
            server=server,
            interviews=interviews,
            catalog=assembly.catalog,
        )
        try:
            async with endpoint.running():
                yield workplace
        finally:
            if workplace.assembly is not assembly:
                with anyio.CancelScope(shield=True):
                    await assembly.tasks.close()
                    await workplace.assembly.retire()


def _server(assembly: Assembly, interviews: Interviews, role: str, around: Surroundings) -> Server[Any]:
    beside = Beside(
        runs=assembly.resources,
        extensions=assembly.extensions(interviews),
        interviews=interviews,
        sealing_keys=around.stores.sealing_keys,
        bus=around.stores.bus(role),
        draining=around.draining,
    )
    return build_shared(assembly.catalog, assembly.dispatcher, assembly.identity, beside)
