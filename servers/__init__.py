"""Thin entry points: read settings, build, serve."""
