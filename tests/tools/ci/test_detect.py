"""The commands that follow from a project's files. Projects are tables: paths and texts."""

import json

import pytest

from coretools.tools.ci.build_system import Action
from coretools.tools.ci.detect import LOOKED_FOR, choose, detect


class Files:
    """A project in memory. A path that ends in `/` is an empty directory."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        self.names = self.names_in("")

    def read(self, path: str) -> str:
        return self._files.get(path, "")

    def names_in(self, path: str) -> frozenset[str]:
        prefix = f"{path}/" if path else ""
        below = (name.removeprefix(prefix) for name in self._files if name.startswith(prefix))
        return frozenset(name.partition("/")[0] for name in below if name)


def chosen(files: dict[str, str], action: Action) -> tuple[str, list[list[str]]]:
    """The chosen build system and its alternatives, each as command lines."""
    system = choose(detect(Files(files)), action)
    if system is None:
        return "", []
    return system.name, [[" ".join(argv) for argv in steps] for steps in system.alternatives(action)]


def first(files: dict[str, str], action: Action) -> str:
    """The alternative that is tried first."""
    alternatives = chosen(files, action)[1]
    return "; ".join(alternatives[0]) if alternatives else ""


PYTEST = "-m pytest --verbosity=0 --tb=short --color=no -rfE"
PACKAGED = "[build-system]\nrequires = []\n"
LEGACY = {"test": 'echo "Error: no test specified" && exit 1'}


def package(**fields: object) -> str:
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("files", "restore", "build", "test"),
    [
        pytest.param(
            {"pyproject.toml": PACKAGED, ".venv/bin/python": ""},
            ".venv/bin/python -m pip install -e .",
            ".venv/bin/python -m pip wheel --no-deps --wheel-dir dist .",
            f".venv/bin/python {PYTEST}",
            id="Python with its own environment",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGED},
            "python3 -m venv .venv; .venv/bin/python -m pip install -e .",
            "python3 -m pip wheel --no-deps --wheel-dir dist .",
            f"python3 {PYTEST}",
            id="Python without an environment",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGED, "uv.lock": ""},
            "uv sync",
            "uv build",
            f"uv run python {PYTEST}",
            id="Python with uv",
        ),
        pytest.param(
            {"pyproject.toml": PACKAGED, "poetry.lock": ""},
            "poetry install",
            "poetry build",
            f"poetry run python {PYTEST}",
            id="Python with poetry",
        ),
        pytest.param(
            {
                "requirements.txt": "pytest",
                "requirements-dev.txt": "",
                "requirements-docs.txt": "",
                "venv/bin/python": "",
            },
            "venv/bin/python -m pip install -r requirements-dev.txt -r requirements.txt",
            "",
            f"venv/bin/python {PYTEST}",
            id="Python by its lists of packages only",
        ),
        pytest.param(
            {"package.json": package(scripts={"test": "jest", "build": "tsc"}), "package-lock.json": ""},
            "npm ci",
            "npm run build",
            "npm run test",
            id="npm with a lock file",
        ),
        pytest.param({"package.json": package(scripts=LEGACY)}, "npm install", "", "", id="npm with nothing to run"),
        pytest.param(
            {"package.json": package(scripts={"test": "vitest"}), "pnpm-lock.yaml": ""},
            "pnpm install --frozen-lockfile",
            "",
            "pnpm run test",
            id="pnpm",
        ),
        pytest.param(
            {"package.json": package(scripts={"test": "jest"}), "yarn.lock": ""},
            "yarn install",
            "",
            "yarn run test",
            id="yarn",
        ),
        pytest.param(
            {"package.json": package(), "bun.lock": "", "a.test.js": ""},
            "bun install --frozen-lockfile",
            "",
            "bun test",
            id="bun without scripts",
        ),
        pytest.param(
            {"package.json": package(packageManager="pnpm@9.1.0", scripts={"test": "x"}), "yarn.lock": ""},
            "pnpm install",
            "",
            "pnpm run test",
            id="the package manager that package.json names",
        ),
        pytest.param(
            {"package.json": package(), "test/a.mjs": ""}, "npm install", "", "node --test", id="node's own runner"
        ),
        pytest.param({"package.json": "[1", "test/readme": ""}, "npm install", "", "", id="a broken package.json"),
        pytest.param({"Cargo.toml": ""}, "cargo fetch", "cargo build", "cargo test --no-fail-fast", id="Rust"),
        pytest.param({"go.mod": ""}, "go mod download", "go build ./...", "go test -json ./...", id="Go"),
        pytest.param({"Shop.csproj": ""}, "dotnet restore", "dotnet build --nologo", "dotnet test --nologo", id=".NET"),
        pytest.param(
            {"Shop.sln": "", "Shop.csproj": ""},
            "dotnet restore Shop.sln",
            "dotnet build Shop.sln --nologo",
            "dotnet test Shop.sln --nologo",
            id=".NET with a solution beside the project",
        ),
        pytest.param(
            {"pom.xml": ""},
            "mvn -B -ntp dependency:go-offline",
            "mvn -B -ntp -DskipTests package",
            "mvn -B -ntp --fail-at-end test",
            id="Maven",
        ),
        pytest.param(
            {"pom.xml": "", "mvnw": ""},
            "./mvnw -B -ntp dependency:go-offline",
            "./mvnw -B -ntp -DskipTests package",
            "./mvnw -B -ntp --fail-at-end test",
            id="Maven with its wrapper",
        ),
        pytest.param(
            {"build.gradle.kts": "", "gradlew": ""},
            "./gradlew --no-daemon --console=plain dependencies",
            "./gradlew --no-daemon --console=plain assemble",
            "./gradlew --no-daemon --console=plain --continue test",
            id="Gradle with its wrapper",
        ),
        pytest.param(
            {"Makefile": "CC := gcc\n.PHONY: all test\nall deps: main.o\n\tcc\ncheck:\n\ttrue\n"},
            "make deps",
            "make all",
            "make check",
            id="Make, targets by their names",
        ),
        pytest.param(
            {"CMakeLists.txt": ""},
            "",
            "cmake -S . -B build; cmake --build build",
            "cmake -S . -B build; cmake --build build; ctest --test-dir build --output-on-failure",
            id="CMake",
        ),
    ],
)
def test_a_project_is_restored_built_and_tested_by_its_own_build_system(
    files: dict[str, str], restore: str, build: str, test: str
) -> None:
    """ci-1, ci-4: the commands that follow from the files."""
    assert first(files, "restore") == restore
    assert first(files, "build") == build
    assert first(files, "test") == test


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"pytest.ini": ""}, PYTEST, id="pytest.ini"),
        pytest.param({"setup.py": "", "tests/conftest.py": ""}, PYTEST, id="a conftest.py"),
        pytest.param({"pyproject.toml": "[tool.pytest.ini_options]"}, PYTEST, id="settings of pytest"),
        pytest.param({"tox.ini": "[testenv]\ncommands = pytest\n"}, PYTEST, id="tox that runs pytest"),
        pytest.param({"setup.py": "", "requirements-dev.txt": "pytest>=8"}, PYTEST, id="pytest in a list of packages"),
        pytest.param({"setup.py": "", "test_a.py": "def test_x(): pass"}, PYTEST, id="tests that are functions"),
        pytest.param(
            {"setup.py": "", "test_a.py": "import unittest", "tests/test_b.py": "async def test_x(): pass"},
            PYTEST,
            id="both kinds of tests",
        ),
        pytest.param({"setup.py": ""}, PYTEST, id="nothing to tell by"),
        pytest.param({"setup.py": "", "test_a.py": "import unittest"}, "-m unittest discover", id="unittest"),
        pytest.param(
            {"setup.py": "", "tests/test_a.py": "from unittest import TestCase"},
            "-m unittest discover -s tests",
            id="unittest in a directory",
        ),
        pytest.param(
            {"setup.py": "", "tests/test_a.py": "import unittest", "tests/__init__.py": ""},
            "-m unittest discover -s tests -t .",
            id="unittest in a package",
        ),
        pytest.param({"manage.py": "", "app/tests.py": ""}, "manage.py test", id="Django"),
        pytest.param({"manage.py": "", "conftest.py": ""}, PYTEST, id="Django with pytest"),
    ],
)
def test_python_tests_run_under_the_runner_they_are_written_for(files: dict[str, str], expected: str) -> None:
    """ci-3: pytest unless the tests are written for unittest only."""
    assert first(files, "test") == f"python3 {expected}"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"uv.lock": "", "setup.py": ""}, ["uv run python", "python3", "python"], id="uv may be missing"),
        pytest.param({"setup.py": ""}, ["python3", "python"], id="python3 may be missing"),
        pytest.param({"setup.py": "", "uv.lock": "", ".venv/bin/python": ""}, [".venv/bin/python"], id="its own wins"),
    ],
)
def test_python_programs_are_tried_in_order(files: dict[str, str], expected: list[str]) -> None:
    """ci-3: own environment, then lock file, then PATH; ci-6: the next one if a program cannot be started."""
    assert [steps[0] for steps in chosen(files, "test")[1]] == [f"{program} {PYTEST}" for program in expected]


def test_a_wrapper_that_is_not_executable_is_run_by_sh() -> None:
    """ci-6: archives and some checkouts lose the executable bit."""
    assert [steps[0].partition(" -")[0] for steps in chosen({"pom.xml": "", "mvnw": ""}, "test")[1]] == [
        "./mvnw",
        "sh mvnw",
    ]


def test_optional_dependencies_for_tests_are_installed() -> None:
    """ci-3: what the project declares for its tests."""
    settings = "[project]\nname = 'x'\n[project.optional-dependencies]\ntest = []\ndocs = []\ndev = []\n"
    files = {"pyproject.toml": settings, ".venv/bin/python": ""}
    assert first(files, "restore") == ".venv/bin/python -m pip install -e .[test,dev]"


ALL = {
    "pyproject.toml": PACKAGED,
    "package.json": package(scripts={"test": "jest", "build": "tsc"}),
    "Cargo.toml": "",
    "go.mod": "",
    "a.sln": "",
    "pom.xml": "",
    "build.gradle": "",
    "Makefile": "test:\nbuild:\n",
    "CMakeLists.txt": "",
}
ORDER = ["python", "node", "rust", "go", "dotnet", "maven", "gradle", "make", "cmake"]


@pytest.mark.parametrize("absent", range(len(ORDER)))
def test_of_several_build_systems_the_first_in_order_is_taken(absent: int) -> None:
    """ci-1: Python, Node, Rust, Go, .NET, Maven, Gradle, Make, CMake."""
    files = dict(list(ALL.items())[absent:])
    assert [system.name for system in detect(Files(files))] == ORDER[absent:]
    assert chosen(files, "test")[0] == ORDER[absent]


@pytest.mark.parametrize(
    ("files", "action", "expected"),
    [
        pytest.param(
            {"package.json": package(), "Makefile": "build:\n"}, "build", "make", id="Node without a build script"
        ),
        pytest.param({"pyproject.toml": "[tool.ruff]", "Cargo.toml": ""}, "test", "rust", id="a Python linter only"),
        pytest.param({"pyproject.toml": "[tool.ruff]"}, "test", "python", id="a Python linter and nothing else"),
        pytest.param(
            {"requirements.txt": "sphinx", "Makefile": "test:\n"}, "test", "make", id="lists of packages last"
        ),
        pytest.param({"Makefile": "install:\n", "CMakeLists.txt": ""}, "test", "cmake", id="Make without a target"),
    ],
)
def test_a_system_that_does_not_offer_the_action_is_passed_over(
    files: dict[str, str], action: Action, expected: str
) -> None:
    """ci-1: for each action the first system that offers it."""
    assert chosen(files, action)[0] == expected


def test_a_directory_without_any_of_the_files_has_no_build_system() -> None:
    """ci-5: the error can name the files searched for."""
    assert detect(Files({"README.md": "", "src/": ""})) == []
    assert all(name in LOOKED_FOR for name in ("pyproject.toml", "package.json", "*.csproj", "CMakeLists.txt"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    ["a." * 100_000 + "b = 1", "x = { " + "a." * 100_000 + "b = 1 }", ("a." * 99 + "b%d = 1\n") * 1000, "[" * 100_000],
    ids=["a key of 100,000 parts", "the same in a table", "many long keys", "brackets"],
)
def test_hostile_settings_do_not_delay_detection(line: str) -> None:
    """ci-1: a repository cannot keep a call busy with one line of its settings."""
    assert [system.name for system in detect(Files({"pyproject.toml": f"[project]\n{line}\n"}))] == ["python"]


def test_dots_in_strings_are_no_parts_of_a_key() -> None:
    """ci-1: a long list of versions on one line is read."""
    wanted = ", ".join(f'"p{number}>=1.2.3"' for number in range(100))
    files = {"pyproject.toml": f'[project]\nname = "a"\noptional-dependencies = {{ test = [{wanted}] }}\n'}
    assert "[test]" in first(files, "restore")


@pytest.mark.parametrize("text", ["", "[", "{}", '{"scripts": 1}', "\x00", "a = 1\n" * 3, "[project]\n", "project = 1"])
def test_settings_that_can_not_be_read_do_not_stop_detection(text: str) -> None:
    """ci-1: a broken file still counts as that file."""
    files = {"pyproject.toml": text, "package.json": text, "Makefile": text}
    assert {system.name for system in detect(Files(files))} == {"python", "node"}
