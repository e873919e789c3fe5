"""A server with a command of your own: a function with types and a docstring is all it takes."""

from coretools.hosting.serve import serve_stdio
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry

registry = Registry()


@registry.tool(Effect.READ)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody, as often as you like."""
    return "\n".join([f"Hello, {name}!"] * times)


if __name__ == "__main__":
    raise SystemExit(serve_stdio(registry))
