"""Serve the output of runs as resources (`coretools://runs/ID/output`).

A run belongs to one principal; for others it does not exist. A read is bounded and reports the offset of the rest.
"""

import re

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.config.limits import Limits
from coretools.errors import CoreError, InvalidArguments, NotFound
from coretools.operations.completion import with_prefix
from coretools.process.jobs.job import Job
from coretools.process.jobs.job_table import JobTable
from coretools.protocol.resource_addresses import MAX_SHOWN_URI, NoResource, match_template
from coretools.tools.commands.results import line_of
from coretools.tools.commands.run_output import from_offset, resource_of

TEMPLATE = "coretools://runs/{run}/output{?offset}"
MIME_TYPE = "text/plain"
_NUMBER = re.compile(r"[0-9]{1,15}")


class RunResources:
    """The output of runs as resources, in addition to the resources of commands."""

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
        """Whether the address is that of a run's output, existing or not."""
        return UriTemplate.parse(TEMPLATE).match(uri) is not None

    def listed(self, principal: str) -> list[types.Resource]:
        """Return a resource for every run of the caller."""
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
        """Return the run at an address.

        Raises:
            MCPError: no such run of this principal.
        """
        variables = match_template(TEMPLATE, uri) or {}
        try:
            return self._runs.get(str(variables.get("run", "")), principal)
        except CoreError as error:
            raise _resource_error(uri, error) from error

    def completed(self, variable: str, typed: str, principal: str) -> list[str]:
        """Complete a variable of the template: the caller's runs, newest first."""
        ids = [run.id for run in reversed(self._runs.of(principal))] if variable == "run" else []
        return with_prefix(typed, ids)

    def read(self, uri: str, principal: str) -> types.ReadResourceResult:
        """Read at most `read_bytes` of the output of one run.

        Raises:
            MCPError: no such resource.
        """
        variables = match_template(TEMPLATE, uri) or {}
        try:
            run = self._runs.get(str(variables.get("run", "")), principal)
            part_read = from_offset(run, _offset(str(variables.get("offset") or "0")), self._limits.read_bytes)
        except CoreError as error:
            raise _resource_error(uri, error) from error
        text = "\n".join(part for part in (part_read.text, part_read.note) if part)
        contents = types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=text)
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")


def _resource_error(uri: str, error: CoreError) -> MCPError:
    if isinstance(error, NotFound):
        return NoResource(uri, str(error))
    return MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": uri[:MAX_SHOWN_URI]})


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidArguments(f"offset: must be a whole number, got {text[:20]!r}")
    return int(text)
