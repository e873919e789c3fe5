"""`coretools try`: a tour of what an agent can and cannot do, on a repository made for it, which leaves nothing.

A real server is called by a real client, and every answer is shown as the agent gets it. Remarks on what was refused
are decided by what came back, so that the tour tells the truth in every tier.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters

from coretools.cli.common.colours import colour_result, styled
from coretools.cli.common.list_tools import result_text
from coretools.cli.common.terminal import TerminalCapabilities, for_terminal, print_text
from coretools.errors import CoreError, InputOutput, Unreachable
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal

TOUR_SECONDS = 55.0
"""For all of it; the slowest step is the start of the server, two seconds on a small machine."""

CLEANUP_SECONDS = 20.0
"""For the end of the server and the removal of the directory, after a signal."""

SHOWN_LINES = 12
"""Of an answer."""

WIDTH = 100
"""Of a shown line, in characters; longer ones are wrapped."""

GREETING = 'def greet(name):\n    return "Hello " + name\n'

NOTES = {"docs/plan.md": "# Plan\n\nShip on Friday.\n", "docs/ideas.md": "# Ideas\n\nA dark mode.\n"}

TIER = re.compile(r"^commands are confined in tier: (full|landlock|none)$", re.MULTILINE)
"""The line of `get_diagnostics`."""

TIERS = {
    "full": "Commands run in tier full here: each in namespaces of its own, without your home and the network.",
    "landlock": "Commands run in tier landlock here: the kernel keeps them from the content of files outside, not\n"
    "from names and sizes. They can read hidden files of the project, which tier full prevents.",
    "none": "Commands can't be confined here (tier none), so none runs. File tools are confined all the same.",
}


OUTSIDE = "The kernel keeps commands in: what is outside is absent, or refused."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One call, what an agent wants by it, and what the answer means to the user."""

    title: str
    tool: str
    arguments: Mapping[str, Any]
    remark: Callable[[str], str]


class _TourFailed(Unreachable):
    """The server did not do what the tour shows."""


class _TidyExit(ProcessExit):
    """Takes one signal: a second one would exit at once, and leave the temporary directory."""

    def on_signal(self, number: int) -> None:
        """Begin the shutdown, once."""
        if not self.exit_code:
            super().on_signal(number)


def tour(environment: Mapping[str, str]) -> int:
    """Give the tour on standard output. Returns the exit code.

    Raises:
        Unreachable: git is missing, or the server does not answer.
        InputOutput: the repository can't be made.
    """
    if shutil.which("git", path=environment.get("PATH", os.defpath)) is None:
        raise Unreachable("the tour needs git; install it")
    return anyio.run(_tour, environment)


async def _tour(environment: Mapping[str, str]) -> int:
    process_exit = _TidyExit(CLEANUP_SECONDS)
    # A terminal that is closed is one more reason to tidy up.
    signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    failure: CoreError | None = None
    # Made and removed where a signal only cancels, so that nothing stays then either.
    async with cancel_on_signal(process_exit):
        try:
            with tempfile.TemporaryDirectory(prefix="coretools-try-") as place:
                await _guided(_Scene.made(Path(place), environment))
        except CoreError as error:  # raised below: the task group would wrap it
            failure = error
        except OSError as error:
            failure = InputOutput(f"the tour ended early: {error}")
    process_exit.cancel_deadline()
    if failure is not None:
        raise failure
    return process_exit.exit_code


INTRODUCTION = """\
coretools serves a directory to an agent, and nothing else. The agent here is a script; the server,
its answers and the small repository are real, and are gone when the tour ends."""


