"""What an answer shows of a long output, and how the rest of it is read."""

import itertools
import math
import random
import re
import time
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import InvalidArguments
from coretools.tools.answer_budget import cut_line
from coretools.tools.commands import line_search
from coretools.tools.commands.failure_lines import find_failures
from coretools.tools.commands.results import RunReport
from coretools.tools.output_text import plain
from tests.tools.commands.world import commands_in, world_in

BUILD = """
import sys
for number in range(1, 200_001):
    line = "src/unit%d.c:7:3: error: unknown type name 'widget'" if number == 133_333 else "  CC unit%d.o"
    print(line % number)
sys.exit(2)
"""


async def test_the_error_line_of_a_long_build_is_found_in_one_call_and_4_kilobytes(tmp_path: Path) -> None:
    """runs-25: it stands with its number between the start and the end."""
    (tmp_path / "build.py").write_text(BUILD)
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command("python3 build.py")
        text = result.text()
        run = str(result.facts()["run"])
        assert "133333: src/unit133333.c:7:3: error: unknown type name 'widget'" in text
        assert "look like failures (1 in all)" in text
        assert len(text.encode()) < 4_096
        around = await commands.read_run(run, offset=133_332, limit=3)
        assert around.output.split("\n")[::2] == ["  CC unit133332.o", "  CC unit133334.o"]
        assert around.note == "[lines 133332 to 133334 of 200000; offset=133335 reads on]"


async def test_lines_are_found_by_a_pattern_with_their_numbers(tmp_path: Path) -> None:
    """runs-26."""
    async with commands_in(tmp_path) as commands:
        run = str((await commands.run_command("seq 1 100000")).facts()["run"])
        found = await commands.read_run(run, pattern="^4999[89]$|^70000$", context=1)
        assert found.output.split("\n") == [
            *(f"{number}: {number}" for number in range(49_997, 50_001)),
            "[...]",
            *(f"{number}: {number}" for number in range(69_999, 70_002)),
        ]
        assert found.note == "[3 of 100000 lines match]"
        many = await commands.read_run(run, pattern="5")
        assert re.fullmatch(
            r"\[40951 of 100000 lines match; the first \d+ are shown; narrow the pattern.*\]", many.note
        )
        assert len(many.text().encode()) <= Limits().answer_bytes
        assert (await commands.read_run(run, pattern="x")).note == "[no line of 100000 matches]"
        for wrong in (
            {"pattern": "("},
            {"offset": 100_001},
            {"offset": "1@0", "limit": 2},
            {"offset": "x"},
            {"tail": 1, "offset": 1},
        ):
            with pytest.raises(InvalidArguments):
                await commands.read_run(run, **wrong)


async def test_parts_by_line_number_add_up_to_the_output(tmp_path: Path) -> None:
    """runs-26: whatever the lengths of the lines are; a cut line is named with its offset and can be read whole."""
    chance = random.Random(11)
    lines = ["".join(chance.choices("abcé\t", k=chance.choice((0, 3, 80, 1_500)))) for _ in range(3_000)]
    lines[1_234] = "y" * 30_000
    (tmp_path / "text").write_text("\n".join(lines))
    async with commands_in(tmp_path) as commands:
        run = str((await commands.run_command("cat text")).facts()["run"])
        whole: list[str] = []
        while len(whole) < len(lines):
            part = await commands.read_run(run, offset=len(whole) + 1)
            whole += part.output.split("\n")
            assert len(part.text().encode()) <= Limits().answer_bytes
        cut = whole[1_234]
        assert cut.startswith("y" * 2_000 + " [... 28000 characters of this line left out; offset=1235@")
        assert whole[:1_234] + whole[1_235:] == lines[:1_234] + lines[1_235:]
        offset = cut.partition("offset=")[2].removesuffix(" reads it]")
        assert (await commands.read_run(run, offset=offset)).output.startswith("y" * 15_000)


def test_a_line_is_not_cut_for_a_remark_that_is_longer_than_the_rest() -> None:
    """runs-25: neither is a short rest hidden, nor does the remark make a line longer."""
    for length in range(400):
        line = "x" * length
        cut = cut_line(line, "offset=3@4567 reads it", longest=100)
        assert cut == line or (len(cut) < length and cut.startswith("x" * 100 + " [... "))
    assert cut_line("x" * 109, longest=100) == "x" * 109


async def test_parts_by_offset_add_up_to_the_output(tmp_path: Path) -> None:
    """runs-11, answers-1: none is too long, whatever the bytes look like, and no character is split."""
    chance = random.Random(12)
    pieces = ["\0\x01\x7f", "\x9b", "abc\n", "\n\n\n", "\u6f22\u5b57", "\U0001f600", "word ", "\t"]
    text = "".join(chance.choice(pieces) * chance.choice((1, 3, 40, 9_000)) for _ in range(60))
    (tmp_path / "text").write_text(text)
    async with commands_in(tmp_path) as commands:
        run = str((await commands.run_command("cat text")).facts()["run"])
        offset, whole = "1@0", ""
        while True:
            part = await commands.read_run(run, offset=offset)
            assert len(part.text().encode()) <= Limits().answer_bytes
            whole += part.output
            if (more := re.search(r"(this line )?goes on at offset=([^]]+)", part.note)) is None:
                break
            whole += "" if more[1] else "\n"
            offset = more[2]
        assert whole == plain(text).removesuffix("\n")


