"""The run tools with real children: what a call can do with a running command (docs/specs/runs.md)."""

import itertools
import os
import re
import shlex
import socket
import sys
from pathlib import Path

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.errors import Busy, CannotStart, Conflict, InvalidArguments, NotFound, Unsupported
from coretools.operations.call import SilentCall
from coretools.process.children.streams import INPUT_BUFFER_BYTES
from coretools.tools.commands.progress import ProgressReporter
from coretools.tools.commands.results import RunReport
from coretools.tools.commands.tools import CommandTools
from tests.process.tree import PATIENCE_SECONDS, is_alive, until, until_exists
from tests.tools.commands.world import commands_in, world_in

FOREVER = "tail -f /dev/null"
ECHO = "sh -c 'while read line; do echo \"got $line\"; done; echo end'"
PRINTS_UNTIL_INPUT = """
import select, time
while not select.select([0], [], [], 0.02)[0]:
    print(time.monotonic(), flush=True)
input()
input()
"""
LONG = 60.0
"""Seconds for a wait that something else ends."""


async def started(commands: CommandTools, command: str, *, stdin: str | None = None) -> str:
    """Start a run and return its id."""
    result = await commands.run_command(command, stdin=stdin, wait_seconds=0)
    assert isinstance(result, RunReport)
    return str(result.facts()["run"])


async def test_a_running_command_is_answered_as_a_run(tmp_path: Path) -> None:
    """runs-1: with its output so far, and the next calls."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command(f"sh -c 'echo on; exec {FOREVER}'", wait_seconds=0.3)
        facts = result.facts()
        assert facts["running"] is True
        assert facts["kind"] == "time"
        first, output = result.text().split("\n")
        assert first.startswith(f"[{facts['run']} running, 0.")
        assert "wait_run" in first
        assert output == "on"
        assert not result.failed


async def test_a_command_that_ends_in_time_is_answered_without_a_run(tmp_path: Path) -> None:
    """runs-1: and leaves no run."""
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("sh -c 'echo out; echo err >&2; exit 3'", wait_seconds=LONG)
        assert result.failed
        assert result.text() == "[exit code 3]\nout\nerr"
        assert result.facts()["exit_code"] == 3
        assert (await commands.list_runs()).text() == "[no runs; run_command with wait_seconds starts one]"


async def test_a_program_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    """runs-2: it is no failed run."""
    async with commands_in(tmp_path) as commands:
        with pytest.raises(CannotStart):
            await commands.run_command("no-such-program", wait_seconds=0)
        with pytest.raises(InvalidArguments, match="wait_seconds: at most"):
            await commands.run_command("true", wait_seconds=1e9)
        assert (await commands.list_runs()).lines == []


async def test_a_cancelled_call_ends_the_run_whose_id_it_did_not_return(tmp_path: Path) -> None:
    """runs-2: the next call finds it stopped."""
    async with world_in(tmp_path) as world:
        async with anyio.create_task_group() as group:
            call = f"sh -c 'echo $$ > new; mv new pid; exec {FOREVER}'"
            group.start_soon(lambda: world.commands.run_command(call, wait_seconds=LONG))
            await until_exists(tmp_path / "pid")
            group.cancel_scope.cancel()
        [run] = world.runs.of("local")
        with anyio.fail_after(PATIENCE_SECONDS):
            await run.ended.wait()
        assert run.stopped_because == "its call was cancelled"
        assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_wait_ends_with_the_run(tmp_path: Path) -> None:
    """runs-14: kind, exit code, and the output since the last answer."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, "sh -c 'echo first; read a; echo second; exit 4'", stdin="")
        assert "first" in (await commands.wait_run(run, pattern="first")).text()
        await commands.write_run(run, "\n", seconds=0)
        result = await commands.wait_run(run, seconds=LONG)
        assert result.facts()["kind"] == "exit"
        assert result.facts()["exit_code"] == 4
        assert result.failed
        assert result.text().endswith("\nsecond")
        assert "first" not in result.text()


