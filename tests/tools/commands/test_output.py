"""What an answer shows of a long output, and how the rest of it is read."""

import random
import re
from pathlib import Path

import pytest

from coretools.config.settings import Limits
from coretools.errors import InvalidArguments
from tests.tools.commands.world import commands_in

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
        around = await commands.read_run(run, start_line=133_332, end_line=133_334)
        assert around.output.split("\n")[::2] == ["  CC unit133332.o", "  CC unit133334.o"]
        assert around.note == "[lines 133332 to 133334 of 200000; start_line=133335 reads on]"


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
            {"start_line": 100_001},
            {"start_line": 3, "end_line": 2},
            {"tail": 1, "offset": 0},
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
            part = await commands.read_run(run, start_line=len(whole) + 1)
            whole += part.output.split("\n")
            assert len(part.text().encode()) <= Limits().answer_bytes
        cut = whole[1_234]
        assert cut.startswith("y" * 2_000 + " [... 28000 characters of this line left out; offset=")
        assert whole[:1_234] + whole[1_235:] == lines[:1_234] + lines[1_235:]
        offset = int(cut.partition("offset=")[2].rstrip("]"))
        assert (await commands.read_run(run, offset=offset)).output.startswith("y" * 15_000)


@pytest.mark.parametrize(
    "line",
    [
        "main.c:3:5: error: expected ';'",
        "E   AssertionError: assert 1 == 2",
        "FAILED tests/test_a.py::test_b - KeyError",
        "npm ERR! code ELIFECYCLE",
        "thread 'main' panicked at src/main.rs:2:5",
        "Traceback (most recent call last):",
        "/usr/bin/ld: a.o: undefined reference to `f'",
        "bash: line 1: nosuch: command not found",
        "  \u2717 renders the page",
        "java.lang.IllegalStateException: closed",
        "fatal: not a git repository",
    ],
)
async def test_lines_of_failures_are_recognised(tmp_path: Path, line: str) -> None:
    """runs-25: and lines that only name them are not."""
    harmless = "0 errors, 0 failed\n  CC src/error_log.o\ncc -Werror -c fail-fast.c\nno failures\n"
    filler = "compiling\n" * 3_000
    (tmp_path / "text").write_text(f"{filler}{line}\n{harmless}{filler}")
    async with commands_in(tmp_path) as commands:
        result = await commands.run_command(["sh", "-c", "cat text; exit 1"])
    assert f"\n3001: {line}\n" in result.text()
    assert "look like failures (1 in all)" in result.text()
