"""A `coretools-http` with tokens for third-party clients, and their configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.conftest import cloned
from tests.web.http_server_peer import HttpServer, http_server

PRINCIPAL = "ann"

GATED = "tests.web.gated_commands:COMMANDS"
"""Served beside our own tools: calls that the test controls, and one that asks."""


@dataclass(frozen=True)
class Service:
    """A running server."""

    server: HttpServer
    clone: Path
    token: str

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def headers(self) -> dict[str, str]:
        """The headers that a client is configured to send."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def callers(self) -> set[str]:
        """The principals of all calls in the log."""
        return {line["principal"] for line in self.server.lines if line["logger"] == "coretools.calls"}

    @property
    def eras(self) -> list[str]:
        """The era of each answered request."""
        return [line["era"] for line in self.server.lines if line["logger"] == "coretools.requests"]


@contextmanager
def service(folder: Path, token: str, tokens: Path) -> Iterator[Service]:
    """A server of a clone; token holders may call."""
    clone = cloned(folder)
    environment = {"CORETOOLS_HTTP_AUTH__TOKENS": str(tokens)}
    words = ("--root", clone, "--with", GATED, "--log-level", "debug")
    with http_server(folder, *words, environment=environment) as server:
        yield Service(server, clone, token)
