"""Typed commands on the same dispatch, in this process (docs/specs/cli.md)."""

import json
import re

import pytest

from coretools.cli.command_runner import CommandLine, answers_of
from coretools.cli.common.terminal import TerminalCapabilities
from coretools.errors import CoreError, InvalidArguments
from tests.cli.contacts import context, run, runner

Captured = pytest.CaptureFixture[str]
COLOURED = TerminalCapabilities(is_stdout_terminal=True, has_colours=True, can_ask=False, can_show_progress=False)


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("contact 42 show", "contact 42"),
        ("contact 42 show --verbose", "contact 42 in full"),
        ("contact 42 show --no-verbose", "contact 42"),
        ("contact for-people", "hello, person"),
        ("contact for_people", "hello, person"),
        ("contact back-door", "come in"),
        ("contact everyone", "all"),
        ("contact letter Ada", "Write to Ada"),
        ("contact count 3", "3 counted"),
        ("contact picture", "[image/png, 3 bytes]"),
        ("contact raw 3 --any '[1]'", "{'any': [1], 'maxDepth': 3}"),
        ("contact raw --max-depth 3", "unknown"),
        ("contact ask where", "where: ('file:///work',)"),
    ],
)
async def test_a_command_is_typed_by_its_route(capsys: Captured, line: str, printed: str) -> None:
    """cli-11, cli-12: parameters inside the route, `-` for `_`; commands of every surface, hidden ones too."""
    code = await run(line)
    captured = capsys.readouterr()
    if printed == "unknown":  # a name with a capital is typed as declared
        assert code == 64
        assert "--maxDepth" in captured.err
        return
    assert (code, captured.out, captured.err) == (0, f"{printed}\n", "")


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        ("contact fail foreseen", 66, "coretools: nothing \\x1b[31mhere\n"),
        ("contact count 13", 1, ""),
        ("contact", 64, "continue with ID, add, count"),
        ("contact 42", 64, "continue with show"),
        ("contact 42 shw", 64, "no command 'contact 42 shw' here"),
        ("contct add", 64, "no command 'contct add' here; did you mean contact add?"),
        ("contact_add", 64, "did you mean contact add?"),
        ("contact many show", 64, "contact {id} show: id: must be a whole number, got 'many'"),
        ("contact count", 64, "contact count: NUMBER must be given; usage: contact count NUMBER"),
        ("contact count 1 2", 64, "'2' is one word too many"),
        ("contact count 1 --answer a=b", 64, "it asks no question"),
        ("contact ask sure", 75, "Are you sure: nobody can be asked here; give --answer sure=yes"),
        ("contact ask pick", 75, "give --answer pick=VALUE (one of red, green, blue)"),
        ("contact ask pick --answer pick=x", 64, "choose one of red, green, blue"),
        ("contact ask pick --answer other=x", 64, "--answer other: it asks for word, pick"),
        ("contact ask pick --answer", 64, "--answer: expected one argument"),
        ("contact ask pick --answer pick", 64, "write KEY=VALUE"),
    ],
)
async def test_errors_have_a_message_and_an_exit_code(capsys: Captured, line: str, code: int, expected: str) -> None:
    """cli-4, cli-5, cli-12: results on stdout, everything else on stderr; the message says what would work."""
    try:
        found = await run(line)
        captured = capsys.readouterr().err
    except CoreError as error:
        found, captured = error.exit_code, str(error)
    assert found == code
    assert expected in captured


async def test_a_bug_is_reported_by_its_call_id_only(capsys: Captured, caplog: pytest.LogCaptureFixture) -> None:
    """cli-11, declarations-11: the dispatcher catches it."""
    assert await run("contact fail bug") == 70
    captured = capsys.readouterr()
    assert "(call " in captured.err
    assert "stays inside" not in captured.err
    assert "the reason stays inside" in caplog.text


async def test_excluded_commands_say_why(capsys: Captured) -> None:
    """cli-12, catalog-7: read-only applies to people too, profiles only to what agents have."""
    assert await run("contact add x y friend", read_only=True) == 64
    assert "contact add is not available here: the server is read-only" in capsys.readouterr().err
    assert await run("contact for-people", profile="read") == 0


async def test_json_has_the_shape_of_call(capsys: Captured) -> None:
    """cli-3: the same fields, for every outcome."""
    shapes = []
    for line in ("contact count 3", "contact count 13", "contact fail foreseen", "contact nothing", "contact count x"):
        await run(f"{line} --json")
        shapes.append(json.loads(capsys.readouterr().out))
    assert {tuple(shape) for shape in shapes} == {("tool", "ok", "text", "data", "facts", "error")}
    assert [shape["ok"] for shape in shapes] == [True, False, False, False, False]
    assert [shape["error"] for shape in shapes] == [None, None, "not-found", "unknown-tool", "invalid-arguments"]
    assert (shapes[0]["tool"], shapes[0]["data"], shapes[0]["facts"]) == ("contact_count", {"count": 3}, {"count": 3})
    assert shapes[2]["facts"] == {"where": "there"}


