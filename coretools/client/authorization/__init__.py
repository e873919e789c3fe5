"""Credentials of remote servers by OAuth: logins, tokens and their store."""
