"""The MCP client: configurations of servers, connections to them, trust and approval."""
