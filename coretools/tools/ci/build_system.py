"""Input and result of build system detection, and what a restore needs besides its commands. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from coretools.roots.undo import SavedEntries

Action = Literal["restore", "build", "test"]

Argv = tuple[str, ...]
Steps = tuple[Argv, ...]
"""Commands that run in sequence until one fails."""


class Project(Protocol):
    """A project directory for detection: names, and the text of small files. Tests fill one from a table."""

    @property
    def names(self) -> frozenset[str]:
        """Names in the directory itself."""
        ...

    def read(self, path: str) -> str:
        """Return the text of a file, or empty text if it is missing, too large or unreadable."""
        ...

    def names_in(self, path: str) -> frozenset[str]:
        """Return the names in a subdirectory, none if it is missing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSystem:
    """One build system of a project. An action that it does not offer has no alternatives."""

    name: str
    marker: str
    """The file by which it was detected."""
    restore: tuple[Steps, ...] = ()
    """Alternatives, best first: the next one is used if the program of the first can't be started."""
    build: tuple[Steps, ...] = ()
    test: tuple[Steps, ...] = ()
    refused: str = ""
    """Why a restore is refused."""
    probe: Argv = ()
    """Command without side effects that fails at once if a new environment would need the network and it is denied."""

    def alternatives(self, action: Action) -> tuple[Steps, ...]:
        """Return the alternatives for this action, best first."""
        return {"restore": self.restore, "build": self.build, "test": self.test}[action]


def matching_names(names: Iterable[str], *patterns: str) -> list[str]:
    """Return the names that match one of the glob patterns, sorted."""
    return sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def first_of(names: frozenset[str], *wanted: str) -> str | None:
    """Return the first of the wanted names that exists."""
    return next((name for name in wanted if name in names), None)


RESTORE_ENVIRONMENT = {"NODE_ENV": "development", "npm_config_include": "dev"}
"""Installs development dependencies too, whatever other variables or configuration say: tests need them."""

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
"""Set if the network is denied: each tool uses what is available locally (vendored, cached) or fails at once.

Only the tool knows whether it needs the network. Without these variables it would retry for 10 to 60 s before it fails.
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
"""Manifests and lock files that an installation may modify."""

ALL_ENTRIES = SavedEntries(moved=_FOLDERS, copied=_FILES)
"""All entries that a restore may have saved."""


def is_new_environment(argv: Argv) -> bool:
    """Whether this command creates the virtual environment of a project."""
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
