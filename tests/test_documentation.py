"""The documentation model, the pages generated from it, and that those in the tree are current (docs/specs/cli.md)."""

import inspect
import json
import os
import re
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from coretools import errors
from coretools.app.assembly import open_assembly
from coretools.cli.docs import reference
from coretools.cli.reference_pages import exit_codes_page, settings_page
from coretools.config.limits import Limits
from coretools.config.options import VARIABLES
from coretools.config.settings import Settings
from coretools.errors import BadSetting, CoreError
from coretools.operations.call import Call
from coretools.operations.declare import (
    Effect,
    asks,
    at,
    channels,
    details,
    hidden,
    metadata,
    raw_schema,
    resource,
    tool,
)
from coretools.operations.documentation import (
    TABLE_END,
    TABLE_START,
    Documentation,
    document_command,
    documentation_of,
    insert_table,
    pages,
    tool_table,
    usage,
)
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskConfirmation
from tests.checkout import TREE

MEND = "run `coretools docs --write docs/reference` in the tree"


class Person(BaseModel):
    name: str
    born: date | None = None


@tool(Effect.ADD, idempotent=True)
@asks("sure")
@details("Ask the person first.")
@metadata({"org.example/icon": "pen"})
@at("{group}", "invite")
async def invite(
    group: Annotated[str, Field(description="Which of them")],
    people: Annotated[list[Person], Field(description="Whom", max_length=5)],
    call: Call,
    *,
    kind: Literal["guest", "host"] = "guest",
    seats: Annotated[int, Field(ge=1, le=9)] = 2,
    quiet: bool = False,
    until: date | None = None,
) -> str:
    """Invite people. Each gets a letter.

    Letters are | sent at once, and *not* taken back.
    """
    await call.ask(AskConfirmation(key="sure", message="Send?"))
    return f"{group} {people} {kind} {seats} {quiet} {until}"


@resource("lists://all")
def all_lists() -> str:
    """Every list."""
    return ""


@tool(Effect.READ)
@channels("command-line", "repl")
def secret_list() -> str:
    """For people."""
    return ""


@tool(Effect.READ)
@hidden
def back_door() -> str:
    """For nobody's eyes."""
    return ""


@tool(Effect.READ)
@raw_schema({"type": "object", "properties": {"x": {"type": ["integer", "null"], "default": 3}}, "required": []})
def anything(arguments: dict[str, object]) -> str:
    """Published as it stands."""
    return json.dumps(arguments)


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    found.context("party", summary="guests and lists", details="More of it.")
    for function in (invite, all_lists, secret_list, back_door, anything):
        found.add(function, "party", context=("party",))
    return found


@pytest.fixture
async def ours(tmp_path: Path) -> Documentation:
    async with open_assembly(Settings(roots=(str(tmp_path),), profile="all"), dict(os.environ)) as assembly:
        return documentation_of(assembly.catalog.registry)


