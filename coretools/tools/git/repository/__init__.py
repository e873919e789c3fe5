"""One repository: found and examined, its configuration, git run in it, and what git printed."""
