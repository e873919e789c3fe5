"""The tools that show and take back changes."""
