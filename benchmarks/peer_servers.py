"""Other MCP servers that ours are measured beside. They are optional, and installed in `benchmarks/peers`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.workspace import CHECKOUT

INSTALLED = CHECKOUT / "benchmarks" / "peers"

Call = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Server:
    """A server and its calls, by row."""

    name: str
    program: Sequence[str]
    calls: Mapping[str, Sequence[Call]] = field(default_factory=dict)


def is_installed(server: Server) -> bool:
    """Whether every absolute path of its command line exists, with the file that it starts."""
    return all(Path(word).exists() for word in server.program if word.startswith(("/usr", str(CHECKOUT))))
