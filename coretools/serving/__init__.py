"""Declarations become an MCP server; the only place that knows both."""
