"""Child processes: how a command is started, confined, bounded and ended."""
