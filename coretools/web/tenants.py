"""Tenants: one for each role, with its own roots, runner, tools, server and sessions.

Each tenant lives in its own task, so a reload opens and closes some while the others serve. When the
rights of a tenant change, it gets a new assembly in place: its sessions, runs and tasks continue.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Semaphore
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.context import ServerMiddleware
from mcp.server.lowlevel import Server

from coretools.app.assembly import (
    Assembly,
    SharedResources,
    log_start,
    open_assembly,
    open_successor,
    prepare,
    require_tier,
)
from coretools.errors import CoreError, Unreachable
from coretools.operations.declare import Surface
from coretools.operations.dispatch import CallObserver
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.draining import Draining
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server
from coretools.replica_ids import ReplicaScopedIds
from coretools.services.interface import Services
from coretools.tools.filesystem.tool_set import large_read_slots
from coretools.web.common.principals import Role, Verifier
from coretools.web.config_changes import pluralized
from coretools.web.endpoint import Endpoint
from coretools.web.replicas.stores import Stores
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.sessions.session_transport import json_response_rule

POLL_SECONDS = 1.0
"""Interval of checks whether a replaced assembly is out of use. Watchers of resources poll at least as often, so the
first check comes after they have found the new commands."""


REVOKED_SECONDS = 2.0
"""Interval of checks whether the owners of runs and tasks still have access."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """What all tenants of a server share."""

    environment: Mapping[str, str]
    others: Sequence[Registry]
    services: Services
    """Shared by the commands of all roles."""
    stores: Stores
    session_limiter: SessionLimiter
    make_watcher: Callable[[str, LiveCatalog], CallObserver]
    """Creates the observer of the calls of a role."""
    draining: Draining
    is_same_for_all: bool
    """Whether every caller has the same role."""
    large_reads: Semaphore = field(default_factory=large_read_slots)
    middleware: tuple[ServerMiddleware[Any], ...] = ()
    """Wraps the handling of each message."""


@dataclass(slots=True, kw_only=True, eq=False)
class Tenant:
    """Serves the principals of one role."""

    role: Role
    assembly: Assembly
    endpoint: Endpoint
    server: Server[Any]
    questions: QuestionFactory
    catalog: LiveCatalog
    """The catalog that the server serves; it adopts the catalogs of later assemblies."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set to close the tenant."""

    @property
    def is_ready(self) -> bool:
        """Whether calls can be served: every root is where it was opened."""
        roots = self.assembly.roots
        try:
            for root in roots:
                roots.require_present(root)
        except CoreError:
            return False
        return True

    def use(self, role: Role, assembly: Assembly) -> frozenset[Surface]:
        """Serve later calls with these rights; return the lists that changed."""
        self.role = role
        if assembly is self.assembly:
            return frozenset()
        self.assembly = assembly
        self.server.instructions = assembly.instructions
        self.questions.use(role.settings.asking)
        return self.catalog.adopt(assembly.catalog)

    async def prepare(self, assembly: Assembly) -> None:
        """Prepare an assembly for its first command; the instructions then name the tier."""
        await prepare(assembly, self.role.name)
        if assembly is self.assembly:  # not replaced meanwhile
            self.server.instructions = assembly.instructions

    def stop_revoked(self, verifier: Verifier) -> None:
        """Stop the runs and tasks of principals who lost access. Their active calls are answered.

        Raises:
            Unreachable: access can't be verified now.
        """
        runs, tasks = self.assembly.runs, self.assembly.tasks
        # Only what runs without a call has to be stopped: a call passes authentication each time.
        for name in sorted(runs.principals | tasks.principals):
            if verifier.admits(name, self.role.name):
                continue
            stopped = (
                f"{pluralized(runs.stop_principal(name), 'run')}, {pluralized(tasks.end_for_principal(name), 'task')}"
            )
            logger.warning("access of %s as %s was revoked; stopped: %s", name, self.role.name, stopped)


