"""The tools of other servers as commands: for `coretools serve --upstream` and for the REPL.

A tool keeps its name where it is free, and is `server__tool` otherwise. Each call checks the arguments against the
schema of the tool, asks for the approval, and is limited in time, in number and in the size of its answer.
"""

import base64
import binascii
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

from coretools.client.common.errors import ToolFailed
from coretools.client.connection.server_connection import Connection
from coretools.config.limits import Limits
from coretools.errors import CoreError, DeadlinePassed
from coretools.operations.call import Call
from coretools.operations.content import Audio, Blocks, Content, Embedded, Image, Link, Text
from coretools.operations.declare import Effect, foreign, tool
from coretools.operations.json_schema import check_input_schema
from coretools.redaction.redactor import Redactor

MAX_BINARY_BYTES = 8 * 1024 * 1024
"""Images, audio and other binary content of one answer."""

MAX_DESCRIPTION = 8_192
"""Characters of a tool's description."""

logger = logging.getLogger(__name__)

Approve = Callable[[Connection, types.Tool, Mapping[str, Any]], Awaitable[None]]
"""Returns if a call of a tool with these arguments is approved for the entry of the connection; raises otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What holds for the calls of one server's tools."""

    approve: Approve
    limits: Limits
    redactor: Redactor | None = None
    """Redacts answers; None if the operator does not want it."""
    slots: anyio.CapacityLimiter
    """Calls of the server that run at once; further ones wait."""
    progress: Callable[[], AbstractContextManager[ProgressFnT | None]] | None = None
    """Shows the progress of a call; None reports it to the caller."""


class ForeignTool:
    """One tool of another server."""

    def __init__(self, connection: Callable[[], Awaitable[Connection]], declared: types.Tool, rules: CallRules) -> None:
        """`connection` returns the present connection, which changes when the server is started again."""
        self.declared = declared
        self._connection = connection
        self._rules = rules

    async def call(self, arguments: Mapping[str, Any], call: Call) -> Blocks:
        """Call the tool.

        Raises:
            NotApproved, RefusedByPolicy: the call is not approved. DeadlinePassed: no answer in time.
            ToolFailed: the tool reports an error. And what `Connection.call` raises.
        """
        name = self.declared.name
        connection = await self._connection()
        await self._rules.approve(connection, self.declared, arguments)
        begun, outcome = time.monotonic(), "cancelled"
        try:
            result = await self._called(connection, dict(arguments), call)
            outcome = "error" if result.is_error else "ok"
        except CoreError as error:
            outcome = error.kind
            raise
        finally:
            milliseconds = 1000 * (time.monotonic() - begun)
            facts = (connection.name, name, call.principal, outcome, milliseconds)
            logger.info("upstream server %r: tool %r called by %s: %s in %.0f ms", *facts)
        blocks = self._limited(result)
        if result.is_error:
            raise ToolFailed("\n".join(block.text for block in blocks.blocks if isinstance(block, Text)) or "failed")
        return blocks

    async def _called(self, connection: Connection, arguments: dict[str, Any], call: Call) -> types.CallToolResult:
        seconds = self._rules.limits.upstream_seconds

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await call.progress(progress, total, message)

        own = self._rules.progress
        with anyio.move_on_after(seconds), nullcontext(report) if own is None else own() as show:
            async with self._rules.slots:
                await connection.wait_settled()
                return await connection.call(self.declared.name, arguments, show)
        raise DeadlinePassed(
            f"server {connection.name!r}: call {self.declared.name}: no answer within {seconds:g} s (upstream_seconds)"
        )

    def _limited(self, result: types.CallToolResult) -> Blocks:
        """Return the content of a result, cut to the limits of an answer and redacted."""
        budget, binary = self._rules.limits.answer_bytes, MAX_BINARY_BYTES
        blocks: list[Content] = []
        for block in map(content_of, result.content):
            shown = self._redacted(block)
            text = _text(shown)
            if text is not None:
                cut = _cut(text, budget)
                budget = max(0, budget - len(cut.encode("utf-8", "replace")))
                shown = shown if cut == text else Text(cut)
            else:
                binary -= _size(shown)
                shown = shown if binary >= 0 else Text(f"[left out: more than {MAX_BINARY_BYTES} bytes of content]")
            blocks.append(shown)
        data = self._data(result.structured_content)
        if data is None and result.structured_content is not None:
            blocks.append(Text(f"[the structured result was left out: above {self._rules.limits.answer_bytes} bytes]"))
        if not blocks and data is not None:
            blocks.append(Text(json.dumps(data, ensure_ascii=False)))
        return Blocks(tuple(blocks), data)

    def _data(self, structured: Any) -> dict[str, Any] | None:
        if not isinstance(structured, dict):
            return None
        text = json.dumps(structured)
        return self._redacted_value(structured) if len(text) <= self._rules.limits.answer_bytes else None

    def _redacted(self, block: Content) -> Content:
        if self._rules.redactor is None:
            return block
        if isinstance(block, Text):
            return Text(self._rules.redactor.text(block.text))
        if isinstance(block, Embedded) and isinstance(block.content, str):
            return Embedded(block.uri, self._rules.redactor.text(block.content), block.mime_type)
        return block

    def _redacted_value(self, value: Any) -> Any:
        if self._rules.redactor is None:
            return value
        if isinstance(value, str):
            return self._rules.redactor.text(value)
        if isinstance(value, dict):
            return {name: self._redacted_value(inner) for name, inner in value.items()}
        return [self._redacted_value(inner) for inner in value] if isinstance(value, list) else value


