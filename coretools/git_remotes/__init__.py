"""Connections to remote git repositories: the server makes them, and git gets one end of a socket pair."""
