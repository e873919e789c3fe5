"""Completion of a word, for shells and the REPL (docs/specs/cli.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

from coretools.cli.completion import built_in_candidates, candidates
from coretools.cli.completion_scripts import SHELLS, script
from coretools.cli.line_words import split_at_cursor
from tests.checkout import TREE
from tests.cli.contacts import context
from tests.cli.test_commands import coretools


async def found(line: str) -> list[str]:
    before, current, _ = split_at_cursor(line)
    return [one.text for one in await candidates(context(), before, current)]


async def test_words_options_and_values_are_completed() -> None:
    """cli-17: routes without the hidden ones, options not given yet, choices, sources."""
    for line, expected in (
        ("", ["contact"]),
        ("con", ["contact"]),
        ("x", []),
        ("contact f", ["fail", "for_people"]),
        ("contact for-p", ["for_people"]),
        ("contact back", []),
        ("contact 42 ", ["show"]),
        ("contact 42 show --v", ["--verbose"]),
        ("contact 42 show --verbose --", ["--answer", "--help", "--json"]),
        ("contact add a", ["ada", "alan wise", "after-none"]),
        ("contact add 'alan ", ["alan wise"]),
        ("contact add ada t1 fr", []),
        ("contact add ada --role f", ["friend", "foe"]),
        ("contact add ada --role=f", ["--role=friend", "--role=foe"]),
        ("contact add --near gr", ["grace"]),
        ("contact add --near=gr", ["--near=grace"]),
        ("contact add --is-new=", ["--is-new=true", "--is-new=false"]),
        ("contact add --no-i", ["--no-is-new"]),
        ("contact add --ne", ["--near", "--network"]),
        ("contact add --near x --ne", ["--near", "--network"]),
        ("contact add --network x --ne", ["--near"]),
        ("contact fail ", ["foreseen", "bug", "surrogate"]),
        ("contact fail bug ", ["--answer", "--help", "--json"]),
        ("contact fail -- b", ["bug"]),
        ("contact nothing x", []),
    ):
        assert await found(line) == expected, (line, expected)


async def test_other_arguments_are_passed_to_the_source() -> None:
    """cli-17: a source may depend on them."""
    assert await found("contact add ada --near after") == ["after-none"]


def test_words_of_built_in_commands_are_completed() -> None:
    """cli-17: where there are few choices."""
    assert [one.text for one in built_in_candidates(["completion"], "")] == list(SHELLS)
    assert [one.text for one in built_in_candidates(["policy"], "ch")] == ["check"]
    assert built_in_candidates(["doctor"], "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_runs_the_command(shell: str) -> None:
    """cli-17: the script itself knows no commands."""
    assert "coretools __complete -- " in script(shell)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """cli-17: the script in a real shell, against the real command."""
    (tmp_path / "two words.txt").write_text("")
    program = tmp_path / "bin" / "coretools"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coretools.cli.main "$@"\n')
    program.chmod(0o755)
    lines = [
        f"PATH={program.parent}:$PATH",
        script("bash"),
        "COMP_WORDS=(coretools git cur) COMP_CWORD=2; _coretools; printf '%s\\n' \"${COMPREPLY[@]}\"",
        "COMP_WORDS=(coretools read_file tw) COMP_CWORD=2; _coretools; printf '%s\\n' \"${COMPREPLY[@]}\"",
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TREE)},
    )
    assert done.stdout == "current_branch\ntwo\\ words.txt\n", done.stderr


def test_an_invalid_line_has_no_completions(tmp_path: Path) -> None:
    """cli-17: no error while a line is being typed."""
    done = coretools("__complete", "--", "--root", "/does/not/exist", "git", "", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
