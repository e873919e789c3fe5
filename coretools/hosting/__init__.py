"""Serve your own registry: over stdio, over any pair of streams, or as an ASGI application."""
