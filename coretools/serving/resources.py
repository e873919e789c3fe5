"""What runs printed, as resources: `coretools://runs/ID/output`, for the principal whose runs they are.

Another principal's run is as unknown as one that never was. A read is bounded and says where the rest begins.
"""

import re
from typing import Any

import mcp_types as types
from mcp import MCPError, UriTemplate
from mcp.server.context import ServerRequestContext

from coretools.errors import CoreError, InvalidArguments
from coretools.process.runs import Runs
from coretools.serving.progress import ClientCall
from coretools.settings import Limits
from coretools.tools.commands.report import from_offset, line_of, resource_of

TEMPLATE = "coretools://runs/{run}/output{?offset}"
MIME_TYPE = "text/plain"
_NUMBER = re.compile(r"[0-9]{1,15}")


class RunResources:
    """The three handlers of the protocol for the runs of a server."""

    def __init__(self, runs: Runs, limits: Limits) -> None:
        self._runs = runs
        self._limits = limits

    async def list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Every run of the caller. They change with every call, so nobody keeps the list."""
        del params
        principal = ClientCall(context.session).principal
        found = [
            types.Resource(
                uri=resource_of(run),
                name=run.id,
                description=line_of(run),
                mime_type=MIME_TYPE,
                size=run.output.kept_bytes,
            )
            for run in self._runs.of(principal)
        ]
        return types.ListResourcesResult(resources=found, ttl_ms=0, cache_scope="private")

    async def list_templates(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The one shape that addresses have."""
        del context, params
        template = types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="run-output",
            description="What a run printed, from a byte offset on",
            mime_type=MIME_TYPE,
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """At most `read_bytes` of the output of one run.

        Raises:
            MCPError: no such resource, as the protocol has it.
        """
        variables = UriTemplate.parse(TEMPLATE).match(params.uri) or {}
        try:
            run = self._runs.get(str(variables.get("run", "")), ClientCall(context.session).principal)
            shown = from_offset(run, _offset(str(variables.get("offset", "0"))), self._limits.read_bytes)
        except CoreError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": params.uri[:200]}) from error
        text = "\n".join(part for part in (shown.text, shown.note) if part)
        contents = types.TextResourceContents(uri=params.uri, mime_type=MIME_TYPE, text=text)
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidArguments(f"offset: must be a whole number, got {text[:20]!r}")
    return int(text)
