"""MCP servers for both protocol eras: server, listing, notifications, questions, tasks."""
