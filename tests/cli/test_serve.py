"""`coretools serve`: registries named on the command line (docs/specs/api.md)."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from coretools.errors import BadSetting
from coretools.operations.loading import load
from coretools.operations.registry import Registry
from tests.checkout import TREE
from tests.protocol.peer import ANSWER_SECONDS, HANDSHAKE, Peer, connected, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the server's transport is POSIX only")

COMMANDS = '''
import sys
from dataclasses import dataclass
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry

print("printed while it is imported")
registry = Registry()
empty = Registry()

class Holder:
    inside = Registry()

@registry.tool(Effect.READ)
def say(text: str) -> str:
    """Say a text."""
    print("printed by a command")
    return text

@registry.tool(Effect.CHANGE)
def drop(text: str) -> str:
    """Drop a text."""
    return ""
'''

CLASH = '''
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry

registry = Registry()

@registry.tool(Effect.READ)
def read_file(path: str) -> str:
    """Read otherwise."""
    return ""
'''


def serving(*words: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    line = (sys.executable, "-m", "coretools.cli.main", "serve", *map(str, words))
    return started(*line, cwd=cwd, environment=environment)


@contextmanager
def server(*words: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> Iterator[Peer]:
    with connected(serving(*words, cwd=cwd, environment=environment)) as peer:
        yield peer


def refused(*words: str | Path, cwd: Path) -> str:
    """Standard error of a refused start, which exits with the code for an invalid configuration."""
    expected, errors = serving(*words, cwd=cwd).communicate(timeout=ANSWER_SECONDS)
    assert expected == b""
    return errors.decode()


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    path = tmp_path / "notes_commands.py"
    path.write_text(COMMANDS)
    return path


def test_a_server_of_one_application_is_that_application(tmp_path: Path) -> None:
    """application-9"""
    file = tmp_path / "own.py"
    file.write_text(
        "from coretools import App, Effect\napp = App('own', version='7', title='Own', instructions='Be brief.')\n"
        "@app.tool(Effect.READ)\ndef say() -> str:\n    'Say.'\n    return 'said'\n"
    )
    with server("--with", f"{file}:app", cwd=Path("/")) as peer:
        hello = peer.ask("initialize", HANDSHAKE)["result"]
        info = hello["serverInfo"]
        assert (info["name"], info["version"], info["title"], hello["instructions"]) == ("own", "7", "Own", "Be brief.")
    policy = tmp_path / "policy.toml"
    policy.write_text('[catalog]\nonly = ["say"]\n')
    root = tmp_path / "root"
    root.mkdir()
    own = ("--own", "--root", root, "--with", f"{file}:app")
    for words, name in (((*own, "--policy", policy), "own"), (own, "coretools")):
        with server(*words, cwd=Path("/")) as peer:
            assert peer.ask("initialize", HANDSHAKE)["result"]["serverInfo"]["name"] == name


def test_a_registry_of_a_file_is_served_and_its_prints_stay_off_the_wire(commands: Path) -> None:
    """api-8: by name, from a file; its log and its prints go to stderr; it ends with the client."""
    with server("--with", f"{commands}:registry", "--name", "notes", cwd=Path("/")) as peer:
        hello = peer.ask("initialize", HANDSHAKE)
        assert hello["result"]["serverInfo"]["name"] == "notes"
        peer.notify("notifications/initialized")
        assert [one["name"] for one in peer.ask("tools/list")["result"]["tools"]] == ["say", "drop"]
        assert peer.call("say", text="hi")["content"] == [{"type": "text", "text": "hi"}]
        assert peer.end() == 0


NOISY = """
import os, subprocess, sys, threading
os.write(1, b"written to the descriptor\\n")
subprocess.run(["echo", "printed by a child"], check=True)
sys.__stdout__.write("kept in a buffer")
print("read:", repr(sys.stdin.readline()), file=sys.stderr)
over = threading.Event()

def chatter():
    while not over.wait(0.001):
        print("printed by a thread", flush=True)

threading.Thread(target=chatter, daemon=True).start()
"""


def test_an_imported_module_neither_prints_to_the_wire_nor_reads_from_it(tmp_path: Path) -> None:
    """api-9: nor does its child, its buffer, or its thread; the client's first request reaches the server."""
    path = tmp_path / "noisy_commands.py"
    path.write_text(NOISY + COMMANDS)
    process = serving("--with", f"{path}:registry", cwd=tmp_path)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    expected, errors = process.communicate(json.dumps(hello).encode() + b"\n", timeout=ANSWER_SECONDS)
    assert [json.loads(line)["id"] for line in expected.splitlines()] == [1]
    for noise in ("written to the descriptor", "printed by a child", "kept in a buffer", "read: ''"):
        assert noise in errors.decode()


