"""The smallest server on the SDK: its high-level server with one tool, on its own stdio transport."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bare", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    server.run()
