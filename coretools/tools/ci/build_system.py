"""Input and result of build system detection. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

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
