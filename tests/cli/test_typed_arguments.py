"""Words behind a command as its arguments (docs/specs/cli.md)."""

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from coretools.cli.common.arguments import parse_arguments
from coretools.errors import InvalidArguments
from coretools.operations.documentation import document_command
from tests.cli.contacts import registry

PAGES = {command.name: document_command(command) for command in registry()}


def taken(line: str, name: str = "contact_add", **route_values: str) -> dict[str, Any]:
    return parse_arguments(PAGES[name], route_values, shlex.split(line), stdin=lambda: '{"name": "piped"}')


def test_options_are_converted_by_the_schema() -> None:
    """cli-12: numbers, flags, lists, objects; text stays text."""
    for line, rest in (
        ("", {}),
        ("--age 5", {"age": 5}),
        ("--age=5", {"age": 5}),
        ("--age -5", {"age": -5}),
        ("--height 2", {"height": 2}),
        ("--height=1e3", {"height": 1000.0}),
        ("--is-new", {"is_new": True}),
        ("--is_new", {"is_new": True}),
        ("--no-is-new", {"is_new": False}),
        ("--is-new=false", {"is_new": False}),
        ("--born 2026-01-02", {"born": "2026-01-02"}),
        ("--near a --near=b", {"near": ["a", "b"]}),
        ("--near '[1]'", {"near": ["[1]"]}),
        ("--near:='[]'", {"near": []}),
        ("--network --json", {"network": "--json"}),
        ("--network ''", {"network": ""}),
        ("--network=a=b", {"network": "a=b"}),
        ("--network null", {"network": "null"}),
        ("--network:=null", {"network": None}),
        ("--either 5", {"either": 5}),
        ("--either five", {"either": "five"}),
        ("--either true", {"either": "true"}),
        ("""--entries '{"name": "x"}'""", {"entries": [{"name": "x"}]}),
        ("""--entries '[{"name": "x"}, {"name": "y"}]'""", {"entries": [{"name": "x"}, {"name": "y"}]}),
        ("""--entries '{"name": "x"}' --entries '{"name": "y"}'""", {"entries": [{"name": "x"}, {"name": "y"}]}),
        ("--entries @-", {"entries": [{"name": "piped"}]}),
        ("--network@ -", {"network": '{"name": "piped"}'}),
        ("--network @home", {"network": "@home"}),
    ):
        assert taken(f"ada t1 friend {line}") == {"name": "ada", "tags": ["t1"], "role": "friend", **rest}, (line, rest)


def test_behind_a_tool_name_options_need_no_dashes() -> None:
    """cli-2: `coretools call` parses words like every line, and `name=value` like `--name=value`."""

    def called(line: str) -> dict[str, Any]:
        words = shlex.split(line)
        return parse_arguments(PAGES["contact_add"], {}, words, stdin=lambda: "piped", has_names=True)

    whole = {"name": "ada", "tags": ["t1"], "role": "friend"}
    for line, expected in (
        ("name=ada tags=t1 role=friend", whole),
        ("ada tags=t1 --role=friend", whole),
        ("role=friend ada t1", whole),
        ("name=a=b tags=t1 role=friend", {**whole, "name": "a=b"}),
        ("name= tags=t1 role=friend", {**whole, "name": ""}),
        ("name=@home tags=t1 role=friend", {**whole, "name": "@home"}),
        ("name:='\"ada\"' tags:='[\"t1\"]' role=friend", whole),
        ("name@=- tags=t1 role=friend", {**whole, "name": "piped"}),
        ("name=ada tags=t1 tags=t2 role=friend", {**whole, "tags": ["t1", "t2"]}),
        ("name=ada tags=t1 role=friend age=5 is_new=true", {**whole, "age": 5, "is_new": True}),
        ("""name=ada tags=t1 role=friend entries='{"name": "x"}'""", {**whole, "entries": [{"name": "x"}]}),
        ("ada t1 friend is-new=false", {**whole, "is_new": False}),
        ("t1 friend -- name=ada", {"name": "t1", "tags": ["friend"], "role": "name=ada"}),
        ("=x t1 friend", {**whole, "name": "=x"}),
    ):
        assert called(line) == expected, line
    for line, expected_text in (
        ("name=a name=b t1 friend", "--name: given twice"),
        ("nme=ada t1 friend", r"did you mean --name\?"),
        ("ada t1 friend is_new=yes", "must be true or false"),
        ("ada t1 friend age=" + "9" * 5_000, "must be a whole number"),
        ("ada t1 friend age:={", "must be JSON"),
        ("ada t1 friend age:=" + "[" * 20_000, "must be JSON"),
        ("name@=/no/such/file t1 friend", "No such file"),
    ):
        with pytest.raises(InvalidArguments, match=expected_text):
            called(line)
    assert taken("name=ada t1 friend")["name"] == "name=ada"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ada t1 friend", ("ada", ["t1"], "friend")),
        ("ada t1 t2 t3 friend", ("ada", ["t1", "t2", "t3"], "friend")),
        ("--age 5 ada t1 --is-new friend", ("ada", ["t1"], "friend")),
        ("--name ada t1 friend", ("ada", ["t1"], "friend")),
        ("--role friend ada t1 t2", ("ada", ["t1", "t2"], "friend")),
        ("-- --ada -t1 friend", ("--ada", ["-t1"], "friend")),
        ("ada -- -- friend", ("ada", ["--"], "friend")),
        ("- -5 friend", ("-", ["-5"], "friend")),
        ("ada --tags t1 --tags t2 friend", ("ada", ["t1", "t2"], "friend")),
    ],
)
def test_required_arguments_are_positional(line: str, expected: tuple[object, ...]) -> None:
    """cli-12: a list takes what the arguments behind it leave; behind -- every word is a value."""
    found = taken(line)
    assert (found["name"], found["tags"], found["role"]) == expected


