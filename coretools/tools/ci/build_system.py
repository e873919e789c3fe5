"""What detection sees of a project, what it answers, and what a restore needs beside its commands. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from coretools.roots.undo import SavedEntries

Action = Literal["restore", "build", "test"]

Argv = tuple[str, ...]
Steps = tuple[Argv, ...]
"""Commands that run one after the other, until one fails."""


class Project(Protocol):
    """A directory as detection sees it: names, and the text of a few small files."""

    @property
    def names(self) -> frozenset[str]:
        """What lies in the directory itself."""
        ...

    def read(self, path: str) -> str:
        """The text of a file, or empty text when it is not there, is too large, or may not be read."""
        ...

    def names_in(self, path: str) -> frozenset[str]:
        """Names in a directory below, none when it is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSystem:
    """One build system that a project has. An action that it does not offer has no alternatives."""

    name: str
    marker: str
    """The file that gave it away."""
    restore: tuple[Steps, ...] = ()
    """Alternatives, best first: the next one is taken when the program of the first can't be started."""
    build: tuple[Steps, ...] = ()
    test: tuple[Steps, ...] = ()
    refused: str = ""
    """Why a restore is not tried."""
    probe: Argv = ()
    """What fails at once where a new environment would need a network that is denied; changes nothing."""

    def alternatives(self, action: Action) -> tuple[Steps, ...]:
        """What it would run for this action, best first."""
        return {"restore": self.restore, "build": self.build, "test": self.test}[action]


def matching_names(names: Iterable[str], *patterns: str) -> list[str]:
    """The names that fit one of the glob patterns, sorted."""
    return sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def first_of(names: frozenset[str], *wanted: str) -> str | None:
    """The first of the wanted names that is there."""
    return next((name for name in wanted if name in names), None)


RESTORE_ENVIRONMENT = {"NODE_ENV": "development", "npm_config_include": "dev"}
"""Dependencies for development too, whatever the server's own environment or a configuration says: tests need them."""

OFFLINE_ENVIRONMENT = {
    "PIP_RETRIES": "0",
    "UV_OFFLINE": "1",
    "POETRY_REQUESTS_MAX_RETRIES": "0",
    "npm_config_offline": "true",
    "YARN_ENABLE_NETWORK": "false",
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
    "MAVEN_ARGS": "--offline",
}
"""Where the network is denied: each tool does with what is here (vendored, cached, nothing needed) or fails at once.

Only the tool knows whether it needs the network; without these it would retry for 10 to 60 s before it says so.
"""

_FOLDERS = (".venv", "node_modules")
_FILES = (
    *(
        "package.json",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
    ),
    *("uv.lock", "poetry.lock", "pdm.lock", "Cargo.lock", "go.mod", "go.sum", "packages.lock.json"),
)
"""Manifests and lock files that an installation may write."""

ALL_ENTRIES = SavedEntries(moved=_FOLDERS, copied=_FILES)
"""Everything that a restore may have kept, whatever it was."""


def is_new_environment(argv: Argv) -> bool:
    """Whether this makes the virtual environment of a project."""
    return argv[1:] == ("-m", "venv", ".venv")


def entries_of(alternatives: Sequence[Steps]) -> SavedEntries:
    """What these commands may change. `npm ci` and a new virtual environment replace what is there."""
    steps = [argv for steps in alternatives for argv in steps]
    moved = []
    if any(argv[:2] == ("npm", "ci") for argv in steps):
        moved.append("node_modules")
    if any(is_new_environment(argv) for argv in steps):
        moved.append(".venv")
    return SavedEntries(moved=tuple(moved), made=tuple(name for name in _FOLDERS if name not in moved), copied=_FILES)
