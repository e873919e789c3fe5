claude mcp add coretools -- /home/you/.coretools/bin/coretools-workstation /path/to/project
