"""The REPL: from a pipe, and at a real terminal (docs/specs/cli.md)."""

import os
import random
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from coretools.cli.line_words import needs_more, quoted, split_at_cursor, words_of
from coretools.errors import CommandSyntax
from tests.checkout import TREE
from tests.cli.terminal import terminal
from tests.cli.test_commands import coretools
from tests.protocol.peer import processes_with, stop, wait_until_some
from tests.starting import warm

REPL = ("-m", "coretools.cli.main", "repl")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git log", False),
        ("", False),
        ("   ", False),
        ("write 'two", True),
        ('write "two', True),
        ("git \\", True),
        ('write "two\\', True),
        ("write 'a' \"b", True),
        ("git log | head", False),
        ("git log | 'head", False),
        ("write 'two\nlines'", False),
    ],
)
def test_a_line_continues_while_a_quote_is_open_or_after_a_backslash(text: str, expected: bool) -> None:
    """cli-16: by the parser of the process runner; what cannot be completed does not continue."""
    assert needs_more(text) is expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("git log", ["git", "log"]),
        ("a \\\n b", ["a", "b"]),
        ("a 'b\nc'", ["a", "b\nc"]),
        ("", []),
        ("$HOME ~ *", ["$HOME", "~", "*"]),
    ],
)
def test_a_line_is_split_like_a_command(text: str, words: list[str]) -> None:
    """cli-16: quotes, and no other syntax of a shell."""
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "before", "current", "start"),
    [
        ("", [], "", 0),
        ("gi", [], "gi", 0),
        ("git ", ["git"], "", 4),
        ("git  lo", ["git"], "lo", 5),
        ("read 'two wo", ["read"], "two wo", 5),
        ('read "two wo', ["read"], "two wo", 5),
        ("read two\\ wo", ["read"], "two wo", 5),
        ("read 'a b' c", ["read", "a b"], "c", 11),
        ("read '", ["read"], "", 5),
    ],
)
def test_the_word_at_the_cursor_is_found_with_its_quotes(
    text: str, before: list[str], current: str, start: int
) -> None:
    """cli-17: with the position at which its replacement begins."""
    assert split_at_cursor(text) == (before, current, start)


def test_an_inserted_value_is_quoted() -> None:
    """cli-17: a name with blanks is one word."""
    assert quoted("two words") == "'two words'"
    assert quoted("plain/path.txt") == "plain/path.txt"
    with pytest.raises(CommandSyntax):
        split_at_cursor("git log | he")


CHANNEL = """
from coretools.operations.call import Call
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry

registry = Registry()

@registry.tool(Effect.READ)
async def where(call: Call) -> str:
    'How the call came.'
    return call.channel
"""


def test_a_command_sees_where_it_was_typed(tmp_path: Path) -> None:
    """api-28: in a shell, or in the REPL."""
    (tmp_path / "own.py").write_text(CHANNEL)
    root = tmp_path / "root"
    root.mkdir()
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    for words, stdin, channel in ((("where",), "", "command-line"), (("repl",), "where", "repl")):
        done = coretools("--with", "../own.py:registry", *words, cwd=root, stdin=stdin, **own)
        assert channel in done.stdout.splitlines(), done


def test_piped_lines_run_without_a_prompt(tmp_path: Path) -> None:
    """cli-16: multi-line input, comments, errors that do not end it; the exit code of the last failure."""
    lines = [
        "# a comment",
        "",
        "write_file a.txt 'one",
        "two'",
        "read_file \\",
        "  a.txt",
        "read_file missing",
        "read_file a.txt | head",
        "no such command",
        "write_file b.txt --content@=-",
        "read_file a.txt --head 1 --json",
        "help git log",
        "help",
        "run_command 'sh -c \"exit 3\"'",
        "file_exists a.txt",
        "exit",
        "read_file a.txt",
    ]
    # A home of its own: the person who runs the tests may have servers configured, which the REPL would name.
    home, root = tmp_path / "home", tmp_path / "root"
    home.mkdir()
    root.mkdir()
    own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state")}
    done = coretools("repl", cwd=root, stdin="\n".join(lines), **own)
    assert done.returncode == 1
    assert done.stdout.startswith("created a.txt, 7 bytes\none\ntwo")
    assert '"tool": "read_file"' in done.stdout
    assert "usage: git log [options]" in done.stdout
    assert "`help COMMAND` shows its usage" in done.stdout
    assert done.stdout.endswith("[exit code 3]\ntrue\n")
    message = done.stderr.splitlines()
    assert len(message) == 4, done.stderr
    for line, words in zip(
        message, ("missing", "no shell reads this line", "no such command", "contains the commands"), strict=True
    ):
        assert words in line
    assert "coretools>" not in done.stdout + done.stderr