def test_our_tools_stand_beside_those_of_a_module_and_flags_apply_to_both(commands: Path, tmp_path: Path) -> None:
    """api-8, api-12: `--own` is the workstation server with more commands; a signal ends it."""
    (tmp_path / "a.txt").write_text("here\n")
    words = ("--own", "--with", "notes_commands:registry", "--root", tmp_path, "--read-only")
    with server(*words, cwd=tmp_path, environment={"PYTHONPATH": f"{TREE}:{tmp_path}"}) as peer:
        peer.start_session()
        names = [one["name"] for one in peer.ask("tools/list")["result"]["tools"]]
        assert "read_file" in names
        assert "write_file" not in names
        assert names[-1] == "say"
        assert "here" in str(peer.call("read_file", path="a.txt"))
        assert peer.call("say", text="hi")["content"][0]["text"] == "hi"
        peer.process.send_signal(signal.SIGTERM)
        assert peer.process.wait(ANSWER_SECONDS) == 128 + signal.SIGTERM


def test_the_policy_file_applies_to_commands_of_other_registries(commands: Path, tmp_path: Path) -> None:
    """api-12: a tool that it names needs a person's confirmation; it may name one of our tools that is not served."""
    policy = tmp_path / "policy" / "policy.toml"
    policy.parent.mkdir()
    policy.write_text('[tools]\nask = ["say", "write_file"]\n')
    with server("--with", f"{commands}:registry", "--policy", policy, cwd=tmp_path) as peer:
        peer.start_session()
        refused = peer.call("say", text="hi")
        assert refused["isError"]
        assert refused["_meta"]["coretools/error"] == "answer-needed"


def test_a_duplicate_name_ends_the_start_with_both_sources(tmp_path: Path) -> None:
    """api-10: their command never replaces ours."""
    clash = tmp_path / "clash.py"
    clash.write_text(CLASH)
    errors = refused("--own", "--with", f"{clash}:registry", "--root", f"{tmp_path}:ro", cwd=tmp_path)
    assert "two commands are named read_file" in errors
    assert "reading_tools.ReadingTools.read_file" in errors
    assert "clash.read_file" in errors


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "nothing to serve"),
        (("--with", "no_such_module:registry", "--deny", "*.x"), "--deny: for coretools' own tools only"),
        (("--with", "no_such_module:registry"), "no_such_module can't be imported: ModuleNotFoundError"),
    ],
    ids=["nothing", "a flag of our own tools", "no module"],
)
def test_a_start_that_cannot_work_says_why_and_exits_with_78(
    words: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    """api-9: before anything is served; nothing reaches standard output."""
    process = serving(*words, cwd=tmp_path)
    _, errors = process.communicate(timeout=ANSWER_SECONDS)
    assert process.returncode == 78
    assert expected in errors.decode()
    assert "Traceback" not in errors.decode()


def test_a_module_in_this_directory_is_found_by_its_file(tmp_path: Path) -> None:
    """api-9: an installed program does not search this directory; the message says what would work."""
    (tmp_path / "ours_here").mkdir()
    (tmp_path / "ours_here" / "server.py").write_text("import no_such_module_at_all\n")
    with (
        chdir(tmp_path),
        pytest.raises(BadSetting, match=r"write \./ours_here/server\.py:registry, or set PYTHONPATH=\."),
    ):
        load("ours_here.server:registry")
    with chdir(tmp_path), pytest.raises(BadSetting, match=r"'no_such_module_at_all' \(/\S+, line 1\)$"):
        load("./ours_here/server.py:registry")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("notes", "write MODULE:NAME"),
        (":registry", "write MODULE:NAME"),
        ("notes:", "write MODULE:NAME"),
        ("FILE:nothing", "there is no nothing; registries of FILE: registry, empty"),
        ("FILE:say", "say is a function, not a coretools Registry"),
        ("FILE:Holder.outside", "there is no Holder.outside"),
        ("nowhere/at/all.py:registry", "can't be imported: FileNotFoundError"),
        ("coretools.no_such:registry", "can't be imported: ModuleNotFoundError"),
        ("..relative:registry", "can't be imported: TypeError"),
    ],
)
def test_what_is_not_a_registry_is_refused_by_name(text: str, expected: str, commands: Path) -> None:
    """api-9: with its type, and the registries that the module has."""
    with pytest.raises(BadSetting) as refused:
        load(text.replace("FILE", str(commands)))
    assert expected.replace("FILE", str(commands)) in str(refused.value)


def test_a_file_that_cannot_import_its_sibling_names_the_line_and_what_to_set(tmp_path: Path) -> None:
    """api-9"""
    (tmp_path / "the_sibling.py").write_text("VALUE = 1\n")
    path = tmp_path / "with_sibling.py"
    path.write_text("\nimport the_sibling\n")
    hint = f"'the_sibling' ({path}, line 2); Python does not search the directory of {path}: set PYTHONPATH={tmp_path}"
    with pytest.raises(BadSetting, match=re.escape(hint)):
        load(f"{path}:app")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_module_that_fails_on_import_is_refused_with_its_error(source: str, expected: str, tmp_path: Path) -> None:
    """api-9: in one sentence, without a traceback."""
    path = tmp_path / "broken_commands.py"
    path.write_text(source)
    with pytest.raises(BadSetting, match=expected):
        load(f"{path}:registry")


def test_a_nested_registry_is_found(commands: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """api-8: NAME may have dots; what the module prints goes to stderr."""
    assert isinstance(load(f"{commands}:Holder.inside"), Registry)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "printed while it is imported" in printed.err
