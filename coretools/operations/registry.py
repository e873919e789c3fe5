"""Every command there is, by route, in a fixed order: our own sets and anyone's.

Commands may be added and removed while a server runs; who serves them is told. Imports neither `mcp` nor git. Schemas
are built on first use: a server that is only started pays for none.
"""

import inspect
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Unpack

from coretools.config.policy import ToolPolicy
from coretools.errors import BadSetting
from coretools.operations.arguments import Arguments
from coretools.operations.call import Call
from coretools.operations.checks import check_function, validate_command
from coretools.operations.declare import (
    Declaration,
    Decorator,
    Effect,
    Function,
    Hints,
    Surface,
    declaration_of,
    mark_registered,
    source_of,
    tool,
)
from coretools.operations.return_type import ReturnType
from coretools.operations.route import SEPARATORS, Context, check_route, name_of_route, route_in
from coretools.questions.kinds import CONFIRM

NAME = re.compile(r"[a-z][a-z0-9_./-]{0,63}")
"""Names of the protocol (SEP-986), in lower case. With the separator `_` they are what every client takes."""

NO_POLICY = ToolPolicy()

Key = tuple[tuple[str, ...], bool]
"""A route, and whether the command is a prompt that overrides another."""


@dataclass(frozen=True)
class Command:
    """One command: what was declared, and what follows from it."""

    name: str
    function: Callable[..., Any]
    declaration: Declaration
    tool_set: str
    route: tuple[str, ...] = ()
    overrides: bool = False
    """Registered as a prompt by name: it takes the place of another command's prompt."""

    @property
    def source(self) -> str:
        """Where the function stands, for messages."""
        return source_of(self.function)

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring: what `--help` and lists of commands show."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    @property
    def description(self) -> str:
        """The docstring and the details, which are written for the model."""
        said = f"{inspect.getdoc(self.function) or ''} {self.declaration.details}"
        return " ".join(said.split())

    @cached_property
    def is_async(self) -> bool:
        """Whether the function waits on the event loop; the others run in a worker thread. Kept: each call asks."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def arguments(self) -> Arguments:
        """The parameters and their check."""
        declared = self.declaration
        return Arguments(
            self.name,
            self.function,
            asks=declared.asks,
            unlisted=declared.unlisted_asks,
            questions=declared.questions,
            raw=declared.input_schema,
        )

    @cached_property
    def returns_result_only(self) -> bool:
        """Whether nothing but its result can come of a call: it waits for nobody, tells nothing and asks nothing."""
        declared = self.declaration
        has_call = Call in self.arguments.injected.values()
        return not (self.is_async or has_call or declared.asks or declared.needs_confirmation)

    @cached_property
    def return_type(self) -> ReturnType:
        """What its function returns."""
        return ReturnType(self.function, structured=self.declaration.structured)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """Schema of the structured result, or None when the result goes out as text."""
        return self.return_type.schema

    @property
    def mime_type(self) -> str:
        """Of what it gives as a resource."""
        is_json = not self.declaration.mime_type and self.return_type.is_json
        return self.declaration.mime_type or ("application/json" if is_json else "text/plain")

    def version_of(self, given: Mapping[str, Any]) -> Callable[[], object] | None:
        """What says the version of this resource with these arguments; None when nothing does.

        Raises:
            InvalidArguments: they don't fit.
        """
        version = self._beside(self.declaration.version)
        return None if version is None else partial(version, **self.arguments.accept(given))

    def _beside(self, declared: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
        """A function that stands in the declaration, or the method that it names."""
        if isinstance(declared, str):
            found: Callable[..., Any] = getattr(getattr(self.function, "__self__", None), declared)
            return found
        return declared

    def validate(self) -> None:
        """Build everything that a list of it, a call and its result need.

        Raises:
            BadSetting: what can't be served, with its source.
        """
        ends = lambda: (self.arguments, self.return_type)  # noqa: E731  # built inside: its failure names the source
        validate_command(self.function, self.declaration, self.route, description=self.description, ends=ends)

    def is_a(self, surface: Surface) -> bool:
        """Whether its declaration asks for the surface."""
        return surface in self.declaration.surfaces


class Registry:
    """The commands, in the order in which they were added. May be used from any thread."""

    def __init__(self, *, separator: str = "_", policy: ToolPolicy = NO_POLICY) -> None:
        """`separator` stands between the words of a route in the names of tools and prompts."""
        if separator not in SEPARATORS:
            raise BadSetting(f"separator {separator!r}: there are {' '.join(SEPARATORS)}")
        self._separator = separator
        self._policy = policy
        self._commands: dict[Key, Command] = {}
        self._contexts: dict[tuple[str, ...], Context] = {}
        self._listeners: list[Callable[[], None]] = []
        self._announce_listeners: list[Callable[[str], None]] = []
        self._lock = threading.RLock()
        self.version = 0
        """Another one after each change."""

    @property
    def separator(self) -> str:
        """What stands between the words of a route in a name."""
        return self._separator

    def context(self, *words: str, summary: str = "", details: str = "") -> "Group":
        """Describe a context, and get what adds commands to it.

        Raises:
            BadSetting: a word that can't be typed.
        """
        context = Context(check_route(words, "context"), summary, details)
        with self._lock:
            self._contexts[context.words] = context
        return Group(self, context.words)

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Every context that was described."""
        return tuple(self._contexts.values())

    def tool(
        self, effect: Effect, *, tool_set: str = "", context: Sequence[str] = (), **hints: Unpack[Hints]
    ) -> Decorator:
        """Declare a function as a tool (see `declare.tool`) and add it. Stands above every other decorator."""
        declared = tool(effect, **hints)

        def added(function: Function) -> Function:
            return self.add(declared(function), tool_set, context=context)

        return added

    def add(
        self, function: Function, tool_set: str = "", *, context: Sequence[str] = (), overrides: bool = False
    ) -> Function:
        """Add one declared function; the same one again changes nothing. `overrides` is for a prompt only.

        Returns:
            The function, so that `@registry.add` may stand above it.

        Raises:
            BadSetting: not declared, a name that clients refuse, no docstring, or a name that is taken.
        """
        command = self._command(function, tool_set, tuple(context), overrides=overrides)
        key = key_of(command)
        with self._lock:
            self._refuse_another(key, command)
            mark_registered(function)
            if key in self._commands:
                return function
            self._commands[key] = command
            self.version += 1
        self._notify()
        return function

    def command_of(self, function: Callable[..., Any]) -> Command:
        """The command of a function that was added.

        Raises:
            KeyError: it was not.
        """
        for command in self:
            if command.function == function:
                return command
        raise KeyError(source_of(function))

    def validate(self, *, but: Collection[Command] = ()) -> None:
        """Build what every command needs to be listed and called, other than those that are known to have it.

        Raises:
            BadSetting: the first that can't be served, with its source.
        """
        known = set(map(id, but))
        for command in self:
            if id(command) not in known:
                command.validate()

    def add_set(self, tool_set: str, holder: object, *, context: Sequence[str] = ()) -> None:
        """Add every declared method of an object, in the order in which its class defines them."""
        for name in vars(type(holder)):
            method = getattr(holder, name)
            if declaration_of(method) is not None:
                self.add(method, tool_set, context=context)

    def merge(self, other: "Registry") -> None:
        """Add every command of another registry, as it is declared there.

        Raises:
            BadSetting: a route is taken; nothing was added.
        """
        theirs = {
            key_of(command): self._asking(replace(command, name=name_of_route(command.route, self._separator)))
            for command in other
        }
        with self._lock:
            for key, command in theirs.items():
                self._refuse_another(key, command)
            for context in other.contexts:
                self._contexts.setdefault(context.words, context)
            self._commands.update({key: theirs[key] for key in theirs if key not in self._commands})
            self.version += 1
        self._notify()

    def remove(self, *route: str, overrides: bool | None = None) -> None:
        """Take a command away; it can't be called from now on, and its calls under way go on.

        `overrides` takes only the prompt that overrides, or only what it overrides; None takes both.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            found = [key for key in self._commands if key[0] == route and overrides in (None, key[1])]
            if not found:
                raise KeyError(" ".join(route))
            for key in found:
                del self._commands[key]
            self.version += 1
        self._notify()

    def contains(self, command: Command) -> bool:
        """Whether the command is there still."""
        return self._commands.get(key_of(command)) is command

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called after each change, in the thread that made it; the result ends that."""
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, uri: str) -> None:
        """Say that the resource at this address is another now; whoever subscribed to it is told. From any thread."""
        for listener in tuple(self._announce_listeners):
            listener(uri)

    def on_announce(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Have a function called with each address that is announced, in that thread; the result ends that."""
        with self._lock:
            self._announce_listeners.append(listener)
        return lambda: self._announce_listeners.remove(listener)

    def __iter__(self) -> Iterator[Command]:
        """Every command, hidden ones too."""
        with self._lock:
            return iter(tuple(self._commands.values()))

    def _refuse_another(self, key: Key, command: Command) -> None:
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
        command = Command(name_of_route(words, self._separator), function, declaration, tool_set, words, overrides)
        _check(command)
        return self._asking(command)

    def _asking(self, command: Command) -> Command:
        """The command as the operator wants it: with a question before it, or as it is."""
        declared = command.declaration
        names = (command.name, *declared.asked_as)
        is_meant = any(fnmatchcase(name, pattern) for pattern in self._policy.ask for name in names)
        if declared.needs_confirmation or not is_meant:
            return command
        unlisted = declared.unlisted_asks if self._policy.trusts_answers else (*declared.unlisted_asks, CONFIRM)
        asks = dict.fromkeys((*declared.asks, CONFIRM))
        return replace(
            command, declaration=replace(declared, asks=tuple(asks), unlisted_asks=unlisted, needs_confirmation=True)
        )

    def require_known(self) -> None:
        """Refuse a policy that means no command: a typing error in it would leave one without its question.

        Raises:
            BadSetting: names the pattern.
        """
        names = [command.name for command in self]
        for pattern in self._policy.ask:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise BadSetting(f"[tools] ask holds {pattern!r}: there is no such tool")

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class Group:
    """Adds commands to one context of a registry."""

    def __init__(self, registry: Registry, words: tuple[str, ...]) -> None:
        self._registry = registry
        self._words = words

    def context(self, *words: str, summary: str = "", details: str = "") -> "Group":
        """A context within this one."""
        return self._registry.context(*self._words, *words, summary=summary, details=details)

    def tool(self, effect: Effect, **hints: Unpack[Hints]) -> Decorator:
        """Declare a function as a tool and add it here."""
        return self._registry.tool(effect, tool_set=self._words[0], context=self._words, **hints)

    def add(self, function: Function) -> Function:
        """Add one declared function here."""
        return self._registry.add(function, self._words[0], context=self._words)


def key_of(command: Command) -> Key:
    """What no two commands have in common."""
    return command.route, command.overrides


def duplicate_name(first: Command, second: Command) -> BadSetting:
    """The error for two commands of one name."""
    return BadSetting(f"two commands are named {second.name}: {first.source} and {second.source}")


def _check(command: Command) -> None:
    """Refuse at start what would fail at a call."""
    if command.declaration.route:
        check_route(command.route, command.source)
    if not NAME.fullmatch(command.name):
        raise BadSetting(f"{command.source}: {command.name!r} is no tool name; use a to z, 0 to 9 and _, 64 at most")
    if not command.description:
        raise BadSetting(f"{command.source}: a command needs a docstring, it is what the model reads")
    if command.overrides and not command.is_a(Surface.PROMPT):
        raise BadSetting(f"{command.source}: only a prompt overrides another")
    check_function(command.function, command.declaration, command.route)
