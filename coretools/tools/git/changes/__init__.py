"""Changes: staging, commits, branches, the work tree, and operations that combine branches."""
