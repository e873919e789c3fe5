"""Git for agents: status, history, commits, and what a repository may not do."""
