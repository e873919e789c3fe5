"""How a Python project is installed, built and tested.

The project's own virtual environment wins, then the tool whose lock file is there, then the `python3` of PATH.
"""

import configparser
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coretools.errors import Unsupported
from coretools.tools.ci.build_system import Argv, BuildSystem, Project, Steps, matching_names

# Test dependencies of a Python project: extras, dependency groups, requirements files. Pure.
#
# Without any of these, the dependencies of a test environment of tox or hatch are used; neither tool is run.


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
    table = above.get(name)
    return table if isinstance(table, dict) else {}


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
    """Whether the text is no option and short enough to be a requirement."""
    return bool(text) and not text.startswith("-") and len(text) < 1_000


def _extras(project: Project, settings: dict[str, Any]) -> tuple[str, ...]:
    names = [*_table(_table(settings, "project"), "optional-dependencies")]
    names += [*_table(_table(_table(settings, "tool"), "poetry"), "extras")]
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
    environments = _table(_table(_table(settings, "tool"), "hatch"), "envs")
    packages: list[str] = []
    for name in _HATCH:
        for key in ("dependencies", "extra-dependencies"):
            listed = _table(environments, name).get(key)
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


STRONG = ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "manage.py")
"""Files that make a directory a Python project by themselves; the first and third only with one of `_SIGNS`."""

_SIGNS = {
    "pyproject.toml": ("[project]", "[build-system]", "[tool.poetry", "[tool.uv", "[tool.pdm", "[tool.hatch", "pytest"),
    "setup.cfg": ("[metadata]", "[options", "pytest"),
}
"""Projects in other languages keep the settings of Python linters in these files too."""

_PYTEST_ARGUMENTS: Argv = ("-m", "pytest", "--verbosity=0", "--tb=short", "--color=no", "-rfE")
"""Added after the project's own `addopts`, so that a `-qq` or `--tb=no` there does not suppress the report."""

_PLAIN_TEST = re.compile(r"^(?:import pytest|from pytest|(?:async )?def test_)", re.MULTILINE)

_MOST_DOTS = 100
"""In one line, strings left out. A key of 100,000 parts (200 KB) keeps tomllib busy for minutes (CPython 3.11)."""

_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")

_MOST_TEST_FILES = 20
"""Test files that are read to tell pytest from unittest."""


def detect_python(project: Project) -> BuildSystem | None:
    """Detect a project by a file that only Python projects have."""
    marker = _strong(project)
    return _system(project, marker) if marker else None


def detect_weak(project: Project) -> BuildSystem | None:
    """Detect a project that has only requirements files, or settings that may be a linter's. Called last."""
    markers = matching_names(project.names, *_SIGNS, WEAK)
    return _system(project, markers[0]) if markers and not _strong(project) else None


def _strong(project: Project) -> str | None:
    candidates = (name for name in STRONG if name in project.names)
    return next((name for name in candidates if name not in _SIGNS or _has_sign(project, name)), None)


def _has_sign(project: Project, name: str) -> bool:
    text = project.read(name)
    return any(sign in text for sign in _SIGNS[name])


def _system(project: Project, marker: str) -> BuildSystem:
    settings = _toml(project.read("pyproject.toml"))
    packaged = bool(settings.keys() & {"project", "build-system"}) or "setup.py" in project.names
    runs = _interpreters(project)
    test = _test_arguments(project)
    wheel = ("-m", "pip", "wheel", "--no-deps", "--wheel-dir", "dist", ".")
    by_lock = _by_lock(project, uv=("uv", "build"), poetry=("poetry", "build"), pdm=("pdm", "build"))
    build = [*by_lock, *((((*run, *wheel),)) for run in runs)]
    dependencies = dependencies_of(project, settings)
    needs_pytest = test == _PYTEST_ARGUMENTS and _has_tests(project)
    return BuildSystem(
        name="python",
        marker=marker,
        restore=_restore(project, dependencies, packaged=packaged, needs_pytest=needs_pytest),
        refused=dependencies.refused,
        probe=_probe(settings, dependencies, packaged=packaged),
        build=tuple(build) if packaged else (),
        test=tuple(((*run, *test),) for run in runs),
    )


def _toml(text: str) -> dict[str, Any]:
    if any(_STRING.sub("", line).count(".") > _MOST_DOTS for line in text.split("\n")):
        return {}
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _environment(project: Project) -> str | None:
    """Return the interpreter of the project's virtual environment, found by name: it is a link out of the project."""
    folders = (folder for folder in (".venv", "venv") if folder in project.names)
    return next((f"{folder}/bin/python" for folder in folders if "python" in project.names_in(f"{folder}/bin")), None)


