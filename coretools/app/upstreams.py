"""Offer the tools of other servers beside those of a server: `--upstream`. The client is loaded only for that."""

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext

from coretools import tools
from coretools.app.assembly import output_redactor
from coretools.app.root_specs import root_specs
from coretools.config.agent_reach import reach_of_change
from coretools.config.settings import Settings
from coretools.confinement.toolchains import home_of
from coretools.errors import BadSetting
from coretools.operations.declare import declaration_of
from coretools.operations.registry import Registry
from coretools.operations.route import name_of_route, route_in
from coretools.own_state import cache_directory
from coretools.protocol.extensions import declared_settings

if TYPE_CHECKING:
    from coretools.client.containment.containment import Containment

CONTEXTS = ("git", "ci")
"""Folders of tools that are a context of commands too."""


@asynccontextmanager
async def with_upstreams(
    settings: Settings,
    environment: Mapping[str, str],
    registries: Sequence[Registry],
    *,
    has_own_tools: bool = True,
    roles: Sequence[Settings] = (),
) -> AsyncIterator[Sequence[Registry]]:
    """Yield the registries, and one with the tools of the chosen servers, which follows them.

    `roles` are the settings of all roles, if there are several: what the agents of any of them may change.

    Raises:
        BadSetting: a server can't be used, or is a server that uses this one. NotTrusted: it must be approved first.
    """
    if not settings.upstream:
        yield registries
        return
    # Imported late: most servers have no upstream.
    from coretools.client.upstream.upstreams import UpstreamRules, open_upstreams

    taken = {command.name for registry in registries for command in registry}
    taken |= own_names() if has_own_tools else set()
    containment = containment_of(settings, environment, roles or (settings,))
    rules = UpstreamRules(settings.limits, output_redactor(settings, environment), containment)
    async with open_upstreams(settings.upstream, environment, os.getcwd(), taken, rules) as upstreams:
        yield [*registries, upstreams.tools.registry]


def containment_of(settings: Settings, environment: Mapping[str, str], roles: Sequence[Settings]) -> "Containment":
    """Return how servers of others run beside our own tools: a confined one may use what these may.

    Raises:
        BadSetting: a choice of the operator can't be used.
    """
    from coretools.client.containment.containment import Containment  # imported late: as above

    chosen = Containment.of(settings.confine, settings.unconfined, environment)
    offered = {text.partition(":")[0] for text in settings.upstream}
    unknown = sorted(chosen.named_by_options - offered)
    if unknown and offered:
        raise BadSetting(f"--confine or --unconfined {unknown[0]}: no --upstream has this name: {', '.join(offered)}")
    specs = {spec.path: spec for role in roles for spec in root_specs(role)}.values()
    roots = [f"{os.path.abspath(spec.path)}:{'rw' if spec.writable else 'ro'}" for spec in specs]
    source = settings.policy.source
    return replace(
        chosen,
        reach=reach_of_change(roles, [cache_directory(environment, home_of(environment))]),
        trusted=tuple(path for role in roles for path in role.trusted),
        roots=tuple(roots),
        options=() if source is None else ("--policy", source),
    )


def own_names() -> set[str]:
    """Return the names of all built-in tools, from the classes in the modules that the assembly loads."""
    names = set()
    for holder in _tool_classes():
        context = tuple(word for word in CONTEXTS if holder.__module__.split(".")[2] == word)
        for name, function in vars(holder).items():
            declared = declaration_of(function)
            if declared is not None:
                words = (*context, *declared.route) if declared.route else route_in(context, name)
                names.add(name_of_route(words))
    return names


def _tool_classes() -> list[type]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(f"{tools.__name__}.")]
    return [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__
    ]


def loop_guard(settings: Settings) -> tuple[ServerMiddleware[Any], ...]:
    """Return what refuses requests that this server sends itself, directly or through others."""
    return (_refuse_loops,) if settings.upstream else ()


async def _refuse_loops(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    from coretools.client.upstream.chain import EXTENSION, is_loop

    if ctx.request_id is not None and is_loop(declared_settings(ctx, EXTENSION)):
        message = "this server is its own upstream, directly or through others; remove it from --upstream"
        raise MCPError(code=types.INVALID_REQUEST, message=message)
    return await call_next(ctx)
