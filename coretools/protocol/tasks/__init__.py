"""The tasks extension: calls that a client collects later."""
