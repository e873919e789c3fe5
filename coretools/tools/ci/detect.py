"""Detect the build systems of a project and the commands of each. Pure over a listing and the text of a few files.

For each action the first system that offers it is used, in this order: Python, Node, Rust, Go, .NET, Maven, Gradle,
Make, CMake, then projects that are possibly Python. A language comes before a build tool that wraps it, since its
output can be parsed; an outer language (Python, Node) before the language of its extension modules; a Makefile before
the CMake that it calls.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from coretools.tools.ci.build_system import Action, Argv, BuildSystem, Project, Steps, first_of, matching_names
from coretools.tools.ci.detect_python import STRONG, detect_python, detect_weak
from coretools.tools.ci.python_dependencies import WEAK

_DOTNET = ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj")
_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_OTHERS = ("package.json", "Cargo.toml", "go.mod", *_DOTNET, "pom.xml", *_GRADLE, "Makefile", "CMakeLists.txt")

_FILES = {
    "python": (*STRONG, WEAK),
    "node": ("package.json",),
    "rust": ("Cargo.toml",),
    "go": ("go.mod", "go.work"),
    "dotnet": _DOTNET,
    "maven": ("pom.xml",),
    "gradle": _GRADLE,
    "make": _MAKEFILES,
    "cmake": ("CMakeLists.txt",),
}
"""Project files that a caller may give instead of their directory."""

LOOKED_FOR = ", ".join((*STRONG, WEAK, *_OTHERS))
"""All files by which a build system is detected, for the error when none was found."""


def detect(project: Project, named: str = "") -> list[BuildSystem]:
    """Return the build systems of a project in order of precedence, or only that of the file `named`."""
    if matching_names([named], *_DOTNET):
        return [_dotnet(named, (named,))]
    systems = [system for detector in _DETECTORS if (system := detector(project)) is not None]
    return [system for system in systems if system.name == system_of(named)] if named else systems


def system_of(name: str) -> str | None:
    """Return the build system to which a file of this name belongs."""
    return next((system for system, patterns in _FILES.items() if matching_names([name], *patterns)), None)


def choose(systems: list[BuildSystem], action: Action) -> BuildSystem | None:
    """Return the first system that offers the action."""
    return next((system for system in systems if system.alternatives(action)), None)


def _one(*argv: str) -> tuple[Steps, ...]:
    """Return one command without alternatives."""
    return ((argv,),)


_LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}
_INSTALL: Argv = ("install",)
_FROZEN: dict[str, Argv] = {
    "npm": ("ci",),
    "pnpm": ("install", "--frozen-lockfile"),
    "bun": ("install", "--frozen-lockfile"),
}
"""Installs exactly the versions of the lock file. yarn does so without a flag when CI is set."""

_NO_TEST = "no test specified"
"""Part of the script that `npm init` writes."""

_NODE_TESTS = ("*.test.js", "*.test.mjs", "*.test.cjs", "*-test.js", "*_test.js", "test.js", "test.mjs")


def detect_node(project: Project) -> BuildSystem | None:
    """Detect package.json, its scripts, and the package manager of the lock file."""
    if "package.json" not in project.names:
        return None
    package = _json(project.read("package.json"))
    scripts = package.get("scripts")
    scripts = scripts if isinstance(scripts, dict) else {}
    lock = first_of(project.names, *_LOCKS)
    named = str(package.get("packageManager", "")).partition("@")[0]
    manager = named if named in _LOCKS.values() else _LOCKS.get(lock or "", "npm")
    is_locked = lock is not None and _LOCKS[lock] == manager
    return BuildSystem(
        name="node",
        marker=lock or "package.json",
        restore=_one(manager, *(_FROZEN.get(manager, _INSTALL) if is_locked else _INSTALL)),
        build=_one(manager, "run", "build") if "build" in scripts else (),
        test=_node_test(project, manager, script=str(scripts.get("test", _NO_TEST))),
    )


def _node_test(project: Project, manager: str, *, script: str) -> tuple[Steps, ...]:
    if _NO_TEST not in script:
        return _one(manager, "run", "test")
    own = matching_names(project.names, *_NODE_TESTS)
    if own or matching_names(project.names_in("test"), "*.js", "*.mjs", "*.cjs", "*.ts"):
        return _one("bun", "test") if manager == "bun" else _one("node", "--test")
    return ()


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def detect_rust(project: Project) -> BuildSystem | None:
    """Detect Cargo.toml."""
    if "Cargo.toml" not in project.names:
        return None
    return BuildSystem(
        name="rust",
        marker="Cargo.toml",
        restore=_one("cargo", "fetch"),
        build=_one("cargo", "build"),
        # Runs all test binaries; without the flag the run ends at the first failing one.
        test=_one("cargo", "test", "--no-fail-fast"),
    )


def detect_go(project: Project) -> BuildSystem | None:
    """Detect go.mod or go.work."""
    marker = first_of(project.names, "go.mod", "go.work")
    if marker is None:
        return None
    return BuildSystem(
        name="go",
        marker=marker,
        # Vendored modules need no download, and `go mod download` would download them nevertheless.
        restore=_one("go", "list", "-mod=vendor", "./...")
        if "vendor" in project.names
        else _one("go", "mod", "download"),
        build=_one("go", "build", "./..."),
        test=_one("go", "test", "-json", "./..."),
    )


def detect_dotnet(project: Project) -> BuildSystem | None:
    """Detect a solution or, without one, a project file; it is an argument of the command if there are several."""
    candidates = next((names for pattern in _DOTNET if (names := matching_names(project.names, pattern))), None)
    if candidates is None:
        return None
    return _dotnet(candidates[0], (candidates[0],) if len(matching_names(project.names, *_DOTNET)) > 1 else ())


def _dotnet(marker: str, chosen: Argv) -> BuildSystem:
    return BuildSystem(
        name="dotnet",
        marker=marker,
        restore=_one("dotnet", "restore", *chosen),
        build=_one("dotnet", "build", *chosen, "--nologo"),
        test=_one("dotnet", "test", *chosen, "--nologo"),
    )


def _wrapped(project: Project, wrapper: str, program: str) -> list[Argv]:
    """Return the project's wrapper script (with sh as alternative if not executable), else the program of PATH."""
    return [(f"./{wrapper}",), ("sh", wrapper)] if wrapper in project.names else [(program,)]


