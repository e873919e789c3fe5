"""`coretools mcp resources`, `read`, `prompts` and `prompt`: what servers offer besides tools."""

import base64
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Any

import mcp_types as types

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, connected, from_each
from coretools.cli.mcp.output import as_json, block_text, in_line, table, visible
from coretools.client.connection.server_connection import Connection
from coretools.errors import InvalidArguments, NotFound


async def list_resources(line: Line) -> int:
    """Print the resources and templates of one server or of all."""
    lists = await from_each(line, Connection.resources)
    rows = [(name, _address(one), one.description or one.name) for name, listed in lists.items() for one in listed]
    return _print_list(line, lists, [("SERVER", "URI", "DESCRIPTION"), *rows])


async def list_prompts(line: Line) -> int:
    """Print the prompts of one server or of all, with their arguments."""
    lists = await from_each(line, Connection.prompts)
    rows = [
        (name, one.name, " ".join(_argument(argument) for argument in one.arguments or ()), one.description or "")
        for name, listed in lists.items()
        for one in listed
    ]
    return _print_list(line, lists, [("SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"), *rows])


async def read(line: Line) -> int:
    """Print a resource; one with binary content goes to a pipe as it is."""
    async with _one(line) as connection:
        result = await connection.read(line.options.words[1])
    if line.options.as_json:
        return print_text(_json(result))
    only = result.contents[0] if len(result.contents) == 1 else None
    if isinstance(only, types.BlobResourceContents) and not line.terminal.is_stdout_terminal:
        sys.stdout.buffer.write(base64.b64decode(only.blob))
        sys.stdout.buffer.flush()
        return 0
    texts = [_content_text(one) for one in result.contents]
    return print_text(visible("\n".join(texts))) if texts else 0


async def prompt(line: Line) -> int:
    """Print the messages of a prompt."""
    _, name, *given = line.options.words
    arguments = _arguments(given)
    async with _one(line) as connection:
        declared = _find_prompt(connection.name, name, await connection.prompts())
        needed = [one.name for one in declared.arguments or () if one.required and one.name not in arguments]
        if needed:
            raise InvalidArguments(f"prompt {name!r}: missing: {', '.join(needed)}")
        result = await connection.prompt(name, arguments)
    if line.options.as_json:
        return print_text(_json(result))
    return print_text(visible("\n\n".join(f"{one.role}: {block_text(one.content)}" for one in result.messages)))


async def complete(line: Line) -> int:
    """Print how the server would complete the value of an argument, one value on each line."""
    _, kind, name, argument, value = (*line.options.words, "")[:5]
    if kind not in ("prompt", "resource"):
        raise InvalidArguments(f"{kind[:80]!r}: write prompt or resource")
    reference: types.PromptReference | types.ResourceTemplateReference = (
        types.PromptReference(type="ref/prompt", name=name)
        if kind == "prompt"
        else types.ResourceTemplateReference(type="ref/resource", uri=name)
    )
    async with _one(line) as connection:
        completion = await connection.complete(reference, argument, value)
    if line.options.as_json:
        return print_text(_json(completion))
    if completion.has_more:
        print_error(f"{len(completion.values)} of {completion.total or 'more'} values")
    return print_text("\n".join(map(in_line, completion.values))) if completion.values else 0


@asynccontextmanager
async def _one(line: Line) -> AsyncIterator[Connection]:
    """Connect to the server that the first word names."""
    entry = line.startable(line.options.words[0])
    async with connected(line, [entry]) as connections:
        await connections[entry.name].wait_settled()
        yield connections[entry.name]


def _arguments(words: Sequence[str]) -> dict[str, str]:
    arguments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidArguments(f"{word[:80]!r}: write name=value")
        arguments[name] = value
    return arguments


def _find_prompt(server: str, name: str, prompts: Sequence[types.Prompt]) -> types.Prompt:
    for one in prompts:
        if one.name == name:
            return one
    near = get_close_matches(name, [one.name for one in prompts], n=1)
    raise NotFound(f"server {server!r} has no prompt {name!r}" + (f"; did you mean {near[0]}?" if near else ""))


def _address(resource: types.Resource | types.ResourceTemplate) -> str:
    return resource.uri_template if isinstance(resource, types.ResourceTemplate) else str(resource.uri)


def _content_text(content: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(content, types.TextResourceContents):
        return content.text
    return f"[{content.mime_type}, {len(content.blob) * 3 // 4} bytes]"


def _argument(argument: types.PromptArgument) -> str:
    return argument.name if argument.required else f"[{argument.name}]"


def _print_list(line: Line, lists: dict[str, list[Any]], rows: list[tuple[str, ...]]) -> int:
    if line.options.as_json:
        shapes = {
            name: [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in listed]
            for name, listed in lists.items()
        }
        return print_text(as_json(shapes))
    return print_text(table(rows, line.width)) if len(rows) > 1 else 0


def _json(result: Any) -> str:
    return json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True), ensure_ascii=True, indent=2)
