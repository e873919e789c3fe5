"""The catalog: the tools, resources and prompts that a selection leaves, for lists and calls alike.

A catalog is built from a registry and is immutable; `coretools.operations.live_catalog` replaces it when the registry
changes.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from coretools.config.settings import CHANGING_PROFILES, Settings, require_profile
from coretools.errors import BadSetting, UnknownPrompt, UnknownTool
from coretools.operations.command import Command, duplicate_name
from coretools.operations.declare import Channel, Surface
from coretools.operations.route import Context, name_of_route
from coretools.operations.uri_template import default_template, template_shape, template_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which commands a catalog has. Each field can only remove commands."""

    profile: str = "dev"
    read_only: bool = False
    """Takes precedence over the profile."""
    sets: tuple[str, ...] = ()
    """Tool sets; empty for all."""
    only: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    """Patterns (fnmatch) of names to leave out."""


EVERYTHING = Selection(profile="all")

_TOOL_NAME = re.compile(r"(?<![\w./-])[a-z]+(?:_[a-z]+)+(?![\w/-]|\.\w)")
"""A name as in a call, and no part of a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaces:
    """Surfaces that commands get in addition to those they declare. All are off by default."""

    promote_read_only: bool = False
    """A read-only tool whose arguments can be part of a URI is a resource too."""
    resources_as_tools: bool = False
    prompts_as_tools: bool = False
    """For clients that support only tools."""
    scheme: str = "coretools"
    """URI scheme of promoted commands."""


def selection_of(settings: Settings) -> Selection:
    """The selection of the operator's flags and policy file."""
    policy = settings.policy.catalog
    return Selection(
        profile=settings.profile,
        read_only=settings.read_only,
        sets=policy.sets,
        only=policy.only,
        without=policy.without,
    )


def surfaces_of(settings: Settings) -> Surfaces:
    """The additional surfaces that the operator's policy file turns on."""
    policy = settings.policy.catalog
    return Surfaces(
        promote_read_only=policy.promote_read_only,
        resources_as_tools=policy.resources_as_tools,
        prompts_as_tools=policy.prompts_as_tools,
    )


def require_known(commands: Iterable[Command], selection: Selection) -> None:
    """Refuse a selection with unknown names: with a typing error, a command would stay in the catalog.

    Raises:
        BadSetting: names the tool set or the pattern.
    """
    commands = tuple(commands)
    sets = {command.tool_set for command in commands if command.tool_set}
    for name in selection.sets:
        if name not in sets:
            raise BadSetting(
                f"[catalog] sets holds the unknown tool set {name!r}; choose from {', '.join(sorted(sets))}"
            )
    for key, patterns in (("only", selection.only), ("without", selection.without)):
        for pattern in patterns:
            if not any(fnmatchcase(command.name, pattern) for command in commands):
                raise BadSetting(f"[catalog] {key} holds {pattern!r}, which matches no command")


@dataclass(frozen=True, slots=True)
class Resource:
    """A command with its URI or URI template."""

    uri: str
    command: Command

    @property
    def is_template(self) -> bool:
        """Whether the URI has variables."""
        return bool(template_variables(self.uri))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """The commands of one selection: what lists show, and what can be called."""

    tools: Mapping[str, Command]
    """The listed tools, by name."""
    unlisted: Mapping[str, Command]
    """Tools outside the profile's list that can be called all the same, because its rights cover their effect."""
    resources: Mapping[str, Resource]
    """By URI or template."""
    prompts: Mapping[str, Command]
    withheld: Mapping[str, str]
    """Why commands are left out, by name."""
    contexts: tuple[Context, ...]

    def __iter__(self) -> Iterator[Command]:
        """The listed tools, in listing order."""
        return iter(self.tools.values())

    @property
    def commands(self) -> tuple[Command, ...]:
        """All commands; one with several surfaces appears once for each."""
        resources = [resource.command for resource in self.resources.values()]
        return (*self.tools.values(), *self.unlisted.values(), *resources, *self.prompts.values())

    def find(self, name: str) -> Command | None:
        """The tool of this name, listed or not, or None if it can't be called."""
        return self.tools.get(name) or self.unlisted.get(name)

    def get(self, name: str) -> Command:
        """The tool of this name, listed or not.

        Raises:
            UnknownTool: it can't be called; the error states why, or which name is similar.
        """
        return self._named({**self.tools, **self.unlisted}, name, "tool")

    def prompt(self, name: str) -> Command:
        """The prompt of this name.

        Raises:
            UnknownPrompt: not in the catalog.
        """
        return self._named(self.prompts, name, "prompt")

    def not_offered(self, hints: str) -> str:
        """Which tools that hints name this catalog leaves out, and why; empty if there are none."""
        reasons: dict[str, list[str]] = {}
        for name in dict.fromkeys(_TOOL_NAME.findall(hints)):
            if name in self.withheld:
                reasons.setdefault(self.withheld[name], []).append(name)
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())

    def _named(self, commands: Mapping[str, Command], name: str, kind: str) -> Command:
        command = commands.get(name)
        if command is not None:
            return command
        failure: type[UnknownPrompt | UnknownTool] = UnknownPrompt if kind == "prompt" else UnknownTool
        if name in self.withheld:
            raise failure(f"{name} is not offered here: {self.withheld[name]}")
        close = next(iter(difflib.get_close_matches(name, [*commands, *self.withheld], n=1)), "")
        meant = f"; did you mean {close}?" if close else ""
        why = f" It is not offered here: {self.withheld[close]}" if close in self.withheld else ""
        raise failure(f"unknown {kind}: {name[:80]!r}{meant}{why}")


