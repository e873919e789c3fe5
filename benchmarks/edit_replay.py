"""Replay the commits of public histories through `edit_file`: `python -m benchmarks.edit_replay REPOSITORY...`.

Each changed region of a commit is an edit with as many lines around it as make it unique. Four figures come out:

- exact: do the edits of a commit, in one call for each file, give the file of the commit byte for byte?
- perturbed: the same edits with another indentation, with white space at line ends, with other quotes. How many succeed
  in one call, and does any land in a wrong place? A refusal counts as helpful if it shows the right lines.
- reports: how many unchanged edits are reported as introducing a syntax error? Every one is a false report, unless the
  commit really broke the file.
- mutated: a bracket, a colon or a quote of the new text is missing. How many are reported? For Python and JSON the
  parsers of the standard library say which of them are errors.

Clones are named as arguments; nothing is fetched. Deterministic for the same clones.
"""

import argparse
import ast
import difflib
import json
import posixpath
import random
import re
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coretools.config.limits import Limits
from coretools.errors import CoreError
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.syntax_errors import introduced_faults
from coretools.tools.filesystem.tools import FilesystemTools
from coretools.tools.grammars import grammar_for

MAX_BYTES = 300_000
MAX_LINES = 3_000
"""A file with more is skipped: difflib takes too long for it."""

MUTATIONS = {"bracket": "()[]{}", "colon": ":", "quote": "\"'"}


