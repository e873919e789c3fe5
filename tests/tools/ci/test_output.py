"""Output of programs: escapes, control characters, length; and bounded work for hostile output."""

import pytest

from coretools.tools.ci.parse import parse
from coretools.tools.ci.parsed_report import (
    LINE_LENGTH,
    MESSAGE_LENGTH,
    MOST_COUNTED,
    MOST_FAILURES,
    message,
    split_lines,
)
from coretools.tools.output_text import plain, shortened, streams


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        pytest.param("\x1b[1;31mred\x1b[0m", "red", id="colours"),
        pytest.param("a\x1b[2Kb\x1b[3;4Hc", "abc", id="clearing and moving"),
        pytest.param("\x1b]0;title\x07x", "x", id="a window title"),
        pytest.param("\x1b]52;c;cm0gLXJm\x1b\\x", "x", id="a write to the clipboard"),
        pytest.param("\x1b]8;;http://e.x\x1b\\link\x1b]8;;\x1b\\", "link", id="a hyperlink"),
        pytest.param("\x1bPq#0\x1b\\x", "x", id="a picture"),
        pytest.param("\x1b(Bx\x1b7y\x1b8\x1bc", "xy", id="charset, save, restore, reset"),
        pytest.param("\x9b31mred", "red", id="8-bit CSI"),
        pytest.param("\x1b]0;no end\nnext", "\u241b]0;no end\nnext", id="a title without its end hides nothing"),
        pytest.param("\x1b", "\u241b", id="an escape alone"),
        pytest.param("a\x1b[31", "a\u241b[31", id="a colour cut off"),
        pytest.param("10%\r20%\rdone\r\n", "10%\u240d20%\u240ddone\n", id="carriage returns"),
        pytest.param("a\x00b\x07c\x08d\x7f", "a\u2400b\u2407c\u2408d\u2421", id="other control characters"),
        pytest.param("\x85\x9c", "\\x85\\x9c", id="8-bit control characters"),
        pytest.param("tab\tand\nline é ✓", "tab\tand\nline é ✓", id="text"),
    ],
)
def test_escape_sequences_are_removed_and_control_characters_escaped(printed: str, expected: str) -> None:
    """ci-13: escape sequences are removed, other control characters are made visible."""
    assert plain(printed) == expected


@pytest.mark.parametrize("digits", [12, 600, 1900])
@pytest.mark.parametrize(
    "printed",
    [
        "===== {} failed, {} passed in 0.1s =====",
        "Tests: {} failed, {} passed, {} total",
        "test result: FAILED. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s",
        "TAP version 13\n1..{}\nok 1 - a",
        "# tests {}\n# pass {}\n# fail {}",
        "Ran {} tests in 1s\n\nFAILED (failures={})",
        "[==========] {} tests ran.\n[  PASSED  ] 1 test.\n[  FAILED  ] {} tests",
        "Tests run: {}, Failures: {}, Errors: 1, Skipped: 0",
    ],
)
def test_a_count_that_no_program_could_read_is_bounded(printed: str, digits: int) -> None:
    """ci-12: common JSON readers reject a number of 2,000 digits."""
    report = parse(printed.replace("{}", "9" * digits))
    assert report is None or all(
        0 <= count <= MOST_COUNTED for count in (report.passed, report.failed, report.skipped, report.errors)
    )


def test_a_long_text_keeps_its_head_and_its_tail_and_counts_what_is_missing() -> None:
    """ci-14: nothing is dropped silently."""
    text = "".join(f"line {number}\n" for number in range(1000))
    short = shortened(text, 400)
    head, _, rest = short.partition("\n[... ")
    left_out, _, tail = rest.partition(" characters left out ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + 1 + int(left_out) + len(tail) == len(text)
    assert shortened(text, len(text)) == text


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("out\n", "", "out"),
        ("out\n", "err\n", "out\n[stderr]\nerr"),
        ("", "err\n", "[stderr]\nerr"),
        ("", "", ""),
    ],
)
def test_standard_error_is_marked(stdout: str, stderr: str, expected: str) -> None:
    """ci-8: the output contains both streams and distinguishes them."""
    assert streams(stdout, stderr) == expected


def test_a_message_is_one_bounded_line() -> None:
    """ci-12: a message is cut, with a sign that marks the cut."""
    assert message(["  assert 1", "", "\t== 2"]) == "assert 1 == 2"
    assert len(message(["x" * 5000])) == MESSAGE_LENGTH
    assert message(["x" * 5000]).endswith("…")


def test_long_lines_and_many_lines_are_cut_before_they_are_read() -> None:
    """ci-12: the text that is parsed is bounded."""
    assert len(split_lines("x" * 10_000)[0]) == LINE_LENGTH
    assert len(split_lines("\n" * 1_000_000)) == 200_000


def test_a_report_lists_the_first_failures_and_counts_them_all() -> None:
    """ci-12: the list of failures has a limit."""
    listed = "".join(f"FAILED test_a.py::test_{number} - no\n" for number in range(500))
    report = parse(f"=== short test summary info ===\n{listed}=== 500 failed in 1.00s ===\n")
    assert report is not None
    assert report.failed == 500
    assert len(report.failures) == MOST_FAILURES


HOSTILE = {
    "one endless line of digits": "Tests: " + "1" * 3_000_000,
    "many lines of digits": ("Tests: " + "1" * 1990 + "\n") * 1500,
    "spaces without end": (" " * 1999 + "\n") * 1500,
    "dots": ("1/1 Test #1: " + "a ." * 600 + "\n") * 1500 + "0% tests passed, 1 tests failed out of 1\n",
    "arrows": ("a > " * 500 + "\n") * 1500 + "1 tests completed, 1 failed\n",
    "brackets": (" FAIL  " + "a [ " * 490 + "\n") * 1500 + "      Tests  1 failed (1)\n",
    "failures of pytest": "=== FAILURES ===\n" + "____ t ____\n" * 100_000 + "=== 1 failed in 1s ===\n",
    "the same failure of TAP": "TAP version 13\n1..9\n" + "not ok\n  ---\n" * 100_000,
    "sessions in sessions": "=== test session starts ===\n" * 200_000 + "=== 1 passed in 1s ===\n",
    "escapes": "\x1b]0;" * 500_000 + "\x1b[" * 500_000,
    "deep JSON": '{"a":' + "[" * 1_000_000,
    "empty lines": "\n" * 4_000_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("output", HOSTILE.values(), ids=HOSTILE)
def test_parsing_of_hostile_output_ends(output: str) -> None:
    """ci-12: the work grows with the length of the output only."""
    report = parse(output)
    assert report is None or report.total >= 0
    assert "\x1b" not in plain(output)
