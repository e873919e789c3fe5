"""The background process that keeps servers connected, and its use by a line."""
