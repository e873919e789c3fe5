"""MCP in both eras: server, listing, notifications, questions, tasks."""
