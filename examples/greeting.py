"""A server of one's own commands: a function, its types and its docstring are all there is to say."""

from coretools.declare import Effect
from coretools.registry import Registry
from coretools.serving.serve import serve_stdio

registry = Registry()


@registry.tool(Effect.READ)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody, as often as you like."""
    return "\n".join([f"Hello, {name}!"] * times)


if __name__ == "__main__":
    raise SystemExit(serve_stdio(registry))
