"""Detect how a Python project is installed, built and tested.

The project's own virtual environment wins, then the tool whose lock file is there, then the `python3` of PATH.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from coretools.tools.ci.build_system import Argv, BuildSystem, Project, Steps, matching_names
from coretools.tools.ci.python_dependencies import WEAK, Dependencies, dependencies_of, is_requirement, table_at

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
    if needs_pytest and not dependencies.mention("pytest", project):
        words.append("pytest")
    own = _environment(project)
    install = (own or ".venv/bin/python", "-m", "pip", "install", *words)
    pip: list[Steps] = [(install,)] if own else [((name, "-m", "venv", ".venv"), install) for name in _SYSTEM]
    return (*by_lock, *pip)


_SYSTEM = ("python3", "python")


def _probe(settings: dict[str, Any], dependencies: Dependencies, *, packaged: bool) -> Argv:
    """Return a pip command that resolves what will be installed and the build requirements, and installs nothing.

    With a target, because the interpreter's own environment may be one that pip must not touch (PEP 668).
    """
    backend = table_at(settings, "build-system").get("requires")
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