async def test_a_wait_ends_with_silence_or_with_the_time(tmp_path: Path) -> None:
    """runs-14: silence is counted from the call on."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, FOREVER)
        quiet = await commands.wait_run(run, seconds=LONG, quiet_seconds=0.05)
        assert quiet.facts()["kind"] == "quiet"
        late = await commands.wait_run(run, seconds=0.05, pattern="never")
        assert late.facts()["kind"] == "time"
        assert "nothing of it within 0.05 s" in late.text()


async def test_a_program_that_goes_on_printing_is_not_quiet(tmp_path: Path) -> None:
    """runs-14: silence begins with the last output. A program reported as quiet was silent by its own clock."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, shlex.join([sys.executable, "-c", PRINTS_UNTIL_INPUT]), stdin="")
        assert (await commands.wait_run(run, seconds=LONG, pattern="[0-9]")).facts()["kind"] == "pattern"
        printing = (await commands.wait_run(run, seconds=1, quiet_seconds=0.4)).facts()["kind"]
        await commands.write_run(run, "\n")
        assert (await commands.wait_run(run, seconds=LONG, quiet_seconds=0.4)).facts()["kind"] == "quiet"
        await commands.write_run(run, "\n")
        assert (await commands.wait_run(run, seconds=LONG)).facts()["kind"] == "exit"
        times = [float(line) for line in (await commands.read_run(run, offset=1)).text().split("\n")[1:-1]]
        silences = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert printing == "time" or max(silences) > 0.3  # a busy machine makes a program silent too


async def test_a_pattern_is_found_across_pieces_and_once_for_each_line(tmp_path: Path) -> None:
    """runs-15: the search continues after the last match, so that the same line printed again is another match."""
    script = "sh -c 'while read word; do printf lis; sleep 0.02; printf \"ten $word\"; sleep 0.02; echo; done'"
    async with commands_in(tmp_path) as commands:
        run = await started(commands, script, stdin="")
        for word in ("one", "two"):
            await commands.write_run(run, f"{word}\n", seconds=0)
            result = await commands.wait_run(run, seconds=LONG, pattern=r"^listen \w{3}$")
            assert result.facts()["kind"] == "pattern"
            assert f"matched: listen {word}" in result.text()
        assert (await commands.wait_run(run, seconds=0.1, pattern="listen")).facts()["kind"] == "time"


async def test_after_input_only_new_output_matches(tmp_path: Path) -> None:
    """runs-15: the answer to this input, not to the previous one."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, ECHO, stdin="a\n")
        assert (await commands.wait_run(run, seconds=LONG, quiet_seconds=0.1)).text().endswith("got a")
        await commands.write_run(run, "b\n")
        assert "matched: got b" in (await commands.wait_run(run, seconds=LONG, pattern="got")).text()


async def test_what_was_shown_does_not_match_again(tmp_path: Path) -> None:
    """runs-15: so that the second start of a server can be awaited; `since` searches older output, and an unfinished
    line that was shown is searched as a whole once more of it comes."""
    script = "sh -c 'read line; printf listening; read line < go; echo \" again\"; read line'"
    os.mkfifo(tmp_path / "go")
    async with commands_in(tmp_path) as commands:
        run = await started(commands, script, stdin="")
        first = await commands.write_run(run, "\n", seconds=LONG)
        assert first.output == "listening"
        assert (await commands.read_run(run, tail=1)).output == "listening"
        again = await commands.wait_run(run, seconds=0.05, pattern="listening")
        assert "nothing of it within 0.05 s of what was not shown before; since=0 searches all" in again.text()
        (tmp_path / "go").write_text("\n")  # the open returns once it has a reader
        assert "matched: listening again" in (await commands.wait_run(run, seconds=LONG, pattern="^listening")).text()
        assert "matched: listening again" in (await commands.wait_run(run, pattern="listening", since=0)).text()


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "", "x" * 501])
async def test_an_invalid_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    """runs-15: like patterns of search_text. An empty one requests nothing."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, FOREVER)
        if not pattern:
            assert (await commands.wait_run(run, seconds=0, pattern=pattern)).facts()["kind"] == "time"
            return
        with pytest.raises(InvalidArguments, match="pattern"):
            await commands.wait_run(run, pattern=pattern)