SLOW = """
import os
for byte in "a\u6f22\U0001f600b".encode():
    os.write(1, bytes([byte]))
    input()
os.write(1, b"\\xe6")
"""


async def test_a_character_that_comes_in_pieces_is_shown_once_it_is_complete(tmp_path: Path) -> None:
    """runs-11, answers-1: by no call before; at the end of the output what came of it is shown."""
    (tmp_path / "slow.py").write_text(SLOW)
    async with commands_in(tmp_path) as commands:
        started = await commands.run_command("python3 slow.py", wait_seconds=0, stdin="")
        assert isinstance(started, RunReport)
        run, whole = str(started.run["run"]), started.output
        for count in range(1, 10):
            while (report := await commands.wait_run(run, seconds=0.05)).facts()["bytes"] != count:
                whole += report.output
            whole += report.output
            assert "\ufffd" not in (await commands.read_run(run, offset="1@0")).output
            await commands.write_run(run, "\n", seconds=0)
        whole += (await commands.wait_run(run, seconds=60)).output
    assert whole == "a\u6f22\U0001f600b\ufffd"


async def test_what_left_the_screen_of_a_terminal_can_be_read(tmp_path: Path) -> None:
    """runs-21, answers-3: also when the command ended within its call."""
    async with world_in(tmp_path, is_confined=True) as world:
        if not world.runner.has_terminals:
            pytest.skip("needs terminals")
        commands = world.commands
        for seconds in (None, 60):
            result = await commands.run_command("seq 1 100", wait_seconds=seconds, terminal="40x10")
            assert result.text().split("\n")[:-1][-1] == "100"
            assert "[100 lines, " in result.text().split("\n")[-1]
            first = await commands.read_run(str(result.facts()["run"]), limit=2)
            assert first.output == "1\n2"
        assert "lines" not in (await commands.run_command("seq 1 5", terminal="40x10")).text()


PROGRESS = """
import sys
bar = "".join("\\r%d %%" % number for number in range(100_000))
print("\\n".join([*sys.argv[2:], bar, *sys.argv[2:]]))
sys.exit(int(sys.argv[1]))
"""


async def test_a_long_line_hides_no_other(tmp_path: Path) -> None:
    """runs-25, runs-26: neither at the end, nor among failures, nor around a match, nor alone."""
    (tmp_path / "progress.py").write_text(PROGRESS)
    around = ["error: it broke", "the reason"]
    async with commands_in(tmp_path) as commands:
        for code, texts in itertools.product((0, 1), ([], around, [*around, *["fine"] * 9_000])):
            result = await commands.run_command(["python3", "progress.py", str(code), *texts])
            answer, run, total = result.text(), str(result.facts()["run"]), 2 * len(texts) + 1
            if len(texts) < 3:
                assert "\u240d20 %" in answer.partition(" characters of this line left out; offset=")[0]
                assert answer.partition("left out; offset=")[2].split("\n")[1:-1] == texts
            elif code:
                assert f"{len(texts) + 2}: {around[0]}\n" in answer
            found = await commands.read_run(run, pattern="reason|99999", context=1)
            assert re.match(r"\[(1|3) of \d+ lines match\]", found.note)
            last = await commands.read_run(run, tail=3)
            assert last.note == f"[lines {max(1, total - 2)} to {total}]"
            assert last.output.split("\n")[1:] == texts[-2:]
            assert (await commands.read_run(run, tail=total)).output.endswith("\n".join(["", *texts[-100:]]))


