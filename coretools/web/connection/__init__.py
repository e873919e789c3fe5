"""Connections below HTTP: deadlines, slots, TLS, buffers, drain."""
