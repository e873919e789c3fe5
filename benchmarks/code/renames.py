"""Rename symbols of a checkout by `code_rename`, one after the other, and check the project after each.

    python -m benchmarks.code.renames CHECKOUT --count 20 [--under src] [--config tsconfig.json] --check 'pytest -q -x'

The checkout has its dependencies installed. Each check (`--check` may be given several times) has to end as it did
before, with the same exit code or the same number of errors of TypeScript's compiler; `{tests}` in it are the test
files with the name. Symbols are those of `benchmarks.code.ground_truth`, by another random seed. Each rename is taken
back by `undo`, which must leave nothing that git sees. A refused rename is counted, with its reason.
"""

import argparse
import random
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.code.coretools_server import Served
from benchmarks.code.ground_truth import files_of, is_first
from benchmarks.code.oracles import Compiler, Symbol, python_declarations

OUTPUT_CHARACTERS = 1_500
CHECK_SECONDS = 600


def outcome(check: str, top: Path, tests: str = "") -> tuple[object, str]:
    """Run a check: its exit code, or the number of the compiler's errors; and its last words."""
    command = check.replace("{tests}", tests)
    done = subprocess.run(
        command, shell=True, cwd=top, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
    )
    output = done.stdout + done.stderr
    return output.count("error TS") or done.returncode, f"{check}: {output[-OUTPUT_CHARACTERS:]}"


def changed_files(top: Path) -> str:
    """What git sees as changed."""
    command = ["git", "status", "--porcelain", "--untracked-files=no"]
    return subprocess.run(command, cwd=top, capture_output=True, text=True, check=True).stdout


def tests_with(names: Sequence[str], top: Path, pattern: str) -> str:
    """The test files that contain one of these words; the first of all if none does."""
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    files = sorted(top.glob(pattern))
    found = [str(one.relative_to(top)) for one in files if names and word.search(one.read_text("utf-8", "replace"))]
    return " ".join(found or [str(one.relative_to(top)) for one in files[:1]])


def new_name(symbol: Symbol) -> str:
    """A name of the same style, private if the old one was."""
    return f"{symbol.name}_renamed" if "_" in symbol.name.strip("_") else f"{symbol.name}Renamed"


def main() -> None:
    """Rename and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--config", type=Path, help="tsconfig.json; without it the project is one of Python")
    parser.add_argument("--under", default="", help="take symbols of paths that contain this")
    parser.add_argument("--exclude", default="", help="a pattern of paths whose symbols are left out")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--only", default="", help="rename these alone: PATH:LINE,...")
    parser.add_argument("--tests", default="tests/test_*.py", help="those that have the name stand for {tests}")
    parser.add_argument("--check", action="append", required=True)
    options = parser.parse_args()
    top = options.checkout.resolve()
    checks = {one: outcome(one, top, tests_with((), top, options.tests)) for one in options.check}
    print(*(f"before: {words[:200]!r}, {result}" for result, words in checks.values()), sep="\n")
    files = files_of(top, "typescript" if options.config else "python", options.exclude)
    texts = {str(path): path.read_text("utf-8", "replace").split("\n") for path in files}
    declared = Compiler(top, options.config.resolve(), files).declarations() if options.config else None
    declared = python_declarations(files) if declared is None else declared
    symbols = [one for one in dict.fromkeys(declared) if options.under in one.path and is_first(one, texts)]
    symbols = [one for one in symbols if not one.name.startswith("__")]
    random.Random(options.seed).shuffle(symbols)
    before, counts = changed_files(top), Counter[str]()
    with Served(top) as served:
        for symbol in symbols[: len(symbols) if options.only else options.count]:
            path = served.relative(symbol.path)
            if options.only and f"{path}:{symbol.line}" not in options.only.split(","):
                continue
            counts["all"] += 1
            words, refused = served.call(
                "code_rename", path=path, symbol=symbol.name, line=symbol.line, new_name=new_name(symbol)
            )
            if refused:
                counts["refused"] += 1
                print(f"refused: {path}:{symbol.line} {symbol.name}: {words}", flush=True)
                continue
            tests = tests_with((symbol.name, new_name(symbol)), top, options.tests)
            results = {one: outcome(one, top, tests) for one in checks}
            problem = "\n".join(words for one, (result, words) in results.items() if result != checks[one][0])
            counts["fails" if problem else "passes"] += 1
            shown = f"{'FAILS' if problem else 'passes'}: {path}:{symbol.line} {symbol.kind} {symbol.name}"
            notes = [one for one in words.split("\n") if one.startswith("[")]
            lines = [shown, words.split("\n")[0], *notes, *(problem.split("\n") if problem else ())]
            print("\n    ".join(lines), flush=True)
            listed, _ = served.call("list_changes")
            undone, is_error = served.call("undo", change=int("".join(filter(str.isdigit, listed.split()[0]))))
            if is_error or changed_files(top) != before:
                print(f"UNDO: {undone}")
                subprocess.run(["git", "checkout", "-q", "--", "."], cwd=top, check=True)
    print(
        f"{top.name}: of {counts['all']} renames {counts['passes']} pass, {counts['fails']} fail,"
        f" {counts['refused']} refused"
    )


if __name__ == "__main__":
    main()