async def test_a_hostile_pattern_blocks_no_other_call(tmp_path: Path) -> None:
    """runs-15: it is refused in the end, and other calls are answered meanwhile."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, "sh -c 'head -c 60000 /dev/zero | tr \"\\\\0\" a; exec tail -f /dev/null'")
        answers = 0
        async with anyio.create_task_group() as group:

            async def others() -> None:
                nonlocal answers
                while True:
                    await commands.read_run(run, tail=1)
                    answers += 1
                    await anyio.lowlevel.checkpoint()

            group.start_soon(others)
            with pytest.raises(InvalidArguments, match="takes too long"):
                await commands.wait_run(run, seconds=LONG, pattern="(a|aa)+[bc]")
            group.cancel_scope.cancel()
        assert answers > 10


async def test_a_wait_for_a_pattern_ends_in_time_while_a_program_floods(tmp_path: Path) -> None:
    """runs-14, runs-15: also when output arrives faster than it can be matched."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, "yes")
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await commands.wait_run(run, seconds=0.3, pattern="no")
        assert result.facts()["kind"] == "time"


async def test_the_last_output_is_matched_after_the_exit(tmp_path: Path) -> None:
    """runs-15: a run that ended with a match has matched."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, "sh -c 'read a; seq 1 200000; echo done'", stdin="")
        await commands.write_run(run, "\n")
        result = await commands.wait_run(run, seconds=LONG, pattern="^done$")
        assert result.facts()["kind"] == "pattern"


class Listening(SilentCall):
    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[float, float | None, str | None]] = []

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        self.reports.append((done, total, message))


async def test_progress_is_reported_at_most_once_a_second(tmp_path: Path) -> None:
    """runs-16: seconds, bytes, and the last line that is not blank."""
    now = 100.0
    call = Listening()
    async with world_in(tmp_path) as world:
        (tmp_path / "say").write_text("printf 'one\\n\\033[1mtwo\\033[0m\\n\\n'; exec tail -f /dev/null")
        run_id = await started(world.commands, "sh say")
        await world.commands.wait_run(run_id, seconds=LONG, pattern="two")
        pulse = ProgressReporter(world.runs.get(run_id, "local"), call, total=30.0, clock=lambda: now)
        for step in (0.5, 0.5, 0.25, 0.5, 0.25, 5.0):
            now += step
            await pulse.report()
    assert [round(done, 1) for done, _, _ in call.reports] == [1.0, 2.0, 7.0]
    assert call.reports[0][1] == 30.0
    assert str(call.reports[0][2]).endswith(" bytes: two")


async def test_new_output_is_returned_once(tmp_path: Path) -> None:
    """runs-11: and any part of it again by its offset."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, ECHO, stdin="a\nb\n")
        assert (await commands.wait_run(run, seconds=LONG, quiet_seconds=0.1)).output == "got a\ngot b"
        assert (await commands.read_run(run)).output == ""
        await commands.write_run(run, "c\n")
        await commands.wait_run(run, seconds=LONG, pattern="got c")
        assert (await commands.read_run(run, offset="2@6")).output == "got b\ngot c"
        assert (await commands.read_run(run, offset="2@6")).note == "[bytes 6 to 18 of 18]"
        assert (await commands.read_run(run, limit=1)).output == "got a"
        assert (await commands.read_run(run, limit=2)).note == "[lines 1 to 2 of 3; offset=3 reads on]"
        assert (await commands.read_run(run, tail=2)).output == "got b\ngot c"
        assert (await commands.read_run(run, offset="1@1000")).output == ""
        with pytest.raises(InvalidArguments, match="tail"):
            await commands.read_run(run, offset=2, tail=2)


async def test_a_long_output_is_read_in_parts_and_each_says_where_the_next_begins(tmp_path: Path) -> None:
    """runs-11: the parts add up to the whole."""
    async with commands_in(tmp_path, limits=Limits(answer_bytes=10_000)) as commands:
        run = await started(commands, "sh -c 'seq 1 20000; exec tail -f /dev/null'")
        await commands.wait_run(run, seconds=LONG, pattern="^20000$")
        offset, whole = "1@0", ""
        while True:
            report = await commands.read_run(run, offset=offset)
            end = int(report.note.split()[3].rstrip("];"))
            whole += report.output + (
                "\n" if report.output and report.output[-1] != "\n" and "at" not in report.note else ""
            )
            if "goes on at" not in report.note:
                break
            offset = report.note.partition("offset=")[2].rstrip("]")
            assert offset.endswith(f"@{end}")
    assert whole.replace("\n", "").strip() == "".join(str(number) for number in range(1, 20_001))


