"""What a Python project names as needed by its tests: extras, dependency groups, lists of packages. Pure.

Where none of these is there, the dependencies of a test environment of tox or hatch are taken: neither tool is run.
"""

import configparser
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coretools.errors import Unsupported
from coretools.tools.ci.project import Project, matching

WEAK = "requirements*.txt"
"""Lists of packages: projects of other languages have one too, for their documentation."""

_NAMES = ("test", "tests", "testing", "dev")
"""Extras and groups that hold what tests need; those that are declared are installed."""

_FOLDER = "requirements"
_HATCH = ("default", "hatch-test", *_NAMES)
_FACTOR = re.compile(r"[\w!,{}.-]+: ")
"""Before a line of tox that counts for some environments only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What to install beside the project itself."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Names of PEP 735 groups, as they are written."""
    lists: tuple[str, ...] = ()
    """Files of requirements."""
    packages: tuple[str, ...] = ()
    """Requirements: those of the groups, which pip knows by name only since 25.1."""
    refused: str = ""
    """Why the groups can't be read."""

    def name(self, package: str, project: Project) -> bool:
        """Whether a package is named anywhere in the lists and packages, or in the metadata of the extras."""
        texts = [*self.packages, *(project.read(name) for name in self.lists)]
        if self.extras:
            texts += [project.read(name) for name in ("pyproject.toml", "setup.cfg")]
        return any(package in text for text in texts)


def dependencies_of(project: Project, settings: dict[str, Any]) -> Dependencies:
    """The dependencies of a project, `settings` being its pyproject.toml."""
    declared = _table(settings, "dependency-groups")
    groups = tuple(name for name in declared if _normal(name) in _NAMES)
    try:
        packages = [package for name in groups for package in _expanded(declared, name, ())]
    except Unsupported as error:
        return Dependencies(refused=str(error))
    extras, lists = _extras(project, settings), _lists(project)
    if not (lists or extras or groups):
        lists = _lists_in_folder(project)
        packages = [] if lists else [*_of_hatch(settings), *_of_tox(project)]
    wanted = tuple(dict.fromkeys(filter(is_requirement, packages)))
    return Dependencies(extras=extras, groups=groups, lists=tuple(lists), packages=wanted)


def _table(above: dict[str, Any], name: str) -> dict[str, Any]:
    found = above.get(name)
    return found if isinstance(found, dict) else {}


def _normal(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _expanded(groups: dict[str, Any], name: str, above: tuple[str, ...]) -> Iterable[str]:
    """The requirements of a group, included groups too.

    Raises:
        Unsupported: groups that include each other, or one that is not there.
    """
    if name in above:
        raise Unsupported(f"pyproject.toml: dependency groups include each other ({' -> '.join((*above, name))})")
    if name not in groups:
        raise Unsupported(f"pyproject.toml: dependency group {above[-1]!r} includes {name!r}, which is not declared")
    found: list[str] = []
    entries = groups[name]
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, dict) and isinstance(included := entry.get("include-group"), str):
            same = (one for one in groups if _normal(one) == _normal(included))
            found += _expanded(groups, next(same, included), (*above, name))
    return found


def is_requirement(text: str) -> bool:
    """Not an option, and short enough to be a requirement that a person wrote."""
    return bool(text) and not text.startswith("-") and len(text) < 1_000


def _extras(project: Project, settings: dict[str, Any]) -> tuple[str, ...]:
    names = [*_table(_table(settings, "project"), "optional-dependencies")]
    names += [*_table(_table(_table(settings, "tool"), "poetry"), "extras")]
    setup = _ini(project.read("setup.cfg"))
    names += setup.options("options.extras_require") if setup.has_section("options.extras_require") else []
    return tuple(dict.fromkeys(name for wanted in _NAMES for name in names if _normal(name) == wanted))


def _lists(project: Project) -> list[str]:
    """The main list and those for tests and development; all of them when none is called so."""
    found = matching(project.names, WEAK)
    chosen = [name for name in found if name == "requirements.txt" or "dev" in name or "test" in name]
    return chosen or found


def _lists_in_folder(project: Project) -> list[str]:
    names = matching(project.inside(_FOLDER), *(f"{name}.txt" for name in _NAMES))
    return [f"{_FOLDER}/{name}" for name in names]


def _of_hatch(settings: dict[str, Any]) -> list[str]:
    environments = _table(_table(_table(settings, "tool"), "hatch"), "envs")
    found: list[str] = []
    for name in _HATCH:
        for key in ("dependencies", "extra-dependencies"):
            listed = _table(environments, name).get(key)
            found += [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    return found


def _of_tox(project: Project) -> list[str]:
    """The plain lines of `deps`; what refers to a file or to another section is left out."""
    settings = _ini(project.read("tox.ini"))
    listed = settings.get("testenv", "deps", fallback="")
    lines = [_FACTOR.sub("", line.strip(), count=1).strip() for line in listed.split("\n")]
    return [line for line in lines if line and not set(line) & set("{}#")]


def _ini(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser
