"""Servers of commands that are not coretools' own; each file runs as it stands, and the tests run it."""
