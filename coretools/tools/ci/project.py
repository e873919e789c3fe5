"""What detection sees of a project and what it answers: plain data, and a view that a test can fill from a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

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
