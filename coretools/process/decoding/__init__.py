"""Decode pictures and documents in a process that the kernel confines."""
