"""Programs and files for the code of authors (docs/specs/programs.md)."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import coretools
from coretools import (
    App,
    BadSetting,
    CannotStart,
    CoreError,
    Effect,
    OutsideRoot,
    Workspace,
    join_command_line,
    open_workspace,
    split_command_line,
)
from coretools.config.limits import Limits
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from tests.checkout import TREE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux")

GUIDE = TREE / "docs" / "programs.md"
PROGRAM = TREE / "examples" / "programs.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_the_guide_runs_without_the_protocol(project: Path) -> None:
    """programs-1"""
    snippet = GUIDE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    snippet += (
        "\nimport sys\nprint([name for name in ('mcp', 'mcp_types', 'starlette', 'uvicorn') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    assert re.fullmatch(r"Python 3\.\S+\n\[\]\n", done.stdout), done.stdout + done.stderr
    assert (project / "reports" / "version.txt").read_text().startswith("Python 3")


def test_the_names_are_those_of_the_guide() -> None:
    """programs-1: at most ten."""
    table = GUIDE.read_text(encoding="utf-8").partition("## Names")[2]
    names = [name for row in re.findall(r"^\| (`[^|]*)", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)]
    assert len(names) == 10
    assert set(names) <= set(coretools.PUBLIC_NAMES)


async def test_a_program_that_floods_both_pipes_ends_and_its_output_is_bounded(project: Path) -> None:
    """programs-2"""
    flood = "for i in $(seq 300); do printf '%4000d' $i; printf '%4000d' $i >&2; done; cat; exit 7"
    async with open_workspace(project) as workspace:
        done = await workspace.run(["sh", "-c", flood], stdin="end", keep_bytes=1000, timeout_seconds=60)
    assert (done.exit_code, done.signal, done.timed_out, done.ok) == (7, None, False, False)
    assert done.stdout.dropped_bytes == 300 * 4000 + 3 - 1000
    assert done.stdout.tail.endswith(b"300end")
    assert done.stderr.total_bytes == 300 * 4000
    with pytest.raises(CoreError, match=r"sh -c .*: exit code 7\n"):
        done.require_ok()


def processes_with(word: str) -> list[str]:
    """Processes with this word in their command line, wherever they are."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [one.parent.name] if word in one.read_text(errors="replace") else []
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["ended", "cancelled", "late", "closed"])
async def test_no_process_outlives_its_program(project: Path, how: str) -> None:
    """programs-2, programs-3: also not one in a session of its own."""
    os.mkfifo(project / "started")
    seconds = f"98{os.getpid()}.5"
    rest = {"ended": "true", "late": "wait"}.get(how, "echo started > started; wait")
    line = f"setsid sleep {seconds} & {rest}"
    async with anyio.create_task_group() as tasks, open_workspace(project) as workspace:

        async def run() -> None:
            done = await workspace.run(["sh", "-c", line], timeout_seconds=1 if how == "late" else 60)
            assert done.timed_out == (how == "late")

        with anyio.fail_after(60):
            if how in ("ended", "late"):
                await run()
            else:
                tasks.start_soon(run)
                assert await anyio.to_thread.run_sync((project / "started").read_text) == "started\n"
                if how == "cancelled":
                    tasks.cancel_scope.cancel()
    assert processes_with(f"sleep\0{seconds}") == []


async def test_a_timeout_of_nothing_and_a_closed_workspace_are_refused(project: Path) -> None:
    """programs-2"""
    async with open_workspace(project) as workspace:
        with pytest.raises(CoreError, match="timeout_seconds: must be more than 0"):
            await workspace.run(["true"], timeout_seconds=0)
    with pytest.raises(RuntimeError, match="this workspace is closed"):
        workspace.read_text("absent")
    with pytest.raises(RuntimeError, match="this workspace is closed"):
        await workspace.run(["true"])


async def test_programs_have_the_roots_and_no_more(project: Path, tmp_path: Path) -> None:
    """programs-4"""
    (tmp_path / "secret").write_text("hunter2")
    async with open_workspace(project) as workspace:
        done = await workspace.run(["cat", str(tmp_path / "secret")])
        assert "hunter2" not in done.stdout.text() + done.stderr.text()
        assert done.exit_code == 1
        assert done.tier == await workspace.confinement() != "none"
        with pytest.raises(CannotStart):
            await workspace.run(["no-such-program"])
        for wrong in ([], "ls -l", ["a\0b"]):
            with pytest.raises(CoreError) as caught:
                await workspace.run(wrong)
            assert caught.value.kind == "command-syntax"


