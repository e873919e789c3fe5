"""Read, write and edit files; list, make, move and delete."""
