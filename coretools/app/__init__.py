"""The wiring: from settings to roots, runner, tools and server."""
