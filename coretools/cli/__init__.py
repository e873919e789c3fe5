"""The `coretools` command: tools from a shell, the interactive prompt, completion, doctor, tokens."""
