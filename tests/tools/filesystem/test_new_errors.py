"""Which errors are new after a change (docs/specs/code.md). With a real server: tests/tools/code."""

import pytest

from coretools.language_servers.answers import Problem
from coretools.tools.filesystem.new_errors import new_problems

TEXT = "import a\nf(1)\ng(2)\n"


def problem(line: int, message: str, code: str = "type") -> Problem:
    return Problem(line, "error", message, code)


OLD = (problem(1, "no a", "unresolved-import"), problem(2, "f is wrong"))


@pytest.mark.parametrize(
    ("now", "after", "lines"),
    [
        pytest.param(OLD, TEXT, [], id="the same"),
        pytest.param([], TEXT, [], id="none any more"),
        pytest.param(
            [problem(3, "no a", "unresolved-import"), problem(4, "f is wrong")], f"\n\n{TEXT}", [], id="moved"
        ),
        pytest.param([*OLD, problem(3, "g is wrong")], TEXT, [3], id="one more"),
        pytest.param([problem(3, "f is wrong"), *OLD], TEXT, [3], id="one more of the same words, on another line"),
        pytest.param([OLD[0], problem(2, "h is wrong")], TEXT.replace("f", "h"), [], id="renamed"),
        pytest.param([OLD[1], problem(3, "f is wrong", "other")], TEXT, [3], id="another code"),
        pytest.param([*OLD, problem(2, "no b", "unresolved-import")], TEXT, [], id="nothing is known to be installed"),
        pytest.param([problem(9, "beyond the end")] * 3, TEXT, [9, 9], id="no such line"),
    ],
)
def test_an_error_is_new_if_there_were_fewer_of_its_kind(now: list[Problem], after: str, lines: list[int]) -> None:
    """code-22"""
    assert [one.line for one in new_problems(OLD, now, TEXT, after)] == lines