def detect_maven(project: Project) -> BuildSystem | None:
    """Detect pom.xml."""
    if "pom.xml" not in project.names:
        return None
    runs = [(*run, "-B", "-ntp") for run in _wrapped(project, "mvnw", "mvn")]
    return BuildSystem(
        name="maven",
        marker="pom.xml",
        restore=tuple(((*run, "dependency:go-offline"),) for run in runs),
        build=tuple(((*run, "-DskipTests", "package"),) for run in runs),
        test=tuple(((*run, "--fail-at-end", "test"),) for run in runs),
    )


def detect_gradle(project: Project) -> BuildSystem | None:
    """Detect build.gradle or settings.gradle, in either language. Uses no daemon: nothing may outlive the call."""
    marker = first_of(project.names, *_GRADLE)
    if marker is None:
        return None
    runs = [(*run, "--no-daemon", "--console=plain") for run in _wrapped(project, "gradlew", "gradle")]
    return BuildSystem(
        name="gradle",
        marker=marker,
        restore=tuple(((*run, "dependencies"),) for run in runs),
        build=tuple(((*run, "assemble"),) for run in runs),
        test=tuple(((*run, "--continue", "test"),) for run in runs),
    )


_TARGETS = re.compile(r"^([A-Za-z0-9][^:=#\t\n]*):(?!=)", re.MULTILINE)


def detect_make(project: Project) -> BuildSystem | None:
    """Detect a Makefile with a target named after one of the actions."""
    makefile = first_of(project.names, *_MAKEFILES)
    if makefile is None:
        return None
    targets = {name for names in _TARGETS.findall(project.read(makefile)) for name in names.split()}
    restore, build, test = (
        next((target for target in wanted if target in targets), None)
        for wanted in (("restore", "deps", "install-deps"), ("build", "all"), ("test", "tests", "check"))
    )
    if restore is build is test is None:
        return None
    return BuildSystem(
        name="make",
        marker=makefile,
        restore=_one("make", restore) if restore else (),
        build=_one("make", build) if build else (),
        test=_one("make", test) if test else (),
    )


def detect_cmake(project: Project) -> BuildSystem | None:
    """Detect CMakeLists.txt: configure and build into build/, then run ctest."""
    if "CMakeLists.txt" not in project.names:
        return None
    build: Steps = (("cmake", "-S", ".", "-B", "build"), ("cmake", "--build", "build"))
    test: Steps = (*build, ("ctest", "--test-dir", "build", "--output-on-failure"))
    return BuildSystem(name="cmake", marker="CMakeLists.txt", build=(build,), test=(test,))


_DETECTORS: tuple[Callable[[Project], BuildSystem | None], ...] = (
    detect_python,
    detect_node,
    detect_rust,
    detect_go,
    detect_dotnet,
    detect_maven,
    detect_gradle,
    detect_make,
    detect_cmake,
    detect_weak,
)
