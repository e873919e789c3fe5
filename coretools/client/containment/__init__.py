"""How local servers run: with the user's rights, or confined like a command."""
