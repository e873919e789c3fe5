"""Authentication of HTTP requests: token files, JWT, and what may listen without them."""
