"""Commands are judged by their argv: what a command line starts, and what the operator's rules say of it. Pure."""
