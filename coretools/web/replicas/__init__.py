"""State that sessions and limits need: in memory, or in Redis for several replicas."""