@pytest.mark.parametrize("verdict", ["deny", "ask"])
async def test_the_operators_policy_decides_about_programs(project: Path, tmp_path: Path, verdict: str) -> None:
    """programs-4"""
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[commands.rule]]\nprogram = "touch"\nverdict = "{verdict}"\n')
    policy.chmod(0o600)
    async with open_workspace(project, policy=str(policy)) as workspace:
        with pytest.raises(CoreError) as caught:
            await workspace.run(["touch", "made"])
        assert caught.value.kind == "denied-command"
    assert not (project / "made").exists()


async def test_it_is_said_where_programs_are_not_confined(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    """programs-4"""
    runner = Runner(Limits(), {"PATH": os.environ["PATH"]})
    with Roots([RootSpec(str(project))], deny=DenyRules(())) as roots, caplog.at_level(logging.WARNING):
        try:
            workspace = Workspace(roots, runner, Limits())
            assert (await workspace.run(["true"])).ok
            assert await workspace.confinement() == "none"
        finally:
            await runner.close()
    assert [record.message for record in caplog.records if "tier: none" in record.message] != []


@pytest.mark.parametrize("path", ["../secret", "out/secret", "out", "/etc/passwd", "a/../../secret"])
async def test_files_are_reached_beneath_the_roots_only(project: Path, tmp_path: Path, path: str) -> None:
    """programs-5"""
    (tmp_path / "secret").write_text("hunter2")
    (project / "a").mkdir()
    (project / "out").symlink_to(tmp_path / "secret" if path == "out" else tmp_path)
    (project / ".env").write_text("TOKEN=hunter2")
    async with open_workspace(project) as workspace:
        for use in (workspace.read_text, workspace.delete_file, workspace.list_directory, workspace.kind_of):
            if (use, path) == (workspace.delete_file, "out"):
                continue  # deletes the link
            with pytest.raises(OutsideRoot):
                use(path)
        with pytest.raises(OutsideRoot):
            workspace.write(path, "mine")
        with pytest.raises(CoreError, match=r"\.env"):
            workspace.read_text(".env")
        workspace.write("new/file", "text", parents=True)
        assert [(one.name, one.size) for one in workspace.list_directory("new")] == [("file", 4)]
        assert (workspace.kind_of("new"), workspace.kind_of("none")) == ("directory", None)
    assert (tmp_path / "secret").read_text() == "hunter2"


def test_words_of_a_line_and_back() -> None:
    """programs-1"""
    argv = ["echo", "it's", "", "a b", "$HOME"]
    assert split_command_line(join_command_line(argv)) == argv


def pwd(app: App) -> App:
    @app.tool(Effect.READ)
    async def where(workspace: Workspace) -> str:
        """Say where a program runs."""
        return (await workspace.run(["pwd"])).require_ok().stdout.text().strip()

    return app


async def place(app: App) -> str:
    async with app.test_client() as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.input_schema.get("properties", {}) == {}
        result: Any = (await client.call_tool("where", {})).content[0]
        text: str = result.text
        return text


async def test_a_command_gets_a_workspace_by_its_type(project: Path, tmp_path: Path) -> None:
    """programs-6"""
    assert await place(pwd(App("a", roots=(project,)))) == str(project)

    @asynccontextmanager
    async def own() -> AsyncIterator[Workspace]:
        async with open_workspace(tmp_path) as workspace:
            yield workspace

    assert await place(pwd(App("a", lifespan=own))) == str(tmp_path)
    with pytest.raises(BadSetting, match=r"where: 'workspace' has no value here: it comes from App\(roots="):
        await place(pwd(App("a")))
    with pytest.raises(BadSetting, match="roots is a tuple"):
        App("a", roots="src")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="each needs its own"):
        await place(pwd(App("a", lifespan=own, roots=(project,))))


def test_a_server_gives_its_own_workspace(project: Path, tmp_path: Path) -> None:
    """programs-6"""
    for words, root in (
        ((), tmp_path),
        (("-m", "coretools.cli.main", "--root", project, "--with", f"{PROGRAM}:app"), project),
    ):
        done = subprocess.run(
            [sys.executable, *(words or (PROGRAM,)), "run_program", "pwd"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TREE)},
        )
        assert str(root) in json.loads(done.stdout)["output"].split(), done.stderr


def test_plain_asyncio_is_enough(project: Path) -> None:
    """programs-2: a deadline is a result."""

    async def main() -> bool:
        async with open_workspace(f"{project}:ro") as workspace:
            return (await workspace.run(["sleep", "60"], timeout_seconds=0.2)).timed_out

    assert asyncio.run(main())
