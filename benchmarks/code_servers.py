"""Language servers compared: do two agree on the references of symbols, and what does each cost?

    python -m benchmarks.code_servers CHECKOUT --first ty --second pyrefly [--jedi PYTHON] [--symbols 100] [--under src]

Each server runs as the tools run it, in the sandbox. A symbol is a function, method or class that tree-sitter finds.
References are pairs of file and line in the checkout. `--jedi` names an interpreter with jedi as a third opinion: a
place is then right if two of three name it. Memory is that of the processes whose command line has the program's name.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coretools.app.assembly import open_assembly
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.find import FoundServer
from coretools.language_servers.kinds import KINDS, kinds_for
from coretools.language_servers.pool import LanguageServers
from coretools.language_servers.queries import SymbolPosition, places
from coretools.language_servers.session import Session
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.code.symbol_target import SymbolTarget, find_target
from coretools.tools.outline import outline_of

Places = frozenset[tuple[str, int]]

JEDI = """
import jedi, json, sys
top = sys.argv[1]
project = jedi.Project(top)
for line in sys.stdin:
    path, row, column = json.loads(line)
    try:
        found = jedi.Script(path=path, project=project).get_references(row, column)
        answer = sorted({(str(one.module_path), one.line) for one in found if str(one.module_path).startswith(top)})
    except Exception as error:
        answer = None
    print(json.dumps(answer), flush=True)
"""

COMPILER = """
const ts = require(process.argv[1]), top = process.argv[2];
const config = ts.getParsedCommandLineOfConfigFile(top + "/tsconfig.json", {}, {
  ...ts.sys, onUnRecoverableConfigFileDiagnostic() {} });
const host = {
  ...ts.sys, useCaseSensitiveFileNames: () => true,
  getScriptFileNames: () => config.fileNames,
  getScriptVersion: () => "1",
  getScriptSnapshot: (file) => {
    const text = ts.sys.readFile(file);
    return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
  },
  getCurrentDirectory: () => top,
  getCompilationSettings: () => config.options,
  getDefaultLibFileName: (options) => ts.getDefaultLibFilePath(options),
};
const service = ts.createLanguageService(host), program = service.getProgram();
const row = (file, position) => program.getSourceFile(file).getLineAndCharacterOfPosition(position).line + 1;
for (const line of require("fs").readFileSync(0, "utf8").split("\\n")) {
  const [path, first, column] = JSON.parse(line);
  const file = program.getSourceFile(path);
  if (!file) { console.log("null"); continue; }
  const found = service.getReferencesAtPosition(path, file.getPositionOfLineAndCharacter(first - 1, column)) || [];
  console.log(JSON.stringify(found.map((one) => [one.fileName, row(one.fileName, one.textSpan.start)])
    .filter(([name]) => name.startsWith(top))));
}
"""


@dataclass
class Figures:
    """What one server answered, and what it cost."""

    answers: list[Places | None] = field(default_factory=list)
    first_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    memory_megabytes: float = 0.0


def symbols(roots: Roots, top: Path, under: str, count: int) -> list[SymbolTarget]:
    """Return symbols of a checkout, the same at every run."""
    found: list[SymbolTarget] = []
    for path in sorted((top / under).rglob("*")):
        relative = str(path.relative_to(top))
        if not kinds_for(relative) or "node_modules" in relative or not path.is_file():
            continue
        outline = outline_of(relative, path.read_text("utf-8", "replace"))
        for one in outline.symbols if outline else ():
            if one.kind in ("function", "method", "class", "interface") and not one.name.startswith("__"):
                try:
                    found.append(find_target(roots, relative, one.path, None))
                except CoreError:  # defined twice
                    continue
    random.Random(7).shuffle(found)  # a sample
    return found[:count]


async def ask_server(servers: LanguageServers, roots: Roots, name: str, targets: Sequence[SymbolTarget]) -> Figures:
    """Ask one server about every symbol."""
    figures = Figures()
    kind = next(one for one in KINDS if one.name == name)
    program = shutil.which(kind.argv[0])
    if program is None:
        raise SystemExit(f"{name} is not on PATH")
    found = FoundServer(kind, program, "PATH", RootedPath(roots.first, "."), has_project=True, search_path="")
    for target in targets:
        began = time.perf_counter()
        figures.answers.append(await _places(servers, found, target, roots.first.path))
        figures.seconds.append(time.perf_counter() - began)
    figures.first_seconds = figures.seconds.pop(0)
    figures.memory_megabytes = memory(os.path.basename(program))
    return figures


async def _places(servers: LanguageServers, found: FoundServer, target: SymbolTarget, top: str) -> Places | None:
    async def ask(session: Session) -> Places:
        position = SymbolPosition(target.place.path, target.lines, target.offset)
        spans = (await places(session, position, "references")).spans
        return frozenset((one.path, one.line + 1) for one in spans if one.path.startswith(f"{top}/"))

    try:
        return (await servers.ask(found, ask))[0]
    except NoAnswer:
        return None


def memory(name: str) -> float:
    """Return the resident memory in megabytes of all processes that have this program."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if name.encode() in (status.parent / "cmdline").read_bytes():
                lines = status.read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
        except OSError:
            continue
    return total / 1024


