"""Sessions, batches, request ids and response formats of the MCP endpoint."""
