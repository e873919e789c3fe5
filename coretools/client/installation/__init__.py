"""`coretools install`: an entry for our own server in the configuration files of other clients, written as text."""