async def _guided(scene: "_Scene") -> None:
    failure: BaseException | None = None
    try:
        with anyio.fail_after(TOUR_SECONDS):
            print_text(INTRODUCTION)  # before the server has started, which takes seconds
            async with Client(scene.server()) as client:
                await _Guide(client, scene).show()
    except* (OSError, TimeoutError, MCPError, _TourFailed) as errors:
        failure = errors
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    if failure is not None:
        reason = str(failure) or type(failure).__name__
        raise Unreachable(f"the tour ended early: {reason}; `coretools doctor` shows what is wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """A repository with a secret in it, a file beside it, and the state of the server, in one temporary directory."""

    project: Path
    environment: Mapping[str, str]
    token: str
    """In `.env`, which is hidden."""
    private: str
    """In a file outside the project."""

    @classmethod
    def made(cls, place: Path, environment: Mapping[str, str]) -> "_Scene":
        """Make it. The server's journal and configuration are in it too, so neither the user's are used nor changed."""
        own = {name: value for name, value in environment.items() if not name.startswith(("CORETOOLS_", "GIT_"))}
        homes = {f"XDG_{kind}_HOME": str(place / kind.lower()) for kind in ("STATE", "CONFIG", "CACHE", "DATA")}
        scene = cls(
            project=place / "project",
            environment={**own, **homes, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            token=secrets.token_hex(20),
            private=f"private {secrets.token_hex(4)}",
        )
        (place / "private-notes.txt").write_text(f"{scene.private}\n", encoding="utf-8")
        files = {"greeting.py": GREETING, ".gitignore": ".env\n", ".env": f"API_TOKEN={scene.token}\n", **NOTES}
        for name, text in files.items():
            path = scene.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for words in ("init -q -b main", "add .", "-c user.name=You -c user.email=you@example.com commit -q -m Start"):
            scene.git(words)
        return scene

    def git(self, words: str) -> None:
        """Run git in the project; in a session of its own, where Ctrl-C is no signal to it."""
        done = subprocess.run(
            ["git", *words.split()],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unreachable(f"the tour ended early: git {words}: {done.stderr.strip()}")

    def server(self) -> StdioServerParameters:
        """Return how the server is started: as a client starts it, with its defaults."""
        return StdioServerParameters(
            command=sys.executable,
            # -P: modules of the current directory must not shadow ours.
            args=[
                *("-P", "-m", "coretools.servers.workstation", "--log-level", "error", "--no-login-path"),
                str(self.project),
            ],
            env=dict(self.environment),
        )


class _Guide:
    """Makes the calls and prints what comes back."""

    def __init__(self, client: Client, scene: _Scene) -> None:
        self._client = client
        self._scene = scene
        self._has_colours = TerminalCapabilities.of(os.environ).has_colours
        self._tier = "none"
        self._steps = 0

    async def show(self) -> None:
        """Give the whole tour."""
        self._tier = await self._asked_tier()
        self._say(TIERS[self._tier], "dim")
        for step in self._first():
            await self._take(step)
        await self._take_back()
        self._say("", "")
        self._say("That was all; the repository, its journal and the server go now. What next:", "bold")
        self._say(
            "  coretools install CLIENT .   add it to your client for this directory: claude-code, cursor, vscode ...\n"
            "  coretools doctor             what works on this machine, and what to do\n"
            "  coretools --help             everything else",
            "",
        )

    def _first(self) -> tuple[_Step, ...]:
        scene = self._scene
        edit = {"old": '"Hello " + name', "new": 'f"Hello, {name}!"'}
        return (
            _Step(
                title="The agent reads a file",
                tool="read_file",
                arguments={"path": "greeting.py"},
                remark=lambda text: self._need("greet" in text, "Paths are relative to the directory you gave it."),
            ),
            _Step(
                title="It edits the file",
                tool="edit_file",
                arguments={"path": "greeting.py", "edits": [edit]},
                remark=lambda text: self._need("Hello, {name}!" in text, "Exact, atomic, and recorded for an undo."),
            ),
            _Step(
                title="It tries to read your files outside",
                tool="read_file",
                arguments={"path": "../private-notes.txt"},
                remark=lambda text: self._kept(scene.private, text, "Refused: no path leads out."),
            ),
            _Step(
                title="It tries the same by a command",
                tool="run_command",
                arguments={"command": "cat ../private-notes.txt"},
                remark=lambda text: self._kept(scene.private, text, self._of_command(OUTSIDE)),
            ),
            _Step(
                title="It tries to read a token in .env",
                tool="read_file",
                arguments={"path": ".env"},
                remark=lambda text: self._kept(scene.token, text, "Hidden: the file contains a secret."),
            ),
            _Step(
                title="And by a command",
                tool="run_command",
                arguments={"command": "cat .env"},
                remark=lambda text: (
                    "Not hidden from commands in this tier: it needs tier full. Keep such files elsewhere."
                    if scene.token in text
                    else self._of_command("Hidden from commands too.")
                ),
            ),
            _Step(
                title="It deletes a directory",
                tool="delete_directory",
                arguments={"path": "docs"},
                remark=lambda _: self._need(not (scene.project / "docs").exists(), "Gone, with two files in it."),
            ),
        )

    async def _take_back(self) -> None:
        """Undo both changes, by the id that the list of changes shows, as an agent would."""
        listed = await self._take(
            _Step(
                title="You ask what it changed",
                tool="list_changes",
                arguments={},
                remark=lambda _: "Every change by a file tool or a command, of every agent.",
            )
        )
        ids = [int(words[0]) for line in listed.splitlines() if (words := line.split()) and words[0].isdigit()]
        self._need(len(ids) > 0, "")
        await self._take(
            _Step(
                title="And have all of it taken back",
                tool="undo",
                arguments={"since": min(ids)},
                remark=lambda _: self._need(self._is_as_before(), "As it was. An undo can be undone too."),
            )
        )

    async def _take(self, step: _Step) -> str:
        """Make the call, print it with its answer, and return the answer."""
        self._steps += 1
        self._say("", "")
        self._say(f"{self._steps}. {step.title}", "bold")
        arguments = " ".join(f"{name}={_argument(value)}" for name, value in step.arguments.items())
        self._say(f"   {step.tool} {arguments}".rstrip(), "cyan")
        result = await self._client.call_tool(step.tool, dict(step.arguments))
        text = result_text(result)
        lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH, break_on_hyphens=False)]
        for line in lines[:SHOWN_LINES]:
            shown = for_terminal(line)
            is_plain = not self._has_colours
            print_text(f"   | {shown}" if is_plain else styled("   | ", "dim") + colour_result(step.tool, shown))
        if len(lines) > SHOWN_LINES:
            self._say(f"   | ... {len(lines) - SHOWN_LINES} more lines", "dim")
        self._say(f"   {step.remark(text)}", "green")
        return text

    async def _asked_tier(self) -> str:
        found = TIER.search(result_text(await self._client.call_tool("get_diagnostics", {})))
        if found is None:
            raise _TourFailed("the server did not say its tier")
        return found[1]

    def _of_command(self, remark: str) -> str:
        return remark if self._tier != "none" else "Refused: the command did not run."

    def _kept(self, secret: str, text: str, remark: str) -> str:
        """Return the remark if the secret was not shown.

        Raises:
            _TourFailed: it was.
        """
        return self._need(secret not in text, remark)

    def _need(self, is_so: bool, remark: str) -> str:
        if not is_so:
            raise _TourFailed("the server did not do what this step shows, which is a bug")
        return remark

    def _is_as_before(self) -> bool:
        files = {"greeting.py": GREETING, **NOTES}
        return all((self._scene.project / name).read_text(encoding="utf-8") == text for name, text in files.items())

    def _say(self, text: str, style: str) -> None:
        shown = for_terminal(text)
        print_text(styled(shown, style) if style and self._has_colours else shown)


def _argument(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value, ensure_ascii=False)
