"""What replicas of one server share: in the memory of the process, or in Redis."""
