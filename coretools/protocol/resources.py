"""What runs printed, as resources: `coretools://runs/ID/output`, for the principal whose runs they are.

Another principal's run is as unknown as one that never was. A read is bounded and says where the rest begins.
"""

import re
from collections.abc import Iterable
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.config.settings import Limits
from coretools.errors import CoreError, InvalidArguments, NotFound
from coretools.operations.catalog import Resource
from coretools.operations.completion import with_prefix
from coretools.operations.registry import Command
from coretools.operations.route import query_keys
from coretools.process.jobs.job_table import Job, JobTable
from coretools.tools.commands.results import from_offset, line_of, resource_of

# Which resource an address names, and the values of its variables (RFC 6570, by the SDK's `UriTemplate`).


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


TEMPLATE = "coretools://runs/{run}/output{?offset}"
MIME_TYPE = "text/plain"
_NUMBER = re.compile(r"[0-9]{1,15}")


class RunResources:
    """The outputs of runs, beside the resources of commands."""

    template = types.ResourceTemplate(
        uri_template=TEMPLATE,
        name="run-output",
        description="What a run printed, from a byte offset on",
        mime_type=MIME_TYPE,
    )

    def __init__(self, runs: JobTable, limits: Limits) -> None:
        self._runs = runs
        self._limits = limits

    def is_one(self, uri: str) -> bool:
        """Whether the address is one of ours, of a run that is there or not."""
        return UriTemplate.parse(TEMPLATE).match(uri) is not None

    def listed(self, principal: str) -> list[types.Resource]:
        """Every run of the caller."""
        return [
            types.Resource(
                uri=resource_of(run),
                name=run.id,
                description=line_of(run),
                mime_type=MIME_TYPE,
                size=run.output.kept_bytes,
            )
            for run in self._runs.of(principal)
        ]

    def run_at(self, uri: str, principal: str) -> Job:
        """The run behind an address.

        Raises:
            MCPError: no such run of this principal.
        """
        variables = matched(TEMPLATE, uri) or {}
        try:
            return self._runs.get(str(variables.get("run", "")), principal)
        except CoreError as error:
            raise _refused(uri, error) from error

    def completed(self, variable: str, typed: str, principal: str) -> list[str]:
        """Values of a variable of the template: the caller's runs, the newest first."""
        ids = [run.id for run in reversed(self._runs.of(principal))] if variable == "run" else []
        return with_prefix(typed, ids)

    def read(self, uri: str, principal: str) -> types.ReadResourceResult:
        """At most `read_bytes` of the output of one run.

        Raises:
            MCPError: no such resource, as the protocol has it.
        """
        variables = matched(TEMPLATE, uri) or {}
        try:
            run = self._runs.get(str(variables.get("run", "")), principal)
            shown = from_offset(run, _offset(str(variables.get("offset") or "0")), self._limits.read_bytes)
        except CoreError as error:
            raise _refused(uri, error) from error
        text = "\n".join(part for part in (shown.text, shown.note) if part)
        contents = types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=text)
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")


def _refused(uri: str, error: CoreError) -> MCPError:
    if isinstance(error, NotFound):
        return NoResource(uri, str(error))
    return MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": uri[:SHOWN]})


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidArguments(f"offset: must be a whole number, got {text[:20]!r}")
    return int(text)