def test_the_model_holds_everything_that_is_declared(registry: Registry) -> None:
    """cli-9: route, name, texts, effect, hints, surfaces, parameters, questions, metadata; as plain JSON."""
    found = json.loads(json.dumps(documentation_of(registry).as_json()))
    assert found["contexts"] == [
        {
            "words": ["party"],
            "summary": "guests and lists",
            "details": "More of it.",
            "channels": ["mcp", "command-line", "repl"],
        }
    ]
    page = found["commands"][0]
    assert page["route"] == ["party", "{group}", "invite"]
    assert (page["name"], page["tool_set"], page["effect"]) == ("party_invite", "party", "add")
    assert page["summary"] == "Invite people. Each gets a letter."
    assert page["details"].startswith("Letters are | sent at once")
    assert page["details"].endswith("Ask the person first.")
    assert page["hints"] == {
        "read_only": False,
        "destructive": False,
        "idempotent": True,
        "open_world": False,
        "long_running": False,
    }
    assert (page["surfaces"], page["asks"]) == (["tool"], ["sure"])
    assert page["profiles"] == ["dev"]
    assert page["metadata"] == {"org.example/icon": "pen"}
    names = [one["name"] for one in page["parameters"]]
    assert names == ["group", "people", "kind", "seats", "quiet", "until"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("group", ("string", True, None, (), ())),
        ("people", ("list of object", True, None, (), ("5 at most",))),
        ("kind", ("string", False, "guest", ("guest", "host"), ())),
        ("seats", ("integer", False, 2, (), ("at most 9",))),
        ("quiet", ("boolean", False, False, (), ())),
        ("until", ("string", False, None, (), ("format date",))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_parameter_has_its_type_default_choices_and_limits(
    registry: Registry, name: str, expected: tuple[object, ...]
) -> None:
    """cli-9: a default that the schema leaves out comes from the signature."""
    page = document_command(next(iter(registry)))
    found = next(one for one in page.parameters if one.name == name)
    assert (found.type, found.is_required, found.default, found.choices, found.limits) == expected


def test_the_content_of_an_object_is_reported(registry: Registry) -> None:
    """cli-9: nested models."""
    people = next(one for one in document_command(next(iter(registry))).parameters if one.name == "people")
    assert [(one.name, one.type, one.is_required) for one in people.fields] == [
        ("name", "string", True),
        ("born", "string", False),
    ]


def test_surfaces_addresses_and_own_schemas_are_reported(registry: Registry) -> None:
    """cli-9: a resource with its address; a published schema unchanged."""
    found = {page.name: page for page in documentation_of(registry).commands}
    assert (found["party_all_lists"].surfaces, found["party_all_lists"].uri) == (("resource",), "lists://all")
    raw = found["party_anything"].parameters[0]
    assert (raw.name, raw.type, raw.default) == ("x", "integer or null", 3)


def test_hidden_commands_are_in_no_documentation_and_those_for_people_are_marked(registry: Registry) -> None:
    """cli-9, catalog-8: a command hidden from every list is omitted; one hidden from agents is marked."""
    documentation = documentation_of(registry)
    text = json.dumps(documentation.as_json()) + "".join(pages(documentation).values())
    assert "back_door" not in text
    assert "secret_list" not in tool_table(documentation)
    assert "for people only" in pages(documentation)["party.md"]


def test_pages_show_usage_parameters_and_limits(registry: Registry) -> None:
    """cli-10: one page for each tool set, and an index."""
    made = pages(documentation_of(registry))
    assert set(made) == {"README.md", "party.md"}
    page = made["party.md"]
    assert "`coretools party GROUP invite PEOPLE ... [options]`" in page
    assert "| `people` | list of object | required | Whom; 5 at most |" in page
    assert "| `people[].born` | string | `null` | format date |" in page
    assert '| `kind` | string | `"guest"` | one of guest, host |' in page
    assert "\\*not\\* taken back" in page
    assert "- asks: `sure`" in page
    assert "- resource: `lists://all` (text/plain)" in page
    assert "[`party {group} invite`](party.md#party_invite)" in made["README.md"]
    assert "`party`: guests and lists" in made["README.md"]


def test_usage_lists_required_parameters_in_order(registry: Registry) -> None:
    """cli-10: parameters of the route are part of it."""
    assert [usage(document_command(command)) for command in registry] == [
        "party GROUP invite PEOPLE ... [options]",
        "party all_lists",
        "party secret_list",
        "party back_door",
        "party anything [options]",
    ]


def test_the_table_takes_its_place_and_nothing_else(registry: Registry) -> None:
    """cli-10: the text around the markers stays, and writing twice changes nothing."""
    table = tool_table(documentation_of(registry))
    page = f"# Mine\n\n{TABLE_START}\nold\n{TABLE_END}\nrest\n"
    once = insert_table(page, table)
    assert once == f"# Mine\n\n{TABLE_START}\n\n{table}\n\n{TABLE_END}\nrest\n"
    assert insert_table(once, table) == once
    with pytest.raises(BadSetting, match="no place"):
        insert_table("# Mine\n", table)


async def test_the_reference_pages_are_not_stale(ours: Documentation) -> None:
    """cli-10, application-27: docs/reference agrees with the declarations and the public names."""
    made = reference(ours)
    there = {path.name: path.read_text(encoding="utf-8") for path in (TREE / "docs" / "reference").glob("*.md")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    assert stale == [], MEND


async def test_the_index_of_the_reference_lists_every_tool_by_its_profiles(ours: Documentation) -> None:
    """cli-10: in the column of the profiles that list it; the tools of the default one are those of its snapshot."""
    table = pages(ours)["README.md"].partition("| set |")[2].partition("\n\n")[0]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in f"| set |{table}".splitlines()]
    named = [
        (profiles, name)
        for row in rows
        for profiles, cell in zip(head[1:], row[1:], strict=True)
        for name in re.findall(r"`(\w+)`", cell)
    ]
    tools = [one for one in ours.commands if one.for_agents and "tool" in one.surfaces]
    assert sorted(name for _, name in named) == sorted(one.name for one in tools)
    default = {tool["name"] for tool in json.loads((TREE / "tests" / "app" / "tools.json").read_text(encoding="utf-8"))}
    assert {name for profiles, name in named if "dev" in profiles.split(", ")} == default


async def test_every_option_variable_limit_and_error_is_in_the_reference() -> None:
    """cli-10: nothing is omitted, and no variable is left without its option."""
    settings, codes = settings_page(), exit_codes_page()
    assert [name for name in VARIABLES if f"| `{name}" not in settings] == []
    assert [
        one.name
        for one in fields(Limits)
        if not re.search(rf"^\| `{one.name}` \| [\d,.]+ \| \S", settings, re.MULTILINE)
    ] == []
    kinds = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, CoreError)]
    assert [one.kind for one in kinds if one is not CoreError and f"| `{one.kind}` |" not in codes] == []
    assert "| 77 | `outside-root` | A path led out of every root. |" in codes


async def test_every_tool_and_every_parameter_is_in_the_reference(ours: Documentation) -> None:
    """cli-10: nothing is omitted."""
    made = pages(ours)
    for command in ours.commands:
        page = made[f"{command.tool_set}.md"].partition(f"## {command.name}\n")[2].partition("\n## ")[0]
        assert command.name in made["README.md"]
        for parameter in command.parameters:
            assert f"`{parameter.name}`" in page, (command.name, parameter.name)
