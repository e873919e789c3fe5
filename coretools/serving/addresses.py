"""Which resource an address names, and the values of its variables (RFC 6570, by the SDK's `UriTemplate`)."""

from collections.abc import Iterable

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.offer import Resource
from coretools.registry import Command

SHOWN = 200
"""Characters of an address that an error shows."""


def no_resource(uri: str) -> MCPError:
    """The error for an address with nothing behind it.

    The revision of 2026-07-28 has it as wrong parameters; `data` names the address (SEP-2164).
    """
    shown = uri[:SHOWN]
    said = f"no resource {shown!r}; resources/list has those there are"
    return MCPError(code=types.INVALID_PARAMS, message=said, data={"uri": shown})


def found(resources: Iterable[Resource], uri: str) -> tuple[Command, dict[str, str | list[str]]] | None:
    """The command behind an address and its variables as text; None when there is none.

    A fixed address goes before a template; of templates the first that fits.
    """
    templates = []
    for resource in resources:
        if resource.is_template:
            templates.append(resource)
        elif resource.uri == uri:
            return resource.command, {}
    for resource in templates:
        values = UriTemplate.parse(resource.uri).match(uri)
        if values is not None:
            return resource.command, {name: value for name, value in values.items() if value is not None}
    return None
