"""The HTTP server around one MCP endpoint: who may call, what holds strangers off, sessions, operations.

Imported by `coretools-http` and by `http_app` only; a server on stdio never loads it.
"""