def ask_program(argv: Sequence[str], targets: Sequence[SymbolTarget]) -> list[Places | None]:
    """Ask jedi or the compiler about every symbol."""
    questions = []
    for target in targets:
        line, column = target.lines.position(target.offset, "utf-32")
        questions.append(json.dumps([target.place.path, line + 1, column]))
    output = subprocess.run(argv, input="\n".join(questions), capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in output.splitlines()]
    return [None if one is None else frozenset(map(tuple, one)) for one in answers]


def report(name: str, figures: Figures, others: Sequence[list[Places | None]]) -> None:
    """Print what a server cost, and how it differs from what at least two say."""
    missing = extra = right = 0
    for number, answer in enumerate(figures.answers):
        opinions = [other[number] or frozenset() for other in others]
        if len(opinions) == 1:
            wanted = opinions[0]
        else:
            own = answer or frozenset()
            pairs = [(own & one) | (opinions[0] & opinions[1]) for one in opinions]
            wanted = frozenset().union(*pairs)
        missing += len(wanted - (answer or frozenset()))
        extra += len((answer or frozenset()) - wanted)
        right += answer == wanted
    unanswered = sum(one is None for one in figures.answers)
    warm = sorted(figures.seconds)
    print(
        f"{name}: {right} of {len(figures.answers)} equal, {unanswered} unanswered, places missing {missing},"
        f" alone {extra}; first {figures.first_seconds:.2f} s, warm {1000 * statistics.median(warm):.0f} ms median,"
        f" {1000 * warm[int(len(warm) * 0.95)]:.0f} ms p95; {figures.memory_megabytes:.0f} MB"
    )


def equal(one: Iterable[Places | None], other: Iterable[Places | None]) -> int:
    """Count the symbols about which two agree."""
    return sum(a == b and a is not None for a, b in zip(one, other, strict=True))


async def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--first", required=True)
    parser.add_argument("--second")
    parser.add_argument("--jedi", help="an interpreter that has jedi")
    parser.add_argument("--compiler", help="a directory with the package `typescript`, whose compiler is the second")
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--under", default=".")
    parser.add_argument("--differences", action="store_true", help="print them")
    options = parser.parse_args()
    top = options.checkout.resolve()
    async with open_assembly(Settings(roots=(f"{top}:ro",)), os.environ) as assembly:
        targets = symbols(assembly.roots, top, options.under, options.symbols)
        first = await ask_server(assembly.servers, assembly.roots, options.first, targets)
        if options.second:
            second = await ask_server(assembly.servers, assembly.roots, options.second, targets)
        else:
            second = Figures(ask_program(["node", "-e", COMPILER, options.compiler, str(top)], targets), 0, [0.0, 0.0])
    third = ask_program([options.jedi, "-c", JEDI, str(top)], targets) if options.jedi else None
    print(f"{top.name}: {len(targets)} symbols; {equal(first.answers, second.answers)} equal by both")
    report(options.first, first, [second.answers, *([third] if third else [])])
    report(options.second or "compiler", second, [first.answers, *([third] if third else [])])
    if third is not None:
        report("jedi", Figures(third, 0, [0.0]), [first.answers, second.answers])
    if options.differences:
        for target, a, b, c in zip(targets, first.answers, second.answers, third or first.answers, strict=True):
            if a != b:
                print(target.content.display_path, target.name, target.line)
                for label, one in ((options.first, a), (options.second or "compiler", b), ("jedi", c)):
                    own = sorted((path.removeprefix(f"{top}/"), line) for path, line in one or ())
                    print(f"  {label}: {len(own)} {own[:8]}")


if __name__ == "__main__":
    asyncio.run(main())
