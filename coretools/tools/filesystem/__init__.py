"""Reading, writing and editing files."""
