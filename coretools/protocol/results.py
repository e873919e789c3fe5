"""Convert what commands return into content of the protocol: text once, structured content only where declared."""

import base64
import json
import uuid
from typing import Any

import mcp_types as types

from coretools.operations.content import Audio, Content, Embedded, Image, Link, Message, Text, escape_surrogates
from coretools.operations.dispatch import Outcome

ResourceContents = types.TextResourceContents | types.BlobResourceContents

STRUCTURED_SINCE = "2025-06-18"
"""First revision with structured content, output schemas and titles."""

ERROR_KEY = "coretools/error"
"""Key in `_meta` of a failed result: the kind of the error, for programs."""

FACTS_KEY = "coretools/facts"
"""Key in `_meta` of a result: small values for programs, such as an exit code."""

FAILED_KEY = "coretools/failed"
"""Key in `_meta`, true when the call succeeded but what it ran failed (a test, a command)."""


def as_result(outcome: Outcome, revision: str = STRUCTURED_SINCE) -> types.CallToolResult:
    """Return an outcome as a tool result, in the form of a protocol revision."""
    meta: dict[str, Any] = {}
    if outcome.facts:
        meta[FACTS_KEY] = escape_surrogates(outcome.facts)
    if outcome.failed:
        meta[FAILED_KEY] = True
    if outcome.error is not None:
        meta[ERROR_KEY] = outcome.error.kind
    return types.CallToolResult(
        content=[as_block(part) for part in _parts(outcome)],
        structured_content=escape_surrogates(outcome.data) if revision >= STRUCTURED_SINCE else None,
        is_error=outcome.error is not None,
        _meta=meta or None,
    )


def _parts(outcome: Outcome) -> tuple[Content, ...]:
    """Return the content of a result. Structured content always has a text form, for clients that read only text."""
    parts = outcome.content or (Text(outcome.text),)
    if outcome.data is None or any(isinstance(part, Text) and part.text.strip() for part in parts):
        return parts
    if outcome.data.get("result") == outcome.text:  # an empty string is the result itself
        return parts
    return (*outcome.content, Text(json.dumps(outcome.data, ensure_ascii=False)))


def as_contents(outcome: Outcome, uri: str, mime_type: str) -> list[ResourceContents]:
    """Return an outcome as resource contents: its text, or the bytes that the command returned."""
    if not outcome.content:
        return [types.TextResourceContents(uri=uri, mime_type=mime_type, text=escape_surrogates(outcome.text))]
    return [_contents(part, uri, mime_type) for part in outcome.content]


def as_messages(outcome: Outcome) -> list[types.PromptMessage]:
    """Return an outcome as prompt messages: those that the command returned, or its text as a user message."""
    messages = outcome.messages or tuple(map(Message, outcome.content)) or (Message(Text(outcome.text)),)
    return [types.PromptMessage(role=message.role, content=as_block(message.content)) for message in messages]


def as_block(content: Content) -> types.ContentBlock:
    """Return one piece of content as a content block."""
    match content:
        case Text(text):
            return types.TextContent(type="text", text=escape_surrogates(text))
        case Image(data, mime_type):
            return types.ImageContent(type="image", data=_encoded(data), mime_type=mime_type)
        case Audio(data, mime_type):
            return types.AudioContent(type="audio", data=_encoded(data), mime_type=mime_type)
        case Embedded(uri, data, mime_type):
            return types.EmbeddedResource(type="resource", resource=_contents(content, uri or _urn(data), mime_type))
        case Link(uri, name, description, mime_type):
            return types.ResourceLink(
                type="resource_link", uri=uri, name=name, description=description or None, mime_type=mime_type
            )


def _contents(content: Content, uri: str, mime_type: str) -> ResourceContents:
    match content:
        case Embedded(own, data, own_type):
            if isinstance(data, bytes):
                return types.BlobResourceContents(uri=own or uri, mime_type=own_type, blob=_encoded(data))
            return types.TextResourceContents(uri=own or uri, mime_type=own_type, text=escape_surrogates(data))
        case Image(data, own_type) | Audio(data, own_type):
            return types.BlobResourceContents(uri=uri, mime_type=own_type, blob=_encoded(data))
        case Link(target):
            return types.TextResourceContents(uri=uri, mime_type=mime_type, text=escape_surrogates(target))
        case Text(text):
            return types.TextResourceContents(uri=uri, mime_type=mime_type, text=escape_surrogates(text))


def _urn(data: str | bytes) -> str:
    """Return a URI for content that has none: clients refuse an empty one. The same content has the same."""
    text = data if isinstance(data, str) else data.hex()
    return uuid.uuid5(uuid.NAMESPACE_OID, text).urn


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
