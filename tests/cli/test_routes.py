"""Which command the words of a line select (docs/specs/cli.md)."""

import pytest

from coretools.cli.common.routes import Routes, leading_words
from coretools.errors import UnknownTool
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, at, prompt, tool
from coretools.operations.documentation import document_command, usage
from coretools.operations.registry import Registry

EVERYTHING = Selection(profile="all")


@tool(Effect.READ)
@at("note")
def note(text: str) -> str:
    """Note."""
    return text


@tool(Effect.READ)
@at("note", "{id}", "show")
def show(id: int) -> str:  # noqa: A002  # the name that a user would choose
    """Show."""
    return str(id)


@tool(Effect.READ)
@at("note", "all", "show")
def show_all() -> str:
    """Show all."""
    return ""


@tool(Effect.READ)
@at("report", "{year}", "{month}")
def report(year: int, month: int = 0) -> str:
    """Report."""
    return f"{year} {month}"


@tool(Effect.READ)
@at("report", "{year}", "all")
def report_all(year: int) -> str:
    """Report all."""
    return str(year)


@prompt()
def summary() -> str:
    """Sum up."""
    return "ours"


@prompt()
@at("summary")
def another_summary() -> str:
    """Sum up otherwise."""
    return "theirs"


@pytest.fixture
def routes() -> Routes:
    registry = Registry()
    for function in (note, show, show_all, report, report_all, summary):
        registry.add(function)
    registry.add(another_summary, overrides=True)
    return Routes(registry, EVERYTHING)


@pytest.mark.parametrize(
    ("line", "name", "values", "count"),
    [
        ("note hello", "note", {}, 1),
        ("note 5 show", "note_show", {"id": "5"}, 3),
        ("note all show", "note_all_show", {}, 3),
        ("note all", "note", {}, 1),
        ("note 5 show more", "note_show", {"id": "5"}, 3),
        ("summary", "summary", {}, 1),
        ("report 2026", "report", {"year": "2026"}, 2),
        ("report 2026 5", "report", {"year": "2026", "month": "5"}, 3),
        ("report 2026 all", "report_all", {"year": "2026"}, 3),
    ],
)
def test_the_longest_route_wins_and_literal_words_precede_parameters(
    routes: Routes, line: str, name: str, values: dict[str, str], count: int
) -> None:
    """cli-12: a word of a route precedes a parameter in it; optional ones at its end can be left out."""
    found = routes.at(line.split())
    assert found is not None
    assert (found.command.name, found.route_values, found.count) == (name, values, count)


def test_an_overriding_prompt_does_not_replace_a_command(routes: Routes) -> None:
    """cli-12, catalog-6: one command for each route."""
    assert [command.function for command in routes.below(())].count(summary) == 1
    assert another_summary not in [command.function for command in routes.below(())]


@pytest.mark.parametrize(("line", "expected"), [("nte x", "did you mean note?"), ("zzz", "`--help` lists them")])
def test_unknown_words_are_refused(routes: Routes, line: str, expected: str) -> None:
    """cli-12: with the closest command."""
    with pytest.raises(UnknownTool, match="no command") as caught:
        routes.get(line.split())
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [("a b --c d", "a b"), ("--c a", ""), ("a - b", "a - b"), ("a -- b", "a"), ("", "")],
)
def test_the_words_before_the_first_option_are_the_route(line: str, words: str) -> None:
    """cli-12: `-` alone is a value."""
    assert leading_words(line.split()) == words.split()


def test_a_required_parameter_of_a_route_is_demanded(routes: Routes) -> None:
    """cli-12: and the usage shows which ones are optional."""
    with pytest.raises(UnknownTool, match="report: continue with YEAR"):
        routes.get(["report"])
    command = routes.get(["report", "2026"]).command
    assert usage(document_command(command)) == "report YEAR [MONTH] [options]"
