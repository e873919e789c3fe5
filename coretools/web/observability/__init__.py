"""Metrics, traces, access log, health and the console."""
