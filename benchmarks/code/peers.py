"""Code tools of several MCP servers side by side, in one run, each with a clone of its own.

    python -m benchmarks.code.peers CHECKOUT --path lib/pkg/module.py --symbols Class,other,third [--rounds 3]

CHECKOUT is a git clone of a Python or TypeScript project. Language servers and peers are looked for on PATH: `pip
install serena-agent` and `pip install agent-lsp` in a venv each, `npm install cclsp pyright typescript@5
typescript-language-server`. Serena starts what `ls_specific_settings` in its serena_config.yml names as `ls_path`, or
else fetches its own. A peer that is not there is left out by name. The servers take turns in an order that changes with
each round. In each round a server gets a fresh clone, is asked, and is killed:

- first: seconds from its start to the answer to the first question for references; lines: how many it named;
- warm: milliseconds of further questions for references, a definition, and the symbols of a file;
- memory: the proportional share (PSS) of the server and all its descendants, in megabytes;
- checkout, edit, deletion: whether the references of a planted function are right in the first answer after another
  program checked out another branch, wrote a file, and deleted one;
- orphans: descendants that live 5 s after kill -9 of the server; they are ended.

The first round fills the caches of the disk and is not counted.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.code.planted import Place, changes, plant
from benchmarks.code.processes import is_alive, pss
from benchmarks.failure import NotMeasured
from benchmarks.stdio_client import Era, Peer
from coretools.process.fork_server.descendants import descendants

ORPHAN_SECONDS = 5.0
"""From the kill to the count."""

WARM = 15
"""Warm questions of each kind."""

Request = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Contender:
    """A server, and how its tools are asked."""

    name: str
    argv: Callable[[Path], Sequence[str]]
    """Its command line for a checkout, in which it is started."""
    references: Callable[[Path, str, str, Place], Request]
    """Takes checkout, file, name, and where the name is defined: line and, in place of a path, column from 1."""
    definition: Callable[[Path, str, str, Place], Request]
    outline: Callable[[Path, str], Request]
    places: Callable[[dict[str, Any], Path], set[Place]]
    """The places in an answer."""
    prepare: Callable[[Path], Sequence[Request]] = lambda _: ()
    """Calls before the first question."""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Figures:
    """What one server did in one round."""

    first: float = 0.0
    lines: int = 0
    references: list[float] = field(default_factory=list)
    definition: list[float] = field(default_factory=list)
    outline: list[float] = field(default_factory=list)
    answer_bytes: int = 0
    tools: int = 0
    tools_bytes: int = 0
    megabytes: float = 0.0
    right: dict[str, str] = field(default_factory=dict)
    orphans: int = 0


def text_of(result: Mapping[str, Any]) -> str:
    """The text of an answer."""
    return "\n".join(item.get("text", "") for item in result.get("content", ()))


def listed_places(result: dict[str, Any], top: Path) -> set[Place]:
    """`path:line:column` lines, and those of agent-lsp: `column|line|path|column|line`."""
    found = set[Place]()
    for line in text_of(result).splitlines():
        match = re.fullmatch(r"(?:\d+\|\d+\|)?(/.+?)(?::|\|\d+\|)(\d+)(?::\d+)?", line.strip())
        if match:
            found.add((os.path.relpath(match[1], top), int(match[2])))
    return found


def our_places(result: dict[str, Any], top: Path) -> set[Place]:
    """Ours: a path, and beneath it `line in SYMBOL: text`."""
    del top
    found, path = set[Place](), ""
    for line in text_of(result).splitlines():
        if match := re.match(r"(\d+)(?: in \S+| definition of \S+)?: ", line):
            found.add((path, int(match[1])))
        elif not line.startswith("["):
            path = line
    return found


def serena_places(result: dict[str, Any], top: Path) -> set[Place]:
    """Serena's: by file and kind, each with lines from 0, the one meant behind `>`."""
    del top
    try:
        answer = json.loads(text_of(result))
    except ValueError:
        return set()
    found = set[Place]()
    for path, kinds in answer.items() if isinstance(answer, dict) else ():
        for symbols in kinds.values() if isinstance(kinds, dict) else ():
            for symbol in symbols if isinstance(symbols, list) else ():
                around = symbol.get("content_around_reference", "") if isinstance(symbol, dict) else ""
                found |= {(path, int(number) + 1) for number in re.findall(r"(?m)^\s*>\s*(\d+):", around)}
    return found


def at(top: Path, path: str, place: Place) -> dict[str, Any]:
    return {"file_path": str(top / path), "line": place[1], "column": int(place[0])}


