"""Questions, bars and colours at a real terminal (docs/specs/cli.md)."""

import subprocess
import uuid
from pathlib import Path

from tests.cli.terminal import Terminal, terminal
from tests.protocol.peer import processes_with, wait_until_some

CONTACTS = ("-m", "tests.cli.contacts")


def answered(at: Terminal, prompt: str, *typed: str) -> None:
    for text in typed:
        at.wait_for(prompt)
        at.type(f"{text}\n")


def test_questions_are_asked_at_the_terminal(tmp_path: Path) -> None:
    """cli-13: text with a default, choice by number, name or prefix, several, confirmation, form; asked again."""
    kinds = ("word", "word", "pick", "pick", "picks", "sure", "sure", "shape")
    lines = [f"contact ask {kind}" for kind in kinds]
    with terminal(*CONTACTS, *lines, cwd=tmp_path) as at:
        answered(at, "Which word [none]: ", "hello")
        at.wait_for("word: 'hello'")
        answered(at, "Which word [none]: ", "")
        at.wait_for("word: 'none'")
        at.wait_for("1) red")
        answered(at, "number or name: ", "4", "2")
        at.wait_for("pick: 'green'")
        answered(at, "number or name: ", "b")
        at.wait_for("pick: 'blue'")
        answered(at, "separated by commas: ", "", "3, red")
        at.wait_for("picks: ('red', 'blue')")
        answered(at, "Are you sure [yes/no]: ", "perhaps", "", "yes")
        at.wait_for("sure: True")
        answered(at, "Are you sure [yes/no]: ", "n")
        at.wait_for("sure: False")
        for width in ("wide", "7"):
            answered(at, "width: ", width)
            answered(at, "colour (red, blue): ", "")
        at.wait_for("shape: Shape(width=7, colour='red')")
        assert at.end() == 0
        assert "\r\nchoose one of red, green, blue; '4' is not one of them" in at.output
        assert "must be true or false, or yes or no" in at.output


def test_a_secret_is_not_echoed_and_the_terminal_is_restored(tmp_path: Path) -> None:
    """cli-13: typed without echo."""
    with terminal(*CONTACTS, "contact ask secret", "contact ask word", cwd=tmp_path) as at:
        answered(at, "Say it: ", "xyzzy")
        before = at.wait_for("secret: ")
        assert "xyzzy" not in before
        at.wait_for("Which word [none]: ")
        at.type("echoed\n")
        assert "echoed" in at.wait_for("word: 'echoed'").partition("word:")[0]


def test_three_invalid_answers_or_the_end_of_input_end_a_question(tmp_path: Path) -> None:
    """cli-13: exit codes 64 and 77; nothing is done."""
    with terminal(*CONTACTS, "contact ask sure", "contact ask sure", "contact ask sure", cwd=tmp_path) as at:
        answered(at, "Are you sure [yes/no]: ", "a", "b", "c")
        at.wait_for("= 64")
        at.wait_for("Are you sure [yes/no]: ")
        at.type("\x04")
        at.wait_for("Are you sure: no answer was given; nothing was done")
        at.wait_for("= 77")


def test_a_progress_bar_is_drawn_on_a_terminal_and_removed(tmp_path: Path) -> None:
    """cli-14: with the current message; log messages are printed above it."""
    with terminal(*CONTACTS, "contact walk 3", cwd=tmp_path) as at:
        assert at.end() == 0
    assert "walking [bold]" in at.output
    assert "info: step 0" in at.output
    assert "walked; elicitation: True, sampling: False" in at.output


def test_the_real_command_is_coloured_and_confirms_at_the_terminal(tmp_path: Path) -> None:
    """cli-13, cli-15: the confirmations of the policy are asked; NO_COLOR removes the colour."""
    project = tmp_path / "project"
    project.mkdir()
    policy = tmp_path / "policy.toml"
    policy.write_text('[tools]\nask = ["write_file"]\n')
    words = ("-m", "coretools.cli.main", "--policy", str(policy), "--root", str(project))
    with terminal(*words, "write_file", "a.txt", "hello", cwd=project) as at:
        answered(at, "[yes/no]: ", "yes")
        assert at.end() == 0
    assert (project / "a.txt").read_text() == "hello"
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    for environment, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with terminal(*words, "git", "status", cwd=project, environment=environment) as at:
            assert at.end() == 0
        assert ("\x1b[31m?" in at.output) is is_coloured
        assert "a.txt" in at.output


def test_ctrl_c_at_a_question_or_a_command_ends_the_process(tmp_path: Path) -> None:
    """cli-8, cli-13: exit code 130, and no process left."""
    (tmp_path / "policy.toml").write_text('[tools]\nask = ["write_file"]\n')
    (tmp_path / "root").mkdir()
    words = ("-m", "coretools.cli.main", "--root", str(tmp_path / "root"), "--policy", str(tmp_path / "policy.toml"))
    with terminal(*words, "write_file", "a.txt", "hello", cwd=tmp_path) as at:
        at.wait_for("[yes/no]: ")
        at.type("\x03")
        assert at.end() == 130
    assert not (tmp_path / "root" / "a.txt").exists()
    seconds = f"7{uuid.uuid4().int % 10**9:09d}.5"
    own_command_line = {"LC_ALL": "C.UTF-8"}  # in /proc, where processes are found: it is started and not forked
    with terminal(*words, "run_command", f"sleep {seconds}", cwd=tmp_path, environment=own_command_line) as at:
        wait_until_some(f"sleep {seconds}", 2)
        at.type("\x03")
        assert at.end() == 130
    assert processes_with(f"sleep {seconds}") == []


def test_names_and_output_do_not_control_the_terminal(tmp_path: Path) -> None:
    """cli-15: with `coretools call` too: 8-bit control characters (ECMA-48) are escaped as well."""
    (tmp_path / "notes.txt").write_text("a\x9b2Jb\n")
    call = ("-m", "coretools.cli.main", "call", "read_file")
    with terminal(*call, "path=no\x1b[31mthing", cwd=tmp_path) as at:
        assert at.end() == 66
        assert "\x1b" not in at.output
        assert "no\\x1b[31mthing" in at.output
    with terminal(*call, "path=notes.txt", cwd=tmp_path) as at:
        assert at.end() == 0
        assert "a\\x9b2Jb" in at.output
