"""What the code tools say of Go and Rust, held against a second reader of the same checkout.

    python -m benchmarks.code.go_rust_truth CHECKOUT [--symbols 200] [--seed 1] [--differences]

Go: `go_truth.go` in this folder, which asks the type checker of Go's own library. Rust: the index that `rust-analyzer
scip` writes without a sandbox; it is the same program, so this tells what the sandbox and the tools lose, and not where
rust-analyzer is wrong. The checkout has to build offline; go and gopls, or cargo and rust-analyzer, are on PATH.

Symbols are those of the outline, picked at random. References are lines. Of each symbol one use, picked at random, is
asked for its definition. Beside it stands what is right by text and syntax alone.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from coretools.app.assembly import Assembly, open_assembly
from coretools.config.limits import Limits
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.language_servers.positions import Lines
from coretools.tools.code.references import ReferenceTools
from coretools.tools.code.results import FoundSymbols
from coretools.tools.code.symbol_target import SymbolTarget, find_target, word
from coretools.tools.code.text_mentions import TextMentions
from coretools.tools.code.tools import CodeTools
from coretools.tools.outline import outline_of
from coretools.tools.search.tools import SearchTools

Places = frozenset[tuple[str, int]]


class Position(NamedTuple):
    """Counted from 1, the column in bytes."""

    path: str
    line: int
    column: int


@dataclass(frozen=True)
class Truth:
    """What the second reader says of a position."""

    definition: tuple[str, int] | None
    same: Places
    """Lines that mean the symbol."""
    related: Places
    """With those that mean a method which implements it, or which it implements."""


def ask_go(top: Path, positions: Sequence[Position]) -> list[Truth | None]:
    """Ask the type checker."""
    program = Path(__file__).with_name("go_truth.go")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["go", "build", "-o", f"{scratch}/truth", program], check=True)
        questions = "\n".join(json.dumps([f"{top}/{one.path}", *one[1:]]) for one in positions)
        output = subprocess.run([f"{scratch}/truth"], cwd=top, input=questions, text=True, stdout=-1, check=True).stdout
    answers = [json.loads(line) for line in output.splitlines()]

    def inside(found: Sequence[tuple[str, int]]) -> Places:
        return frozenset((path.removeprefix(f"{top}/"), line) for path, line in found if path.startswith(f"{top}/"))

    return [
        one and Truth(next(iter(inside([one["definition"]])), None), inside(one["same"]), inside(one["related"]))
        for one in answers
    ]


def ask_rust(top: Path, positions: Sequence[Position]) -> list[Truth | None]:
    """Read the index of rust-analyzer (scip.proto: Index.documents, Document.occurrences)."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["rust-analyzer", "scip", top, "--output", f"{scratch}/scip"], check=True, stdout=-3, stderr=-3)
        index = Path(scratch, "scip").read_bytes()
    symbols: dict[tuple[str, int, int], str] = {}
    uses: dict[str, set[tuple[str, int]]] = {}
    definitions: dict[str, set[tuple[str, int]]] = {}
    for document in (value for number, value in fields(index) if number == 2):
        parts = list(fields(document))
        path = next(bytes(value).decode() for number, value in parts if number == 1)
        for occurrence in (dict(fields(value)) for number, value in parts if number == 2):
            line, column = list(numbers(occurrence[1]))[:2]
            symbol = bytes(occurrence[2]).decode()
            symbol = f"{path} {symbol}" if symbol.startswith("local ") else symbol
            symbols[path, line + 1, column + 1] = symbol
            uses.setdefault(symbol, set()).add((path, line + 1))
            if occurrence.get(3, 0) & 1:
                definitions.setdefault(symbol, set()).add((path, line + 1))

    def answer(one: Position) -> Truth | None:
        symbol = symbols.get(tuple(one), "")
        found, defined = frozenset(uses.get(symbol, ())), definitions.get(symbol, set())
        # Implementations of one trait for several types have one name there.
        return None if len(defined) != 1 else Truth(min(defined), found, found)

    return [answer(one) for one in positions]


def fields(message: memoryview | bytes) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message of Protocol Buffers: varints and what has a length."""
    view, at = memoryview(message), 0
    while at < len(view):
        key, at = varint(view, at)
        value, at = varint(view, at)
        if key & 7 == 2:
            yield key >> 3, view[at : at + value]
            at += value
        else:
            yield key >> 3, value


def numbers(packed: memoryview | int) -> Iterator[int]:
    """The numbers of a packed field."""
    at = 0
    while isinstance(packed, memoryview) and at < len(packed):
        value, at = varint(packed, at)
        yield value


def varint(view: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        byte = view[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at


def sources(top: Path, ending: str) -> dict[str, Lines]:
    """The source files of the checkout that the language's own tool looks at."""
    output = subprocess.run(["git", "ls-files", f"*.{ending}"], cwd=top, capture_output=True, text=True, check=True)
    own = [path for path in output.stdout.splitlines() if not any(part[0] in "_." for part in path.split("/"))]
    return {path: Lines.of((top / path).read_text("utf-8", "replace")) for path in own}


