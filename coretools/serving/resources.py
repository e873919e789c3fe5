"""What runs printed, as resources: `coretools://runs/ID/output`, for the principal whose runs they are.

Another principal's run is as unknown as one that never was. A read is bounded and says where the rest begins.
"""

import re

import mcp_types as types
from mcp import MCPError, UriTemplate

from coretools.completion import beginning_with
from coretools.errors import CoreError, InvalidArguments, NotFound
from coretools.process.runs import Run, Runs
from coretools.serving.addresses import SHOWN, NoResource, matched
from coretools.settings import Limits
from coretools.tools.commands.report import from_offset, line_of, resource_of

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

    def __init__(self, runs: Runs, limits: Limits) -> None:
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

    def run_at(self, uri: str, principal: str) -> Run:
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
        return beginning_with(typed, ids)

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
