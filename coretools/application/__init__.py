"""One object for an application: its commands, and every way to run them."""