def contenders(language: str) -> list[Contender]:
    """The servers; those that are to be told their language server get the one that ours finds."""
    server = {"Python": ("ty", "server"), "TypeScript": ("typescript-language-server", "--stdio")}[language]
    program = [shutil.which(server[0]) or server[0], *server[1:]]
    endings = {"Python": ["py", "pyi"], "TypeScript": ["ts", "tsx", "js"]}[language]
    cclsp = Path(tempfile.gettempdir()) / f"benchmarks-cclsp-{language}.json"
    cclsp.write_text(json.dumps({"servers": [{"extensions": endings, "command": program, "rootDir": "."}]}))

    def serena(name: str, kind: str) -> Contender:
        return Contender(
            name=name,
            argv=lambda top: [
                *("serena", "start-mcp-server", "--agent-interface", "tools", "--context", "claude-code"),
                *("--enable-web-dashboard", "false", "--project", str(_serena_project(top, kind))),
            ],
            references=lambda _, path, name, __: (
                "find_referencing_symbols",
                {"name_path": name, "relative_path": path},
            ),
            definition=lambda _, path, name, __: (
                "find_symbol",
                {"name_path_pattern": name, "relative_path": path, "include_body": True},
            ),
            outline=lambda _, path: ("get_symbols_overview", {"relative_path": path}),
            places=serena_places,
            variables={"SERENA_USAGE_REPORTING": "false"},
        )

    return [
        Contender(
            name="coretools",
            argv=lambda top: ["coretools-workstation", str(top)],
            references=lambda _, path, name, __: ("code_references", {"path": path, "symbol": name}),
            definition=lambda _, path, name, place: ("code_symbols", {"path": path, "name": name, "line": place[1]}),
            outline=lambda _, path: ("code_symbols", {"path": path}),
            places=our_places,
        ),
        *([serena("Serena, ty", "python_ty"), serena("Serena, pyright", "python")] if language == "Python" else []),
        *([serena("Serena", "typescript")] if language == "TypeScript" else []),
        Contender(
            name="agent-lsp",
            argv=lambda _: ["agent-lsp", ":".join((language.lower(), ",".join(program)))],
            prepare=lambda top: [("start_lsp", {"root_dir": str(top)})],
            references=lambda top, path, _, place: (
                "find_references",
                {**at(top, path, place), "include_declaration": True},
            ),
            definition=lambda top, path, _, place: ("get_symbol_source", at(top, path, place)),
            outline=lambda top, path: ("list_symbols", {"file_path": str(top / path)}),
            places=listed_places,
        ),
        Contender(
            name="cclsp",
            argv=lambda _: ["cclsp"],
            references=lambda _, path, name, __: ("find_references", {"file_path": path, "symbol_name": name}),
            definition=lambda _, path, name, __: ("find_definition", {"file_path": path, "symbol_name": name}),
            outline=lambda _, path: ("find_workspace_symbols", {"query": Path(path).stem}),  # it has none of a file
            places=listed_places,
            variables={"CCLSP_CONFIG_PATH": str(cclsp)},
        ),
    ]


def _serena_project(top: Path, kind: str) -> Path:
    settings = top / ".serena" / "project.yml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"project_name: {top.name}\nlanguage_servers:\n- {kind}\nencoding: utf-8\nignored_paths: []\n")
    return top


def where_defined(top: Path, path: str, name: str) -> Place:
    """The column, as a string, and the line at which a file defines a name."""
    pattern = re.compile(
        rf"^\s*(?:export\s+)?(?:abstract\s+|async\s+|default\s+)*(?:class|def|function\*?)\s+({re.escape(name)})\b"
    )
    for number, line in enumerate((top / path).read_text().splitlines(), 1):
        if match := pattern.search(line):
            return str(match.start(1) + 1), number
    raise SystemExit(f"{path} defines no {name}")


