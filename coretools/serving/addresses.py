"""Which resource an address names, and the values of its variables (RFC 6570, by the SDK's `UriTemplate`)."""

from collections.abc import Iterable

from mcp import UriTemplate

from coretools.offer import Resource
from coretools.registry import Command


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
