"""ci calls as runs: they go on after `wait_seconds`, their whole output can be read, and they can be stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from coretools.errors import CommandSyntax
from coretools.tools.ci.results import SuiteReport
from coretools.tools.ci.tools import CiTools
from coretools.tools.commands.results import RunReport
from coretools.tools.commands.tools import CommandTools
from tests.tools.ci.test_tools import write
from tests.tools.commands.world import LIMITS, world_in

SUITE = "until [ -e go ]; do sleep 0.05; done; echo 2 failed, 3 passed in 0.1s; exit 1"


@asynccontextmanager
async def tools_in(directory: Path) -> AsyncIterator[tuple[CiTools, CommandTools]]:
    async with world_in(directory) as world:
        with anyio.fail_after(60):
            yield CiTools(world.roots, world.runs, LIMITS), world.commands


async def test_a_test_run_goes_on_and_its_report_comes_at_its_end(tmp_path: Path) -> None:
    """ci-24: `wait_run` answers with the counts; the structured answer of the first call says that it goes on."""
    async with tools_in(tmp_path) as (ci, commands):
        started = await ci.ci_test(command=SUITE, wait_seconds=0)
        assert isinstance(started, SuiteReport)
        assert (started.running, started.exit_code, started.counts, started.failed) == (True, -1, {}, False)
        assert started.text().startswith(f"[{started.run} running, ")
        assert [line.startswith(f"{started.run} running") for line in (await commands.list_runs()).lines] == [True]
        write(tmp_path / "go", "")
        ended = await commands.wait_run(started.run)
        assert ended.failed
        assert "\n3 passed, 2 failed, 0 skipped in " in ended.text()
        assert (await commands.read_run(started.run)).output.startswith("3 passed, 2 failed")
        assert (await commands.read_run(started.run, tail=1)).output == "2 failed, 3 passed in 0.1s"


async def test_the_list_shows_the_program_that_was_taken(tmp_path: Path) -> None:
    """runs-19: not the first one that was tried and is not installed."""
    for name, text in {"uv.lock": "", "pyproject.toml": "[project]\nname = 'a'\nversion = '1'"}.items():
        write(tmp_path / "project" / name, text)
    write(tmp_path / "bin" / "python3", "#!/bin/sh\nexec tail -f /dev/null\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    variables = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    async with world_in(tmp_path / "project", variables=variables) as world:
        ci = CiTools(world.roots, world.runs, LIMITS)
        await ci.ci_test(wait_seconds=0)
        [line] = (await world.commands.list_runs()).lines
    assert " bytes: python3 -m " in line


async def test_one_that_ends_in_time_is_answered_as_usual(tmp_path: Path) -> None:
    """ci-24: and leaves no run."""
    write(tmp_path / "go", "")
    async with tools_in(tmp_path) as (ci, commands):
        report = await ci.ci_test(command=SUITE, wait_seconds=30)
        assert (report.running, report.run, report.counts["failed"]) == (False, "", 2)
        assert (await commands.list_runs()).lines == []


async def test_the_error_of_a_long_build_is_in_the_answer_and_the_rest_in_a_run(tmp_path: Path) -> None:
    """ci-14, runs-25: with its line number, in at most 4,000 bytes."""
    build = "seq 1 120000; echo 'src/a.c:3:1: error: no such name'; seq 1 80000; exit 2"
    async with tools_in(tmp_path) as (ci, commands):
        result = await ci.ci_build(command=build)
        assert not isinstance(result, RunReport)
        assert "120001: src/a.c:3:1: error: no such name" in result.text()
        assert len(result.text().encode()) < 4_000
        found = await commands.read_run(result.run, pattern="error", context=1)
        assert found.output.split("\n") == [
            "120000: 120000",
            "120001: src/a.c:3:1: error: no such name",
            "120002: 1",
        ]


async def test_a_stopped_restore_puts_back_what_it_changed(tmp_path: Path) -> None:
    """ci-21, ci-24: also when it is a run."""
    write(tmp_path / "package.json", "{}")
    command = "echo broken > package.json; mkdir node_modules; touch changed; exec tail -f /dev/null"
    async with tools_in(tmp_path) as (ci, commands):
        started = await ci.ci_restore(command=command, wait_seconds=0)
        assert isinstance(started, RunReport)
        while not (tmp_path / "changed").exists():
            await anyio.lowlevel.checkpoint()
        await commands.stop_run(str(started.run["run"]))
    assert (tmp_path / "package.json").read_text() == "{}"
    assert not (tmp_path / "node_modules").exists()


async def test_a_command_is_a_line_and_nothing_of_a_faulty_one_is_started(tmp_path: Path) -> None:
    """ci-2: as in run_command."""
    async with tools_in(tmp_path) as (ci, _):
        report = await ci.ci_test(command="cd . && printf '1 passed in 0.1s' | cat")
        assert report.counts["passed"] == 1
        for tool in (ci.ci_build, ci.ci_test, ci.ci_restore):
            with pytest.raises(CommandSyntax):
                await tool(command="touch made; if")
    assert not (tmp_path / "made").exists()
