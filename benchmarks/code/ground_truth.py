"""References and definitions of symbols by the code tools, against the compiler or a second language server.

    python -m benchmarks.code.ground_truth CHECKOUT --config CHECKOUT/tsconfig.json
    python -m benchmarks.code.ground_truth CHECKOUT --server 'basedpyright-langserver --stdio' --python .venv/bin/python

The checkout has its dependencies installed. Symbols are functions, methods, classes, types, and variables outside
functions, as the compiler or Python's own parser declares them, by a random seed. Places are compared as pairs of file
and line. For each symbol that is used, the definition of one use is looked up too. "By text": all lines with the word;
"by syntax": the definitions of the name, if there is just one.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.code.coretools_server import Served
from benchmarks.code.oracles import Compiler, Line, Oracle, PythonServer, Symbol, Truth

ENDINGS = {"typescript": (".ts", ".tsx", ".mts", ".cts"), "python": (".py", ".pyi")}


def files_of(top: Path, language: str, excluded: str = "") -> list[Path]:
    """The source files that git has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=top, capture_output=True, text=True, check=True).stdout
    names = [one for one in listed.split("\0") if one.endswith(ENDINGS[language])]
    return [top / one for one in names if not excluded or not re.search(excluded, one)]


def is_first(symbol: Symbol, texts: dict[str, list[str]]) -> bool:
    """Whether a name is the first of its kind on its line, which is what the tools take a line to mean."""
    found = re.search(rf"(?<![\w$]){re.escape(symbol.name)}(?![\w$])", texts[symbol.path][symbol.line - 1])
    return found is not None and found.start() == symbol.column


def sampled(oracle: Oracle, texts: dict[str, list[str]], count: int, seed: int, under: str) -> list[Symbol]:
    """The symbols of a run."""
    found = [one for one in oracle.declarations() if under in one.path and not one.name.startswith("__")]
    found = [one for one in dict.fromkeys(found) if is_first(one, texts)]
    random.Random(seed).shuffle(found)
    return found[:count]


def lines_of(places: Sequence[tuple[str, int, int]]) -> set[Line]:
    """Places without columns."""
    return {(path, line) for path, line, _ in places}


def lines_with(name: str, texts: dict[str, list[str]]) -> set[Line]:
    """The lines that have a word."""
    word = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
    return {(path, n) for path, lines in texts.items() for n, line in enumerate(lines, 1) if word.search(line)}


def is_right(found: Sequence[tuple[str, int, int, str]], truth: Truth) -> bool:
    """Whether one of the definitions shown is meant, and all others are overloads of such; or it is outside."""
    wanted = lines_of(truth.definitions)
    met = {(one[0], one[3]) for one in found if any((one[0], line) in wanted for line in range(one[1], one[2] + 1))}
    return bool(met) == bool(wanted) and all((one[0], one[3]) in met for one in found)


def use_of(symbol: Symbol, truth: Truth, texts: dict[str, list[str]]) -> Symbol | None:
    """A use of a symbol, by its name."""
    uses = [Symbol("use", symbol.name, *place) for place in truth.references if place[:2] != (symbol.path, symbol.line)]
    uses = [
        one for one in uses if texts[one.path][one.line - 1].startswith(one.name, one.column) and is_first(one, texts)
    ]
    return random.Random(symbol.line).choice(uses) if uses else None


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--config", type=Path, help="tsconfig.json whose options all files are read with")
    parser.add_argument("--server", help="command line of a second language server for Python")
    parser.add_argument("--python", default="", help="interpreter of the project")
    parser.add_argument("--under", default="", help="take symbols of paths that contain this")
    parser.add_argument("--exclude", default="", help="a pattern of paths that are left out")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--save", type=Path, help="write what differs, as lines of JSON")
    options = parser.parse_args()
    top = options.checkout.resolve()
    language = "typescript" if options.config else "python"
    files = files_of(top, language, options.exclude)
    texts = {str(path): path.read_text("utf-8", "replace").split("\n") for path in files}
    if options.config:
        oracle: Oracle = Compiler(top, options.config.resolve(), files)
    else:
        oracle = PythonServer(top, options.server.split(), files, options.python)
    symbols = sampled(oracle, texts, options.count, options.seed, options.under)
    counts, differences, seconds = Counter[str](), list[dict[str, object]](), list[float]()
    uses: list[tuple[Symbol, Truth]] = []
    with Served(top) as served:
        for symbol in symbols:
            truth = oracle.ask(symbol.path, symbol.line, symbol.column)
            wanted = lines_of(truth.references)
            began = time.perf_counter()
            found, unknown = served.references(symbol.path, symbol.name, symbol.line)
            seconds.append(time.perf_counter() - began)
            found = {one for one in found if one[0] in texts}
            counts[symbol.kind] += 1
            counts["unknown"] += bool(unknown)
            counts["equal"] += found == wanted and not unknown
            counts["missing"] += len(wanted - found)
            counts["alone"] += len(found - wanted)
            counts["by text"] += lines_with(symbol.name, texts) == wanted
            if found != wanted or unknown:
                differences.append(_difference(symbol, "references", wanted - found, found - wanted, unknown))
            if use := use_of(symbol, truth, texts):
                uses.append((use, oracle.ask(use.path, use.line, use.column)))
            if len(seconds) % 20 == 0:
                print(f"{len(seconds)} symbols, {counts['equal']} equal", file=sys.stderr, flush=True)
        for use, truth in sorted(uses, key=lambda one: one[0].path):
            shown, text = served.definitions(use.name, use.path, use.line)
            shown = [one for one in shown if one[0] in texts]
            unknown = text if f"at line {use.line} is not known" in text else ""
            is_equal = is_right(shown, truth) and not unknown
            counts["defined"] += is_equal
            counts["by syntax"] += len(alone := served.definitions(use.name)[0]) == 1 and is_right(alone, truth)
            if not is_equal:
                differences.append(_difference(use, "definition", lines_of(truth.definitions), shown, text[:300]))
    if options.save:
        options.save.write_text("".join(json.dumps(one) + "\n" for one in differences))
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("function", "method", "class", "variable"))
    warm = sorted(seconds)[len(seconds) // 2]
    found_lines = f"lines missing {counts['missing']}, alone {counts['alone']}"
    print(
        f"{top.name}: {len(symbols)} symbols ({kinds}); references equal {counts['equal']}, not known"
        f" {counts['unknown']}, {found_lines}, by text {counts['by text']};"
        f" definitions of {len(uses)} uses: equal {counts['defined']}, by syntax {counts['by syntax']};"
        f" first {seconds[0]:.1f} s, median {warm * 1000:.0f} ms"
    )


def _difference(symbol: Symbol, what: str, missing: object, alone: object, text: str) -> dict[str, object]:
    at = f"{symbol.path}:{symbol.line}"
    return {
        "what": what,
        "name": symbol.name,
        "kind": symbol.kind,
        "at": at,
        "missing": sorted(missing),
        "alone": sorted(alone),
        "text": text,
    }  # type: ignore[type-var]


if __name__ == "__main__":
    main()
