"""The ci tools on real projects with real children: what is run, what is refused, and what the answer contains."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from coretools.config.limits import Limits
from coretools.errors import CannotStart, OutsideRoot, ReadOnly, Unsupported
from coretools.process.environment import child_environment
from coretools.process.jobs.job_table import JobTable
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.ci.tools import CiTools

LIMITS = Limits()


@asynccontextmanager
async def ci_in(
    directory: Path, *, writable: bool = True, limits: Limits = LIMITS, path: str | None = None
) -> AsyncIterator[CiTools]:
    """The tools beneath a directory; `path` replaces the PATH of children."""
    environment = child_environment(os.environ, passed=())
    if path is not None:
        environment["PATH"] = path
    with Roots([RootSpec(str(directory), writable=writable)], deny=DenyRules(DEFAULT_DENY)) as roots:
        runner = Runner(limits, environment)
        async with JobTable(runner, limits) as runs:
            try:
                yield CiTools(roots, runs, limits)
            finally:
                await runner.close()


def write(path: Path, text: str, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if executable:
        path.chmod(0o755)


def python_project(directory: Path, tests: str) -> None:
    """A project whose own environment is the interpreter that runs this test."""
    write(directory / "pyproject.toml", "[project]\nname = 'sample'\nversion = '1'\n[tool.pytest.ini_options]\n")
    write(directory / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n', executable=True)
    write(directory / "tests/test_sample.py", tests)


FAILING = """\
import pytest

def test_good():
    pass

def test_bad():
    assert 1 + 1 == 3, "sums"

@pytest.mark.skip
def test_later():
    pass
