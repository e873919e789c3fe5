"""One workplace for each role: its roots, runner, tools, server and sessions, apart from those of every other role."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio

from coretools.dispatch import Watcher
from coretools.errors import CoreError
from coretools.graph import Graph
from coretools.handles import Handles
from coretools.registry import Registry
from coretools.sandbox.roots import Root
from coretools.serving.assembly import Assembly, assembled
from coretools.serving.draining import Draining
from coretools.serving.preparing import announce, prepare
from coretools.serving.rounds import Interviews
from coretools.serving.server import Beside, build_shared
from coretools.serving.web.endpoint import Endpoint
from coretools.serving.web.principals import Role
from coretools.serving.web.quiet import quiet_in
from coretools.serving.web.session_manager import Admission
from coretools.serving.web.shared.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all workplaces of a server have in common."""

    environment: Mapping[str, str]
    others: Sequence[Registry]
    stores: Stores
    admission: Admission
    watching: Callable[[str, Graph], Watcher]
    """Makes what is told of the calls of a role."""
    draining: Draining
    is_same_for_all: bool
    """Whether everybody who reaches the server has the same role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What principals of one role reach."""

    role: Role
    assembly: Assembly
    endpoint: Endpoint

    @property
    def is_ready(self) -> bool:
        """Whether calls can be served: every root is where it was opened, and commands are held as required."""
        return all(self._holds(root) for root in self.assembly.roots)

    def _holds(self, root: Root) -> bool:
        try:
            self.assembly.roots.require_present(root)
        except CoreError:
            return False
        return True


@asynccontextmanager
async def workplaces(roles: Mapping[str, Role], surroundings: Surroundings) -> AsyncIterator[dict[str, Workplace]]:
    """Open all of them; at the end every session is over, every child gone and every handle closed.

    Raises:
        BadSetting: a root or another setting can't be used.
        Unconfined: commands can't be held as the operator requires.
    """
    async with AsyncExitStack() as stack:
        opened = {}
        for name, role in roles.items():
            opened[name] = await stack.enter_async_context(_opened(role, surroundings))
        async with anyio.create_task_group() as preparing:
            for workplace in opened.values():
                preparing.start_soon(prepare, workplace.assembly)
            yield opened
            preparing.cancel_scope.cancel()


@asynccontextmanager
async def _opened(role: Role, around: Surroundings) -> AsyncIterator[Workplace]:
    settings = role.settings
    async with assembled(
        settings,
        around.environment,
        around.others,
        watching=partial(around.watching, role.name),
        is_same_for_all=around.is_same_for_all,
        handles=Handles(around.stores.replica, around.stores.is_alive),
    ) as assembly:
        interviews = Interviews(settings.asking, around.stores.used_states)
        beside = Beside(
            runs=assembly.resources,
            extensions=assembly.extensions(interviews),
            interviews=interviews,
            sealing_keys=around.stores.sealing_keys,
            bus=around.stores.bus(role.name),
            draining=around.draining,
        )
        server = build_shared(assembly.graph, assembly.dispatcher, assembly.identity, beside)
        announce(assembly, settings, role.name)
        if settings.policy.confinement.require is not None:
            await prepare(assembly)
            assembly.keeper.require()
        endpoint = Endpoint(
            server,
            role=role.name,
            stores=around.stores,
            admission=around.admission,
            draining=around.draining,
            is_quiet=quiet_in(assembly.graph),
        )
        endpoint.manager.session_ended = assembly.runs.end_of_session
        async with endpoint.running():
            yield Workplace(role=role, assembly=assembly, endpoint=endpoint)
