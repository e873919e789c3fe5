"""Which resource an address names, and the values of its variables (RFC 6570, by the SDK's `UriTemplate`)."""

from collections.abc import Iterable
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.address import query_keys
from coretools.offer import Resource
from coretools.registry import Command

SHOWN = 200
"""Characters of an address that an error shows."""


class NoResource(MCPError):
    """There is nothing at an address. Wrong parameters at 2026-07-28; `data` names the address (SEP-2164)."""

    def __init__(self, uri: str, message: str, **data: object) -> None:
        super().__init__(code=types.INVALID_PARAMS, message=message, data={**data, "uri": uri[:SHOWN]})


def no_resource(uri: str) -> NoResource:
    """The error for an address that no resource has."""
    return NoResource(uri, f"no resource {uri[:SHOWN]!r}; resources/list has those there are")


def matched(template: str, uri: str) -> dict[str, str | list[str]] | None:
    """The variables of a template in an address, as text; None when it does not fit.

    Raises:
        MCPError: it fits but for its query, which has a key that the template lacks, or one twice.
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
    said = f"the query may have {', '.join(known) or 'no key'}, each once"
    raise MCPError(code=types.INVALID_PARAMS, message=f"{uri[:SHOWN]!r}: {said}", data={"uri": uri[:SHOWN]})


def found(resources: Iterable[Resource], uri: str) -> tuple[Command, dict[str, str | list[str]]] | None:
    """The command behind an address and its variables as text; None when there is none.

    A fixed address goes before a template; of templates the first that fits.

    Raises:
        MCPError: a query that the template does not have.
    """
    templates = []
    for resource in resources:
        if resource.is_template:
            templates.append(resource)
        elif resource.uri == uri:
            return resource.command, {}
    for resource in templates:
        values = matched(resource.uri, uri)
        if values is not None:
            return resource.command, values
    return None
