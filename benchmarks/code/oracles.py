"""Who says what is right: TypeScript's compiler, or a second language server for Python. None of it is coretools'."""

import ast
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).parent

Line = tuple[str, int]
"""An absolute path, and a line from 1."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A declaration, or a mention."""

    kind: str
    name: str
    path: str
    """Absolute."""
    line: int
    """From 1."""
    column: int
    """From 0, in characters."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The answer for one position."""

    references: tuple[tuple[str, int, int], ...]
    definitions: tuple[tuple[str, int, int], ...]


class Oracle(Protocol):
    """Knows the symbols of a checkout."""

    def declarations(self) -> list[Symbol]:
        """Functions, methods, classes, types, and variables outside functions."""

    def ask(self, path: str, line: int, column: int) -> Truth:
        """References and definitions of what is at a place."""


class Compiler:
    """TypeScript's compiler, by its API."""

    def __init__(self, top: Path, config: Path, files: Sequence[Path]) -> None:
        package = next(one for one in (config.parent, *config.parents) if (one / "node_modules/typescript").is_dir())
        words = ["node", HERE / "compiler.mjs", package / "node_modules/typescript", top, config, *files]
        self._node = subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def declarations(self) -> list[Symbol]:
        assert self._node.stdout is not None
        found = [json.loads(line) for line in iter(self._node.stdout.readline, "\n")]
        return [Symbol(one["kind"], one["name"], *one["at"]) for one in found]

    def ask(self, path: str, line: int, column: int) -> Truth:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps([path, line, column]) + "\n")
        self._node.stdin.flush()
        answer = json.loads(self._node.stdout.readline())
        return Truth(tuple(map(tuple, answer["references"])), tuple(map(tuple, answer["definitions"])))


class PythonServer:
    """A language server for Python by LSP, and Python's own parser for the declarations."""

    def __init__(self, top: Path, argv: Sequence[str], files: Sequence[Path], interpreter: str) -> None:
        self._files = files
        self._settings = {"pythonPath": interpreter}
        self._server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1)
        self._id = 0
        folder = {"uri": top.as_uri(), "name": top.name}
        capabilities = {"workspace": {"configuration": True, "workspaceFolders": True}}
        start = {"processId": None, "rootUri": top.as_uri(), "workspaceFolders": [folder], "capabilities": capabilities}
        self._request("initialize", start)
        self._send({"method": "initialized", "params": {}})
        for path in files:
            text = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text("utf-8")}
            self._send({"method": "textDocument/didOpen", "params": {"textDocument": text}})

    def declarations(self) -> list[Symbol]:
        return python_declarations(self._files)

    def ask(self, path: str, line: int, column: int) -> Truth:
        at = {"textDocument": {"uri": Path(path).as_uri()}, "position": {"line": line - 1, "character": column}}
        references = self._request("textDocument/references", {**at, "context": {"includeDeclaration": True}})
        return Truth(self._places(references), self._places(self._request("textDocument/definition", at)))

    def _places(self, found: Sequence[dict[str, Any]] | None) -> tuple[tuple[str, int, int], ...]:
        known = {path.as_uri(): str(path) for path in self._files}
        starts = [(known.get(one["uri"]), one["range"]["start"]) for one in found or ()]
        return tuple((path, start["line"] + 1, start["character"]) for path, start in starts if path)

    def _request(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._id and "method" not in message:
                return message.get("result")
            if "id" in message:  # a question of the server: only one for settings has an answer
                items = message.get("params", {}).get("items", []) if "configuration" in message["method"] else None
                result = (
                    None
                    if items is None
                    else [self._settings if one.get("section") == "python" else {} for one in items]
                )
                self._send({"id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self._server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        length = 0
        while line := self._server.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return dict(json.loads(self._server.stdout.read(length)))


def python_declarations(files: Sequence[Path]) -> list[Symbol]:
    """What Python files declare outside functions."""
    return [symbol for path in files if path.suffix == ".py" for symbol in _declared(path)]


def _declared(path: Path) -> Iterator[Symbol]:
    lines = path.read_text("utf-8").split("\n")

    def visit(body: Sequence[ast.stmt], owner: str) -> Iterator[Symbol]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "class" if isinstance(node, ast.ClassDef) else "method" if owner == "class" else "function"
                column = lines[node.lineno - 1].index(node.name, node.col_offset + len("def "))
                yield Symbol(kind, node.name, str(path), node.lineno, column)
                if isinstance(node, ast.ClassDef):
                    yield from visit(node.body, "class")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        yield Symbol("variable", target.id, str(path), target.lineno, target.col_offset)
            else:
                for name in ("body", "orelse", "finalbody"):
                    yield from visit(getattr(node, name, []), owner)

    yield from visit(ast.parse("\n".join(lines)).body, "")
