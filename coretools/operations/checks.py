"""What is refused of a declared function: when it is registered, and before it is served.

The first is quick and needs no schema; the second builds everything that a list, a call and a result need.
"""

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from coretools.errors import BadSetting
from coretools.operations import json_schema
from coretools.operations import route as address
from coretools.operations.annotations import first_sentence
from coretools.operations.arguments import ANSWERS, Arguments, parameters_of, require_named
from coretools.operations.declare import Declaration, Surface, source_of
from coretools.operations.return_type import ReturnType
from coretools.operations.route import route_parameters


def check_function(function: Callable[..., Any], declared: Declaration, route: Sequence[str]) -> None:
    """Refuse at registration what would fail at a call.

    Raises:
        BadSetting: says what, with the source.
    """
    source = source_of(function)
    require_named(function)
    _refuse_method(function)
    if declared.nonblocking and inspect.iscoroutinefunction(function):
        raise BadSetting(f"{source}: nonblocking is for a plain function; an async one is on the event loop already")
    # The annotations are read for those that need it only: a start waits for all of this.
    in_route = route_parameters(route)
    is_resource = Surface.RESOURCE in declared.surfaces
    if not (in_route or is_resource):
        return
    try:
        known, required = parameters_of(function)
    except BadSetting:
        return  # its module may define the name below it; `Command.validate` looks again
    unknown = [name for name in in_route if name not in known]
    if unknown:
        raise BadSetting(f"{source}: the route has a word that is no parameter: {', '.join(unknown)}")
    if is_resource:
        _check_resource(function, declared, known, required)


def _refuse_method(function: Callable[..., Any]) -> None:
    if inspect.isfunction(function) and function.__code__.co_argcount and function.__code__.co_varnames[0] == "self":
        raise BadSetting(
            f"{source_of(function)}: is a method without its object; write @tool(...) of coretools.operations.declare "
            f"above it, and registry.add(an_object.{function.__name__}) where there is one"
        )


def _check_resource(
    function: Callable[..., Any], declared: Declaration, known: tuple[str, ...], required: tuple[str, ...]
) -> None:
    source = source_of(function)
    if not declared.read_only:
        raise BadSetting(f"{source}: a resource only reads; declare it with Effect.READ")
    known = (*known, ANSWERS) if declared.asks else known
    address.check_template(declared.uri, required=required, known=known, source=source)
    version = declared.version
    if isinstance(version, str) and not hasattr(getattr(function, "__self__", None), version):
        raise BadSetting(f"{source}: its version is {version!r}, which is no method beside it")


def validate_command(
    function: Callable[..., Any],
    declared: Declaration,
    route: Sequence[str],
    *,
    description: str,
    ends: Callable[[], tuple[Arguments, ReturnType]],
) -> None:
    """Build what is listed of a command and what its calls need; `ends` gives its arguments and its return type.

    Raises:
        BadSetting: what can't be served, with the source.
    """
    source = source_of(function)
    try:
        if declared.input_schema is not None:
            json_schema.check_input_schema(source, declared.input_schema)
        arguments, output = ends()
        output.validate()
        listed: list[Any] = [description, declared.title, declared.uri, declared.mime_type, declared.metadata]
        listed += [arguments.schema(), arguments.answers, output.schema]
        check_function(function, declared, route)
    except BadSetting as error:
        said = str(error)
        raise BadSetting(said if said.startswith(source) else f"{source}: {said}") from error
    except (Exception, SystemExit) as error:  # of the author's types, which may raise anything
        raise BadSetting(f"{source}: can't be served: {type(error).__name__}: {first_sentence(error)}") from error
    if declared.input_schema is not None and len(arguments.names) != 1:
        raise BadSetting(f"{source}: with @raw_schema it takes one argument, the mapping of all of them")
    try:
        json.dumps(listed, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadSetting(f"{source}: what is listed of it is no JSON in UTF-8: {error}") from error
