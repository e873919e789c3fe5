"""The tool sets: filesystem, search, repository, ci."""
