"""What a caller is offered of the commands: tools, resources and prompts, by one selection for lists and calls alike.

An offer is built whole from a registry and never changes; `coretools.operations.live_catalog` puts a new one in its
place.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from coretools.config.settings import Settings, require_profile
from coretools.errors import BadSetting, UnknownPrompt, UnknownTool
from coretools.operations.declare import Surface
from coretools.operations.registry import Command, duplicate_name
from coretools.operations.route import Context, default_template, template_shape, template_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which commands. Each part may only take away."""

    profile: str = "dev"
    read_only: bool = False
    """Wins over the profile."""
    sets: tuple[str, ...] = ()
    """Tool sets; none named: all."""
    only: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    """Patterns (fnmatch) of names."""


EVERYTHING = Selection(profile="all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaces:
    """Which surfaces commands get beside those that they declare. All off by default."""

    promote_read_only: bool = False
    """What only reads, and has arguments that fit an address, is a resource too."""
    resources_as_tools: bool = False
    prompts_as_tools: bool = False
    """For clients that know tools only."""
    scheme: str = "coretools"
    """Of the addresses that promoted commands get."""


def selection_of(settings: Settings) -> Selection:
    """Which commands the operator wants: what the flags say, and what his file leaves of it."""
    offer = settings.policy.offer
    return Selection(
        profile=settings.profile,
        read_only=settings.read_only,
        sets=offer.sets,
        only=offer.only,
        without=offer.without,
    )


def surfaces_of(settings: Settings) -> Surfaces:
    """On which surfaces the operator wants them."""
    offer = settings.policy.offer
    return Surfaces(
        promote_read_only=offer.promote_read_only,
        resources_as_tools=offer.resources_as_tools,
        prompts_as_tools=offer.prompts_as_tools,
    )


def require_known(commands: Iterable[Command], selection: Selection) -> None:
    """Refuse a selection that names what is not there: a typing error in it would leave a command offered.

    Raises:
        BadSetting: names the tool set or the pattern.
    """
    commands = tuple(commands)
    sets = {command.tool_set for command in commands if command.tool_set}
    for name in selection.sets:
        if name not in sets:
            raise BadSetting(f"[offer] sets holds {name!r}: there are {', '.join(sorted(sets))}")
    for key, patterns in (("only", selection.only), ("without", selection.without)):
        for pattern in patterns:
            if not any(fnmatchcase(command.name, pattern) for command in commands):
                raise BadSetting(f"[offer] {key} holds {pattern!r}: there is no such command")


@dataclass(frozen=True, slots=True)
class Resource:
    """A command behind an address."""

    uri: str
    command: Command

    @property
    def is_template(self) -> bool:
        """Whether the address has variables."""
        return bool(template_variables(self.uri))


class Catalog:
    """The commands of one selection. Lists and calls both go through it, so what is not listed can't be called."""

    def __init__(
        self,
        tools: Mapping[str, Command],
        resources: Mapping[str, Resource],
        prompts: Mapping[str, Command],
        *,
        withheld: Mapping[str, str],
        contexts: tuple[Context, ...],
        shows_outputs: bool,
    ) -> None:
        self.tools = tools
        self.resources = resources
        """By address or template."""
        self.prompts = prompts
        self.contexts = contexts
        self._withheld = withheld
        self.shows_outputs = shows_outputs
        """Whether the list has output schemas. `dev` is for models, which don't read them; programs use the others."""

    def __iter__(self) -> Iterator[Command]:
        """The tools, in listing order."""
        return iter(self.tools.values())

    @property
    def commands(self) -> tuple[Command, ...]:
        """Everything that is offered, in whichever way; a command with several surfaces as often."""
        resources = [resource.command for resource in self.resources.values()]
        return (*self.tools.values(), *resources, *self.prompts.values())

    def find(self, name: str) -> Command | None:
        """The tool of this name, or None when it is not offered."""
        return self.tools.get(name)

    def get(self, name: str) -> Command:
        """The tool of this name.

        Raises:
            UnknownTool: not offered; says why, or which name comes close.
        """
        return self._named(self.tools, name, "tool")

    def prompt(self, name: str) -> Command:
        """The prompt of this name.

        Raises:
            UnknownPrompt: not offered.
        """
        return self._named(self.prompts, name, "prompt")

    def _named(self, commands: Mapping[str, Command], name: str, kind: str) -> Command:
        command = commands.get(name)
        if command is not None:
            return command
        failure = UnknownPrompt if kind == "prompt" else UnknownTool
        if name in self._withheld:
            raise failure(f"{name} is not offered here: {self._withheld[name]}")
        close = difflib.get_close_matches(name, commands, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise failure(f"unknown {kind}: {name[:80]!r}{meant}")


def build_catalog(
    commands: Iterable[Command],
    selection: Selection,
    surfaces: Surfaces | None = None,
    *,
    contexts: tuple[Context, ...] = (),
) -> Catalog:
    """What a caller sees and may call.

    Raises:
        BadSetting: no such profile, or two commands of one name or address; says both sources.
    """
    require_profile(selection.profile)
    surfaces = surfaces or Surfaces()
    withheld: dict[str, str] = {}
    chosen = []
    for command in commands:
        if not command.declaration.for_agents:
            continue
        reason = withholding_reason(command, selection)
        if reason is None:
            chosen.append(command)
        else:
            withheld[command.name] = reason
    prompts = _prompts(chosen)
    return Catalog(
        _tools(chosen, surfaces, prompts),
        _resources(chosen, surfaces),
        prompts,
        withheld=withheld,
        contexts=contexts,
        shows_outputs=selection.profile != "dev",
    )


def commands_for_people(commands: Iterable[Command], selection: Selection) -> list[Command]:
    """What a person may type: what agents are offered, and what is kept from them. Hidden ones are among them."""
    return [command for command in commands if withholding_reason(command, selection) is None]


def withholding_reason(command: Command, selection: Selection) -> str | None:
    """Why a selection leaves a command out; None when it does not. Profiles are for agents: they keep nothing else."""
    declared = command.declaration
    if selection.read_only and not declared.read_only:
        return "the server is read-only"
    if declared.for_agents and selection.profile != "all" and selection.profile not in declared.profiles:
        return f"profile {selection.profile} does not include it"
    if selection.sets and command.tool_set not in selection.sets:
        return "its tool set is not offered"
    return _excluded_by_name(command, selection)


def _excluded_by_name(command: Command, selection: Selection) -> str | None:
    """Whether the operator left it out by its name, or a tool that does the same."""
    if not _matches(command.name, selection.only) or _matches(command.name, selection.without):
        return "the operator left it out"
    same = next((name for name in command.declaration.asked_as if _matches(name, selection.without)), None)
    return f"the operator left out {same}, which does the same" if same else None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _tools(commands: Iterable[Command], surfaces: Surfaces, prompts: Mapping[str, Command]) -> dict[str, Command]:
    wanted = {Surface.TOOL, Surface.RESOURCE} if surfaces.resources_as_tools else {Surface.TOOL}
    found: dict[str, Command] = {}
    for command in commands:
        if command.declaration.surfaces & wanted and not command.overrides:
            _put(found, command.name, command)
    for name, command in prompts.items() if surfaces.prompts_as_tools else ():
        # A prompt that overrides takes the place of a prompt; where there is a tool of that name, it stays that.
        if not (command.overrides and name in found):
            _put(found, name, command)
    return found


def _prompts(commands: Iterable[Command]) -> dict[str, Command]:
    found: dict[str, Command] = {}
    explicit = {}
    for command in commands:
        if command.overrides:
            explicit[command.name] = command
        elif command.is_a(Surface.PROMPT):
            _put(found, command.name, command)
    return {**found, **explicit}


def _resources(commands: Iterable[Command], surfaces: Surfaces) -> dict[str, Resource]:
    found: dict[str, Resource] = {}
    for command in commands:
        uri = command.declaration.uri or (_promoted(command, surfaces.scheme) if surfaces.promote_read_only else "")
        if not uri:
            continue
        # Two templates that differ in the names of their variables are one address.
        taken = found.get(template_shape(uri))
        if taken is not None:
            raise duplicate_name(taken.command, replace(command, name=uri))
        found[template_shape(uri)] = Resource(uri, command)
    return {resource.uri: resource for resource in found.values()}


def _promoted(command: Command, scheme: str) -> str:
    """The address that a reading tool gets by itself; empty when its arguments don't fit one."""
    declared = command.declaration
    if not (declared.read_only and command.is_a(Surface.TOOL)) or declared.asks or declared.input_schema is not None:
        return ""
    arguments = command.arguments
    if not arguments.is_addressable:
        return ""
    optional = [name for name in arguments.names if name not in arguments.required]
    return default_template(command.route, scheme, required=arguments.required, optional=optional)


def _put(found: dict[str, Command], name: str, command: Command) -> None:
    if found.get(name, command) is not command:
        raise duplicate_name(found[name], command)
    found[name] = command