"""


async def test_a_test_run_comes_back_as_counts_and_failures_with_their_places(tmp_path: Path) -> None:
    """ci-9, ci-10: paths of failures are relative to the first root, as for the other tools."""
    python_project(tmp_path / "app", FAILING)
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test("app")
    assert report.counts == {"passed": 1, "failed": 1, "skipped": 1, "errors": 0, "total": 3}
    [failure] = report.failures
    assert (failure.file, failure.line) == ("app/tests/test_sample.py", 7)
    assert failure.name == "tests/test_sample.py::test_bad"
    assert failure.message == "AssertionError: sums assert (1 + 1) == 3"
    assert report.failed
    assert report.exit_code == 1
    first, detected, listed, *_ = report.text().split("\n")
    assert first.startswith("1 passed, 1 failed, 1 skipped in ")
    assert first.endswith("-rfE): exit code 1")
    assert detected == "[detected python (pyproject.toml); `command` overrides]"
    assert listed.startswith("app/tests/test_sample.py:7: tests/test_sample.py::test_bad: AssertionError: sums")
    assert "short test summary info" in report.text()


async def test_a_successful_run_is_reported_in_two_lines(tmp_path: Path) -> None:
    """ci-9: only the counts if nothing failed."""
    python_project(tmp_path, "def test_good(): pass\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert not report.failed
    assert report.counts["passed"] == report.counts["total"] == 1
    assert len(report.text().split("\n")) == 2


async def test_settings_of_the_project_do_not_suppress_the_report(tmp_path: Path) -> None:
    """ci-9: the chosen options follow `addopts`."""
    python_project(tmp_path, FAILING)
    write(tmp_path / "pytest.ini", "[pytest]\naddopts = -qq --tb=no -rN --color=yes\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert report.counts["failed"] == 1
    assert [(failure.file, failure.line) for failure in report.failures] == [("tests/test_sample.py", 7)]


async def test_unittest_projects_are_run_by_unittest(tmp_path: Path) -> None:
    """ci-3: without pytest anywhere."""
    python_project(tmp_path, "import unittest\nclass T(unittest.TestCase):\n def test_a(self): self.fail('no')\n")
    write(tmp_path / "pyproject.toml", "[project]\nname = 'sample'\nversion = '1'\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert report.command == ".venv/bin/python -m unittest discover -s tests"
    assert report.counts["failed"] == 1
    assert [(failure.file, failure.line) for failure in report.failures] == [("tests/test_sample.py", 3)]


async def test_a_command_of_the_caller_is_run_instead_and_its_output_read(tmp_path: Path) -> None:
    """ci-2: `command` overrides detection."""
    python_project(tmp_path, FAILING)
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command=".venv/bin/python -m pytest -q -k 'good or later'")
    assert report.counts == {"passed": 1, "failed": 0, "skipped": 1, "errors": 0, "total": 2}
    assert "detected" not in report.text()


async def test_the_events_of_go_are_read_and_shown_as_text(tmp_path: Path) -> None:
    """ci-9: a failure has a package of the module and a file beneath the root."""
    write(tmp_path / "calc/calc_test.go", "package calc\n")
    lines = [
        "=== RUN   TestA",
        "    calc_test.go:5: got 2",
        "--- FAIL: TestA (0.00s)",
        "FAIL\\texample.com/m/calc\\t0s",
    ]
    events = "".join(f'{{"Action":"output","Package":"example.com/m/calc","Output":"{line}\\n"}}\n' for line in lines)
    write(tmp_path / "events.json", events)
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command="sh -c 'cat events.json; exit 1'")
    assert [(failure.name, failure.file, failure.line) for failure in report.failures] == [
        ("TestA", "calc/calc_test.go", 5)
    ]
    assert '{"Action"' not in report.text()
    assert "calc_test.go:5: got 2" in report.text()


async def test_a_gradle_run_that_passes_is_counted_from_its_result_files(tmp_path: Path) -> None:
    """ci-9: Gradle prints no counts then."""
    suite = '<?xml version="1.0"?><testsuite name="{}" tests="{}" skipped="1" failures="0" errors="0" time="0.1">'
    write(tmp_path / "build.gradle", "")
    write(tmp_path / "gradlew", "#!/bin/sh\necho BUILD SUCCESSFUL\n", executable=True)
    write(tmp_path / "build/test-results/test/TEST-A.xml", suite.format("A", 3))
    write(tmp_path / "lib/build/test-results/test/TEST-B.xml", suite.format("B", 5))
    write(tmp_path / "lib/build/test-results/test/TEST-C.xml", "broken")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert report.command == "./gradlew --no-daemon --console=plain --continue test"
    assert report.counts == {"passed": 6, "failed": 0, "skipped": 2, "errors": 0, "total": 8}


async def test_output_of_no_known_format_is_returned_and_not_counted(tmp_path: Path) -> None:
    """ci-9: no counts are better than wrong ones."""
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command="echo it went well")
    assert report.counts == {}
    assert not report.failed
    assert report.text().startswith("no test counts found in the output")
    assert report.text().endswith("it went well")


async def test_dropped_output_is_counted_in_the_report(tmp_path: Path) -> None:
    """ci-14: the counts of a dropped part are unknown."""
    async with ci_in(tmp_path, limits=Limits(report_bytes=400)) as ci:
        report = await ci.ci_test(command="sh -c 'seq 1 1000; echo 3 passed in 0.1s'")
        build = await ci.ci_build(command="seq 1 1000")
    assert report.counts["passed"] == 3
    assert report.text().split("\n")[1] == "[3510 bytes of output not read; counts in them are missing]"
    assert build.text().endswith(
        f"\n1000\n[1000 lines, 3893 bytes in all: read_run run={build.run} with offset,"
        f" tail or pattern, or coretools://runs/{build.run}/output]"
    )


async def test_a_run_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """ci-7: the running step ends, and no other is started."""
    write(tmp_path / "bin/cmake", "#!/bin/sh\nexec tail -f /dev/null\n", executable=True)
    write(tmp_path / "app/CMakeLists.txt", "")
    limits = Limits()
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots:
        runner = Runner(limits, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
        ci = CiTools(roots, JobTable(runner, limits), limits)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ci.ci_build, "app")
                while not runner.running:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        assert runner.running == 0
        await runner.close()


async def test_detection_reads_nothing_outside_the_root(tmp_path: Path) -> None:
    """ci-15: a link out of the root is a name without content."""
    write(tmp_path / "outside.json", '{"scripts": {"build": "x"}}')
    write(tmp_path / "root/README.md", "")
    (tmp_path / "root/package.json").symlink_to(tmp_path / "outside.json")
    (tmp_path / "root/.venv").symlink_to(tmp_path)
    async with ci_in(tmp_path / "root") as ci:
        with pytest.raises(Unsupported, match=r"found node \(package.json\), which has no step to build"):
            await ci.ci_build()


async def test_a_path_outside_the_root_is_reported_as_printed(tmp_path: Path) -> None:
    """ci-10: no path is guessed, and nothing outside is inspected."""
    write(tmp_path / "outside.py", "")
    write(tmp_path / "root/inside.py", "")
    points = (
        "not ok 1 a\n  ---\n  at: ../outside.py:1:1\n  ...",
        "not ok 2 b\n  ---\n  at: {}/inside.py:2:1\n  ...",
        "ok 3",
    )
    tap = "\n".join(("1..3", *points))
    write(tmp_path / "root/tap", tap.format(tmp_path / "root"))
    async with ci_in(tmp_path / "root") as ci:
        report = await ci.ci_test(command="cat tap")
    assert [(failure.file, failure.line) for failure in report.failures] == [("../outside.py", 1), ("inside.py", 2)]


async def test_counts_prove_nothing_against_the_exit_code(tmp_path: Path) -> None:
    """ci-8: a run fails by its exit code, whatever its output claims."""
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command="sh -c 'echo 3 passed in 0.1s; exit 9'")
    assert report.failed
    assert report.exit_code == 9
    assert report.counts["passed"] == 3
    assert "exit code 9" in report.text().split("\n")[0]


async def test_a_structured_report_fits_its_own_schema_when_a_signal_ends_the_run(tmp_path: Path) -> None:
    """ci-9: numbers where the schema requires numbers; the signal is in the facts."""
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command="sh -c 'kill -KILL $$'")
    assert report.model_dump(mode="json") == {
        "command": "sh -c 'kill -KILL $$'",
        "exit_code": -1,
        "timed_out": False,
        "seconds": report.seconds,
        "counts": {},
        "failures": [],
        "run": "",
        "running": False,
    }
    assert report.facts()["signal"] == "SIGKILL"
    assert report.facts()["exit_code"] is None


async def test_a_directory_without_a_build_system_names_the_files_searched_for(tmp_path: Path) -> None:
    """ci-5: and what would work."""
    async with ci_in(tmp_path) as ci:
        with pytest.raises(Unsupported, match=r"pyproject\.toml.*package\.json.*Cargo\.toml.*give `command`"):
            await ci.ci_build()


async def test_a_build_system_without_the_action_is_named(tmp_path: Path) -> None:
    """ci-5: found, but without a command for this action."""
    write(tmp_path / "CMakeLists.txt", "")
    async with ci_in(tmp_path) as ci:
        with pytest.raises(Unsupported, match=r"found cmake \(CMakeLists\.txt\), which has no step to restore"):
            await ci.ci_restore()


async def test_the_next_alternative_is_taken_when_a_program_is_missing(tmp_path: Path) -> None:
    """ci-6: a lock file of uv, but no uv."""
    write(tmp_path / "bin/python3", '#!/bin/sh\necho "$@"; echo 4 passed in 0.1s\n', executable=True)
    write(tmp_path / "app/uv.lock", "")
    write(tmp_path / "app/setup.py", "")
    async with ci_in(tmp_path, path=str(tmp_path / "bin")) as ci:
        report = await ci.ci_test("app")
    assert report.command.startswith("python3 -m pytest")
    assert report.counts["passed"] == 4


async def test_a_missing_tool_chain_is_named(tmp_path: Path) -> None:
    """ci-6: no alternative can be started."""
    write(tmp_path / "Cargo.toml", "")
    async with ci_in(tmp_path, path=str(tmp_path)) as ci:
        with pytest.raises(CannotStart, match="cargo: not found"):
            await ci.ci_build()


async def test_steps_run_in_order_and_stop_at_the_first_that_fails(tmp_path: Path) -> None:
    """ci-7: the last step that ran decides the result."""
    script = '#!/bin/sh\necho "$0 $*" >> log\ntest "$1" != --build\n'
    for program in ("cmake", "ctest"):
        write(tmp_path / "bin" / program, script.replace("$0", program), executable=True)
    write(tmp_path / "app/CMakeLists.txt", "")
    async with ci_in(tmp_path, path=f"{tmp_path / 'bin'}:{os.environ['PATH']}") as ci:
        report = await ci.ci_test("app")
    assert report.exit_code == 1
    assert report.command == "cmake -S . -B build; cmake --build build"
    assert (tmp_path / "app/log").read_text() == "cmake -S . -B build\ncmake --build build\n"


async def test_restoring_makes_an_environment_of_the_projects_own(tmp_path: Path) -> None:
    """ci-3, ci-7: first the environment, then the packages."""
    made = "#!/bin/sh\\necho installed $*\\n"
    lines = ["#!/bin/sh", "mkdir -p .venv/bin", f"printf '{made}' > .venv/bin/python", "chmod +x .venv/bin/python", ""]
    write(tmp_path / "bin/python3", "\n".join(lines), executable=True)
    write(tmp_path / "app/requirements.txt", "\n")
    async with ci_in(tmp_path, path=f"{tmp_path / 'bin'}:/usr/bin:/bin") as ci:
        result = await ci.ci_restore("app")
    assert not result.failed
    assert result.summary.command == "python3 -m venv .venv; .venv/bin/python -m pip install -r requirements.txt"
    assert result.text().endswith("installed -m pip install -r requirements.txt")


async def test_all_steps_share_one_deadline(tmp_path: Path) -> None:
    """ci-7: a step that never ends leaves no time for the next."""
    write(tmp_path / "bin/cmake", "#!/bin/sh\nexec tail -f /dev/null\n", executable=True)
    write(tmp_path / "CMakeLists.txt", "")
    async with ci_in(tmp_path, path=f"{tmp_path / 'bin'}:{os.environ['PATH']}") as ci:
        result = await ci.ci_build(timeout_seconds=1)
    assert result.failed
    assert result.summary.timed_out
    assert result.summary.command == "cmake -S . -B build"
    assert result.text().startswith("timed out after ")


@pytest.mark.skipif(shutil.which("make") is None, reason="not installed: make")
async def test_a_build_reports_its_outcome_and_its_build_system(tmp_path: Path) -> None:
    """ci-1: the detected systems, the chosen one, and that `command` overrides it."""
    write(tmp_path / "package.json", "{}")
    write(tmp_path / "Makefile", "build:\n\t@echo made; echo warned >&2; exit $(CODE)\n")
    async with ci_in(tmp_path) as ci:
        good = await ci.ci_build(command="make build CODE=0")
        bad = await ci.ci_build(command="make build CODE=7")
        chosen = await ci.ci_build()
    assert not good.failed
    assert good.text().startswith("ok in ")
    assert good.text().endswith("(make build CODE=0)\nmade\n[stderr]\nwarned")
    assert bad.failed
    assert bad.facts()["exit_code"] == 2
    assert chosen.text().split("\n")[1] == (
        "[detected node (package.json), make (Makefile); took make; `command` overrides]"
    )


async def test_builds_and_tests_get_ci_true(tmp_path: Path) -> None:
    """ci-17: they get CI=true, a plain command does not."""
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test(command="sh -c 'echo CI=$CI'")
    assert "CI=true" in report.text()


@pytest.mark.parametrize("directory", ["..", "link", "/"])
async def test_a_directory_outside_the_root_is_refused(tmp_path: Path, directory: str) -> None:
    """ci-15: the root resolves the working directory, with detection and without."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path)
    write(tmp_path / "Makefile", "build:\ntest:\n")
    async with ci_in(tmp_path / "root") as ci:
        with pytest.raises(OutsideRoot):
            await ci.ci_build(directory)
        with pytest.raises(OutsideRoot):
            await ci.ci_test(directory, "true")


async def test_nothing_is_started_beneath_a_read_only_root(tmp_path: Path) -> None:
    """ci-15: the kernel could not confine a program's writes there."""
    async with ci_in(tmp_path, writable=False) as ci:
        with pytest.raises(ReadOnly):
            await ci.ci_test(command="touch made")
    assert not (tmp_path / "made").exists()
