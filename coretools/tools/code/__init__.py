"""The code tools: symbols of source files."""
