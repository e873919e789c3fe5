"""Wiring: build roots, runner, tools and server from the settings."""
