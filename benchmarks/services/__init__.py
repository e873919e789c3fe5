"""Replicas and their store, killed in the middle of many queued messages."""
