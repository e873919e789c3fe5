"""A server of a hundred tools declared through our registry, an echo first: what dispatch and a long list cost."""

from typing import Annotated, Any

from pydantic import Field

from coretools.hosting.serve import ServeOptions, serve_stdio
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
from coretools.operations.server_info import ServerInfo

TOOLS = 100


def registry() -> Registry:
    """The echo, and others with as many arguments as tools have."""
    found = Registry()

    @found.tool(Effect.READ)
    async def echo(text: str) -> str:
        """Say the text again."""
        return text

    for number in range(1, TOOLS):
        found.tool(Effect.READ)(_another(number))
    return found


def _another(number: int) -> Any:
    async def tool(
        path: Annotated[str, Field(description="File to look at, relative to the root")],
        pattern: Annotated[str | None, Field(description="What to look for")] = None,
        limit: Annotated[int, Field(description="Most lines to return", gt=0)] = 100,
        whole: Annotated[bool, Field(description="Whether only whole words count")] = False,
    ) -> str:
        """Look at a file and return the lines in which something stands, with the number of each."""
        return f"{path} {pattern} {limit} {whole}"

    tool.__name__ = tool.__qualname__ = f"tool_{number}"
    return tool


if __name__ == "__main__":
    raise SystemExit(serve_stdio(registry(), options=ServeOptions(info=ServerInfo(name="hundred"))))
