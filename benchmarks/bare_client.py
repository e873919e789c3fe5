"""The smallest client on the SDK: starts the server of its arguments, lists its tools, calls `echo`."""

import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent


async def main() -> None:
    """Call once."""
    program, *words = sys.argv[1:]
    async with Client(stdio_client(StdioServerParameters(command=program, args=words))) as client:
        await client.list_tools()  # what a result may be is in the tool's declaration
        result = await client.call_tool("echo", {"text": "hello"})
    [content] = result.content
    if isinstance(content, TextContent):
        print(content.text)


if __name__ == "__main__":
    anyio.run(main)
