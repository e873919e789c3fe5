"""Help, generated from the documentation model (docs/specs/cli.md)."""

import re
from typing import Annotated

import pytest
from pydantic import Field

from coretools.cli.common.manual import WIDTH, command_page, context_page, overview, table
from coretools.cli.common.routes import Routes
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, at, tool
from coretools.operations.documentation import document_command
from coretools.operations.registry import Registry
from tests.cli.contacts import registry

PAGES = {command.name: document_command(command) for command in registry()}


@tool(Effect.CHANGE, long_running=True, profiles=())
def rebuild(
    target: str = "all", *, keep: bool = True, jobs: int | None = None, tries: Annotated[int, Field(le=9)] = 2
) -> str:
    """Build it again.

    Everything that was built before is thrown away first, which takes a while on a slow disk and longer over a network.

    A second paragraph.
    """
    return f"{target} {keep} {jobs} {tries}"


@tool(Effect.READ)
@at("deep", "er", "down")
def down() -> str:
    """Far below."""
    return ""


@pytest.fixture
def routes() -> Routes:
    found = Registry()
    found.context("deep", "er", summary="deeper still")
    found.add(rebuild)
    found.add(down)
    return Routes(found, Selection(profile="all"))


def test_an_overview_has_contexts_first_and_then_commands(routes: Routes) -> None:
    """cli-12: a context without a description lists its contents."""
    assert overview(routes, (), WIDTH).splitlines() == ["  deep     er down", "  rebuild  Build it again."]
    assert overview(routes, ("deep",), WIDTH) == "  er  deeper still"
    assert overview(routes, ("deep", "er"), WIDTH) == "  down  Far below."


def test_a_context_page_names_the_next_commands(routes: Routes) -> None:
    """cli-12: with the words of the context, in a shell and in the REPL."""
    shell = context_page(routes, ("deep", "er"), WIDTH)
    assert shell.startswith("usage: coretools deep er COMMAND [options]\n\ndeeper still\n\n")
    assert shell.endswith("`coretools deep er COMMAND --help` shows one of them.")
    assert context_page(routes, ("deep",), WIDTH, program="").startswith("usage: deep COMMAND [options]\n\ndeep\n\n")


def test_a_command_page_has_texts_effect_and_options() -> None:
    """cli-12: details are wrapped; flags that default to true have a `--no-` form."""
    found = Registry()
    page = command_page(document_command(found.command_of(found.add(rebuild))))
    assert page.startswith("usage: coretools rebuild [options]\n\nBuild it again.\n\nEverything that was built before")
    assert "\n\nA second paragraph.\n\nIt changes, may take long, is for people only.\n\n" in page
    assert re.search(r'^  --target STRING +\["all"\]$', page, re.MULTILINE)
    assert re.search(r"^  --no-keep +\[true\]$", page, re.MULTILINE)
    assert re.search(r"^  --jobs INTEGER$", page, re.MULTILINE)
    assert re.search(r"^  --tries INTEGER +at most 9 \[2\]$", page, re.MULTILINE)
    assert "required, in order" not in page
    assert max(map(len, page.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", PAGES)
def test_every_parameter_is_on_the_page_of_its_command(name: str) -> None:
    """cli-12: as it is typed."""
    page = command_page(PAGES[name], program="")
    assert page.startswith("usage: contact")
    for parameter in PAGES[name].parameters:
        typed = parameter.name.upper() if parameter.is_required else parameter.name.replace("_", "-")
        assert typed in page


@pytest.mark.parametrize(
    ("rows", "width", "expected"),
    [
        ([], 20, ""),
        ([("a", "b")], 20, "  a  b"),
        ([("a", "b"), ("long", "c")], 20, "  a     b\n  long  c"),
        ([("a", "b" * 30)], 20, "  a  " + "b" * 11 + " ..."),
        ([("a", "one two three")], 20, "  a  one two three"),
        ([("a", "one two three four")], 20, "  a  one two ..."),
        ([("a", "one two thr four five")], 20, "  a  one two thr ..."),
        ([("a", "")], 20, "  a"),
        ([("a", "two\n  lines")], 20, "  a  two lines"),
        ([("x" * 40, "b")], 60, "  " + "x" * 40 + "  b"),
    ],
)
def test_a_table_is_cut_at_the_width(rows: list[tuple[str, str]], width: int, expected: str) -> None:
    """cli-12: one line each."""
    assert table(rows, width) == expected