async def test_a_cut_answer_has_head_and_tail_and_names_the_rest(tmp_path: Path) -> None:
    """runs-11, runs-13: for a run, and for a command that ended within its call."""
    async with world_in(tmp_path, limits=Limits(answer_bytes=2000)) as world:
        result = await world.commands.run_command("seq 1 10000")
        run = result.facts()["run"]
        ways = f"read_run run={run} with offset, tail or pattern, or coretools://runs/{run}/output]"
        assert result.text().endswith(f"[10000 lines, 48894 bytes in all: {ways}")
        again = await world.commands.read_run(str(run), tail=1)
        assert again.output == "10000"
        going = await world.commands.run_command("sh -c 'seq 1 10000; exec tail -f /dev/null'", wait_seconds=0.3)
        assert re.search(r"\n\[... lines \d+ to 9\d\d\d left out ...\]\n", going.text())
        assert "read_run" in going.text().split("\n")[-1]


async def test_input_and_its_end_reach_a_run(tmp_path: Path) -> None:
    """runs-17: bytes unchanged, and the end of input."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, ECHO, stdin="")
        await commands.write_run(run, "h\u00e9llo\n")
        assert "matched: got h\u00e9llo" in (await commands.wait_run(run, seconds=LONG, pattern="got")).text()
        ended = await commands.write_run(run, "", end=True, seconds=LONG)
        assert "0 bytes given, end of input" in ended.text()
        assert ended.output == "end"
        with pytest.raises(Conflict, match="has ended"):
            await commands.write_run(run, "more")


async def test_the_reply_to_an_input_is_returned_with_it(tmp_path: Path) -> None:
    """runs-17: up to a match, silence after something came, the end, or the time; a later wait may match the reply."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, ECHO, stdin="")
        assert (await commands.write_run(run, "a\n", seconds=LONG)).output == "got a"
        found = await commands.write_run(run, "b\nc\n", seconds=LONG, pattern="got b")
        assert "4 bytes given, matched: got b" in found.text()
        assert "matched: got c" in (await commands.wait_run(run, seconds=LONG, pattern="got")).text()
        silent = await commands.write_run(run, "without a newline", seconds=0.05)
        assert "17 bytes given, no complete reply within 0.05 s" in silent.text()
        ended = await commands.write_run(run, "\n", end=True, seconds=LONG)
        assert (ended.facts()["kind"], ended.output) == ("exit", "got without a newline\nend")


async def test_input_for_a_run_without_input_is_refused(tmp_path: Path) -> None:
    """runs-17: no input at all, closed, or not read."""
    async with world_in(tmp_path) as world:
        commands = world.commands
        without = await started(commands, FOREVER)
        with pytest.raises(Unsupported, match="stdin"):
            await commands.write_run(without, "x")
        closed = await started(commands, "sh -c 'exec <&-; echo closed; exec tail -f /dev/null'", stdin="")
        await commands.wait_run(closed, seconds=LONG, pattern="closed")
        await commands.write_run(closed, "x")
        feed = world.runs.get(closed, "local").feed
        assert feed is not None
        await until(lambda: feed.is_closed)
        with pytest.raises(Conflict, match="its input is closed"):
            await commands.write_run(closed, "x")
        deaf = await started(commands, FOREVER, stdin="")
        await commands.write_run(deaf, "x" * INPUT_BUFFER_BYTES)
        with pytest.raises(Busy, match="wait to be read"):
            await commands.write_run(deaf, "x" * INPUT_BUFFER_BYTES)


async def test_stopping_reports_the_exit_and_the_remaining_processes(tmp_path: Path) -> None:
    """runs-18: a second call answers the same."""
    async with commands_in(tmp_path) as commands:
        run = await started(commands, "sh -c 'echo up; tail -f /dev/null & tail -f /dev/null; wait'")
        await commands.wait_run(run, seconds=LONG, pattern="up")
        first, again = await commands.stop_run(run), await commands.stop_run(run)
        assert "stopped because stop_run was called: ended by SIGTERM" in first.text()
        assert first.facts()["signal"] == "SIGTERM"
        assert not first.failed
        assert again.facts() == first.facts()


