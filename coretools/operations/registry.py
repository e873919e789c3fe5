"""The registered commands, by route and in registration order: coretools' own tool sets and any author's.

Commands can be added and removed while a server runs; listeners are notified. `merge_registries` keeps one registry in
step with several others. Imports neither `mcp` nor git.
"""

import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Unpack

from coretools.config.operator_policy import ToolPolicy
from coretools.errors import BadSetting
from coretools.operations.application import Application
from coretools.operations.command import Command, check_command, duplicate_name
from coretools.operations.completion import require_sources
from coretools.operations.declare import (
    CHANNELS,
    Channel,
    Decorator,
    Effect,
    Function,
    Hints,
    checked_channels,
    declaration_of,
    mark_registered,
    source_of,
    tool,
)
from coretools.operations.route import SEPARATOR, Context, check_route, name_of_route, route_in
from coretools.operations.server_info import ServerInfo
from coretools.questions.confirmation import CONFIRM

NO_POLICY = ToolPolicy()

Key = tuple[tuple[str, ...], bool]
"""A route, and whether the command is a prompt that overrides another."""

logger = logging.getLogger(__name__)


class Registry:
    """The commands in registration order. Safe to use from any thread."""

    def __init__(
        self,
        *,
        policy: ToolPolicy = NO_POLICY,
        application: Application | None = None,
        given: Mapping[Any, object] | None = None,
    ) -> None:
        """`given` is what commands that are merged into it get, by type."""
        self._policy = policy
        self._given = given or {}
        self._application = application
        self._applications: dict[Application, tuple[str, ...]] = {} if application is None else {application: ()}
        """Each with the context that it is mounted in."""
        self._commands: dict[Key, Command] = {}
        self._contexts: dict[tuple[str, ...], Context] = {}
        self._change_listeners: list[Callable[[], None]] = []
        self._announce_listeners: list[Callable[[str], None]] = []
        self._lock = threading.RLock()
        self.version = 0
        """Increases with each change."""

    def context(
        self, *words: str, summary: str = "", details: str = "", channels: Sequence[Channel] = CHANNELS
    ) -> "Group":
        """Describe a context and return a group that adds commands to it. They exist in these channels only.

        Raises:
            BadSetting: a word can't be typed, or a channel is unknown.
        """
        context = Context(
            check_route(words, "context"),
            summary,
            details,
            tuple(one for one in CHANNELS if one in checked_channels(channels)),
        )
        with self._lock:
            self._contexts[context.words] = context
        return Group(self, context.words)

    @property
    def applications(self) -> tuple[Application, ...]:
        """The applications that its commands belong to: its own, and those of registries that were merged into it."""
        return tuple(self._applications)

    @property
    def mounted(self) -> dict[Application, tuple[str, ...]]:
        """The applications, each with the context that it is mounted in."""
        return dict(self._applications)

    @property
    def instructions(self) -> str:
        """Those of its applications; for one that is mounted they say which tools they are about."""
        texts = []
        for one, under in self.mounted.items():
            about = f"Tools that begin with {name_of_route(under)}{SEPARATOR}: " if under else ""
            texts += [about + one.info.instructions] if one.info.instructions else []
        return "\n\n".join(texts)

    @property
    def identity(self) -> ServerInfo:
        """What a server of its applications alone reports: of one all that it states, of several their instructions."""
        whole = [one for one, under in self.mounted.items() if not under]
        return replace(whole[0].info if len(whole) == 1 else ServerInfo(), instructions=self.instructions)

    @asynccontextmanager
    async def running(self, *, is_alone: bool = True) -> AsyncIterator[None]:
        """Run the lifespans of the commands. Not alone, the server that merges them gives them what they need.

        Raises:
            BadSetting: one of them can't be started.
        """
        async with AsyncExitStack() as stack:
            for one in self.applications:
                await stack.enter_async_context(one.running(is_alone=is_alone))
            yield

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Every context that was described."""
        return tuple(self._contexts.values())

    def tool(
        self, effect: Effect, *, tool_set: str = "", context: Sequence[str] = (), **hints: Unpack[Hints]
    ) -> Decorator:
        """Declare a function as a tool (see `declare.tool`) and add it. Stands above all other decorators."""
        declared = tool(effect, **hints)

        def added(function: Function) -> Function:
            return self.add(declared(function), tool_set, context=context)

        return added

    def add(
        self, function: Function, tool_set: str = "", *, context: Sequence[str] = (), overrides: bool = False
    ) -> Function:
        """Add one declared function; adding it again changes nothing. `overrides` is for prompts only.

        Returns:
            The function, so that `@registry.add` can be used as a decorator.

        Raises:
            BadSetting: the function is not declared, has no docstring, or its name is invalid or taken.
        """
        command = self._command(function, tool_set, tuple(context), overrides=overrides)
        key = _key(command)
        with self._lock:
            self._refuse_taken(key, command)
            mark_registered(function)
            if key in self._commands:
                return function
            self._commands[key] = command
            self.version += 1
        self._notify()
        return function

    def command_of(self, function: Callable[..., Any]) -> Command:
        """The command of a registered function.

        Raises:
            KeyError: the function is not registered.
        """
        for command in self:
            if command.function == function:
                return command
        raise KeyError(source_of(function))

    def validate(self, *, known_valid: Collection[Command] = (), is_alone: bool = True) -> None:
        """Build everything that listing and calling the commands need, except for those that are known to be valid.

        Not alone, a server may yet give them what they take.

        Raises:
            BadSetting: a command can't be served; names its source.
        """
        known = set(map(id, known_valid))
        for command in self:
            if id(command) not in known:
                command.validate(is_alone=is_alone)

    def add_set(self, tool_set: str, holder: object, *, context: Sequence[str] = ()) -> None:
        """Add every declared method of an object, in the order in which its class defines them."""
        for name in vars(type(holder)):
            method = getattr(holder, name)
            if declaration_of(method) is not None:
                self.add(method, tool_set, context=context)

    def mount(self, other: "Registry", *words: str, summary: str = "") -> None:
        """Add the commands of another registry in a context of their own, and follow its changes.

        Raises:
            BadSetting: a word can't be typed, a name is taken or too long, or it contains this registry.
        """
        under = check_route(words, "mount")
        if self._application in other.applications:
            raise BadSetting(f"mount {' '.join(words)}: an application can't be mounted in itself")
        self.context(*under, summary=summary)
        _follow(self, other, threading.RLock(), ExitStack(), under)

    def merge(self, other: "Registry", under: tuple[str, ...] = ()) -> None:
        """Add every command of another registry, as it is declared there, or in a context of its own.

        Raises:
            BadSetting: a route is taken; nothing was added.
        """
        adopted = [self._adopted(_moved(command, under)) for command in other]
        merged = {_key(command): command for command in adopted}
        with self._lock:
            for key, command in merged.items():
                self._refuse_taken(key, command)
            for context in other.contexts:
                moved = replace(context, words=(*under, *context.words))
                self._contexts.setdefault(moved.words, moved)
            self._commands.update({key: merged[key] for key in merged if key not in self._commands})
            for application, inner in other.mounted.items():
                self._applications.setdefault(application, (*under, *inner))
            self.version += 1
        self._notify()

    def remove(self, *route: str, overrides: bool | None = None) -> None:
        """Remove a command. It can't be called from now on; calls in progress continue.

        `overrides` True removes only the overriding prompt, False only what it overrides, None both.

        Raises:
            KeyError: no command has this route.
        """
        with self._lock:
            keys = [key for key in self._commands if key[0] == route and overrides in (None, key[1])]
            if not keys:
                raise KeyError(" ".join(route))
            for key in keys:
                del self._commands[key]
            self.version += 1
        self._notify()

    def contains(self, command: Command) -> bool:
        """Whether the command is still registered."""
        return self._commands.get(_key(command)) is command

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change, in the thread that made it. Call the result to unsubscribe."""
        with self._lock:
            self._change_listeners.append(listener)
        return lambda: self._change_listeners.remove(listener)

    def announce(self, uri: str) -> None:
        """Notify the subscribers of the resource at this URI that it has changed. Callable from any thread."""
        for listener in tuple(self._announce_listeners):
            listener(uri)

    def on_announce(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a function with each announced URI, in the announcing thread. Call the result to unsubscribe."""
        with self._lock:
            self._announce_listeners.append(listener)
        return lambda: self._announce_listeners.remove(listener)

    def __iter__(self) -> Iterator[Command]:
        """Every command, including hidden ones."""
        with self._lock:
            return iter(tuple(self._commands.values()))

    def keys(self) -> set[Key]:
        """The key of every command."""
        return {_key(command) for command in self}

    def _refuse_taken(self, key: Key, command: Command) -> None:
        taken = self._commands.get(key)
        if taken is not None and taken.function != command.function:
            raise duplicate_name(taken, command)

    def _command(
        self, function: Callable[..., Any], tool_set: str, context: tuple[str, ...], *, overrides: bool
    ) -> Command:
        declaration = declaration_of(function)
        name = getattr(function, "__name__", "")
        if declaration is None:
            raise BadSetting(
                f"{name or function}: not declared with @tool, @resource or @prompt, which stand below @registry.add"
            )
        words = (*context, *declaration.route) if declaration.route else route_in(context, name)
        for one in self.contexts:
            if words[: len(one.words)] == one.words and not declaration.channels.issubset(one.channels):
                declaration = replace(declaration, channels=declaration.channels.intersection(one.channels))
        command = Command(name_of_route(words), function, declaration, tool_set, words, overrides, self._application)
        check_command(command)
        return self._with_policy(command)

    def _adopted(self, command: Command) -> Command:
        """The command of another registry with this one's policy, and with what its server gives."""
        return self._with_policy(replace(command, given=self._given) if self._given else command)

    def _with_policy(self, command: Command) -> Command:
        """The command with the operator's policy: with a confirmation before each call, or unchanged."""
        declared = command.declaration
        names = (command.name, *declared.same_policy_as)
        matches = any(fnmatchcase(name, pattern) for pattern in self._policy.ask for name in names)
        if declared.needs_confirmation or not matches:
            return command
        # A caller whose confirmation does not count is not told of the argument for it.
        unlisted = declared.unlisted_asks if self._policy.trusts_answers else (*declared.unlisted_asks, CONFIRM)
        asks = dict.fromkeys((*declared.asks, CONFIRM))
        return replace(
            command, declaration=replace(declared, asks=tuple(asks), unlisted_asks=unlisted, needs_confirmation=True)
        )

    def require_known(self) -> None:
        """Refuse a policy pattern that matches no command: with a typing error, a tool would lose its confirmation.

        Raises:
            BadSetting: names the pattern.
        """
        names = [command.name for command in self]
        for pattern in self._policy.ask:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise BadSetting(f"[tools] ask holds {pattern!r}, which matches no tool")

    def _notify(self) -> None:
        # Outside the lock, and a copy: a listener may change this registry or unsubscribe.
        for listener in tuple(self._change_listeners):
            listener()


class Group:
    """Adds commands to one context of a registry."""

    def __init__(self, registry: Registry, words: tuple[str, ...]) -> None:
        self._registry = registry
        self._words = words

    def context(
        self, *words: str, summary: str = "", details: str = "", channels: Sequence[Channel] = CHANNELS
    ) -> "Group":
        """A context within this one."""
        return self._registry.context(*self._words, *words, summary=summary, details=details, channels=channels)

    def tool(self, effect: Effect, **hints: Unpack[Hints]) -> Decorator:
        """Declare a function as a tool and add it here."""
        return self._registry.tool(effect, tool_set=self._words[0], context=self._words, **hints)

    def add(self, function: Function) -> Function:
        """Add one declared function here."""
        return self._registry.add(function, self._words[0], context=self._words)


def merge_registries(target: Registry, sources: Sequence[Registry], until: ExitStack | None = None) -> Registry:
    """Add the commands of every source to the target, and follow later changes until the stack is closed.

    Without a stack the target follows for the lifetime of the process. A later change that can't be merged (its name is
    taken) is logged, and the other commands stay.

    Returns:
        The target.

    Raises:
        BadSetting: two commands have one name, or a source's command can't be served; names the sources.
    """
    own = tuple(target)
    # A registry may be changed from any thread, and a listener may itself change another registry.
    lock = threading.RLock()
    for source in sources:
        _follow(target, source, lock, until or ExitStack())
    target.validate(known_valid=own)
    require_sources(command for command in target if command not in own)
    return target


def _moved(command: Command, under: tuple[str, ...]) -> Command:
    """The command in a context.

    Raises:
        BadSetting: its name is too long there.
    """
    if not under:
        return command
    route = (*under, *command.route)
    moved = replace(command, name=name_of_route(route), route=route, tool_set=command.tool_set or under[0])
    check_command(moved)
    return moved


def _follow(
    target: Registry, source: Registry, lock: threading.RLock, until: ExitStack, under: tuple[str, ...] = ()
) -> None:
    # What came from this source: no other command is removed when the source loses one.
    merged: set[Key] = set()

    def merge() -> None:
        keys = source.keys()
        present = {((*under, *route), overrides) for route, overrides in keys}
        for route, overrides in merged - present:
            target.remove(*route, overrides=overrides)
        merged.intersection_update(present)
        before = target.keys()
        target.merge(source, under)
        merged.update(target.keys() - before)

    def merge_change() -> None:
        try:
            with lock:
                merge()
        except BadSetting as error:
            logger.warning("a change of the registered commands was not merged: %s", error)

    # Subscribed first, so that a change in between is not missed.
    until.callback(source.on_change(merge_change))
    until.callback(source.on_announce(target.announce))
    with lock:
        merge()


def _key(command: Command) -> Key:
    """The key that no two commands of a registry share."""
    return command.route, command.overrides