def picked(assembly: Assembly, files: Mapping[str, Lines], count: int, seed: int) -> list[SymbolTarget]:
    """Symbols of the outline at random."""
    named = [(path, one) for path in files for one in (outline_of(path, files[path].text) or 0).symbols]
    random.Random(seed).shuffle(named)
    found: list[SymbolTarget] = []
    for path, one in named:
        if len(found) == count:
            break
        for line in (None, one.line):  # by its line where the name alone is not enough
            try:
                found.append(find_target(assembly.roots, path, one.path, line))
                break
            except CoreError:
                continue
    return found


def position(path: str, lines: Lines, offset: int) -> Position:
    """Where an offset is."""
    line, column = lines.position(offset, "utf-8")
    return Position(path, line + 1, column + 1)


async def references(tools: ReferenceTools, target: SymbolTarget) -> Places | str:
    """What our tool says, all pages of it; or why it does not know."""
    places: set[tuple[str, int]] = set()
    while True:
        skip = len(places)
        path, name = target.content.display_path, target.name
        found = await tools.code_references(path, name, line=target.line, limit=1000, skip=skip)
        if found.warning:
            return found.warning
        places |= {(file.path, one.line) for file in found.files for one in file.references}
        if len(places) in (skip, found.total):
            return frozenset(places)


def is_definition(found: FoundSymbols, name: str, wanted: tuple[str, int]) -> bool:
    """Whether an answer is this definition alone."""
    matching = [
        one.path == wanted[0] and one.line <= wanted[1] <= one.end_line and one.name.split(".")[-1] == name
        for one in found.symbols
    ]
    return matching == [True]


async def compare(assembly: Assembly, top: Path, options: argparse.Namespace) -> None:
    """Ask both, and print the figures."""
    ending, ask = ("go", ask_go) if (top / "go.mod").exists() else ("rs", ask_rust)
    files = sources(top, ending)
    targets = picked(assembly, files, options.symbols, options.seed)
    roots, limits, servers = assembly.roots, assembly.settings.limits, assembly.servers
    search = SearchTools(roots, assembly.runner, limits, confined_threads=assembly.confined_threads)
    mentions = TextMentions(roots, limits, search.engines)
    referring, defining = (kind(roots, limits, servers, mentions) for kind in (ReferenceTools, CodeTools))
    truths = ask(top, [position(one.content.display_path, one.lines, one.offset) for one in targets])
    count, missing, extra = Counter[str](), 0, 0
    asked: list[tuple[str, Position]] = []
    for target, truth in zip(targets, truths, strict=True):
        if truth is None:
            count["unknown to the second reader"] += 1
            continue
        found = await references(referring, target)
        if isinstance(found, str):
            count["references refused"] += 1
            print("refused", target.content.display_path, target.line, target.name, found)
            continue
        text = {
            (path, lines.position(one.start(), "utf-32")[0] + 1)
            for path, lines in files.items()
            for one in word(target.name).finditer(lines.text)
        }
        count["references"] += 1
        count["equal"] += found == truth.same
        count["none missing, none but of implementing methods"] += truth.same <= found <= truth.related
        count["the same by text"] += truth.same <= text <= truth.related
        missing += len(truth.same - found)
        extra += len(found - truth.related)
        if options.differences and not truth.same <= found <= truth.related:
            print(target.content.display_path, target.line, target.name)
            print("   missing", sorted(truth.same - found)[:5], "more", sorted(found - truth.related)[:5])
        others = sorted(one for one in truth.same - {truth.definition} if one[0] in files)
        if others:
            path, line = random.Random(options.seed).choice(others)
            match = word(target.name).search(files[path].text, files[path].starts[line - 1])
            if match is not None:
                asked.append((target.name, position(path, files[path], match.start())))
    for (name, one), truth in zip(asked, ask(top, [one for _, one in asked]), strict=True):
        if truth is None or truth.definition is None:
            continue
        found = await defining.code_symbols(one.path, name=name, line=one.line)
        by_syntax = await defining.code_symbols(name=name)
        count["definitions"] += 1
        count["definitions equal"] += (is_right := is_definition(found, name, truth.definition))
        count["definitions equal by syntax"] += is_definition(by_syntax, name, truth.definition)
        if options.differences and not is_right:
            print("definition", *one, name, truth.definition, found.text()[:150].replace("\n", "|"))
    print(top.name, dict(count), f"lines missing {missing}, more {extra}")


async def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--symbols", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answer-seconds", type=float, default=120)
    parser.add_argument("--differences", action="store_true", help="print them")
    options = parser.parse_args()
    top = options.checkout.resolve()
    # What overrides a method of the standard library may take rust-analyzer minutes on a busy machine.
    limits = Limits(language_answer_seconds=options.answer_seconds)
    async with open_assembly(Settings(roots=(f"{top}:ro",), limits=limits), os.environ) as assembly:
        await compare(assembly, top, options)


if __name__ == "__main__":
    asyncio.run(main())
