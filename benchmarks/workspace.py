"""The directory that everything is measured in: a repository with some history, made anew for each run.

Beside it lies the bytecode of every server, so that starts are those of an installed program, whatever the environment
sets for bytecode and whoever owns the checkout.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

COMMITS = 200
TRACKED = 300
"""Files in the repository: a small project."""
LISTED = 50
"""Files in each directory."""
LONG_AGO = 1_700_000_000
"""A time of change well before the index: git reads a file again whose time is the index's own (racy-git.txt)."""

CHECKOUT = Path(__file__).parent.parent
"""Must be one with a history, as a clone is."""

SAMPLE = "sample.txt"
SAMPLE_BYTES = 4096
DIRECTORY = "part0"
FILES_OF_A_DIRECTORY = 100
"""In a planted tree."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths in it."""

    root: str
    bytecode: str
    """Where servers keep it; empty for where the interpreter would."""

    @property
    def beside(self) -> Path:
        """A directory outside the repository."""
        return Path(self.root).parent

    @property
    def clone(self) -> str:
        """A clone of the checkout that is measured: a real repository with its history."""
        return str(self.beside / "clone")

    @property
    def sample(self) -> str:
        """A text file of 4 KB."""
        return os.path.join(self.root, SAMPLE)

    @property
    def directory(self) -> str:
        """A directory with files."""
        return os.path.join(self.root, DIRECTORY)


@contextmanager
def workspace(*, is_smoke: bool) -> Iterator[Workspace]:
    """A repository with a changed, a staged and an untracked file; gone at the end.

    A smoke run times nothing, and does without bytecode of its own, which takes seconds to make.
    """
    with TemporaryDirectory(prefix="benchmarks-") as name:
        root = Path(os.path.realpath(name)) / "repository"
        root.mkdir()
        _git(root, "init", "--quiet", "--initial-branch=main")
        _git(root, "fast-import", "--quiet", stdin=_history().encode())
        _git(root, "reset", "--quiet", "--hard", "main")
        clone = root.parent / "clone"
        _git(root, "clone", "--quiet", str(CHECKOUT), str(clone))
        _age(root)
        _age(clone)
        (root / DIRECTORY / "file0.txt").write_text("changed\n")
        (root / DIRECTORY / "file1.txt").write_text("changed and staged\n")
        (root / DIRECTORY / "new.txt").write_text("untracked\n")
        _git(root, "add", f"{DIRECTORY}/file1.txt")
        # Writes what it learned into the index, as a person's own git has done in any repository in use.
        _git(root, "status")
        _git(clone, "status")
        yield Workspace(str(root), bytecode="" if is_smoke else f"{root.parent}/bytecode")


def _age(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (LONG_AGO, LONG_AGO))


def plain_environment() -> dict[str, str]:
    """Our environment without git's own variables: within a hook, GIT_DIR would redirect every git here."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def sample_text() -> str:
    """Text of exactly 4 KB in lines of 64 bytes."""
    return "".join(f"line {number:3d} ".ljust(63, ".") + "\n" for number in range(SAMPLE_BYTES // 64))


def _history() -> str:
    """What `git fast-import` reads: all files in the first commit, one of them changed in each later one."""
    files = [f"part{number // LISTED}/file{number % LISTED}.txt" for number in range(TRACKED)]
    first = [_file(name, f"{name}\n" * 20) for name in files] + [_file(SAMPLE, sample_text())]
    later = [[_file(files[number % TRACKED], f"change {number}\n" * 20)] for number in range(1, COMMITS)]
    return "".join(_commit(number, changes) for number, changes in enumerate([first, *later]))


def _commit(number: int, changes: list[str]) -> str:
    who = f"committer A Person <person@example.org> {LONG_AGO + 60 * number} +0000\n"
    return f"commit refs/heads/main\n{who}{_data(f'change {number}')}{''.join(changes)}\n"


def _file(name: str, content: str) -> str:
    return f"M 100644 inline {name}\n{_data(content)}"


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _git(root: Path, *words: str, stdin: bytes | None = None) -> None:
    subprocess.run(["git", *words], cwd=root, env=plain_environment(), input=stdin, check=True, capture_output=True)


def plant_tree(top: Path, files: int) -> None:
    """Make this many small files, a hundred in a directory, one of them with the word "needle"."""
    for number in range(files // FILES_OF_A_DIRECTORY):
        folder = top / f"part{number // 40}" / f"module{number % 40}"
        folder.mkdir(parents=True)
        for file in range(FILES_OF_A_DIRECTORY):
            name = folder / f"file{file}.{'py' if file % 2 else 'txt'}"
            name.write_text("some text\na needle\n" if file == 50 else "some text\n")
