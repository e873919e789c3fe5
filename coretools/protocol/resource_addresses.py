"""Resolve resource addresses to commands and the values of their variables."""

from collections.abc import Iterable
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.operations.catalog import Resource
from coretools.operations.command import Command
from coretools.operations.uri_template import query_keys

MAX_SHOWN_URI = 200
"""Characters of an address shown in an error."""


class NoResource(MCPError):
    """Resource not found: invalid params since 2026-07-28, with the address in `data` (SEP-2164)."""

    def __init__(self, uri: str, message: str, **data: object) -> None:
        super().__init__(code=types.INVALID_PARAMS, message=message, data={**data, "uri": uri[:MAX_SHOWN_URI]})


def no_resource(uri: str) -> NoResource:
    """Return the error for an unknown address."""
    return NoResource(uri, f"no resource {uri[:MAX_SHOWN_URI]!r}; resources/list lists them")


def match_template(template: str, uri: str) -> dict[str, str | list[str]] | None:
    """Return the values of a template's variables (RFC 6570) in an address; None if it does not match.

    Raises:
        MCPError: only the query does not match: it has a key that the template lacks, or one twice.
    """
    values = UriTemplate.parse(template).match(uri)
    if values is None:
        return None
    _check_query(template, uri)
    return {name: value for name, value in values.items() if value is not None}


def _check_query(template: str, uri: str) -> None:
    known = query_keys(template)
    keys = [unquote(part.partition("=")[0]) for part in uri.partition("#")[0].partition("?")[2].split("&") if part]
    if set(keys) <= set(known) and len(set(keys)) == len(keys):
        return
    rule = f"the query may have {', '.join(known) or 'no key'}, each once"
    raise MCPError(
        code=types.INVALID_PARAMS, message=f"{uri[:MAX_SHOWN_URI]!r}: {rule}", data={"uri": uri[:MAX_SHOWN_URI]}
    )


def find_resource(resources: Iterable[Resource], uri: str) -> tuple[Command, dict[str, str | list[str]]] | None:
    """Return the command of an address and its variables as text; None if there is none.

    A fixed address takes precedence over a template; among templates, the first match wins.

    Raises:
        MCPError: the query does not fit the template.
    """
    templates = []
    for resource in resources:
        if resource.is_template:
            templates.append(resource)
        elif resource.uri == uri:
            return resource.command, {}
    for resource in templates:
        values = match_template(resource.uri, uri)
        if values is not None:
            return resource.command, values
    return None
