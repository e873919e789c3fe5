"""Linked work trees, and the extent of a work tree."""
