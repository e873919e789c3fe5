"""Language servers of strangers: what they can reach, and what is said when they fail (docs/specs/language-servers.md).

The server is a program of the project, as an agent can plant one.
"""

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, marker, peer, processes_with, wait_until_none, wait_until_some

FAKE = Path(__file__).with_name("fake_server.py")
CODE = "def parse(text):\n    return text\n\n\nparse('x')\n"


class Projects:
    """Projects of one root, each with a plan for the planted language server, beside another root and a home."""

    def __init__(self, top: Path, *modes: str, port: int = 1) -> None:
        self.top, self.other, self.home = top / "root", top / "other", top / "home"
        self.marker = marker()
        programs, others = self.top / ".venv" / "bin", self.top / "node_modules" / ".bin"
        for path in (programs, others, self.other, self.home, *(self.top / mode for mode in modes)):
            path.mkdir(parents=True)
        (self.top / ".env").write_text("SECRET=1")
        (self.other / "data").write_text("of another root")
        (self.home / "canary").write_text("canary")
        for program in (programs / "ty", others / "typescript-language-server"):
            program.write_text(f"#!/usr/bin/env python3\n{FAKE.read_text()}")
            program.chmod(0o755)
        plan = {
            "marker": self.marker,
            "port": port,
            "complaint": "\x1b[31mx",
            "home": str(self.home / "canary"),
            "other_root": str(self.other / "data"),
            "hidden": str(self.top / ".env"),
            "written": str(self.top / "written"),
            "home_written": str(self.home / "written"),
            "other_written": str(self.other / "written"),
        }
        for mode in modes:
            (self.top / mode / "a.py").write_text(CODE)
            (self.top / mode / "pyproject.toml").write_text("[project]\nname = 'x'\n")
            (self.top / mode / "tsconfig.json").write_text("{}")
            (self.top / mode / "plan.json").write_text(json.dumps(plan | {"mode": mode}))

    @contextmanager
    def served(self, *words: str, before: tuple[str, ...] = ()) -> Iterator[Peer]:
        environment = {"HOME": str(self.home), "PASSED_SECRET": "1", "XDG_CACHE_HOME": str(self.home / "cache")}
        words = (
            "--limit",
            "language_answer_seconds=3",
            "--limit",
            "search_seconds=3",
            "--pass-env",
            "PASSED_SECRET",
            *words,
        )
        with peer(self.top, self.other, *words, environment=environment, before=before) as client:
            client.start_session()
            yield client


def asked(client: Peer, mode: str, tool: str = "code_references", **more: object) -> str:
    arguments = {"path": f"{mode}/a.py", "symbol": "parse", **more}
    result = client.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_a_planted_server_reaches_nothing(tmp_path: Path, tier: str) -> None:
    """language-servers-2, language-servers-3, language-servers-4"""
    before = tuple(map(str, under_profile())) if tier == "landlock" else ()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        projects = Projects(tmp_path, "attack", port=listener.getsockname()[1])
        with projects.served("--require-tier", tier, before=before) as client:
            text = asked(client, "attack")
            if "requires tier" in text:
                pytest.skip(f"tier {tier} is not available here")
            # In tier landlock hidden files are hidden from no command (docs/specs/confinement.md).
            assert "REACHED []" in text or (tier == "landlock" and "REACHED ['hiddenSECRET=1']" in text), text
            assert '"applied": false' in text
            assert "not supported" in text
            assert "5: parse('x')" in text, "what is known without a server"
            wait_until_some(projects.marker)
            client.process.kill()
            client.process.wait()
            assert wait_until_none(projects.marker) == [], "kill -9 of ours leaves nothing"
    assert (projects.top / "attack" / "a.py").read_text() == CODE
    assert sorted(os.listdir(projects.other)) == ["data"]
    assert "written" not in os.listdir(projects.top)
    assert "written" not in os.listdir(projects.home)


FAILURES = {
    "garbage": "it wrote something that is not the protocol",
    "flood": "no answer within 3 s|sent more than 67108864 bytes",  # by the speed of the machine
    "hang": "no answer within 3 s",
    "indexing": r"still indexing \(Reading\); ask again later",
    "shapeless": "its answer does not fit the protocol",
    "unloaded": "does not fit the protocol; it says: Error loading workspace: go.mod",
    "crash": "it ended with exit code 3: no memory left",
}
RENAMES = {
    "zero": "names no place to rename parse at; nothing changed",
    "stale": "is to be renamed, and not parse; nothing was changed",
    "outside": "/etc/passwd",
}


CHECKS = ("late", "parts")
BOUNDS = {
    "memory": ("language_server_bytes=200000000", "it ended with exit code 1: MemoryError"),
    "spin": ("language_server_cpu_seconds=1", "it ended with signal SIG(KILL|XCPU)"),
}


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    return Projects(tmp_path_factory.mktemp("projects"), "attack", "pushes", *FAILURES, *RENAMES, *CHECKS, *BOUNDS)


@pytest.fixture(scope="module")
def client(projects: Projects) -> Iterator[Peer]:
    # Less for the search than for the server: it has time of its own after a server that does not answer.
    limits = ("language_servers=1", "edit_errors_seconds=0.2", "search_seconds=2")
    with projects.served(*(word for limit in limits for word in ("--limit", limit))) as served:
        yield served


