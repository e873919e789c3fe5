"""Language servers: found, run in a sandbox of their own, asked, and ended."""
