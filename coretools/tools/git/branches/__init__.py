"""Branches and tags: list, switch, create, rename, delete."""
