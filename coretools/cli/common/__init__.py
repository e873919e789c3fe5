"""What every command uses: the terminal, options, routes, arguments and help."""