def test_only_a_question_starts_a_server(projects: Projects) -> None:
    """language-servers-1, code-21"""
    with projects.served() as client:
        client.call("edit_file", path="attack/a.py", edits=[{"old": "'x'", "new": "'x' "}])
        client.call("edit_file", path="attack/a.py", edits=[{"old": "'x' ", "new": "'x'"}])
        client.ask("tools/call", {"name": "code_symbols", "arguments": {"path": "attack/a.py"}})
        assert processes_with(projects.marker) == []
        assert not (projects.home / "cache" / "coretools" / "language-servers").exists()


@pytest.mark.parametrize("mode", FAILURES)
def test_a_server_that_fails_is_told_and_the_text_is_found(client: Peer, mode: str) -> None:
    """language-servers-7, code-15"""
    text = asked(client, mode)
    assert text.startswith("[not known: references of parse: ty: ")
    assert re.search(FAILURES[mode], text.splitlines()[0])
    assert "1 definition of parse: def parse(text):" in text
    assert "5: parse('x')" in text


def test_diagnostics_that_a_server_sends_by_itself_know_the_other_files(client: Peer, projects: Projects) -> None:
    """code-16, language-servers-10, language-servers-12: those from before another file changed are not taken."""
    for state in ("before", "after"):
        (projects.top / "pushes" / "other.py").write_text(state)
        arguments = {"paths": ["pushes/a.py"]}
        result = client.ask("tools/call", {"name": "code_check", "arguments": arguments})["result"]
        text = str(result["content"][0]["text"])
        assert text.startswith(f"pushes/a.py:1: error: {state}\n")
        assert "ty says: can't read the manifest" in text


def test_a_server_that_crashes_is_restarted_once_and_then_told(client: Peer) -> None:
    """language-servers-6"""
    assert "no memory left" in asked(client, "crash")
    assert "that happened twice, so it is not started again for a while" in asked(client, "crash")


@pytest.mark.parametrize("mode", RENAMES)
def test_a_rename_that_does_not_fit_the_files_changes_nothing(client: Peer, projects: Projects, mode: str) -> None:
    """code-18"""
    assert RENAMES[mode] in asked(client, mode, "code_rename", new_name="other")
    assert (projects.top / mode / "a.py").read_text() == CODE


def test_the_server_that_was_used_longest_ago_makes_room(client: Peer, projects: Projects) -> None:
    """language-servers-5: one may run here."""
    asked(client, "attack")
    wait_until_some(projects.marker)
    asked(client, "shapeless")
    assert wait_until_none(projects.marker) == []


def test_a_server_that_is_late_after_an_edit_is_not_asked_by_edits_until_it_answers(client: Peer) -> None:
    """code-23: its second answer never comes, and there is no third question."""
    check = partial(client.call, "code_check", paths=["late/a.py"])
    assert "asked 1 times" in str(check())
    for new in ("'y'", "'x'"):
        edited = client.call("edit_file", path="late/a.py", edits=[{"old": "parse('", "new": f"parse({new}[0]+'"}])
        assert "new error" not in str(edited)
    assert "asked 3 times" in str(check())


def test_diagnostics_that_come_in_parts_or_of_what_was_closed_are_no_answer(client: Peer, projects: Projects) -> None:
    """language-servers-10"""
    file = projects.top / "parts" / "a.ts"
    for text in ("first", "second"):
        file.write_text(text)
        assert f"a.ts:1: error: {text} [2322]" in str(client.call("code_check", paths=["parts/a.ts"]))


def test_a_server_without_a_question_and_one_that_uses_too_much_are_ended(projects: Projects) -> None:
    """language-servers-5"""
    limits = [word for limit, _ in BOUNDS.values() for word in ("--limit", limit)]
    waiting = ("--limit", "language_server_idle_seconds=0.5", "--limit", "language_answer_seconds=30")
    with projects.served(*limits, *waiting) as client:
        for mode, (_, ending) in BOUNDS.items():
            assert re.search(ending, asked(client, mode).splitlines()[0])
        asked(client, "attack")
        wait_until_some(projects.marker)
        assert wait_until_none(projects.marker) == []


def test_what_a_server_tells_its_user_is_passed_on_in_one_plain_line(client: Peer) -> None:
    """language-servers-11"""
    checked = client.call("code_check", paths=["late/a.py"])["content"][0]["text"]
    assert "late/a.py: ty says: can't read: \\x1b[31mx]" in checked


def test_files_of_other_projects_that_have_the_name_are_opened_for_the_answer(client: Peer, projects: Projects) -> None:
    """code-24: the server answers for open files alone; it says which it has (known.ts)."""
    top = projects.top / "separate"
    (top / "tests").mkdir(parents=True)
    (top / "tsconfig.json").write_text("{}")
    (top / "plan.json").write_text('{"mode": "separate", "complaint": ""}')
    for name in ("a.ts", "known.ts", "tests/b.ts"):
        (top / name).write_text("parse\n")
    (top / "tests" / "large.ts").write_text("parse\n" + " " * 4 * 1024 * 1024)
    arguments = {"path": "separate/a.ts", "symbol": "parse", "line": 1}

    def found() -> str:
        return str(client.ask("tools/call", {"name": "code_references", "arguments": arguments})["result"]["content"])

    assert "separate/a.ts\\n1: parse\\nseparate/tests/b.ts\\n1: parse\\n[" in found()
    assert "not searched, since they are of other projects: separate/tests/large.ts" in found()
    assert "does not mean this one: a.py" not in found()
    (top / "tests" / "b.ts").write_text("\n\nparse\n")
    assert "separate/tests/b.ts\\n3: parse" in found(), "a document that changed is opened anew"
