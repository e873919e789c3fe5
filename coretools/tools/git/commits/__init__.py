"""The index and commits: stage, commit, restore, reset."""
