"""A user's steps in one of the suite's scenarios, with `coretools mcp` alone: a line for each step."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from tests.checkout import TREE
from tests.client.authorization import browse
from tests.client.peers import environment
from tests.conformance.client_under_test import ARGUMENTS, ECHOES_SCHEMA, HAS_SCHEMA, oauth
from tests.starting import warm

ANSWERS = ("--output", "json", "--yes", "--accept-defaults", "--root", ".", "--sampling", "false")
LINE_SECONDS = 80
NEEDS_LOGIN = 67
MOST_LOGINS = 2
"""For one line: a server may move to another authorization server."""

_ADDRESS = re.compile(r"https?://\S+\?\S+")


class Lines:
    """Lines about one server, each a process of its own."""

    def __init__(self, home: Path, entry: Mapping[str, Any]) -> None:
        self._home = home
        self._file = home / "servers.json"
        self._file.write_text(json.dumps({"mcpServers": {"a": entry}}))
        self.failed = (0, "")
        """Exit code and message of the first line that failed."""

    def ask(self, *words: str) -> Any:
        """Run a line, after a login if it needs one; return what it prints as JSON, None if it fails."""
        done = self._run(*words, *ANSWERS)
        for _ in range(MOST_LOGINS):
            if done.returncode != NEEDS_LOGIN or not self._logs_in():
                break
            done = self._run(*words, *ANSWERS)
        if done.returncode and not self.failed[0]:
            self.failed = (done.returncode, done.stderr)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None

    def _words(self, words: tuple[str, ...]) -> list[str]:
        named = ("--config", str(self._file), "--trust-project")
        return [sys.executable, "-m", "coretools.cli.main", "mcp", *words, *named]

    def _named(self) -> dict[str, Any]:
        # What else differs from this process would keep the line from being forked.
        variables = {**os.environ, **environment(self._home), "PYTHONPATH": str(TREE)}
        return {"cwd": self._home, "env": variables, "text": True}

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        given = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": LINE_SECONDS}
        return warm.run(self._words(words), **given, **self._named())

    def _logs_in(self) -> bool:
        with warm.Popen(
            self._words(("login", "a")), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **self._named()
        ) as login:
            assert login.stderr is not None
            shown = ""
            for line in login.stderr:
                shown += line
                if found := _ADDRESS.fullmatch(line.strip()):
                    anyio.run(browse, found[0])
            login.wait(LINE_SECONDS)
        if login.returncode and not self.failed[0]:
            self.failed = (login.returncode, shown)
        return login.returncode == 0


def outcome_by_lines(scenario: Mapping[str, Any]) -> tuple[int, str]:
    """Log in if the server wants it, list the tools, and call them; return the exit code and the message."""
    with tempfile.TemporaryDirectory() as home:
        entry = {"type": "http", "url": scenario["url"], "oauth": anyio.run(oauth, scenario)}
        lines = Lines(Path(home), entry)
        tools = {one["name"]: one for one in (lines.ask("tools", "a") or {}).get("a", [])}
        calls = scenario["context"].get("toolCalls") or [{"name": name} for name in tools]
        for call in calls:
            given = call.get("arguments") or ARGUMENTS.get(call["name"], {})
            # Nothing is sent that does not fit the schema: a user leaves out what is null, and gives what is required.
            given = {name: value for name, value in given.items() if value is not None}
            wanted = tools.get(call["name"], {}).get("inputSchema", {}).get("required", [])
            given = dict.fromkeys(wanted, "x") | given
            if call["name"] == ECHOES_SCHEMA:
                given = {"schema": tools[HAS_SCHEMA]["inputSchema"]}
            if call["name"] in tools:
                lines.ask("call", "a", call["name"], *(f"{name}:={json.dumps(value)}" for name, value in given.items()))
        return lines.failed
