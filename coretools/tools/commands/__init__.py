"""Commands of the caller: run to their end, or kept running between calls."""