async def test_a_process_left_in_the_background_says_how_to_keep_it(tmp_path: Path) -> None:
    """runs-27: with the call, which keeps it; not where the command was stopped itself."""
    async with world_in(tmp_path, is_confined=True) as world:
        commands = world.commands
        line = f"nohup {FOREVER} > /dev/null 2>&1 &"
        ended = await commands.run_command(line)
        advice = f'[1 left-over process stopped; to keep it in a run: run_command command="{line} wait" wait_seconds=5]'
        assert advice in ended.text()
        kept = await commands.run_command(f"{line} wait", wait_seconds=0.2)
        assert kept.facts()["running"] is True
        last = await commands.run_command(f"{line}\necho a && echo b", wait_seconds=LONG)
        assert 'echo b\\nwait" wait_seconds=5]' in last.text()
        daemon = await commands.run_command(["sh", "-c", line])
        assert (
            "[1 left-over process stopped; to keep one, start it in the foreground with wait_seconds" in daemon.text()
        )
        assert "to keep" not in (await commands.run_command(f"{line} {FOREVER}", timeout_seconds=1)).text()


async def test_the_list_has_a_line_for_each_run(tmp_path: Path) -> None:
    """runs-19: oldest first, shortened, and none of another principal."""
    async with world_in(tmp_path) as world:
        first = await started(world.commands, "sh -c 'echo on; read a; exit 2'", stdin="")
        await world.commands.write_run(first, "\n")
        await world.commands.wait_run(first, seconds=LONG)
        await started(world.commands, FOREVER + " " + "x" * 100)
        lines = (await world.commands.list_runs()).lines
        assert len(lines) == 2
        assert lines[0].startswith(f"{first} exit code 2, ")
        assert lines[0].endswith("3 bytes: sh -c 'echo on; read a; exit 2'")
        assert lines[1].endswith(" ...")
        assert (await world.commands.list_runs(call=SilentCall("somebody else"))).lines == []


async def test_every_tool_knows_only_the_callers_runs(tmp_path: Path) -> None:
    """runs-3: for tools."""
    other = SilentCall("somebody else")
    async with commands_in(tmp_path) as commands:
        run = await started(commands, FOREVER, stdin="")
        with pytest.raises(NotFound):
            await commands.wait_run(run, call=other)
        with pytest.raises(NotFound):
            await commands.read_run(run, call=other)
        with pytest.raises(NotFound):
            await commands.write_run(run, "x", call=other)
        with pytest.raises(NotFound):
            await commands.stop_run(run, call=other)
        assert (await commands.read_run(run)).facts()["running"] is True


@pytest.mark.parametrize("terminal", ["80", "x24", "0x24", "80x", "1000x24", "80x24x", "80X24", "\u0668\u0660x24"])
async def test_an_invalid_size_is_refused(tmp_path: Path, terminal: str) -> None:
    """runs-20: the error names valid sizes."""
    async with commands_in(tmp_path) as commands:
        with pytest.raises(InvalidArguments, match="such as 80x24"):
            await commands.run_command("true", terminal=terminal)


async def test_a_terminal_shows_its_screen_and_its_output_on_request(tmp_path: Path) -> None:
    """runs-20, runs-21: a terminal has the requested size; later answers show the rows that changed."""
    lines = "read a; seq -f 'line %g of many' 20; read b; echo last; exec tail -f /dev/null"
    (tmp_path / "draw").write_text(f"printf 'gone\\033[2J\\033[Htop\\n'; stty size; {lines}")
    async with world_in(tmp_path, is_confined=True) as world:
        if not world.runner.has_terminals:
            pytest.skip("needs terminals")
        result = await world.commands.run_command("sh draw", terminal="60x10", wait_seconds=0)
        run = str(result.facts()["run"])
        await world.commands.wait_run(run, seconds=LONG, pattern="^10 60$")
        assert (await world.commands.read_run(run)).output == "top\n10 60"
        assert (await world.commands.read_run(run, offset="1@0")).output.startswith("gone\u241b[2J\u241b[Htop\n10 60")
        assert "60x10" in (await world.commands.list_runs()).text()
        reply = {"pattern": "^(line 20|last)", "seconds": LONG}
        assert "line 13 of many\n" in (await world.commands.write_run(run, "\n", **reply)).output
        await world.commands.wait_run(run, seconds=LONG, quiet_seconds=0.2)
        changed = await world.commands.write_run(run, "\n", **reply)
        assert re.fullmatch(r"row \d+: last", changed.output), changed.output
        assert re.search(r"moved up by \d; read_run shows the whole screen", changed.note)
        stopped = await world.commands.stop_run(run)
        assert (stopped.output, "the screen is as shown before" in stopped.note) == ("", True)
        assert "line 20 of many" in (await world.commands.read_run(run)).output


