"""The least that a server on the SDK is: its high-level server with one tool, on its own stdio transport."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bare", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Say the text again."""
    return text


if __name__ == "__main__":
    server.run()
