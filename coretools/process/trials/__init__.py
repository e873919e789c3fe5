"""Commands on trial: what one would change, and keeping or discarding it."""
