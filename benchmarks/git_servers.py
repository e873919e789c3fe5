"""The git tools beside one git process, and beside two other git servers, in a repository with 5,000 commits.

The other servers are optional. In the checkout, these commands install them:

    python3 -m venv benchmarks/peers/venv && benchmarks/peers/venv/bin/pip install mcp-server-git
    npm install --prefix benchmarks/peers/npm @cyanheads/git-mcp-server
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from benchmarks.failure import NotMeasured
from benchmarks.interleaved import Contender
from benchmarks.peer_servers import INSTALLED, Call, Server, is_installed
from benchmarks.stdio_client import Era, Peer
from benchmarks.workspace import Workspace, plain_environment

COMMITS = 5_000
SMOKE_COMMITS = 60
FILES = 500
LINES = 200
LOGGED = 50

OFFICIAL, OTHER = "mcp-server-git", "git-mcp-server"
FILE = "part0/file1.py"

COPIED = ("status", "diff")
"""Rows that are also measured right after the checkout was copied."""
COPIED_CALLS = 10
"""Calls after a copy; the first one, in which git reads every file, is not counted."""


def _words() -> dict[str, Sequence[Sequence[str]]]:
    """The bare git processes of each row."""
    log = ("log", f"--max-count={LOGGED}", "--format=%h %aI %an %D %s")
    branches = (
        "for-each-ref",
        "--sort=-committerdate",
        "--format=%(HEAD) %(refname:short) %(upstream:short)",
        "refs/heads",
    )
    return {
        "status": [("status", "--porcelain=v2", "--branch")],
        "log-50": [log],
        "diff": [("diff",)],
        "show": [("show", "HEAD~1")],
        "blame": [("blame", "-L1,100", "--", FILE)],
        "branches": [branches],
        "add-commit": [("add", FILE), ("commit", "--quiet", "-m", "x")],
    }


def _ours(repository: str) -> Server:
    place = {"repository": repository}
    calls: dict[str, Sequence[Call]] = {
        "status": [("git_status", place)],
        "log-50": [("git_log", {**place, "limit": LOGGED})],
        "diff": [("git_diff", place)],
        "show": [("git_show", {**place, "revision": "HEAD~1"})],
        "blame": [("git_blame", {**place, "path": FILE, "count": 100})],
        "branches": [("git_branches", place)],
        "add-commit": [("git_add", {**place, "paths": [FILE]}), ("git_commit", {**place, "message": "x"})],
    }
    program = (
        sys.executable,
        "-m",
        "coretools.servers.workstation",
        repository,
        "--profile",
        "all",
        "--log-level",
        "error",
    )
    return Server("coretools", program, calls)


def _official(repository: str) -> Server:
    place = {"repo_path": repository}
    calls: dict[str, Sequence[Call]] = {
        "status": [("git_status", place)],
        "log-50": [("git_log", {**place, "max_count": LOGGED})],
        "diff": [("git_diff_unstaged", place)],
        "show": [("git_show", {**place, "revision": "HEAD~1"})],
        "branches": [("git_branch", {**place, "branch_type": "local"})],
        "add-commit": [("git_add", {**place, "files": [FILE]}), ("git_commit", {**place, "message": "x"})],
    }
    return Server(OFFICIAL, (str(INSTALLED / "venv/bin/python"), "-m", "mcp_server_git"), calls)


def _other(repository: str) -> Server:
    place = {"path": repository}
    calls: dict[str, Sequence[Call]] = {
        "status": [("git_status", place)],
        "log-50": [("git_log", {**place, "maxCount": LOGGED})],
        "diff": [("git_diff", place)],
        "show": [("git_show", {**place, "object": "HEAD~1"})],
        "blame": [("git_blame", {**place, "filePath": FILE, "startLine": 1, "endLine": 100})],
        "branches": [("git_branch", {**place, "mode": "list"})],
        "add-commit": [("git_add", {**place, "paths": [FILE]}), ("git_commit", {**place, "message": "x"})],
    }
    settings = ("MCP_TRANSPORT_TYPE=stdio", "MCP_LOG_LEVEL=error", "GIT_SIGN_COMMITS=false")
    script = INSTALLED / "npm/node_modules/@cyanheads/git-mcp-server/dist/index.js"
    return Server(OTHER, ("env", *settings, "node", str(script)), calls)


def missing_servers() -> list[str]:
    """Return the names of the other servers that are not installed."""
    return [one.name for one in (_official(""), _other("")) if not is_installed(one)]


def git_servers(place: Workspace, stack: ExitStack, *, is_smoke: bool) -> list[Contender]:
    """Each row for one git process, for ours, and for the other servers that are installed."""
    top = place.beside / "many"
    _make(top, SMOKE_COMMITS if is_smoke else COMMITS)
    contenders = []
    for make in (_ours, _official, _other):
        repository = place.beside / f"of-{make.__name__}"
        server = make(str(repository))
        if make is not _ours and not is_installed(server):
            continue
        _copy(top, repository)
        peer = stack.enter_context(Peer((), Era.HANDSHAKE, bytecode=place.bytecode, program=server.program))
        peer.open()
        contenders += [
            _calls(f"{row} by {server.name}", peer, calls, repository) for row, calls in server.calls.items()
        ]
        contenders += [
            _copied(_calls(f"copied-{row} by {server.name}", peer, server.calls[row], repository), repository)
            for row in COPIED
        ]
    bare = place.beside / "of-git"
    _copy(top, bare)
    words = _words()
    contenders += [_processes(f"{row} by git", commands, bare) for row, commands in words.items()]
    contenders += [_copied(_processes(f"copied-{row} by git", words[row], bare), bare) for row in COPIED]
    return contenders


_changes = count()


def _change(repository: Path) -> None:
    """Change the file that add-commit commits."""
    (repository / FILE).write_text(f"changed {next(_changes)}\n" + _text(1))


def _calls(figure: str, peer: Peer, calls: Sequence[Call], repository: Path) -> Contender:
    def once() -> tuple[float, ...]:
        if len(calls) > 1:
            _change(repository)
        return (1000 * sum(peer.time_call(tool, dict(arguments)) for tool, arguments in calls),)

    return Contender(figures=(figure,), once=once)


def _processes(figure: str, commands: Sequence[Sequence[str]], repository: Path) -> Contender:
    environment = plain_environment()

    def once() -> tuple[float, ...]:
        if len(commands) > 1:
            _change(repository)
        started = time.perf_counter()
        for words in commands:
            done = subprocess.run(["git", *words], cwd=repository, env=environment, capture_output=True, check=False)
            if done.returncode:
                raise NotMeasured(f"{figure}: {done.stderr[:500]!r}")
        return (1000 * (time.perf_counter() - started),)

    return Contender(figures=(figure,), once=once)


def _copied(calls: Contender, repository: Path) -> Contender:
    """The mean of the second to the tenth call after every file got another time, as by `cp -r`."""

    def once() -> tuple[float, ...]:
        second = next(_changes)
        for path in repository.glob("part*/*.py"):
            os.utime(path, (second, second))
        taken = [calls.once()[0] for _ in range(COPIED_CALLS)]
        return (sum(taken[1:]) / (COPIED_CALLS - 1),)

    return Contender(figures=calls.figures, once=once)


def _copy(top: Path, repository: Path) -> None:
    shutil.copytree(top, repository, symlinks=True)
    (repository / "part0/file0.py").write_text("changed\n" + _text(0))
    (repository / "new.txt").write_text("untracked\n")
    subprocess.run(["git", "status"], cwd=repository, env=plain_environment(), capture_output=True, check=True)


def _make(top: Path, commits: int) -> None:
    """A repository with this many commits in 500 files, and 30 branches."""
    top.mkdir()
    environment = plain_environment()

    def git(*words: str, stdin: bytes | None = None) -> None:
        subprocess.run(["git", *words], cwd=top, env=environment, input=stdin, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    names = [f"part{number // 50}/file{number % 50}.py" for number in range(FILES)]
    parts = []
    for number in range(commits):
        changed = names if number == 0 else [names[number % FILES]]
        parts.append(f"commit refs/heads/main\ncommitter A <a@example.org> {1_600_000_000 + 600 * number} +0000\n")
        parts.append(f"data <<.\nchange {number}\n.\n")
        parts += [f"M 100644 inline {name}\ndata <<.\n{_text(number)}.\n" for name in changed]
    git("fast-import", "--quiet", stdin="".join(parts).encode())
    git("reset", "--quiet", "--hard", "main")
    for number in range(30):
        git("branch", f"branch-{number}", f"main~{number}")
    git("config", "user.name", "A Person")
    git("config", "user.email", "person@example.org")


def _text(number: int) -> str:
    return "".join(f"line {line} {number if line == number % LINES else ''}\n" for line in range(LINES))