class Tenants:
    """All tenants of a server."""

    def __init__(self, hosts: TaskGroup, background: TaskGroup, context: ServerContext) -> None:
        self.opened: dict[str, Tenant] = {}
        """The tenants that are served now, by role."""
        self._hosts = hosts
        self._background = background
        self._context = context

    async def open(self, role: Role) -> Tenant:
        """Open a tenant without serving it yet.

        Raises:
            BadSetting: a root or another setting can't be used.
            Unconfined: commands can't be confined as the operator requires.
        """
        tenant: Tenant = await self._hosts.start(self._host, role)
        return tenant

    async def successor(self, before: Tenant, role: Role) -> Assembly:
        """Open the assembly that is to replace the one of a tenant, with other settings.

        Raises:
            BadSetting: a root or another setting can't be used.
            Unconfined: commands can't be confined as the operator requires.
        """
        assembly = await open_successor(before.assembly, role.settings, self._context.environment, self._context.others)
        try:
            await _require(assembly, role)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await assembly.retire()
            raise
        return assembly

    def serve(self, tenant: Tenant) -> None:
        """Serve an opened tenant."""
        self.opened[tenant.role.name] = tenant
        self._background.start_soon(tenant.prepare, tenant.assembly)

    def replace(self, tenant: Tenant, role: Role, assembly: Assembly) -> frozenset[Surface]:
        """Serve with other rights, close the old assembly once it is unused; return the lists that changed."""
        before = tenant.assembly
        changed = tenant.use(role, assembly)
        if before is not assembly:
            log_start(assembly, role.name)
            self._background.start_soon(_retire, before)
            self._background.start_soon(tenant.prepare, assembly)
        return changed

    def withdraw(self, name: str) -> None:
        """Stop serving a role. Its active calls are answered; then its sessions end and its runs are stopped."""
        self._background.start_soon(_close_withdrawn, self.opened.pop(name))

    def stop_revoked(self, verifier: Verifier) -> None:
        """Stop the runs and tasks of principals who lost access; nothing while access can't be verified."""
        try:
            for tenant in self.opened.values():
                tenant.stop_revoked(verifier)
        except Unreachable as error:
            logger.debug("revoked access can't be verified: %s", error)

    def watch(self, verifier: Verifier) -> None:
        """Call `stop_revoked` periodically: a token file may change without a signal."""
        self._background.start_soon(self._watched, verifier)

    def close(self) -> None:
        """Close every tenant."""
        for tenant in self.opened.values():
            tenant.over.set()

    async def _watched(self, verifier: Verifier) -> None:
        while True:
            await anyio.sleep(REVOKED_SECONDS)
            self.stop_revoked(verifier)

    async def _host(self, role: Role, *, task_status: TaskStatus[Tenant]) -> None:
        async with _open_tenant(role, self._context) as tenant:
            task_status.started(tenant)
            await tenant.over.wait()


@asynccontextmanager
async def open_tenants(roles: Mapping[str, Role], context: ServerContext) -> AsyncIterator[Tenants]:
    """Open the tenants; at the end every session is closed, every child gone and every handle closed.

    Raises:
        BadSetting: a root or another setting can't be used.
        Unconfined: commands can't be confined as the operator requires.
    """
    failure: CoreError | None = None
    async with anyio.create_task_group() as hosts:
        async with anyio.create_task_group() as background:
            tenants = Tenants(hosts, background, context)
            try:
                for role in roles.values():
                    tenants.serve(await tenants.open(role))
                yield tenants
            except CoreError as error:  # raised without an exception group: it ends the start
                failure = error
            background.cancel_scope.cancel()
        # After `_retire` in the background: a replaced assembly is closed before the first one of its tenant ends.
        tenants.close()
    if failure is not None:
        raise failure


async def _close_withdrawn(tenant: Tenant) -> None:
    try:
        await _wait_until(lambda: not tenant.assembly.dispatcher.under_way)
    finally:
        tenant.over.set()


async def _retire(assembly: Assembly) -> None:
    """Close a replaced assembly once its last call and its last child are gone."""
    dispatcher = assembly.dispatcher
    try:
        await anyio.lowlevel.checkpoint()  # calls that found their command before the switch begin now
        calls = dispatcher.under_way
        await _wait_until(lambda: assembly.is_idle and not calls & dispatcher.under_way)
    finally:
        with anyio.CancelScope(shield=True):
            await assembly.retire()


async def _wait_until(is_so: Callable[[], bool]) -> None:
    """Poll, first after one interval: a watcher may still be reading a resource."""
    while True:
        await anyio.sleep(POLL_SECONDS)
        if is_so():
            return


async def _require(assembly: Assembly, role: Role) -> None:
    if role.settings.policy.confinement.require is not None:
        await require_tier(assembly)


@asynccontextmanager
async def _open_tenant(role: Role, context: ServerContext) -> AsyncIterator[Tenant]:
    ids = ReplicaScopedIds(context.stores.replica, context.stores.is_alive)
    async with open_assembly(
        role.settings,
        context.environment,
        context.others,
        make_watcher=partial(context.make_watcher, role.name),
        is_same_for_all=context.is_same_for_all,
        shared=SharedResources(ids, context.large_reads, services=context.services),
    ) as assembly:
        questions = QuestionFactory(role.settings.asking, context.stores.used_states)
        server = _server(assembly, questions, role.name, context)
        log_start(assembly, role.name)
        await _require(assembly, role)
        endpoint = Endpoint(
            server,
            role=role.name,
            stores=context.stores,
            session_limiter=context.session_limiter,
            draining=context.draining,
            uses_json_response=json_response_rule(assembly.catalog),
        )
        endpoint.manager.session_ended = assembly.runs.stop_session
        tenant = Tenant(
            role=role,
            assembly=assembly,
            endpoint=endpoint,
            server=server,
            questions=questions,
            catalog=assembly.catalog,
        )
        try:
            async with endpoint.running():
                yield tenant
        finally:
            if tenant.assembly is not assembly:
                with anyio.CancelScope(shield=True):
                    await assembly.tasks.close()
                    await tenant.assembly.retire()


def _server(assembly: Assembly, questions: QuestionFactory, role: str, context: ServerContext) -> Server[Any]:
    options = ServerOptions(
        runs=assembly.resources,
        extensions=assembly.extensions(questions),
        questions=questions,
        request_state_keys=context.stores.sealing_keys,
        bus=context.stores.bus(role),
        draining=context.draining,
        middleware=context.middleware,
    )
    return build_server(assembly.catalog, assembly.dispatcher, assembly.identity, options)