def command_function(name: str, server: str, one: ForeignTool, *, withheld: str = "") -> Callable[..., Any]:
    """Return a declared function that calls the tool, for `Registry.add`.

    Raises:
        BadSetting: the tool can't be offered, because of its schema.
    """
    declared = one.declared
    check_input_schema(f"server {server!r}: tool {declared.name!r}", declared.input_schema)

    async def called(arguments: dict[str, Any], call: Call) -> Blocks:
        return await one.call(arguments, call)

    description = (declared.description or "").strip()[:MAX_DESCRIPTION]
    called.__name__ = called.__qualname__ = name
    called.__module__ = f"server {server!r}"
    called.__doc__ = description or f"The tool {declared.name!r} of the server {server!r}."
    # Hints of the server are no grounds: every tool may change anything, here and elsewhere.
    title = declared.title or (declared.annotations.title if declared.annotations else None) or ""
    effect = tool(Effect.CHANGE, open_world=True, long_running=True, title=title, profiles=("dev", "ci"))
    function: Callable[..., Any] = effect(foreign(declared.input_schema, withheld=withheld)(called))
    return function


def content_of(block: types.ContentBlock) -> Content:
    """Return a content block as content of ours."""
    if isinstance(block, types.TextContent):
        return Text(block.text)
    if isinstance(block, types.ResourceLink):
        return Link(str(block.uri), block.name, block.description or "", block.mime_type or "text/plain")
    try:
        if isinstance(block, types.EmbeddedResource):
            return embedded(block.resource)
        kind = Image if isinstance(block, types.ImageContent) else Audio
        return kind(base64.b64decode(block.data, validate=True), block.mime_type)
    except (binascii.Error, ValueError):
        return Text("[content that is no base64]")


def embedded(resource: types.TextResourceContents | types.BlobResourceContents) -> Embedded:
    """Return the content of a resource.

    Raises:
        ValueError: it is no base64.
    """
    if isinstance(resource, types.TextResourceContents):
        return Embedded(str(resource.uri), resource.text, resource.mime_type or "text/plain")
    data = base64.b64decode(resource.blob, validate=True)
    return Embedded(str(resource.uri), data, resource.mime_type or "application/octet-stream")


def _text(block: Content) -> str | None:
    """Return the text that counts for the size of an answer; None for binary content."""
    match block:
        case Text(text):
            return text
        case Embedded(_, str(text)):
            return text
        case Link(uri, name, description):
            return uri + name + description
    return None


def _cut(text: str, budget: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= budget:
        return text
    head = data[:budget].decode("utf-8", "ignore")
    return f"{head}\n[... {len(data) - budget} bytes left out; the limit is answer_bytes]"


def _size(block: Content) -> int:
    match block:
        case Image(data) | Audio(data):
            return len(data)
        case Embedded(_, content):
            return len(content)
    return 0