@pytest.mark.parametrize(
    ("line", "expected_text"),
    [
        ("", "NAME and TAGS and ROLE must be given; usage: contact add NAME TAGS ... ROLE"),
        ("ada", "TAGS and ROLE must be given"),
        ("ada t1", "ROLE must be given"),
        ("ada t1 friend --age five", "--age: must be a whole number, got 'five'"),
        ("ada t1 friend --age 1.5", "must be a whole number"),
        ("ada t1 friend --age true", "must be a whole number"),
        ("ada t1 friend --age " + "9" * 5_000, "must be a whole number"),
        ("ada t1 friend --height tall", "--height: must be a number"),
        ("ada t1 friend --is-new=maybe", "must be true or false"),
        ("ada t1 friend --age", "--age: a value must follow"),
        ("ada t1 friend --age 1 --age 2", "--age: given twice"),
        ("ada t1 friend --ag 1", "--ag: no such option; did you mean --age?"),
        ("ada t1 friend --no-age", "no such option"),
        ("ada t1 friend -a", "options are written --name"),
        ("ada t1 friend --entries x", "--entries: must be JSON, or @FILE"),
        ("ada t1 friend --entries @/no/such/file", "--entries: [Errno 2]"),
        ("ada t1 friend --network@=/no/such/file", "--network@=/no/such/file"),
        ("ada t1 friend --entries:=" + "[" * 20_000, "must be JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_invalid_words_are_refused(line: str, expected_text: str) -> None:
    """cli-12: the message names the word and what would work."""
    with pytest.raises(InvalidArguments) as caught:
        taken(line)
    assert expected_text in str(caught.value)
    assert str(caught.value).startswith("contact add: ")


def test_files_contain_json_or_text(tmp_path: Path) -> None:
    """cli-12: `@FILE` for JSON, `--name@=FILE` for text."""
    file = tmp_path / "entries.json"
    file.write_text('[{"name": "x"}]')
    found = taken(f"ada t1 friend --entries @{file} --network@={file}")
    assert (found["entries"], found["network"]) == ([{"name": "x"}], '[{"name": "x"}]')


def test_standard_input_with_the_commands_is_not_read() -> None:
    """cli-16: in the REPL."""
    with pytest.raises(InvalidArguments, match="standard input contains the commands"):
        parse_arguments(PAGES["contact_add"], {}, ["a", "b", "friend", "--network@=-"], stdin=None)


def test_the_words_of_a_route_are_parsed_like_the_others() -> None:
    """cli-12: and are not required again."""
    assert taken("--verbose", "contact_show", id="42") == {"id": 42, "verbose": True}
    with pytest.raises(InvalidArguments, match="one word too many"):
        taken("43", "contact_show", id="42")
    with pytest.raises(InvalidArguments, match="given twice"):
        taken("--id 43", "contact_show", id="42")


def any_text(chance: random.Random) -> str:
    return "".join(chance.choice("ab-_=@:' \"\\\n{}[]1é,") for _ in range(chance.randrange(6)))


def test_written_arguments_are_parsed_back() -> None:
    """cli-12: any value can be typed; the order of options does not matter."""
    for seed in range(100):
        chance = random.Random(seed)
        arguments: dict[str, Any] = {
            "name": any_text(chance),
            "tags": [any_text(chance) for _ in range(chance.randrange(1, 4))],
            "role": "foe",
            "age": chance.randrange(-9, 9),
            "height": chance.random() - 0.5,
            "is_new": chance.random() < 0.5,
            "network": any_text(chance),
            "entries": [{"name": any_text(chance)} for _ in range(chance.randrange(1, 3))],
        }
        options = [
            ["--age", str(arguments["age"])],
            [f"--height={arguments['height']!r}"],
            ["--is-new" if arguments["is_new"] else "--no_is_new"],
            chance.choice([["--network", arguments["network"]], [f"--network={arguments['network']}"]]),
            *[["--entries", json.dumps(entry)] for entry in arguments["entries"]],
        ]
        if len(arguments["entries"]) == 1:
            chance.shuffle(options)
        words = [word for option in options for word in option] + ["--", arguments["name"], *arguments["tags"], "foe"]
        found = parse_arguments(PAGES["contact_add"], {}, words, stdin=None)
        assert found == arguments, seed