async def test_control_characters_are_escaped_on_a_terminal_only(capsys: Captured) -> None:
    """cli-15: a pipe gets every byte, a terminal no control sequence."""
    assert await run("contact fail surrogate") == 0
    assert capsys.readouterr().out == "a\\udcffb \x1b]0;title\x07\n"
    assert await run("contact fail surrogate", COLOURED) == 0
    assert capsys.readouterr().out == "a\\udcffb \\x1b]0;title\\x07\n"


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("contact ask word --answer word=hello", "word: 'hello'"),
        ("contact ask word", "word: 'none'"),
        ("contact ask pick --answer pick=gr", "pick: 'green'"),
        ("contact ask picks --answer picks=blue,red", "picks: ('red', 'blue')"),
        ("contact ask picks --answer picks=blue --answer picks=red", "picks: ('red', 'blue')"),
        ("contact ask sure --answer sure=YES", "sure: True"),
        ("contact ask sure --answer sure:=false", "sure: False"),
        ("""contact ask shape --answer 'shape:={"width": 3}'""", "shape: Shape(width=3, colour='red')"),
        ("contact ask secret --answer secret=x", "secret: 'x'"),
    ],
)
async def test_questions_can_be_answered_beforehand(capsys: Captured, line: str, printed: str) -> None:
    """cli-13: --answer; a default if nobody can be asked."""
    assert await run(line) == 0
    assert capsys.readouterr().out == f"{printed}\n"


async def test_defaults_are_not_used_if_the_operator_requires_answers(capsys: Captured) -> None:
    """cli-13: `--ask prefilled`."""
    assert await run("contact ask word", ask="prefilled") == 75
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("word", ["x", "=1", ":=1", "x:=[", "x:=" + "[" * 20_000])
def test_an_invalid_answer_option_is_refused(word: str) -> None:
    """cli-13: KEY=VALUE or KEY:=JSON."""
    with pytest.raises(InvalidArguments, match="--answer"):
        answers_of([word])


async def test_progress_and_messages_stay_off_standard_output(capsys: Captured) -> None:
    """cli-5, cli-14: without a terminal no bar, and only messages from `warning` on."""
    assert await run("contact walk 2") == 0
    captured = capsys.readouterr()
    assert captured.out == "walked; elicitation: False, sampling: False\n"
    assert captured.err == "coretools: warning: step 1\n"


async def test_help_lists_the_commands_below_a_context(capsys: Captured) -> None:
    """cli-12: with summaries, without the hidden ones."""
    assert await run("contact --help") == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: coretools contact COMMAND [options]\n\npeople one knows\n\nKept nowhere.\n\n")
    assert re.search(r"^  add +Add a contact\.$", page, re.MULTILINE)
    assert re.search(r"^  ID +show$", page, re.MULTILINE)
    assert "for_people" in page
    assert "back_door" not in page


async def test_help_of_a_command_shows_its_parameters(capsys: Captured) -> None:
    """cli-12: required arguments in order, options with type, choices and default."""
    assert await run("contact add --help") == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: coretools contact add NAME TAGS ... ROLE [options]\n\nAdd a contact.\n\nIt adds.\n")
    for label, about in [
        ("ROLE", "one of friend, foe"),
        (r"--height NUMBER", r"\[1\.5\]"),
        ("--no-is-new", r"\[true\]"),
        (r"--entries OBJECT \.\.\.", r"\{name, age\}"),
        ("--born DATE", ""),
    ]:
        assert re.search(rf"^  {label} +.*{about}", page, re.MULTILINE), label
    assert await run("contact ask -h") == 0
    assert "asks (--answer KEY=VALUE or KEY:=JSON answers in advance): word, pick" in capsys.readouterr().out
    assert await run("contact 42 show --help") == 0
    assert "usage: coretools contact ID show [options]" in capsys.readouterr().out
    assert await run("contact nothing here --help") == 64


async def test_a_removed_command_is_refused(capsys: Captured) -> None:
    """cli-11, catalog-9: the current commands count."""
    found = runner()
    found.context.catalog.registry.remove("contact", "count")
    assert await found.run(CommandLine(words=["contact", "count", "1"])) == 64
    assert "no command 'contact count 1'" in capsys.readouterr().err


def test_the_options_of_a_command_are_known_before_it_runs() -> None:
    """cli-12: an option that the command declares is the command's."""
    found = runner()
    assert "--network" in found.option_names(["contact", "add", "--network", "x"])
    assert found.option_names(["contact", "nothing"]) == frozenset()
    assert context().roots == ("file:///work",)
