"""coretools: filesystem, git and CI tools for agents and pipelines, behind one MCP server."""
