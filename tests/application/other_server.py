"""A server of others, made with the SDK: `python other_server.py` serves it over stdio. Its calls change it."""

import os
import sys
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("other", instructions="Be kind.")
begun: list[str] = []


class Sum(BaseModel):
    value: int


class Person(BaseModel):
    name: str
    age: int = 30


@server.tool(title="Add", annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))
async def add(a: int, b: int, ctx: Context) -> Sum:
    """Add two numbers."""
    await ctx.report_progress(1, 2, "half")
    return Sum(value=a + b)


@server.tool(annotations=ToolAnnotations(destructiveHint=False, idempotentHint=True))
async def meet(ctx: Context) -> str:
    """Ask in the middle."""
    begun.append("meet")
    answer = await ctx.elicit("Who?", schema=Person)
    return f"{answer.action} {getattr(answer, 'data', None)} begun {len(begun)}"


async def who() -> Elicit[Person]:
    return Elicit("Who is it?", Person)


@server.tool()
async def welcome(person: Annotated[Person, Resolve(who)]) -> str:
    """Ask before."""
    return f"welcome {person.name}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("out of paper")


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
async def learn(ctx: Context) -> str:
    """Get a new tool."""
    server.add_tool(lambda: "learned", name="learned", description="New.")
    await ctx.session.send_tool_list_changed()
    return "done"


@server.prompt()
def add_up(numbers: str) -> str:
    """Ask a model for a sum."""
    return f"Add {numbers}."


@server.resource("other://fixed", mime_type="text/markdown")
def fixed() -> str:
    """The same text."""
    return "# fixed"


@server.resource("other://of/{name}")
def of(name: str) -> str:
    """The text of a name."""
    return f"of {name}"


if __name__ == "__main__":
    print("a line that is no message", file=sys.stderr)
    server.run()
