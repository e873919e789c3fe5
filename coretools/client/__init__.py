"""The other end: the coretools command."""
