"""Serve a registry of your own: over stdio, or as an ASGI application."""