async def test_empty_lines_are_found_where_they_are(tmp_path: Path) -> None:
    """runs-26: in every block of a long output; the end of the text is no line."""
    lines = [str(number) if number % 70_000 else "" for number in range(1, 400_001)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    async with commands_in(tmp_path) as commands:
        run = str((await commands.run_command("cat text")).facts()["run"])
        found = await commands.read_run(run, pattern="^$")
        assert found.output.split("\n") == [f"{number}: " for number in range(70_000, 400_000, 70_000)]
        assert found.note == "[5 of 400000 lines match]"
        every = await commands.read_run(run, pattern="^")
        assert every.note.startswith("[400000 of 400000 lines match; the first 1000 are shown")
        assert every.note.endswith("read on at offset=1001]")


async def test_lines_around_a_match_do_not_displace_it(tmp_path: Path) -> None:
    """runs-26."""
    (tmp_path / "text").write_text(("x" * 1_500 + "\n") * 50 + "here\n")
    async with commands_in(tmp_path) as commands:
        run = str((await commands.run_command("cat text")).facts()["run"])
        found = await commands.read_run(run, pattern="here", context=50)
    assert (found.output, found.note) == ("51: here", "[1 of 51 lines match]")


def test_a_slow_pattern_is_stopped_for_the_whole_output() -> None:
    """runs-26: however little time each line takes."""
    finder = line_search.pattern_finder("a*a*a*c|b$", seconds=0.05)
    with pytest.raises(InvalidArguments, match="takes too long"):
        list(itertools.chain.from_iterable(finder(f"{'a' * 5_000}b") for _ in range(10_000)))


def test_a_very_long_failure_is_searched_in_bounded_time() -> None:
    """runs-25: what was found until then counts."""
    text = "error: it broke\n" * 500_000
    assert len(list(find_failures(text, deadline=time.monotonic()))) < 500_000
    assert len(list(find_failures(text[:1_600], deadline=math.inf))) == 100


async def test_lines_keep_their_numbers_when_the_oldest_are_gone(tmp_path: Path) -> None:
    """runs-26: and what is gone is named."""
    (tmp_path / "print.py").write_text("for number in range(1, 100_001): print('line', number)")
    async with commands_in(tmp_path, limits=Limits(run_output_bytes=50_000, answer_bytes=4_000)) as commands:
        run = str((await commands.run_command("python3 print.py")).facts()["run"])
        found = await commands.read_run(run, pattern="0")
        assert all(re.fullmatch(r"(\d+): line \1", line) for line in found.output.split("\n")[1:])
        oldest = await commands.read_run(run, offset=1)
        first = int(oldest.note.split()[1])
        assert oldest.output.split("\n")[1] == f"line {first + 1}"
        assert f"of 100000; the lines before {first} are gone; offset=" in oldest.note
        with pytest.raises(InvalidArguments, match="are gone"):
            await commands.read_run(run, limit=7)


FAILURES = """
main.c:3:5: error: expected ';'
main.c:3:5: fatal error: a.h: No such file or directory
/usr/bin/ld: a.o: undefined reference to `f'
/usr/bin/ld: cannot find -lf
make: *** No rule to make target 'x', needed by 'all'.  Stop.
E   AssertionError: assert 1 == 2
E       ValueError: no
FAILED tests/test_a.py::test_b - KeyError
ERROR collecting tests/test_error.py
ValueError: invalid literal for int() with base 10: 'x'
Traceback (most recent call last):
a.py:3:80: E501 line too long (88 > 79)
npm ERR! code ELIFECYCLE
npm error code E404
TypeError: Cannot read properties of undefined (reading 'x')
src/a.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.
  3:5  error  'x' is not defined  no-undef
  \u2717 renders the page
./main.go:5:2: undefined: foo
main.go:4:2: "os" imported and not used
    a_test.go:7: got 1, want 2
--- FAIL: TestErrors (0.00s)
error[E0308]: mismatched types
thread 'main' panicked at src/main.rs:2:5
[ERROR] /a/App.java:[3,5] cannot find symbol
> Task :compileJava FAILED
java.lang.IllegalStateException: closed
Program.cs(3,5): error CS1002: ; expected
ERROR: failed to solve: process "/bin/sh -c npm ci" did not complete successfully: exit code: 1
The command '/bin/sh -c x' returned a non-zero code: 127
bash: line 1: nosuch: command not found
a.sh: line 3: x: unbound variable
fatal: not a git repository
CONFLICT (content): Merge conflict in a.txt
curl: (6) Could not resolve host: example.com
E: Unable to locate package foo
tar: x: No space left on device
     Failure/Error: expect(1).to eq(2)
Errors: 1, Failures: 0
3 passed, 1 failed
not ok 3 - adds
Error message: the disk is full
error code 7 from the compiler
"""

HARMLESS = """
0 errors, 0 failed
Errors: 0, Failures: 0
Failed: 0
no failures
  CC src/error_log.o
  CC src/assert.o
cc -Werror -c fail-fast.c
Compiling thiserror v1.0.50
Setting up liberror-perl (0.17029-2) ...
checking for assert.h... yes
checking for strerror... no
test error_is_reported ... ok
tests/test_errors.py::test_fails_on_error PASSED [ 50%]
--- PASS: TestErrorHandling (0.00s)
ok 3 - throws an error
  \u2713 shows an error message
a.c:3:5: warning: unused variable
Improve error messages of the parser
  add tests for errors
* docs: describe error handling, exception types and failure cases
12:30:45: started
Process exited with code 0
"""


async def test_lines_of_failures_are_recognised(tmp_path: Path) -> None:
    """runs-25: and lines that only name failures are not."""
    failures, harmless = (text.strip("\n").split("\n") for text in (FAILURES, HARMLESS))
    lines = [*["compiling"] * 3_000, *failures, *["linking"] * 5, *harmless, *["compiling"] * 3_000]
    (tmp_path / "text").write_text("\n".join(lines))
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command(["sh", "-c", "cat text; exit 1"])
    shown = re.findall(r"^(\d+): (.*)$", result.text(), re.MULTILINE)
    expected = [(str(number), line) for number, line in enumerate(["compiling", *failures, "linking"], 3_000)]
    assert shown == expected
    assert f"look like failures ({len(failures)} in all)" in result.text()
