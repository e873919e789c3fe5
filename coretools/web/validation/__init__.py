"""Checks on a request before it is served: host, origin, headers, body, rate."""
