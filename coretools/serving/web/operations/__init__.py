"""What the operator sees of a running server."""
