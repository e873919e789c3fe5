"""Stashes."""
