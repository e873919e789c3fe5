"""The test dependencies of a Python project: extras, dependency groups, requirements files. Pure.

Without any of these, the dependencies of a test environment of tox or hatch are used; neither tool is run.
"""

import configparser
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coretools.errors import Unsupported
from coretools.tools.ci.build_system import Project, matching_names

WEAK = "requirements*.txt"
"""Requirements files. Projects in other languages may have one too, for their documentation."""

_NAMES = ("test", "tests", "testing", "dev")
"""Extras and groups of test dependencies; the declared ones are installed."""

_FOLDER = "requirements"
_HATCH = ("default", "hatch-test", *_NAMES)
_FACTOR = re.compile(r"[\w!,{}.-]+: ")
"""Prefix of a tox line that applies to some environments only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What to install besides the project itself."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Names of PEP 735 groups, as written."""
    lists: tuple[str, ...] = ()
    """Requirements files."""
    packages: tuple[str, ...] = ()
    """Requirements of the groups, expanded: pip accepts group names only since 25.1."""
    refused: str = ""
    """Why the groups can't be read."""

    def mention(self, package: str, project: Project) -> bool:
        """Whether a package is named anywhere in the lists and packages, or in the metadata of the extras."""
        texts = [*self.packages, *(project.read(name) for name in self.lists)]
        if self.extras:
            texts += [project.read(name) for name in ("pyproject.toml", "setup.cfg")]
        return any(package in text for text in texts)


def dependencies_of(project: Project, settings: dict[str, Any]) -> Dependencies:
    """Return the test dependencies of a project; `settings` is its pyproject.toml."""
    declared = table_at(settings, "dependency-groups")
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


def table_at(settings: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return a table of the settings; an empty one if there is none."""
    for name in path:
        table = settings.get(name)
        settings = table if isinstance(table, dict) else {}
    return settings


def _normal(name: str) -> str:
    """Normalise a name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _expanded(groups: dict[str, Any], name: str, above: tuple[str, ...]) -> Iterable[str]:
    """Return the requirements of a group and of the groups that it includes.

    Raises:
        Unsupported: groups that include each other, or one that is not there.
    """
    if name in above:
        raise Unsupported(f"pyproject.toml: dependency groups include each other ({' -> '.join((*above, name))})")
    if name not in groups:
        raise Unsupported(f"pyproject.toml: dependency group {above[-1]!r} includes {name!r}, which is not declared")
    requirements: list[str] = []
    entries = groups[name]
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str):
            requirements.append(entry)
        elif isinstance(entry, dict) and isinstance(included := entry.get("include-group"), str):
            same = (group for group in groups if _normal(group) == _normal(included))
            requirements += _expanded(groups, next(same, included), (*above, name))
    return requirements


def is_requirement(text: str) -> bool:
    """Whether the text is not an option and short enough to be a requirement."""
    return bool(text) and not text.startswith("-") and len(text) < 1_000


def _extras(project: Project, settings: dict[str, Any]) -> tuple[str, ...]:
    names = [*table_at(settings, "project", "optional-dependencies"), *table_at(settings, "tool", "poetry", "extras")]
    setup = _ini(project.read("setup.cfg"))
    names += setup.options("options.extras_require") if setup.has_section("options.extras_require") else []
    return tuple(dict.fromkeys(name for wanted in _NAMES for name in names if _normal(name) == wanted))


def _lists(project: Project) -> list[str]:
    """Return the main requirements file and those for tests and development, or all if none has such a name."""
    files = matching_names(project.names, WEAK)
    chosen = [name for name in files if name == "requirements.txt" or "dev" in name or "test" in name]
    return chosen or files


def _lists_in_folder(project: Project) -> list[str]:
    names = matching_names(project.names_in(_FOLDER), *(f"{name}.txt" for name in _NAMES))
    return [f"{_FOLDER}/{name}" for name in names]


def _of_hatch(settings: dict[str, Any]) -> list[str]:
    packages: list[str] = []
    for name in _HATCH:
        for key in ("dependencies", "extra-dependencies"):
            listed = table_at(settings, "tool", "hatch", "envs", name).get(key)
            packages += [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    return packages


def _of_tox(project: Project) -> list[str]:
    """Return the plain lines of `deps`, without references to files and other sections."""
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
