"""The servers that are configured: files of known clients, their keys, and what is started or reached."""
