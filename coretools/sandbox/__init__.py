"""What may be reached: roots held by handle, paths resolved beneath them, deny globs."""