async def test_a_command_on_a_terminal_that_ends_within_its_call_shows_its_screen(tmp_path: Path) -> None:
    """runs-20, runs-21: it gets no input, so its input ends."""
    async with world_in(tmp_path, is_confined=True) as world:
        if not world.runner.has_terminals:
            pytest.skip("needs terminals")
        result = await world.commands.run_command("sh -c 'test -t 0 && test -t 1 && cat; exit 5'", terminal="20x5")
        assert result.text() == "[exit code 5]"
        assert "TERM=linux" in (await world.commands.run_command("env", terminal="40x90")).text()


SERVER = "import http.server, sys; http.server.test(port=0, bind='127.0.0.1')"
LATE = """\
import socket, sys, time
one = socket.socket()
one.bind(("127.0.0.1", 0))
print("bound", one.getsockname()[1])
input()
one.listen()
input()
"""


@pytest.mark.parametrize("is_confined", [True, False], ids=["confined", "not confined"])
async def test_output_of_python_is_not_buffered(tmp_path: Path, *, is_confined: bool) -> None:
    """runs-23: without a flag of its own, as `python3 -m http.server`."""
    async with commands_in(tmp_path, is_confined=is_confined) as commands:
        run = await started(commands, f'{sys.executable} -c "{SERVER}"')
        result = await commands.wait_run(run, seconds=LONG, pattern="Serving HTTP")
        assert result.facts()["kind"] == "pattern", result.text()


@pytest.mark.parametrize("is_confined", [True, False], ids=["confined", "not confined"])
async def test_a_wait_for_a_port_ends_when_the_run_listens_there(tmp_path: Path, *, is_confined: bool) -> None:
    """runs-24: a bound port that does not listen is not enough, and the check does not connect."""
    (tmp_path / "late.py").write_text(LATE)
    async with commands_in(tmp_path, is_confined=is_confined) as commands:
        run = await started(commands, f"{sys.executable} late.py", stdin="")
        bound = await commands.wait_run(run, seconds=LONG, pattern=r"bound \d+")
        port = int(bound.headline.rpartition(" ")[2])
        early = await commands.wait_run(run, seconds=0.2, port=port)
        assert early.facts()["kind"] == "time"
        await commands.write_run(run, "go\n")
        opened = await commands.wait_run(run, seconds=LONG, port=port)
        assert opened.facts()["kind"] == "port"
        assert f"listens on port {port}" in opened.text()
        await commands.write_run(run, "go\n")
        assert (await commands.wait_run(run, seconds=LONG)).facts()["kind"] == "exit"
        assert (await commands.wait_run(run, seconds=LONG, port=port)).facts()["kind"] == "exit"


async def test_a_port_of_another_process_does_not_end_the_wait(tmp_path: Path) -> None:
    """runs-24: a server that was there before."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with commands_in(tmp_path) as commands:
            run = await started(commands, FOREVER)
            result = await commands.wait_run(run, seconds=0.2, port=other.getsockname()[1])
            assert result.facts()["kind"] == "time"


@pytest.mark.parametrize("pattern", [">>>$", "^>>>$", ">>> $"])
async def test_a_prompt_on_a_terminal_is_matched_with_and_without_trailing_blanks(tmp_path: Path, pattern: str) -> None:
    """runs-15: the screen omits trailing blanks; a pattern that contains them matches too."""
    async with world_in(tmp_path, is_confined=True) as world:
        await world.runner.prepare()
        if not world.runner.has_terminals:
            pytest.skip("needs terminals")
        script = "printf 'busy\\r>>> '; read line"
        result = await world.commands.run_command(shlex.join(["sh", "-c", script]), terminal="60x10", wait_seconds=0)
        run = str(result.facts()["run"])
        found = await world.commands.wait_run(run, seconds=LONG, pattern=pattern)
        assert found.facts()["kind"] == "pattern"
        assert found.output.split("\n")[0] == ">>>"
