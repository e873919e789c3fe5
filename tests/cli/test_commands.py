"""The coretools command as a user runs it: a process, its output, its exit code (docs/specs/cli.md)."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.checkout import TREE
from tests.protocol.peer import processes_with, stop, wait_until_some
from tests.starting import warm

SECONDS = 60.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# Sample\nhello\n")
    return tmp_path


def coretools(*words: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-m", "coretools.cli.main", *words],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(TREE), **environment},
    )


def test_a_call_prints_the_text_of_its_result(project: Path) -> None:
    """cli-1, cli-5: the result on stdout and nothing else anywhere."""
    done = coretools("call", "read_file", "path=README.md", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "# Sample\nhello\n" in done.stdout


def test_json_has_one_shape_for_every_tool(project: Path) -> None:
    """cli-3: a pipeline reads the same fields for every tool and outcome."""
    good = coretools("call", "read_file", "path=README.md", "--json", cwd=project)
    bad = coretools("call", "read_file", "path=missing", "--json", cwd=project)
    wrong = coretools("call", "no_such_tool", "--json", cwd=project)
    shapes = [json.loads(done.stdout) for done in (good, bad, wrong)]
    assert [shape["ok"] for shape in shapes] == [True, False, False]
    assert [shape["error"] for shape in shapes] == [None, "not-found", "unknown-tool"]
    assert {frozenset(shape) for shape in shapes} == {frozenset({"tool", "ok", "text", "data", "facts", "error"})}


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["call", "read_file", "path=missing"], 66, "missing"),
        (["call", "read_file", "path=../outside"], 77, "outside"),
        (["call", "read_file", "path=README.md", "--root", "/does/not/exist"], 78, "/does/not/exist"),
        (["call", "read_file", "README.md"], 0, None),
        (["call", "read_file", "README.md", "x"], 64, "one word too many"),
        (["call", "read_file", "pth=README.md"], 64, "did you mean --path?"),
        (["call", "read_file", "path=README.md", "limit=many"], 64, "--limit: must be a whole number, got 'many'"),
        (["call", "run_command", "true", 'answers:={"confirm": "yes"}'], 64, "by --answer KEY=VALUE"),
        (["call", "get_diagnostics", "--limit", "read_bytes=0"], 78, "limit read_bytes=0: must be above 0"),
        (["call", "red_file", "path=README.md"], 64, "did you mean read_file?"),
        (["call", "write_file", "path=x", "content=y", "--read-only"], 64, "the server is read-only"),
        (["call", "run_command", "command=no-such-program-here"], 127, "no-such-program-here"),
        (["call", "run_command", "command=sh -c 'exit 3'"], 1, None),
        (["call", "run_command", "command=true"], 0, None),
        (["tools", "no_such_tool"], 64, "no_such_tool"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_exit_code_names_the_kind_of_failure(
    project: Path, words: list[str], code: int, expected: str | None
) -> None:
    """cli-4, cli-5: for pipelines; people read the message on stderr."""
    done = coretools(*words, cwd=project)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if expected is not None:
        assert expected in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_broken_output_has_its_own_exit_code(project: Path) -> None:
    """cli-4: 1 would mean that the command failed."""
    words = [sys.executable, "-m", "coretools.cli.main", "call", "file_exists", "path=README.md"]
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "PYTHONPATH": str(TREE)}
        done = warm.run(words, cwd=project, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, env=environment)
    assert (done.returncode, done.stderr) == (74, b"coretools: standard output: No space left on device\n")


@pytest.mark.parametrize(("words", "size"), [("call read_file path=long", 4), ("doctor --no-versions", 0)])
def test_a_reader_that_stops_early_is_no_failure(project: Path, words: str, size: int) -> None:
    """cli-4: `coretools call ... | head -1` succeeds."""
    (project / "long").write_text("line\n" * 40_000)
    script = f'"$1" -m coretools.cli.main {words} | head -c {size}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    line = ["bash", "-c", script, "bash", sys.executable]
    done = subprocess.run(line, cwd=project, capture_output=True, timeout=SECONDS, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"line"[:size], b"")


def test_arguments_are_parsed_by_the_schema(project: Path) -> None:
    """cli-2: names, lists, JSON, files and standard input; as options and in order too."""
    (project / "notes.txt").write_text("from a file\n")
    written = coretools("call", "write_file", "path=a.txt", "content@=notes.txt", cwd=project)
    assert written.returncode == 0, written.stderr
    piped = coretools("call", "write_file", "path=b.txt", "content@=-", cwd=project, stdin="5\n")
    assert piped.returncode == 0, piped.stderr
    edits = 'edits:=[{"old": "from", "new": "out of"}]'
    edited = coretools("call", "edit_file", "path=a.txt", edits, cwd=project)
    assert edited.returncode == 0, edited.stderr
    assert (project / "a.txt").read_text() == "out of a file\n"
    assert (project / "b.txt").read_text() == "5\n"


def test_a_list_option_can_be_repeated(project: Path) -> None:
    """cli-2: one item each."""
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / "b.txt").write_text("b\n")
    added = coretools("call", "git_add", "paths=README.md", "paths=b.txt", cwd=project)
    assert added.returncode == 0, added.stderr
    staged = subprocess.run(["git", "ls-files"], cwd=project, capture_output=True, text=True, check=True)
    assert staged.stdout.split() == ["README.md", "b.txt"]


def test_tools_are_listed_in_a_table(project: Path) -> None:
    """cli-6: name, effect, first sentence; those of the profile."""
    everything = coretools("tools", cwd=project).stdout
    reading = coretools("tools", "--profile", "read", cwd=project).stdout
    assert "write_file" in everything
    assert "write_file" not in reading
    assert "read_file" in reading
    page = coretools("tools", "read_file", cwd=project).stdout
    assert "path (string, required)" in page
    listed = json.loads(coretools("tools", "read_file", "--json", cwd=project).stdout)
    assert listed[0]["inputSchema"]["properties"]["path"]["type"] == "string"


def test_the_doctor_starts_a_real_server(project: Path) -> None:
    """cli-7, confinement-1: git is required, ripgrep is not, the server answers over stdio and names its tier."""
    done = coretools("doctor", "--no-versions", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "commands are confined in tier: " in done.stdout
    assert "\nnetwork: " in done.stdout
    assert re.search(
        r"\nok      server: lists (\d+) tools .*\ntools: \1 listed by profile dev, \d\d more can be called\n",
        done.stdout,
        re.DOTALL,
    )
    assert "\ntext searched with: ripgrep " in done.stdout or "\ntext searched with: the built-in engine" in done.stdout
    assert str(project) in done.stdout


def test_the_doctor_ends_with_what_to_do(project: Path) -> None:
    """cli-7: a client that is here; then that it has the server; what is missing comes first."""
    (project / "work").mkdir()
    (project / ".cursor").mkdir()
    words = ("doctor", "--no-versions", "--root", str(project / "work"))
    home = {"HOME": str(project), "XDG_CONFIG_HOME": str(project / ".config")}

    def steps(**environment: str) -> str:
        return coretools(*words, cwd=project, **home, **environment).stdout.partition("\nwhat to do:\n")[2]

    assert "  coretools install cursor DIRECTORY: add it to a client\n  coretools try: " in steps()
    (project / ".cursor" / "mcp.json").write_text('{"mcpServers": {"x": {"command": "coretools-workstation"}}}')
    assert steps().endswith(
        "  nothing more for Cursor: it has coretools; `coretools install --list` checks whether it starts\n"
    )
    (project / "empty").mkdir()
    assert steps(PATH=str(project / "empty")).startswith("  install git: the git tools need it\n")


def test_the_doctor_lists_what_agents_could_change_and_what_is_missing(project: Path) -> None:
    """cli-7, trust-8: a program on PATH, a file of git's configuration, the user's agent; and counts the others."""
    planted = project / "bin" / "ssh"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    (project / ".gitconfig").write_text("[core]\n\tsshCommand = x\n")
    environment = {"HOME": str(project), "SSH_AUTH_SOCK": f"{project}/agent"}
    words = ("doctor", "--no-versions", "--root", str(project))
    done = coretools(*words, cwd=project, PATH=f"{planted.parent}:/usr/bin", **environment)
    for line in (f"git configuration: {project}/.gitconfig can be", "not used: core.sshcommand: ", "SSH_AUTH_SOCK: "):
        assert f"trusted: {line}" in done.stdout.replace("trusted: git configuration, not used", "trusted: not used"), (
            line
        )
    assert "other programs and files are trusted" in done.stdout
    only = coretools(*words, cwd=project, PATH=str(planted.parent))
    assert "trusted: program ssh: " in only.stdout
    assert only.returncode == 69
    assert "MISSING git" in only.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_call_and_its_children(project: Path, number: signal.Signals, code: int) -> None:
    """cli-8: an interrupted pipeline leaves no process."""
    seconds = f"4{uuid.uuid4().int % 10**12:012d}.5"
    process = warm.Popen(
        [sys.executable, "-m", "coretools.cli.main", "call", "run_command", f"command=sleep {seconds}"],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    with process:
        wait_until_some(f"sleep {seconds}")
        assert stop(process, number) == code
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert processes_with(f"sleep {seconds}") == []


def test_help_and_version_do_not_load_the_sdk(project: Path) -> None:
    """What needs no server starts without the SDK."""
    code = (
        "import sys; sys.argv = ['coretools', '--version']\n"
        "from coretools.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('mcp', 'mcp_types', 'git', 'pydantic') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_doctor_runs_nothing_of_its_working_directory(project: Path) -> None:
    """cli-6: modules of a project may have the names of ours."""
    for module in ("coretools/__init__", "coretools/servers/workstation", "mcp/__init__", "anyio"):
        (project / module).parent.mkdir(parents=True, exist_ok=True)
        (project / f"{module}.py").write_text(f"open({str(project / 'taken')!r}, 'w').close()\n")
    words = [
        sys.executable,
        "-P",
        "-m",
        "coretools.cli.main",
        "doctor",
        "--no-versions",
    ]  # as its script does, without a directory
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    done = subprocess.run(words, cwd=project, capture_output=True, timeout=SECONDS, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert not (project / "taken").exists()


def test_the_doctor_reports_the_confinement(project: Path) -> None:
    """confinement-1, ci-19: the network of a server with the same flags; why one does not start."""
    switches = (
        "--network",
        "allow",
        "--limit",
        "run_seconds=7.5",
        "--deny",
        "*.secret",
        "--no-default-deny",
        "--read-only",
    )
    other = coretools(
        "doctor", "--no-versions", *switches, "--profile", "ci", "--ask", "defaults", "--redact-output", cwd=project
    )
    assert "run_seconds=7.5" in other.stdout, other.stdout
    assert f"{project} (read only)" in other.stdout
    assert "network: allowed to commands, by the operator" in other.stdout
    impossible = coretools("doctor", "--no-versions", "--policy", str(project / "missing.toml"), cwd=project)
    assert impossible.returncode == 78