def measure(contender: Contender, top: Path, path: str, names: Sequence[str], language: str) -> Figures:
    """Start a server, ask it, change its files, and kill it."""
    planted = plant(top, language, str(Path(path).parent))
    figures = Figures()
    asked = [(path, name, where_defined(top, path, name)) for name in names]
    variables = [f"{name}={value}" for name, value in contender.variables.items()]
    program = ["env", "-u", "PYTHONPATH", "-C", str(top), *variables, *contender.argv(top)]
    began = time.perf_counter()
    peer = Peer(program[1:], Era.HANDSHAKE, bytecode="", program=program[:1])
    children: list[int] = []
    try:
        peer.open()
        for tool, arguments in contender.prepare(top):
            peer.ask("tools/call", {"name": tool, "arguments": arguments})
        result = _ask(peer, contender.references(top, *asked[0]))
        figures.first = time.perf_counter() - began
        figures.lines = len(contender.places(result, top))
        tools = peer.ask("tools/list", {})["tools"]
        figures.tools, figures.tools_bytes = len(tools), len(json.dumps(tools, separators=(",", ":")).encode())
        for number in range(WARM):
            one = asked[number % len(asked)]
            result, seconds = _timed(peer, contender.references(top, *one))
            figures.references.append(seconds)
            figures.answer_bytes += len(text_of(result).encode())
            figures.definition.append(_timed(peer, contender.definition(top, *one))[1])
            figures.outline.append(_timed(peer, contender.outline(top, path))[1])
        for question, change in changes(top, planted, language):
            change()
            place = where_defined(top, planted.path, planted.name)
            found = contender.places(_ask(peer, contender.references(top, planted.path, planted.name, place)), top)
            figures.right[question] = verdict(found, planted.after[question], (planted.path, place[1]))
        children = list(descendants(peer.pid))
        figures.megabytes = sum(map(pss, [peer.pid, *children])) / 1e6
        os.kill(peer.pid, 9)
        time.sleep(ORPHAN_SECONDS)
        figures.orphans = sum(is_alive(child) for child in children)
    finally:
        children = children or list(descendants(peer.pid))
        for pid in [peer.pid, *children]:
            if is_alive(pid):
                os.kill(pid, 9)
        peer.close()
    return figures


def verdict(found: set[Place], wanted: set[Place], definition: Place) -> str:
    """`right`, or what is missing and what is wrong; whether the definition itself is named does not matter."""
    missing, wrong = wanted - found - {definition}, found - wanted
    return "right" if not missing and not wrong else f"{len(missing)} missing, {len(wrong)} wrong"


def _ask(peer: Peer, request: Request) -> dict[str, Any]:
    return peer.ask("tools/call", {"name": request[0], "arguments": request[1]})


def _timed(peer: Peer, request: Request) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    result = _ask(peer, request)
    return result, 1000 * (time.perf_counter() - began)


def report(name: str, rounds: Sequence[Figures]) -> None:
    """Print one row: medians, with the minima in parentheses."""

    def both(values: Iterable[float], form: str) -> str:
        kept = list(values)
        return f"{format(statistics.median(kept), form)} ({format(min(kept), form)})"

    warm = {
        kind: [one for figures in rounds for one in getattr(figures, kind)]
        for kind in ("references", "definition", "outline")
    }
    right = {question: sorted({figures.right.get(question, "?") for figures in rounds}) for question in rounds[0].right}
    print(
        f"| {name} | {both((one.first for one in rounds), '.2f')} | {sorted({one.lines for one in rounds})} |"
        f" {both(warm['references'], '.0f')} | {both(warm['definition'], '.0f')} | {both(warm['outline'], '.0f')} |"
        f" {both((one.megabytes for one in rounds), '.0f')} | {rounds[0].tools}, {rounds[0].tools_bytes} |"
        f" {rounds[0].answer_bytes // WARM} | {max(one.orphans for one in rounds)} |"
        f" {'; '.join(f'{question}: ' + ' / '.join(answers) for question, answers in right.items())} |",
        flush=True,
    )


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--path", required=True, help="source file in a package; its symbols are looked up")
    parser.add_argument("--symbols", required=True, help="names of classes and functions at its top, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    language = "Python" if options.path.endswith(".py") else "TypeScript"
    servers = [one for one in contenders(language) if options.only in one.name]
    installed = [one for one in servers if shutil.which(one.argv(Path(tempfile.mkdtemp()))[0])]
    for one in servers:
        if one not in installed:
            print(f"not installed: {one.name}")
    rounds: dict[str, list[Figures]] = {one.name: [] for one in installed}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        for number in range(options.rounds + 1):
            for one in installed[number % len(installed) :] + installed[: number % len(installed)]:
                top = Path(scratch) / f"{one.name.replace(', ', '-')}-{number}"
                subprocess.run(
                    ["git", "clone", "-q", "--shared", str(options.checkout.resolve()), str(top)], check=True
                )
                try:
                    figures = measure(one, top, options.path, options.symbols.split(","), language)
                except NotMeasured as error:
                    print(f"{one.name}: {error}")
                    continue
                if number:
                    rounds[one.name].append(figures)
                shutil.rmtree(top, ignore_errors=True)
    print(
        "| server | first, s | lines | references, ms | definition, ms | symbols, ms | PSS, MB | tools, bytes |"
        " bytes of an answer | orphans | right |\n" + "|---" * 11 + "|"
    )
    for name, figures in rounds.items():
        if figures:
            report(name, figures)


if __name__ == "__main__":
    main()
