"""A `coretools-http` with tokens, for clients written by others: what it serves, and their configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.conftest import cloned
from tests.web.http_server_peer import HttpServer, http_server

PRINCIPAL = "ann"

GATED = "tests.web.gated_commands:COMMANDS"
"""Beside our own tools: calls that the test holds, and one that asks."""


@dataclass(frozen=True)
class Service:
    """One that listens."""

    server: HttpServer
    clone: Path
    token: str

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def headers(self) -> dict[str, str]:
        """What a client is configured to send."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def callers(self) -> set[str]:
        """Who called, as the log has it."""
        return {line["principal"] for line in self.server.lines if line["logger"] == "coretools.calls"}

    @property
    def eras(self) -> list[str]:
        """Of each request that was answered."""
        return [line["era"] for line in self.server.lines if line["logger"] == "coretools.requests"]


@contextmanager
def service(folder: Path, token: str, tokens: Path) -> Iterator[Service]:
    """A server of a clone; holders of the token may call."""
    clone = cloned(folder)
    environment = {"CORETOOLS_HTTP_AUTH__TOKENS": str(tokens)}
    words = ("--root", clone, "--with", GATED, "--log-level", "debug")
    with http_server(folder, *words, environment=environment) as server:
        yield Service(server, clone, token)
