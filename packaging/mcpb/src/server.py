"""Entry point of the MCPB bundle: the server over stdio, with the directories of the form as arguments."""

from coretools.servers.workstation import main

if __name__ == "__main__":
    main()