def _interpreters(project: Project) -> list[Argv]:
    own = _environment(project)
    if own:
        return [(own,)]
    run = ("run", "python")
    by_lock = _by_lock(project, uv=("uv", *run), poetry=("poetry", *run), pdm=("pdm", *run))
    return [*(steps[0] for steps in by_lock), ("python3",), ("python",)]


def _by_lock(project: Project, *, uv: Argv, poetry: Argv, pdm: Argv) -> list[Steps]:
    """Return the commands of the tools whose lock file exists."""
    locks = (("uv.lock", uv), ("poetry.lock", poetry), ("pdm.lock", pdm))
    return [(argv,) for lock, argv in locks if lock in project.names]


def _restore(project: Project, dependencies: Dependencies, *, packaged: bool, needs_pytest: bool) -> tuple[Steps, ...]:
    """Packages go into the virtual environment of the project, which is made first when there is none.

    pytest is added where the tests are for it and no list names it: ci_test would start it next.
    """
    extras = dependencies.extras
    by_lock = _by_lock(
        project,
        uv=("uv", "sync", *_each("--extra", extras), *_each("--group", dependencies.groups)),
        poetry=("poetry", "install", *_each("--extras", extras)),
        pdm=("pdm", "install", *_each("--group", extras)),
    )
    words = [*_each("-r", dependencies.lists), *dependencies.packages]
    words += ["-e", f".[{','.join(extras)}]" if extras else "."] if packaged else []
    if not words:
        return tuple(by_lock)
    if needs_pytest and not dependencies.name("pytest", project):
        words.append("pytest")
    own = _environment(project)
    install = (own or ".venv/bin/python", "-m", "pip", "install", *words)
    pip: list[Steps] = [(install,)] if own else [((name, "-m", "venv", ".venv"), install) for name in _SYSTEM]
    return (*by_lock, *pip)


_SYSTEM = ("python3", "python")


def _probe(settings: dict[str, Any], dependencies: Dependencies, *, packaged: bool) -> Argv:
    """What pip itself finds of what will be installed and of what the project is built with.

    With a target, because the interpreter's own environment may be one that pip must not touch (PEP 668).
    """
    table = settings.get("build-system", {})
    backend = table.get("requires") if isinstance(table, dict) else None
    named = [word for word in backend if isinstance(word, str)] if isinstance(backend, list) else ["setuptools"]
    words = (
        *_each("-r", dependencies.lists),
        *dependencies.packages,
        *(filter(is_requirement, named) if packaged else ()),
    )
    dry = ("install", "--dry-run", "--quiet", "--ignore-installed", "--target", ".venv")
    # In one word: after `-m pip` pyenv's `python3` runs `pyenv rehash`, which fails in the sandbox though pip did not.
    return (_SYSTEM[0], "-mpip", *dry, *words) if words else ()


def _each(flag: str, values: Sequence[str]) -> Argv:
    return tuple(word for value in values for word in (flag, value))


def _has_tests(project: Project) -> bool:
    return bool(_test_folders(project) or matching_names(project.names, "test*.py", "conftest.py", "*_test.py"))


def _test_arguments(project: Project) -> Argv:
    if _names_pytest(project):
        return _PYTEST_ARGUMENTS
    if "manage.py" in project.names:
        return ("manage.py", "test")
    return _unittest_arguments(project) if _is_unittest(project) else _PYTEST_ARGUMENTS


def _names_pytest(project: Project) -> bool:
    names = project.names
    if names & {"pytest.ini", ".pytest.ini", "conftest.py"}:
        return True
    if any("conftest.py" in project.names_in(folder) for folder in _test_folders(project)):
        return True
    places = ["pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Pipfile", *matching_names(names, WEAK)]
    return any("pytest" in project.read(name) for name in places if name in names)


def _test_folders(project: Project) -> list[str]:
    return [folder for folder in ("tests", "test") if folder in project.names]


def _is_unittest(project: Project) -> bool:
    """Whether the tests are written for unittest and need nothing else."""
    folders = _test_folders(project)
    files = [f"{folder}/{name}" for folder in folders for name in matching_names(project.names_in(folder), "test*.py")]
    texts = [project.read(path) for path in (matching_names(project.names, "test*.py") + files)[:_MOST_TEST_FILES]]
    return any("unittest" in text for text in texts) and not any(_PLAIN_TEST.search(text) for text in texts)


def _unittest_arguments(project: Project) -> Argv:
    for folder in _test_folders(project):
        names_in = project.names_in(folder)
        if matching_names(names_in, "test*.py"):
            # unittest accepts a start directory that is no package only as its own top level.
            top = ("-t", ".") if "__init__.py" in names_in else ()
            return ("-m", "unittest", "discover", "-s", folder, *top)
    return ("-m", "unittest", "discover")
