"""Verdicts about a command line by the operator's policy."""
