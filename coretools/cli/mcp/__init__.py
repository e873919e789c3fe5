"""`coretools mcp` and `coretools run`: the client on the command line."""
