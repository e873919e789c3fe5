"""The code tools as a client has them: `coretools serve` over stdio, and their answers read back."""

import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import stdio_client
from benchmarks.code.oracles import Line
from benchmarks.stdio_client import Era, Peer

stdio_client.ANSWER_MILLISECONDS = 300_000  # the first answer waits for the project to be read

_SHOWN = re.compile(r"(\d+)(?: definition| in [^:]+)?: ")
_DEFINITION = re.compile(r"([^\s\[][^\n]*?):(\d+)(?:-(\d+))? (?:[a-z]+) ([\w$.#]+)")


class Served:
    """A server of one checkout."""

    def __init__(self, top: Path) -> None:
        self.top = top
        words = ["coretools", "serve", "--own", "--log-level", "warning", "--root", str(top)]
        self._peer = Peer(words[1:], Era.HANDSHAKE, bytecode="", program=(f"{Path(sys.executable).parent}/{words[0]}",))
        self._peer.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._peer.close()

    def call(self, tool: str, **arguments: object) -> tuple[str, bool]:
        """Return the text of an answer, and whether it is an error."""
        result: dict[str, Any] = self._peer.ask("tools/call", {"name": tool, "arguments": arguments})
        return str(result["content"][0]["text"]), bool(result.get("isError"))

    def relative(self, path: str) -> str:
        """The path as the tools have it."""
        return str(Path(path).relative_to(self.top))

    def references(self, path: str, name: str, line: int) -> tuple[set[Line], str]:
        """Return the lines that mention a symbol, and the warning that they are not known, if so."""
        found, skip = set[Line](), 0
        while True:
            arguments: dict[str, object] = {"path": self.relative(path), "symbol": name, "line": line, "skip": skip}
            text, is_error = self.call("code_references", **arguments, limit=1_000)
            if is_error or text.startswith("[not known"):
                return found, text.split("\n")[0]
            at = ""
            for shown in text.split("\n"):
                if match := _SHOWN.match(shown):
                    found.add((at, int(match[1])))
                elif not shown.startswith("["):
                    at = str(self.top / shown)
            more = re.search(r"^\[.* skip=(\d+) goes on", text, re.MULTILINE)
            if more is None:
                return found, ""
            skip = int(more[1])

    def definitions(
        self, name: str, path: str = "", line: int | None = None
    ) -> tuple[list[tuple[str, int, int, str]], str]:
        """Return path, first and last line and name of the definitions shown, and the whole text."""
        arguments = {"name": name, "line": line} if line else {"name": name}
        text, _ = self.call("code_symbols", path=self.relative(path) if path else ".", **arguments)
        found = [_DEFINITION.fullmatch(one) for one in text.split("\n")]
        return [(str(self.top / m[1]), int(m[2]), int(m[3] or m[2]), m[4].split(".")[-1]) for m in found if m], text