def build_catalog(
    commands: Iterable[Command],
    selection: Selection,
    surfaces: Surfaces | None = None,
    *,
    contexts: tuple[Context, ...] = (),
) -> Catalog:
    """Build the catalog of a selection.

    Raises:
        BadSetting: unknown profile, or two commands with one name or URI; names both sources.
    """
    require_profile(selection.profile)
    surfaces = surfaces or Surfaces()
    withheld: dict[str, str] = {}
    chosen, unlisted = [], []
    for command in commands:
        if not command.declaration.for_agents:
            continue
        reason = withholding_reason(command, selection)
        if reason is not None:
            withheld[command.name] = reason
        elif _is_in_profile(command, selection):
            chosen.append(command)
        else:
            unlisted.append(command)
    prompts = _prompts(chosen)
    tools = _tools(chosen, surfaces, prompts)
    callable_tools = _tools(unlisted, Surfaces(), {})
    by_alias: dict[str, Command] = {}
    for command in (*tools.values(), *callable_tools.values()):
        for alias in map(name_of_route, command.other_routes):
            _add_unique(by_alias, alias, tools.get(alias) or callable_tools.get(alias) or command)
            _add_unique(by_alias, alias, command)
    return Catalog(
        tools=tools,
        unlisted={name: command for name, command in callable_tools.items() if name not in tools} | by_alias,
        resources=_resources(chosen, surfaces),
        prompts=prompts,
        withheld=withheld,
        contexts=contexts,
    )


def commands_for_people(
    commands: Iterable[Command], selection: Selection, channel: Channel = "command-line"
) -> list[Command]:
    """The commands that a person may type in a channel: also those that agents do not get, and hidden ones."""
    typed = (command for command in commands if channel in command.declaration.channels)
    return [command for command in typed if withholding_reason(command, selection) is None]


def withholding_reason(command: Command, selection: Selection) -> str | None:
    """Why a command can't be called with a selection; None if it can. Profiles restrict only agents."""
    declared = command.declaration
    if declared.withheld:
        return declared.withheld
    if selection.read_only and not declared.read_only:
        return "the server is read-only"
    if declared.for_agents and not (_is_in_profile(command, selection) or _has_rights(command, selection)):
        including = " and ".join(sorted({*declared.profiles, "all"}))
        return (
            f"it is in profile {including}, and this server has profile {selection.profile};"
            " the operator chooses another one with --profile, over HTTP with `profile` of the role"
        )
    if selection.sets and command.tool_set not in selection.sets:
        return "its tool set is not offered"
    return _excluded_by_name(command, selection)


def _is_in_profile(command: Command, selection: Selection) -> bool:
    """Whether the profile lists a command."""
    return selection.profile == "all" or selection.profile in command.declaration.profiles


def _has_rights(command: Command, selection: Selection) -> bool:
    """Whether a tool outside the profile's list may be called: its effect is one that the profile permits."""
    permitted = command.declaration.read_only or selection.profile in CHANGING_PROFILES
    return permitted and command.is_a(Surface.TOOL)


def _excluded_by_name(command: Command, selection: Selection) -> str | None:
    """Why the operator's patterns leave a command out: by its name, or by that of a tool that does the same."""
    if not _matches(command.name, selection.only) or _matches(command.name, selection.without):
        return "the operator left it out"
    same = next((name for name in command.declaration.same_policy_as if _matches(name, selection.without)), None)
    return f"the operator left out {same}, which does the same" if same else None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _tools(commands: Iterable[Command], surfaces: Surfaces, prompts: Mapping[str, Command]) -> dict[str, Command]:
    wanted = {Surface.TOOL, Surface.RESOURCE} if surfaces.resources_as_tools else {Surface.TOOL}
    tools: dict[str, Command] = {}
    for command in commands:
        if command.declaration.surfaces & wanted and not command.overrides:
            _add_unique(tools, command.name, command)
    for name, command in prompts.items() if surfaces.prompts_as_tools else ():
        # An overriding prompt replaces a prompt; a tool of that name stays.
        if not (command.overrides and name in tools):
            _add_unique(tools, name, command)
    return tools


def _prompts(commands: Iterable[Command]) -> dict[str, Command]:
    implied: dict[str, Command] = {}
    explicit = {}
    for command in commands:
        if command.overrides:
            explicit[command.name] = command
        elif command.is_a(Surface.PROMPT):
            _add_unique(implied, command.name, command)
    return {**implied, **explicit}


def _resources(commands: Iterable[Command], surfaces: Surfaces) -> dict[str, Resource]:
    by_shape: dict[str, Resource] = {}
    for command in commands:
        uri = command.declaration.uri or (_promoted(command, surfaces.scheme) if surfaces.promote_read_only else "")
        if not uri:
            continue
        # Two templates that differ only in the names of variables match the same URIs.
        taken = by_shape.get(template_shape(uri))
        if taken is not None:
            raise duplicate_name(taken.command, replace(command, name=uri))
        by_shape[template_shape(uri)] = Resource(uri, command)
    return {resource.uri: resource for resource in by_shape.values()}


def _promoted(command: Command, scheme: str) -> str:
    """The URI template of a read-only tool; empty when its arguments can't be part of a URI."""
    declared = command.declaration
    if not (declared.read_only and command.is_a(Surface.TOOL)) or declared.asks or declared.input_schema is not None:
        return ""
    arguments = command.arguments
    if not arguments.fits_uri:
        return ""
    optional = [name for name in arguments.names if name not in arguments.required]
    return default_template(command.route, scheme, required=arguments.required, optional=optional)


def _add_unique(commands: dict[str, Command], name: str, command: Command) -> None:
    if commands.get(name, command) is not command:
        raise duplicate_name(commands[name], command)
    commands[name] = command
