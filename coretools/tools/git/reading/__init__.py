"""Reads: history, differences, commits and files of a revision."""
