"""Calls of tools in scripts and pipelines: steps, assertions, reports, recordings."""