@pytest.mark.parametrize(("lines", "code"), [("", 0), ("read_file missing\n", 66), ("write_file x 'open", 64)])
def test_the_exit_code_is_that_of_the_last_failure(tmp_path: Path, lines: str, code: int) -> None:
    """cli-16: 0 if nothing failed; a regular file is read like a pipe."""
    script = tmp_path / "script"
    script.write_text(lines)
    with script.open() as file:
        done = warm.run(
            [sys.executable, *REPL, "--root", str(tmp_path)],
            stdin=file,
            capture_output=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(TREE)},
        )
    assert done.returncode == code, done.stderr


def test_runs_live_as_long_as_the_repl(tmp_path: Path) -> None:
    """cli-16: one server context for all lines."""
    seconds = f"5{uuid.uuid4().int % 10**9:09d}.5"
    done = coretools("repl", cwd=tmp_path, stdin=f"run_command 'sleep {seconds}' --wait-seconds 0\nlist_runs\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"sleep {seconds}") >= 1
    assert processes_with(f"sleep {seconds}") == []


def test_a_signal_ends_a_repl_that_waits_for_a_line(tmp_path: Path) -> None:
    """cli-8, cli-16: SIGTERM, while the pipe is open."""
    process = warm.Popen(
        [sys.executable, *REPL, "--root", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"file_exists x\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"false\n"
        assert stop(process, signal.SIGTERM) == 143


def test_a_person_types_completes_interrupts_and_continues(tmp_path: Path) -> None:
    """cli-16, cli-17: on a terminal: completion, multi-line input, Ctrl-C, a private history file, Ctrl-D."""
    (tmp_path / "notes.txt").write_text("remembered\n")
    state = tmp_path / "state"
    seconds = f"6{uuid.uuid4().int % 10**9:09d}.5"
    with terminal(*REPL, "--root", str(tmp_path), cwd=tmp_path, environment={"XDG_STATE_HOME": str(state)}) as at:
        at.wait_for("coretools>")
        at.type("read_file no\t")
        at.wait_for("tes.txt")
        at.type("\r")
        at.wait_for("remembered")
        at.wait_for("coretools>")
        at.type("write_file b.txt 'one\r")
        at.wait_for("...")
        at.type("two'\r")
        at.wait_for("created b.txt, 7 bytes")
        at.wait_for("coretools>")
        at.type(f"run_command 'sleep {seconds}'\r")
        wait_until_some(f"sleep {seconds}")
        at.type("\x03")
        at.wait_for("interrupted")
        at.wait_for("coretools>")
        assert processes_with(f"sleep {seconds}") == []
        at.type("half a line\x03")
        at.wait_for("coretools>")
        at.type(" file_exists b.txt\r")
        at.wait_for("true")
        at.wait_for("coretools>")
        at.type("read_file missing\r")
        at.wait_for("there is nothing at this path")
        at.wait_for("coretools>")
        at.type("\x04")
        assert at.end() == 0
    history = state / "coretools" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    kept = history.read_text()
    assert "+read_file notes.txt" in kept
    assert "file_exists b.txt" not in kept
    assert "half a line" not in kept


def test_every_joined_line_is_whole_and_its_last_word_is_found() -> None:
    """cli-16, cli-17: an inserted word is parsed as that word, wherever the cursor is."""
    for seed in range(100):
        chance = random.Random(seed)
        words = ["".join(chance.choice("ab/.-' \"\\\n|é") for _ in range(chance.randrange(1, 6))) for _ in range(3)]
        line = " ".join(["x", *map(quoted, words)])
        assert words_of(line) == ["x", *words], seed
        assert not needs_more(line), seed
        before, current, start = split_at_cursor(line)
        assert ([*before, current], line[start:]) == (["x", *words], quoted(words[-1])), seed
        assert split_at_cursor(f"{line} ") == (["x", *words], "", len(line) + 1), seed


def test_a_line_cut_anywhere_is_never_misread() -> None:
    """cli-16: the first words stay the same, whatever is typed behind them."""
    for seed in range(100):
        chance = random.Random(seed)
        words = ["".join(chance.choice("ab' \"\\") for _ in range(chance.randrange(1, 6))) for _ in range(3)]
        line = " ".join(["x", *map(quoted, words)])
        cut = line[: chance.randrange(1, len(line))]
        before, _, start = split_at_cursor(cut)
        assert ["x", *words][: len(before)] == before, seed
        assert 0 <= start <= len(cut), seed
