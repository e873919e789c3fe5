"""Example servers with their own commands. Each file is a program; the tests run it."""
