"""A command: one declared function with the name, schemas and checks that follow from its declaration.

Schemas are built on first use, so a server that only starts does not pay for them. Registration runs the quick checks
(`check_command`); `Command.validate` builds everything that listing and calling the command need.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from coretools.errors import BadSetting
from coretools.operations import json_schema
from coretools.operations.annotations import first_sentence
from coretools.operations.application import Application
from coretools.operations.arguments import ANSWERS, Arguments, given_by, parameters_of, require_named
from coretools.operations.call import Call
from coretools.operations.declare import Declaration, Surface, source_of
from coretools.operations.docstring import docstring_of
from coretools.operations.return_type import ReturnType
from coretools.operations.route import VARIABLE, check_route, route_parameters
from coretools.operations.uri_template import check_template
from coretools.services.interface import Services

NAME = re.compile(r"[a-z][a-z0-9_./-]{0,63}")
"""Tool names of the protocol (SEP-986), in lower case. With the separator `_`, every client accepts them."""

_BUILT = "__coretools_built__"

Built = TypeVar("Built", Arguments, ReturnType)

FOREIGN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Names that tools of other servers keep."""


@dataclass(frozen=True)
class Command:
    """One declared function, as every surface sees it."""

    name: str
    function: Callable[..., Any]
    declaration: Declaration
    tool_set: str
    route: tuple[str, ...] = ()
    overrides: bool = False
    """Whether it was registered as a prompt by name, which replaces another command's prompt."""
    application: Application | None = None
    """What it shares with the other commands of its application."""
    given: Mapping[Any, object] = field(default_factory=dict)
    """What its server gives it, by type; its own lifespan takes precedence."""

    @property
    def source(self) -> str:
        """Module and qualified name of the function, for messages."""
        return source_of(self.function)

    @property
    def uses_services(self) -> bool:
        """Whether it takes the server's `Services`. An agent's tool takes them as `_services`, only to pass them on."""
        has_own = self.application is not None and self.application.has_services
        return not has_own and any(
            kind is Services and name != "_services" for name, kind in self.arguments.injected.items()
        )

    @property
    def other_routes(self) -> tuple[tuple[str, ...], ...]:
        """A route for each alias: that takes the place of the last word."""
        if not self.declaration.aliases:
            return ()
        last = max((at for at, word in enumerate(self.route) if VARIABLE.fullmatch(word) is None), default=0)
        return tuple((*self.route[:last], alias, *self.route[last + 1 :]) for alias in self.declaration.aliases)

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, shown by `--help` and in lists of commands."""
        return docstring_of(self.function).summary

    @property
    def description(self) -> str:
        """The docstring followed by the details: the description that the model reads."""
        return "\n\n".join(filter(None, (docstring_of(self.function).text, self.declaration.details.strip())))

    # Cached: every call asks.
    @cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; all others run in a worker thread."""
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def arguments(self) -> Arguments:
        """The parameters: their schema and their validation."""
        return _built_once(
            Arguments, self.function, name=self.name, declared=self.declaration, injected=self.given_types
        )

    @property
    def given_types(self) -> tuple[Any, ...]:
        """The types of parameters that its application or its server fills in."""
        return (*(() if self.application is None else self.application.types), *self.given)

    def value(self, kind: Any) -> object:
        """What its application or its server gives it of a type.

        Raises:
            LookupError: the lifespan of the application is not running.
        """
        own = self.application
        is_servers = kind in self.given and (own is None or kind not in own.shared)
        return self.given[kind] if own is None or is_servers else own.value(kind)

    @cached_property
    def returns_result_only(self) -> bool:
        """Whether a call sends nothing but its result: no progress, no log messages and no questions."""
        declared = self.declaration
        has_call = Call in self.arguments.injected.values()
        return not (self.is_async or has_call or declared.asks or declared.needs_confirmation)

    @cached_property
    def return_type(self) -> ReturnType:
        """The return annotation: its schema and its serialization."""
        return _built_once(ReturnType, self.function, structured=self.declaration.structured)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """Schema of the structured result; None when the result is sent as text only."""
        declared = self.declaration.output_schema
        return self.return_type.schema if declared is None else dict(declared)

    @property
    def mime_type(self) -> str:
        """Media type of its content as a resource."""
        is_json = not self.declaration.mime_type and self.return_type.is_json
        return self.declaration.mime_type or ("application/json" if is_json else "text/plain")

    def version_of(self, given: Mapping[str, Any]) -> Callable[[], object] | None:
        """A function that returns the version of this resource for these arguments; None without a declared version.

        Raises:
            InvalidArguments: the arguments don't match the schema.
        """
        version = self.declaration.version
        if isinstance(version, str):  # the name of a method of the same object
            version = getattr(getattr(self.function, "__self__", None), version)
        return None if version is None else partial(version, **self.arguments.accept(given))

    def validate(self, *, is_alone: bool = True) -> None:
        """Build everything that listing the command, calling it and sending its result need.

        Not alone, a server may yet give it what it takes.

        Raises:
            BadSetting: part of the declaration can't be served; names the source.
        """
        declared = self.declaration
        _refuse_wrapper_above(self.function)
        try:
            if declared.input_schema is not None:
                json_schema.check_input_schema(self.source, declared.input_schema)
            self.return_type.validate()
            texts = [self.description, declared.title, declared.uri, declared.mime_type, declared.metadata]
            listed = [*texts, self.arguments.schema(), self.arguments.answers, self.return_type.schema]
            check_function(self.function, declared, self.route, self.given_types)
        except BadSetting as error:
            text = str(error)
            raise BadSetting(text if text.startswith(self.source) else f"{self.source}: {text}") from error
        except (Exception, SystemExit) as error:  # raised by the author's types, which may raise anything
            raise BadSetting(
                f"{self.source}: can't be served: {type(error).__name__}: {first_sentence(error)}"
            ) from error
        for name, kind in self.arguments.injected.items():
            if is_alone and given_by(kind) and kind not in self.given_types:
                raise BadSetting(f"{self.source}: {name!r} has no value here: {given_by(kind)}")
        if declared.input_schema is not None and len(self.arguments.names) != 1:
            raise BadSetting(
                f"{self.source}: with @raw_schema the function takes one parameter, a mapping of all arguments"
            )
        try:
            json.dumps(listed, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise BadSetting(f"{self.source}: its listing can't be written as JSON in UTF-8: {error}") from error

    def is_a(self, surface: Surface) -> bool:
        """Whether the declaration includes the surface."""
        return surface in self.declaration.surfaces


def _built_once(kind: Callable[..., Built], function: Callable[..., Any], **given: Any) -> Built:
    """What `kind` makes of a function, kept with a method for every object that it is bound to.

    Each tenant has tool sets of its own, and so has a server after a reload: their schemas are the same, and those of
    all tools take 0.1 s to build.
    """
    if not (inspect.ismethod(function) and inspect.isfunction(function.__func__)):
        return kind(function=function, **given)
    plain = function.__func__
    kept = plain.__dict__.setdefault(_BUILT, [])
    for owner, other, properties, known in kept:
        # A wrapper by `functools.wraps` has the list of what it wraps.
        if owner is plain and other is kind and properties == given:
            built: Built = known
            return built
    built = kind(function=function, **given)
    kept.append((plain, kind, given, built))
    return built


def check_command(command: Command) -> None:
    """Refuse at registration what would fail at a call. Quick: builds no schema.

    Raises:
        BadSetting: names the problem and the source.
    """
    if command.declaration.route:
        check_route(command.route, command.source)
    for route in command.other_routes:
        check_route(route, command.source)
    if not (FOREIGN_NAME if command.declaration.is_foreign else NAME).fullmatch(command.name):
        raise BadSetting(
            f"{command.source}: {command.name!r} is not a valid tool name; use a to z, 0 to 9 and _, 64 at most"
        )
    if not command.description:
        raise BadSetting(f"{command.source}: a command needs a docstring; the model reads it as the description")
    if command.overrides and not command.is_a(Surface.PROMPT):
        raise BadSetting(f"{command.source}: only a prompt can override another prompt")
    check_function(command.function, command.declaration, command.route, command.given_types)


def check_function(
    function: Callable[..., Any], declared: Declaration, route: Sequence[str], injected: Sequence[Any] = ()
) -> None:
    """Check the signature of a function against its declaration and route. `injected` as for `Arguments`.

    Raises:
        BadSetting: names the problem and the source.
    """
    source = source_of(function)
    require_named(function)
    _refuse_method(function)
    if declared.nonblocking and inspect.iscoroutinefunction(function):
        raise BadSetting(f"{source}: @nonblocking is for a plain function; an async one runs on the event loop already")
    # Annotations are resolved only where they are needed: every command passes here when a server starts.
    in_route = route_parameters(route)
    is_resource = Surface.RESOURCE in declared.surfaces
    if not (in_route or is_resource):
        return
    try:
        known, required = declared.arguments or parameters_of(function, injected)
    except BadSetting:
        return  # the module may define the name further down; `Command.validate` checks again
    unknown = [name for name in in_route if name not in known]
    if unknown:
        raise BadSetting(f"{source}: the route names an unknown parameter: {', '.join(unknown)}")
    if is_resource:
        _check_resource(function, declared, known, required)


def _refuse_wrapper_above(function: Callable[..., Any]) -> None:
    """Refuse a decorator above the registration: calls would pass it by, with what it checks.

    Raises:
        BadSetting: the name of the function in its module stands for a wrapper of it.
    """
    named: Any = sys.modules.get(getattr(function, "__module__", ""))
    for part in getattr(function, "__qualname__", "<locals>").split("."):
        named = getattr(named, part, None)
    if named is None or named is function or not hasattr(named, "__wrapped__"):
        return
    while hasattr(named, "__wrapped__"):
        named = named.__wrapped__
        if named is function:
            raise BadSetting(
                f"{source_of(function)}: a decorator stands above @tool or @add, and calls would pass it by; "
                "write it below"
            )


def _refuse_method(function: Callable[..., Any]) -> None:
    """Refuse a method that is not bound to an object."""
    if inspect.isfunction(function) and function.__code__.co_argcount and function.__code__.co_varnames[0] == "self":
        raise BadSetting(
            f"{source_of(function)}: is a method without its object; write @tool(...) of coretools.operations.declare "
            f"above it, and call registry.add(an_object.{function.__name__}) once there is an object"
        )


def _check_resource(
    function: Callable[..., Any], declared: Declaration, known: tuple[str, ...], required: tuple[str, ...]
) -> None:
    source = source_of(function)
    if not declared.read_only:
        raise BadSetting(f"{source}: a resource only reads; declare it with Effect.READ")
    known = (*known, ANSWERS) if declared.asks else known
    check_template(declared.uri, required=required, known=known, source=source)
    version = declared.version
    if isinstance(version, str) and not hasattr(getattr(function, "__self__", None), version):
        raise BadSetting(f"{source}: its version names {version!r}, which is not a method of the same object")


def duplicate_name(first: Command, second: Command) -> BadSetting:
    """The error for two commands with one name."""
    return BadSetting(f"two commands are named {second.name}: {first.source} and {second.source}")
