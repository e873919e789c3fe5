"""Tools that reach other repositories: fetch, pull, push, clone, and the list of remotes."""
