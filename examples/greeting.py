"""A server of one's own commands: a function, its types and its docstring are all there is to say."""

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
