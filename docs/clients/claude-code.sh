claude mcp add coretools -- /path/to/coretools/.venv/bin/coretools-workstation /path/to/project
