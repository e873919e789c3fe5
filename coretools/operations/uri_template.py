"""URI templates of resources (RFC 6570).

Only the names of variables are parsed here; the SDK matches a URI against a template (`mcp.UriTemplate`).
"""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from coretools.errors import BadSetting
from coretools.operations.route import VARIABLE

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")

_NAMED = (";", "?", "&")
"""Operators that write the names of variables into the URI."""

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\*|:[1-9][0-9]{0,3})?")

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def template_variables(template: str) -> tuple[str, ...]:
    """Names of the variables, in their order; empty for a fixed URI."""
    names = [_NAME.fullmatch(part) for _, inside in _EXPRESSION.findall(template) for part in inside.split(",")]
    return tuple(name[1] if name else "" for name in names)


def query_keys(template: str) -> tuple[str, ...]:
    """Keys allowed in the query of a URI that matches this template."""
    in_variables = [
        name[1]
        for operator, inside in _EXPRESSION.findall(template)
        if operator in ("?", "&")
        for part in inside.split(",")
        if (name := _NAME.fullmatch(part))
    ]
    written = _EXPRESSION.sub("", template).partition("?")[2]
    return (*(part.partition("=")[0] for part in written.split("&") if part), *in_variables)


def template_shape(template: str) -> str:
    """The template without the names of variables that do not appear in the URIs it matches."""
    return _EXPRESSION.sub(
        lambda found: found[0] if found[1] in _NAMED else f"{{{found[1]}{',' * found[2].count(',')}}}", template
    )


def check_template(template: str, *, required: Iterable[str], known: Iterable[str], source: str) -> None:
    """Check that every variable is a parameter, and every required parameter a variable.

    Raises:
        BadSetting: names the problem and the source of the declaration.
    """
    bare = _EXPRESSION.sub("", template)
    if not _SCHEME.fullmatch(urlsplit(bare).scheme) or "{" in bare or "}" in bare:
        raise BadSetting(f"{source}: {template!r} is not a URI; write SCHEME://... with {{variables}} (RFC 6570)")
    names = set(template_variables(template))
    unknown = sorted(names - set(known))
    if unknown:
        raise BadSetting(f"{source}: {template} has a variable for an unknown parameter: {', '.join(unknown)}")
    missing = sorted(set(required) - names)
    if missing:
        raise BadSetting(f"{source}: {template} lacks a required parameter: {', '.join(missing)}")


def default_template(route: Sequence[str], scheme: str, *, required: Sequence[str], optional: Sequence[str]) -> str:
    """The URI template of a command without one: the route and required parameters as path, optional ones as query."""
    in_route = {match[1] for word in route if (match := VARIABLE.fullmatch(word))}
    path = "/".join([*route, *(f"{{{name}}}" for name in required if name not in in_route)])
    rest = [name for name in optional if name not in in_route]
    return f"{scheme}://{path}" + (f"{{?{','.join(rest)}}}" if rest else "")
