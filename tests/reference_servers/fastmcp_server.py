"""A server on FastMCP, run by the environment of the reference servers: over stdio, or over HTTP with `http`."""

import sys

from fastmcp import Context, FastMCP

server: FastMCP = FastMCP("guests")


@server.tool
async def greet(name: str, context: Context, times: int = 1) -> dict[str, list[str]]:
    """Greet a guest, several times on request."""
    for number in range(times):
        await context.report_progress(number + 1, times)
    return {"greetings": [f"Hello, {name}"] * times}


@server.resource("guests://{name}")
def guest(name: str) -> str:
    """Return what is known about a guest."""
    return f"{name} likes tea"


@server.prompt
def invite(name: str) -> str:
    """Invite a guest."""
    return f"Write an invitation for {name}"


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        server.run(transport="http", host="127.0.0.1", port=0, show_banner=False)
    else:
        server.run(show_banner=False)
