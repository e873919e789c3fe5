"""Which command the words of a line select (docs/specs/cli.md)."""

import pytest

from coretools.cli.common.routes import Routes, leading_words
from coretools.errors import UnknownTool
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, at, prompt, tool
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
    for function in (note, show, show_all, summary):
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
    ],
)
def test_the_longest_route_wins_and_literal_words_precede_parameters(
    routes: Routes, line: str, name: str, values: dict[str, str], count: int
) -> None:
    """cli-12: a word of a route precedes a parameter in it."""
    found = routes.at(line.split())
    assert found is not None
    assert (found.command.name, found.route_values, found.count) == (name, values, count)


def test_an_overriding_prompt_does_not_replace_a_command(routes: Routes) -> None:
    """cli-12, catalog-6: one command for each route."""
    assert [command.function for command in routes].count(summary) == 1
    assert another_summary not in [command.function for command in routes]


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