@dataclass(frozen=True)
class Change:
    """One file of one commit."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Step:
    """One edit, and the text before and after it."""

    path: str
    before: str
    after: str
    edit: Edit


@dataclass
class Figures:
    commits: int = 0
    files: int = 0
    exact: int = 0
    edits: int = 0
    inexact: list[str] = field(default_factory=list)
    perturbed: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    reports: Counter[str] = field(default_factory=Counter)
    false_reports: list[str] = field(default_factory=list)
    mutated: Counter[tuple[str, str]] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    check_ms: list[tuple[float, int]] = field(default_factory=list)


def git(repository: str, *words: str) -> bytes:
    return subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True).stdout


def changes_of(repository: str, commits: int, dice: random.Random) -> Iterator[tuple[str, list[Change]]]:
    """The modified text files of randomly chosen commits."""
    every = git(repository, "log", "--no-merges", "--diff-filter=M", "--format=%H").decode().split()
    for commit in dice.sample(every, min(commits, len(every))):
        listed = git(repository, "diff-tree", "-r", "-z", "--no-commit-id", "--diff-filter=M", commit)
        fields = listed.split(b"\0")
        changes = []
        for header, name in zip(fields[::2], fields[1::2], strict=False):
            _, _, old, new, _ = header.decode().split()
            try:
                blobs = [git(repository, "cat-file", "blob", one) for one in (old, new)]
            except subprocess.CalledProcessError:
                continue  # not in this clone
            if any(len(blob) > MAX_BYTES or b"\0" in blob or blob.count(b"\n") > MAX_LINES for blob in blobs):
                continue
            try:
                before, after = (blob.decode() for blob in blobs)
            except UnicodeDecodeError:
                continue
            if before != after and before:
                changes.append(Change(posixpath.basename(name.decode("utf-8", "replace")), before, after))
        yield commit, changes


def steps_of(change: Change) -> Iterator[Step]:
    """The edits of a file, from top to bottom: each sees what those before it left."""
    old, new = (
        text.splitlines(keepends=True) if "\r" not in text else re.split(r"(?<=\n)", text)
        for text in (change.before, change.after)
    )
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        above, below = new[:j1], old[i2:]
        current = "".join(above + old[i1:])
        up = down = 0
        while True:
            head, foot = "".join(above[len(above) - up :]), "".join(below[:down])
            wanted = head + "".join(old[i1:i2]) + foot
            if wanted and current.find(wanted) == current.rfind(wanted):
                break
            if up < len(above) and (up <= down or down == len(below)):
                up += 1
            elif down < len(below):
                down += 1
            else:
                break
        if not wanted:
            return
        yield Step(
            change.path,
            current,
            "".join(new[:j2] + below),
            Edit(old=wanted, new=head + "".join(new[j1:j2]) + foot),
        )


# Perturbations: the edit as somebody writes it who remembers the text slightly wrong.


def with_other_indentation(edit: Edit, dice: random.Random) -> Edit | None:
    lines = [*edit.old.split("\n"), *edit.new.split("\n")]
    common = posixpath.commonprefix([re.match(r"[ \t]*", line)[0] for line in lines if line.strip()])  # type: ignore[index]
    ways: list[Callable[[str], str]] = [lambda line: f"    {line}" if line.strip() else line]
    if common:
        ways.append(lambda line: line.removeprefix(common))
    indents = [re.match(r"[ \t]*", line)[0] for line in lines]  # type: ignore[index]
    if any(indents) and not any("\t" in indent or len(indent) % 4 for indent in indents):
        ways.append(lambda line: re.sub(r"^ +", lambda spaces: "\t" * (len(spaces[0]) // 4), line))
    way = dice.choice(ways)
    old, new = ("\n".join(map(way, text.split("\n"))) for text in (edit.old, edit.new))
    return None if old == edit.old else Edit(old=old, new=new)


def with_trailing_space(edit: Edit, dice: random.Random) -> Edit | None:
    lines = edit.old.split("\n")
    number = dice.randrange(len(lines))
    if number == len(lines) - 1 and len(lines) > 1:
        number -= 1
    stripped = lines[number].rstrip()
    lines[number] = stripped if stripped != lines[number] else f"{stripped}  "
    return Edit(old="\n".join(lines), new=edit.new)


def with_other_quotes(edit: Edit, _: random.Random) -> Edit | None:
    swapped = edit.old.translate(str.maketrans("\"'", "'\""))
    return None if swapped == edit.old else Edit(old=swapped, new=edit.new)


PERTURBATIONS: dict[str, Callable[[Edit, random.Random], Edit | None]] = {
    "indentation": with_other_indentation,
    "trailing white space": with_trailing_space,
    "quotes": with_other_quotes,
}


class Replay:
    """Replays into one directory, which is a root."""

    def __init__(self, directory: str, files: FilesystemTools, dice: random.Random, most_mutated: int) -> None:
        self._directory = Path(directory)
        self._files = files
        self._dice = dice
        self._most_mutated = most_mutated
        self.figures = Figures()

    def file(self, commit: str, change: Change) -> None:
        steps = list(steps_of(change))
        if not steps:
            return
        figures = self.figures
        figures.files += 1
        figures.edits += len(steps)
        result = self._apply(change.path, change.before, [step.edit for step in steps])
        if result == change.after:
            figures.exact += 1
        else:
            figures.inexact.append(f"{commit[:10]} {change.path}: {str(result)[:300]}")
        self._report(commit, change)
        for step in steps:
            self._perturb(commit, step)
            self._mutate(step)

    def _apply(self, name: str, text: str, edits: Sequence[Edit]) -> str | CoreError:
        path = self._directory / name
        path.write_bytes(text.encode())
        try:
            self._files.edit_file(name, list(edits))
            return path.read_bytes().decode()
        except CoreError as error:
            return error
        finally:
            path.unlink()

    def _perturb(self, commit: str, step: Step) -> None:
        for kind, perturb in PERTURBATIONS.items():
            edit = perturb(step.edit, self._dice)
            if edit is None:
                continue
            result = self._apply(step.path, step.before, [edit])
            if result == step.after:
                outcome = "applied"
            elif isinstance(result, str) and _bare(result) == _bare(step.after):
                outcome = "an exact match in the line, indented as written"
            elif isinstance(result, str) and edit.old in step.before:
                outcome = "it is the exact text of another place"
            elif isinstance(result, str):
                outcome = "in a wrong place"
                self.figures.wrong.append(f"{commit[:10]} {step.path} ({kind}):\n{edit!r}")
            else:
                outcome = "refused, right lines shown" if _shows(result, step) else "refused"
                if kind == "indentation":
                    if "more than one place" in str(result) or "times, on lines" in str(result):
                        outcome = "refused, several places named"
                    self.figures.refused.append(f"{commit[:10]} {step.path}:\n{edit!r}\n{result}")
            self.figures.perturbed[kind, outcome] += 1

    def _report(self, commit: str, change: Change) -> None:
        started = time.perf_counter()
        check = introduced_faults(change.path, change.before, change.after)
        spent = (time.perf_counter() - started) * 1000
        if not check.language:
            return
        self.figures.check_ms.append((spent, change.after.count("\n") + 1))
        self.figures.reports["checked"] += 1
        if check.unchecked:
            self.figures.reports[check.unchecked] += 1
        if check.faults:
            is_error = is_valid(change.path, change.after) is False and is_valid(change.path, change.before)
            self.figures.reports["rightly reported" if is_error else "falsely reported"] += 1
            if not is_error:
                self.figures.false_reports.append(f"{commit[:10]} {check.note(change.path)}")

    def _mutate(self, step: Step) -> None:
        kind = self._dice.choice(sorted(MUTATIONS))
        if grammar_for(step.path, step.after) is None or self.figures.mutated.total() >= self._most_mutated:
            return
        head = _common(step.edit.old, step.edit.new)
        tail = _common(step.edit.old[head:][::-1], step.edit.new[head:][::-1])
        changed = range(head, len(step.edit.new) - tail)
        places = [at for at in changed if step.edit.new[at] in MUTATIONS[kind]]
        if not places or introduced_faults(step.path, None, step.after).faults:
            return
        at = self._dice.choice(places)
        new = step.edit.new[:at] + step.edit.new[at + 1 :]
        mutated = step.before.replace(step.edit.old, new, 1)
        is_reported = bool(introduced_faults(step.path, step.before, mutated).faults)
        valid = is_valid(step.path, mutated) if is_valid(step.path, step.after) else None
        truth = {True: "no error", False: "an error", None: "unknown"}[valid]
        if truth == "an error" and not is_reported:
            line = mutated.count("\n", 0, step.before.index(step.edit.old) + at)
            self.figures.missed.append(f"{step.path}, {kind}: {mutated.split(chr(10))[line]}")
        self.figures.mutated[truth, "reported" if is_reported else "not reported"] += 1


def _bare(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _common(one: str, other: str) -> int:
    return len(posixpath.commonprefix([one, other]))


def _shows(error: CoreError, step: Step) -> bool:
    """Whether a refusal shows a line of the place that was meant."""
    first = step.before.count("\n", 0, step.before.index(step.edit.old)) + 1
    last = first + step.edit.old.removesuffix("\n").count("\n")
    shown = re.search(r"lines? (\d+)(?: to (\d+))?:\n", str(error))
    if shown is None:
        return False
    start, end = int(shown[1]), int(shown[2] or shown[1])
    return start <= last and end >= first


def is_valid(path: str, text: str) -> bool | None:
    """What the standard library says; None for a language it has no parser of."""
    try:
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".json"):
            json.loads(text)
        else:
            return None
    except (ValueError, SyntaxError, RecursionError):
        return False
    return True


def show(figures: Figures, examples: int) -> None:
    print(f"commits {figures.commits}, files {figures.files}, edits {figures.edits}")
    print(f"exact, byte for byte: {figures.exact} of {figures.files} files")
    for kind in PERTURBATIONS:
        outcomes = {outcome: count for (one, outcome), count in sorted(figures.perturbed.items()) if one == kind}
        total = sum(outcomes.values())
        print(f"{kind}: {total}; " + ", ".join(f"{name} {n} ({n / total:.1%})" for name, n in outcomes.items()))
    print(f"reports on edits as they were: {dict(figures.reports)}")
    print(f"mutated: { ({' / '.join(key): count for key, count in sorted(figures.mutated.items())}) }")
    large = sorted(ms * 1000 / lines for ms, lines in figures.check_ms if lines >= 300)
    if large:
        print(
            f"check, ms for 1,000 lines: median {large[len(large) // 2]:.1f}, 99 % {large[int(len(large) * 0.99)]:.1f}"
        )
    for title in ("inexact", "wrong", "refused", "false_reports", "missed"):
        texts = getattr(figures, title)
        print(f"\n{title.replace('_', ' ')}: {len(texts)}")
        for text in texts[:examples]:
            print("-", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("repository", nargs="+", help="clone whose history is replayed")
    parser.add_argument("--commits", type=int, default=1_000, help="commits in all [1000]")
    parser.add_argument("--mutated", type=int, default=1_000, help="mutated edits in all [1000]")
    parser.add_argument("--examples", type=int, default=0, help="examples shown of each kind of failure [0]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of old code that is parsed
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory, Roots([RootSpec(directory)], deny=DenyRules(())) as roots:
        replay = Replay(directory, FilesystemTools(roots, Limits()), dice, options.mutated)
        each = -(-options.commits // len(options.repository))
        for repository in options.repository:
            for commit, changes in changes_of(repository, each, dice):
                if replay.figures.commits == options.commits:
                    break
                replay.figures.commits += 1
                for change in changes:
                    replay.file(commit, change)
        show(replay.figures, options.examples)


if __name__ == "__main__":
    main()
