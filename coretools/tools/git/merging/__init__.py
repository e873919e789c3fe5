"""Merge, rebase, cherry-pick, revert, their conflicts, and how each continues."""
