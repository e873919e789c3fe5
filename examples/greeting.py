"""A server with a command of your own: a function with types and a docstring is all it takes."""

from coretools import App, Effect

app = App("greeting")


@app.tool(Effect.READ)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody, as often as you like."""
    return "\n".join([f"Hello, {name}!"] * times)


if __name__ == "__main__":
    raise SystemExit(app.stdio())
