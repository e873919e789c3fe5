"""run_command with real children: output, every kind of exit, and what is refused before anything starts."""

import contextlib
import re
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import CannotStart, CommandSyntax, InvalidArguments, NotFound, OutsideRoot, ReadOnly, WrongType
from tests.tools.commands.world import commands_in


async def test_the_output_of_a_command_is_the_answer(tmp_path: Path) -> None:
    """ci-8: without additions on success."""
    (tmp_path / "a b.txt").write_text("content\n")
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("cat 'a b.txt'")
    assert result.text() == "content"
    assert not result.failed


async def test_a_command_may_be_a_list_of_words(tmp_path: Path) -> None:
    """shell-words-7: each word arrives unchanged; words that execve rejects are refused before anything starts."""
    argv = ["printf", "%s|", "a b", "$HOME", "*", "&&", "'", ""]
    async with commands_in(tmp_path) as commands:
        assert (await commands.run_command(argv)).text() == "a b|$HOME|*|&&|'||"
        for wrong in ([], [""], ["echo", "a\0b"], ["echo", "x" * 5_000_000]):
            with pytest.raises(CommandSyntax):
                await commands.run_command(wrong)
        for blank in ("", "  \n"):
            with pytest.raises(CommandSyntax):
                await commands.run_command(blank)


async def test_empty_output_is_reported(tmp_path: Path) -> None:
    """ci-8: an empty answer would look like a fault."""
    async with commands_in(tmp_path) as commands:
        assert (await commands.run_command("true")).text() == "[exit code 0, no output]"


async def test_a_command_that_fails_is_a_result(tmp_path: Path) -> None:
    """ci-8: exit code first, then both streams, and the same in the facts."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("sh -c 'echo out; echo err >&2; exit 3'")
    assert result.failed
    assert result.text() == "[exit code 3]\nout\n[stderr]\nerr"
    facts = result.facts()
    assert facts["exit_code"] == 3
    assert facts["signal"] is None
    assert facts["timed_out"] is False
    assert set(facts) == {
        "exit_code",
        "signal",
        "timed_out",
        "duration_seconds",
        "peak_memory_bytes",
        "stragglers_stopped",
        "tier",
    }


async def test_a_signal_is_named(tmp_path: Path) -> None:
    """ci-8: a command that was killed has no exit code."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("sh -c 'kill -TERM $$'")
    assert result.failed
    assert result.text() == "[ended by SIGTERM]"
    assert result.facts()["exit_code"] is None


async def test_a_command_past_its_deadline_is_stopped_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    """ci-16: a deadline is a result too."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("sh -c 'echo started; exec tail -f /dev/null'", timeout_seconds=3)
    assert result.failed
    assert result.facts()["timed_out"] is True
    assert result.text().startswith("[timed out after ")
    assert result.text().endswith("started")


async def test_standard_input_is_what_the_caller_gives_and_empty_otherwise(tmp_path: Path) -> None:
    """ci-16: a command never waits for interactive input."""
    async with commands_in(tmp_path) as commands:
        assert (await commands.run_command("cat", stdin="first\nsecond é\n")).text() == "first\nsecond é"
        assert (await commands.run_command("cat")).text() == "[exit code 0, no output]"


async def test_escape_sequences_do_not_reach_the_client(tmp_path: Path) -> None:
    """ci-13: on both streams."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command(r"printf '\033[31mred\033[0m\033]0;title\007 \007bell\r\n'")
    assert result.text() == "red \u2407bell"


async def test_what_is_dropped_of_a_long_output_is_counted(tmp_path: Path) -> None:
    """ci-14: head and tail stay."""
    async with commands_in(tmp_path, limits=Limits(answer_bytes=2000)) as commands:
        result = await commands.run_command("seq 1 100000")
    assert result.text().startswith("1\n2\n")
    assert "\n100000\n[100000 lines, 588895 bytes in all: read_run run=run-" in result.text()
    assert re.search(r"\[... lines \d+ to 99\d\d\d left out ...\]", result.text())


async def test_the_program_runs_in_the_directory_that_is_named(tmp_path: Path) -> None:
    """ci-15: relative to the first root."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/here").write_text("")
    async with commands_in(tmp_path) as commands:
        assert (await commands.run_command("ls", "sub")).text() == "here"


async def test_other_faults_are_errors_that_say_what_would_work(tmp_path: Path) -> None:
    """ci-6, ci-15, ci-16: the program, the directory, the deadline."""
    (tmp_path / "file").write_text("")
    async with commands_in(tmp_path, limits=Limits(run_seconds_most=60)) as commands:
        for program, code in {"no-such-program": 127, "./file": 126, "./absent/x": 127, "/": 126}.items():
            with pytest.raises(CannotStart, match=program) as refused:
                await commands.run_command(program)
            assert refused.value.facts == {"exit_code": code}
        with pytest.raises(NotFound):
            await commands.run_command("true", "absent")
        with pytest.raises(WrongType):
            await commands.run_command("true", "file")
        with pytest.raises(InvalidArguments, match="timeout_seconds: at most 60"):
            await commands.run_command("true", timeout_seconds=61)


@pytest.mark.parametrize("directory", ["..", "link", "/"])
async def test_a_directory_outside_the_root_is_refused(tmp_path: Path, directory: str) -> None:
    """ci-15: the root resolves the working directory."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path)
    async with commands_in(tmp_path / "root") as commands:
        with pytest.raises(OutsideRoot):
            await commands.run_command("true", directory)


@pytest.mark.parametrize("wait_seconds", [None, 10])
async def test_nothing_is_written_beneath_a_read_only_root(tmp_path: Path, wait_seconds: float | None) -> None:
    """ci-15: confined by the kernel where possible; elsewhere nothing is started there."""
    async with commands_in(tmp_path, writable=False, is_confined=True) as commands:
        with contextlib.suppress(ReadOnly):
            assert (await commands.run_command("touch made", wait_seconds=wait_seconds)).failed
    assert not (tmp_path / "made").exists()


async def test_a_plain_command_does_not_get_ci_true(tmp_path: Path) -> None:
    """ci-17: no CI=true."""
    async with commands_in(tmp_path) as commands:
        assert (await commands.run_command("sh -c 'echo CI=$CI'")).text() == "CI="
