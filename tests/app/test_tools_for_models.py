"""What a model reads and how its calls are understood (docs/specs/workstation.md, docs/specs/declarations.md).

Through a real server: the listed tools, calls under the names that other tools use, and the instructions.
"""

import json
import math
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from coretools.app.assembly import open_assembly
from coretools.app.instructions import MOST_BYTES
from coretools.config.settings import Settings
from tests.protocol.peer import ENVELOPE, HANDSHAKE, Peer, peer

NO_LIMIT = {"list_runs", "stop_run"}
"""Tools that do one thing whole, whatever they are given."""

LIMIT = re.compile(
    r"\b(?:not|nothing|no|never|without|only|one|whole|exact|all|missing|parts?|local|undone|[Dd]efault|up to|most)\b"
)
RESULT = re.compile(r"\bReturns ")
DEFAULT = re.compile(
    r"\b[Dd]efault\b|^(?:Only|With|Without|Of several|Text|Stop|Show (?:only|the|this)|Return (?:only|this)|List only"
    r"|Take back|Id of|Author,|Commits? (?:that|or|to)|Names? of|Branch or tag|Environment|Files? (?:with|in)|Letters"
    r"|Message:)"
)
"""A default, or a beginning that says what the parameter adds or selects: without it that does not happen."""

EXCLUDED = re.compile(r"Excludes ((?:`\w+`(?:, | and )?)+)")
PURPOSE = re.compile(
    r"(?:Apply|Build|Check|Clone|Commit|Copy|Create|Delete|End|Fetch|Find|Give|Install|List|Merge|Move|Name|Push|Read|Rename|Replace|Report"
    r"|Resolve|Restore|Run|Show|Stage|Stash|Switch|Take|Tell|Wait)\b"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "src").mkdir()
    (root / "src" / "one.py").write_text("def one():\n    return 1\n# Return it\n")
    git = ("git", "-C", str(root), "-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *words], check=True, timeout=60)
    (root / "src" / "two.py").write_text("TWO = 2\n")
    return root


@pytest.fixture(scope="module")
def client(project: Path) -> Iterator[Peer]:
    with peer(project) as served:
        served.start_session()
        yield served


@pytest.fixture(scope="module")
def tools(client: Peer) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}


def text(result: dict[str, Any]) -> str:
    return "\n".join(one["text"] for one in result["content"])


def described(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Every parameter with its description, and the fields of the items of a list."""
    for name, shape in schema.get("properties", {}).items():
        yield f"{above}{name}", shape.get("description", "")
        yield from described(shape.get("items", {}), f"{above}{name}[].")


def examples(description: str) -> Iterator[dict[str, Any]]:
    """The arguments that a description shows after "Example"."""
    _, _, text = description.partition("Example")
    while (at := text.find('{"')) >= 0:
        value, length = json.JSONDecoder().raw_decode(text[at:])
        yield value
        text = text[at + length :]


def faults_of(tool: dict[str, Any], others: set[str]) -> Iterator[str]:
    """What a model would miss in the description of a tool, or take for something else."""
    description, schema = tool["description"], tool["inputSchema"]
    parameters = dict(described(schema))
    yield from faults_of_description(tool, parameters, others)
    for example in examples(description):
        yield from (
            f"{example}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(example)
        )
        yield from (f"{example}: no parameter {name}" for name in example.keys() - parameters.keys())
    if len(set(parameters.values())) < len(parameters):
        yield "two parameters have one description"
    for parameter, clause in parameters.items():
        if len(clause.split()) < 3 or clause.endswith(".") or not re.match("[A-Z`]", clause):
            yield f"{parameter} is not described by a clause"
    yield from faults_of_parameters(schema, parameters)


def faults_of_description(tool: dict[str, Any], parameters: dict[str, str], others: set[str]) -> Iterator[str]:
    """What is missing in the text: a title, purpose, result, neighbour or limits; and names of no tools."""
    description = tool["description"]
    if not tool.get("title"):
        yield "has no title"
    if not (PURPOSE.match(description) and description.endswith(".")):
        yield "does not begin with what it does, in a sentence"
    if not RESULT.search(description):
        yield "does not say what comes back"
    prose = re.sub(r'\{"[^}]*\}|`[^`]*`|\[[^]]*\]', "", description)
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", prose)) - parameters.keys()
    if named - others:
        yield f"names {named - others}, which is no other tool"
    if not named:
        yield "does not say when to use its neighbour"
    if not (LIMIT.search(description) or LIMIT.search("; ".join(parameters.values())) or tool["name"] in NO_LIMIT):
        yield "does not say its limits"


def faults_of_parameters(schema: dict[str, Any], parameters: dict[str, str]) -> Iterator[str]:
    """What is missing about values: defaults, bounds, choices, and what goes without what."""
    for parameter, shape in schema.get("properties", {}).items():
        clause = parameters[parameter]
        if parameter not in schema.get("required", ()) and not DEFAULT.search(clause):
            yield f"{parameter} does not say its default"
        if shape.get("maximum", math.inf) <= 65_535 and not re.search(rf"\b{shape['maximum']:,}\b", clause):
            yield f"{parameter} does not say that {shape['maximum']} is the most"
        for choice in shape.get("enum", ()):
            if f"`{choice}`" not in clause and choice:
                yield f"{parameter} does not explain {choice}"
        for excluded in re.findall(r"`(\w+)`", "".join(EXCLUDED.findall(clause))):
            if f"`{parameter}`" not in parameters.get(excluded, ""):
                yield f"{parameter} excludes {excluded}, which does not say so"


def test_every_tool_says_what_it_is_for_its_limits_and_its_neighbour(tools: dict[str, dict[str, Any]]) -> None:
    """workstation-24: in the list of the default profile every tool that is named is listed too."""
    found = {name: list(faults_of(tool, tools.keys() - {name})) for name, tool in tools.items()}
    assert {name: faults for name, faults in found.items() if faults} == {}


def flattened(node: Any) -> Any:
    """A schema as clients make it that know no alternatives: each is its first form."""
    if isinstance(node, list):
        return [flattened(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: flattened(value) for key, value in {**node, **node.get("anyOf", [{}])[0]}.items() if key != "anyOf"}


FLAT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read_file", {"path": "src/one.py", "offset": "2", "limit": 1}, "    return 1\n[line 2 of 3"),
    ("read_file", {"path": "long.txt", "offset": "1@65536"}, "x" * 100),
    ("run_command", {"command": "echo 'a  b'"}, "a  b"),
    ("undo", {"since": "999999999"}, "change 999999999: there is none"),
    ("undo", {"since": "no-such-point"}, "no-such-point is neither the id of a change nor a checkpoint"),
)


def test_a_client_that_flattens_alternatives_can_send_every_value(
    client: Peer, project: Path, tools: dict[str, dict[str, Any]]
) -> None:
    """workstation-26: the first form of a parameter with several can express them all; others are refused nowhere."""
    (project / "long.txt").write_text("x" * 100_000)
    several = {name for name, tool in tools.items() if "anyOf" in json.dumps(tool["inputSchema"])}
    assert several == {"read_file", "run_command", "read_run", "undo"}
    started = text(client.call("run_command", command="echo one; echo two; sleep 60", wait_seconds=5))
    run = re.findall(r"run-[0-9a-f]+", started)[0]
    calls = (*FLAT, ("read_run", {"run": run, "offset": "2"}, "two\n[lines 2 to 2 of 2]"))
    for name, arguments, expected in calls:
        schema = flattened(tools[name]["inputSchema"])
        assert "anyOf" not in json.dumps(schema)
        jsonschema.validate(arguments, schema)
        assert expected in text(client.call(name, **arguments)), arguments
    assert "two" in text(client.call("read_run", run=run, offset=2))
    client.call("stop_run", run=run)


UNLISTED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("file_exists", {"path": "src/one.py"}, "true"),
    ("directory_exists", {"path": "src/one.py"}, "false"),
    ("list_directory", {"path": "src"}, "one.py\t"),
    ("create_directory", {"path": "made"}, "created made"),
    ("copy_path", {"source": "src/one.py", "destination": "made/one.py"}, "copied src/one.py"),
    ("git_branch", {"action": "create", "name": "made"}, "created branch made"),
)


def test_a_tool_outside_the_list_can_be_called(client: Peer, tools: dict[str, dict[str, Any]], project: Path) -> None:
    """workstation-25, catalog-7: the list is short, and nothing that the profile permits is lost."""
    for name, arguments, expected in UNLISTED:
        assert name not in tools
        result = client.call(name, **arguments)
        assert not result.get("isError"), text(result)
        assert expected in text(result)
    assert (project / "made" / "one.py").is_file()


def test_without_the_rights_for_its_effect_the_error_names_the_profiles(project: Path) -> None:
    """workstation-25: reading is allowed in every profile; a change of a file is neither listed nor made."""
    with peer(project, "--profile", "read") as client:
        client.start_session()
        assert text(client.call("list_directory", path="src")).startswith("one.py")
        call = {"name": "copy_path", "arguments": {"source": "src/one.py", "destination": "other.py"}}
        message = client.ask("tools/call", call)["error"]["message"]
    assert message.startswith("copy_path is not offered here: it is in profile all, and this server has profile read")
    assert not (project / "other.py").exists()


def test_hints_are_true_of_repeated_calls(client: Peer) -> None:
    """declarations-1: a call that appends, or stages by number, has a further effect when it is repeated."""
    tools = {tool["name"]: tool["annotations"] for tool in client.ask("tools/list")["result"]["tools"]}
    repeatable = {name for name, hints in tools.items() if hints.get("idempotentHint")}
    assert repeatable == {"stop_run"}
    assert {name for name, hints in tools.items() if hints["openWorldHint"]} == {
        *("ci_test", "ci_restore", "run_command", "write_run", "git_pull", "git_push")
    }


def test_tools_of_the_profile_all_say_it_too(project: Path) -> None:
    """workstation-24: they are read by models as well."""
    with peer(project, "--profile", "all") as client:
        client.start_session()
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    found = {name: list(faults_of(tool, tools.keys() - {name})) for name, tool in tools.items()}
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.anyio
async def test_no_alias_is_listed_and_each_is_understood(tmp_path: Path) -> None:
    """declarations-21: for every alias of every tool, the call is the one with the parameter's own name."""
    async with open_assembly(Settings(roots=(str(tmp_path),)), dict(os.environ)) as assembly:
        count = 0
        for command in assembly.catalog.current:
            schema = command.arguments.schema()
            required = {name: sample(schema["properties"][name]) for name in schema.get("required", ())}
            for own, aliases in command.arguments.aliases.items():
                for alias in aliases.accepted:
                    given = {**required, own: sample(schema["properties"][own])}
                    expected = command.arguments.accept(given)
                    value = given.pop(own)
                    sent = value * 1000 if "ms" in alias.split("_") else value
                    understood = command.arguments.accept({**given, alias: sent})
                    assert understood == expected, f"{command.name}: {alias}"
                    assert alias not in schema["properties"], f"{command.name}: {alias} is listed"
                    count += 1
        assert count > 100


def sample(shape: dict[str, Any]) -> Any:
    """A value that fits the schema of a parameter."""
    if "enum" in shape:
        return shape["enum"][-1]
    kind = shape.get("type") or shape["anyOf"][0]["type"]
    if kind == "array":
        return [sample(shape["items"])]
    if kind == "object":
        return {name: sample(shape["properties"][name]) for name in shape.get("required", ())}
    return {"string": "x", "integer": 3, "number": 3, "boolean": True}[kind]


SAME_CALLS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("read_file", {"file_path": "src/one.py", "offset": 2}, {"path": "src/one.py", "offset": 2}),
    ("read_file", {"target_file": "src/one.py", "start_line": 3}, {"path": "src/one.py", "offset": 3}),
    ("list_directory", {"dir_path": "src"}, {"path": "src"}),
    ("search_text", {"pattern": "RETURN", "-i": True, "-C": 1, "head_limit": 1, "glob": "*.py"},
     {"pattern": "RETURN", "ignore_case": True, "context": 1, "limit": 1, "glob": "*.py"}),
    ("search_text", {"pattern": "RETURN", "case_sensitive": False}, {"pattern": "RETURN", "ignore_case": True}),
    ("search_text", {"pattern": "return", "case_sensitive": True}, {"pattern": "return"}),
    ("search_text", {"query": "one()", "isRegexp": False}, {"pattern": "one()", "literal": True}),
    ("run_command", {"command": "pwd", "run_in_background": False}, {"command": "pwd"}),
    ("search_text", {"query": "return", "include_pattern": "*.py"}, {"pattern": "return", "glob": "*.py"}),
    ("search_files", {"pattern": "**/*.py", "target_directory": "src"}, {"glob": "**/*.py", "path": "src"}),
    ("git_log", {"repo_path": ".", "max_count": 1}, {"repository": ".", "limit": 1}),
    ("git_diff", {"repo_path": "src", "files": '["src/one.py"]'}, {"repository": "src", "paths": ["src/one.py"]}),
    ("run_command", {"cmd": "pwd", "workdir": "src", "timeout_ms": 60_000}, {"command": "pwd", "directory": "src"}),
    ("run_command", {"command": "pwd", "cwd": None, "env": None, "terminal": None}, {"command": "pwd"}),
    ("read_file", {"path": "src/one.py", "line_numbers": None, "limit": None}, {"path": "src/one.py"}),
    ("run_command", {"command": "echo $A", "env": '{"A": "[1]"}'}, {"command": "echo $A", "env": {"A": "[1]"}}),
    ("run_command", {"command": "pwd", "description": "Where", "explanation": "why"}, {"command": "pwd"}),
    ("read_file", {"filePath": "src/one.py", "startLine": 2, "explanation": ""}, {"path": "src/one.py", "offset": 2}),
    ("search_text", {"pattern": "RETURN", "ignoreCase": True, "-n": True}, {"pattern": "RETURN", "ignore_case": True}),
    ("run_command", {"command": '["echo", "x"]'}, {"command": '["echo", "x"]'}),
)  # fmt: skip
"""Calls as Claude Code, Codex, Cursor, Gemini CLI and the reference servers name their arguments, and ours."""


@pytest.mark.parametrize(("tool", "theirs", "ours"), SAME_CALLS, ids=lambda value: json.dumps(value)[:50])
def test_calls_under_other_names_do_the_same(
    client: Peer, tool: str, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """declarations-21: what models were trained to send is understood."""
    first, second = client.call(tool, **theirs), client.call(tool, **ours)
    times = re.compile(r"\d+\.\d+ s")
    assert times.sub("", text(first)) == times.sub("", text(second))
    assert first.get("isError") == second.get("isError")


EDITS: tuple[dict[str, Any], ...] = (
    {"path": "e.txt", "edits": [{"old": "a", "new": "b", "all": True}]},
    {"file_path": "e.txt", "old_string": "a", "new_string": "b", "replace_all": True},
    {"path": "e.txt", "old": "a", "new": "b", "all": True},
    {"path": "e.txt", "edits": [{"oldText": "a", "newText": "b", "all": True}]},
    {"path": "e.txt", "edits": '[{"old_string": "a", "new_string": "b", "replaceAll": true}]'},
    {"filePath": "e.txt", "oldString": "a", "newString": "b", "replaceAll": True, "instruction": "as asked"},
    {"path": "e.txt", "edits": ['{"old": "a", "new": "b", "all": true}']},
    {"filename": "e.txt", "edits": '{"old": "a", "new": "b", "all": true}'},
)


@pytest.mark.parametrize("arguments", EDITS, ids=lambda value: json.dumps(value)[:60])
def test_an_edit_is_understood_in_every_form(client: Peer, project: Path, arguments: dict[str, Any]) -> None:
    """declarations-21, declarations-4, filesystem-33: one edit beside the path, other names, JSON text."""
    (project / "e.txt").write_text("a a\n")
    result = client.call("edit_file", **arguments)
    if isinstance(arguments.get("edits"), str) and arguments["edits"].startswith("{"):
        assert "edits: must be a list" in text(result)  # an object is no list
        assert (project / "e.txt").read_text() == "a a\n"
    else:
        assert not result.get("isError"), text(result)
        assert (project / "e.txt").read_text() == "b b\n"


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read_file", {"path": "a", "file_path": "b"}, "'path' and 'file_path' are two names of one argument; give one"),
    ("read_file", {"path": "a", "file_path": "a"}, "'path' and 'file_path' are two names"),
    ("read_file", {"path": "a", "Path": "a"}, "'path' and 'Path' are two names"),
    ("read_file", {"filename": "a", "file_path": "b"}, "'filename' and 'file_path' are two names"),
    ("edit_file", {"path": "a", "edits": [{"old": "x", "old_string": "y", "new": ""}]}, "'old' and 'old_string'"),
    ("edit_file", {"path": "a", "edits": [{"old": "x", "new": ""}], "old_string": "y"}, "'edits' and 'old_string'"),
    ("edit_file", {"path": "a", "old": "x", "old_string": "y", "new": ""}, "'old' and 'old_string' are two names"),
    ("edit_file", {"path": "a", "old_string": "x"}, "edits.0.new: is required"),
    ("read_file", {"pth": "a"}, "unknown argument 'pth'; did you mean 'path'?"),
    ("read_file", {"path": "a", "end_line": 9}, "unknown argument 'end_line'; did you mean 'limit'?"),
    ("run_command", {"command": "true", "timeout": 9}, "unknown argument 'timeout'; did you mean 'timeout_seconds'?"),
    ("run_command", {"command": "true", "timeout_ms": "9"}, "timeout_seconds: must be a whole number, got text '9'"),
    ("run_command", {"command": "true", "run_in_background": "true"}, "run_in_background: must be true or false"),
    ("run_command", {"command": "true", "run_in_background": True, "wait_seconds": 5}, "are two names of one argument"),
    ("search_text", {"pattern": "a", "-A": 2}, "unknown argument '-A'; did you mean 'context'?"),
    ("git_add", {"path": "a"}, "unknown argument 'path'; did you mean 'paths'?"),
    ("read_file", {"path": "a", "offset": 0}, "read_file: offset: must be at least 1, got a number 0"),
    ("run_command", {"command": 5}, "run_command: command: must be text or a list, got a number 5"),
    ("run_command", {"command": ["echo", 5]}, "run_command: command.1: must be text, got a number 5"),
    ("run_command", {"command": "true", "env": {"A": None}}, "env.A: must be text, got null"),
    ("run_command", {"command": "true", "env": "A=b"}, "env: must be an object, got text 'A=b'"),
    ("edit_file", {"path": "a", "edits": "[]"}, "edits: must have at least 1 item(s), got 0"),
    ("edit_file", {"path": "a", "edits": "[" * 100_000}, "edits: must be a list, got text"),
    ("edit_file", {"path": "a", "content": "x"}, "unknown argument 'content'; did you mean 'edits'?"),
    ("read_file", {"path": "a", "line_numbers": "true"}, "line_numbers: must be true or false, got text 'true'"),
    ("git_add", {"paths": "a"}, "paths: must be a list, got text 'a'"),
    ("git_add", {"paths": '{"a": 1}'}, "paths: must be a list, got an object"),
    ("edit_file", {"path": "a", "edits": [{"old": "x", "new": "y", "alll": 1}]}, "edits.0: unknown name 'alll'"),
)  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "sentence"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_what_is_ambiguous_or_unknown_is_refused_with_what_would_work(
    client: Peer, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    """declarations-3, declarations-21: names that mean something else are no aliases; nothing is guessed."""
    result = client.call(tool, **arguments)
    assert result["isError"]
    assert result["_meta"]["coretools/error"] == "invalid-arguments"
    assert sentence in text(result)


MALFORMED: tuple[Any, ...] = (
    *(None, True, -1, 2.5, 10**40, "", "5", "null", "[]", '["x"]', '{"a":1}', "\0", "x" * 100_000),
    *([], [None], [[]], {}, {"a": 1}, {"": {}}, [{"old": "a"}], "../..", "-x"),
)  # fmt: skip


def test_a_malformed_argument_is_an_error_or_a_result_and_never_a_fault(
    client: Peer, tools: dict[str, dict[str, Any]]
) -> None:
    """declarations-3, declarations-10: every parameter of every tool that only reads, with values of every type."""
    for name, tool in tools.items():
        if not tool["annotations"]["readOnlyHint"]:
            continue
        schema = tool["inputSchema"]
        required = dict.fromkeys(schema.get("required", ()), "x")
        for parameter in (*schema.get("properties", {}), "zz"):
            for value in MALFORMED:
                result = client.call(name, **{**required, parameter: value})
                kind = result["_meta"]["coretools/error"] if result.get("isError") else ""
                found = text(result)
                assert kind != "internal", (name, parameter, value)
                assert not re.search("Traceback|pydantic|constrained-|list\\[", found), found


def test_variables_that_are_too_long_for_the_system_are_named(client: Peer) -> None:
    """declarations-10: the arguments alone are not too long."""
    result = client.call("run_command", command="true", env={"A": "x" * 1_000_000})
    assert re.search(r"true: argument list too long \(5 bytes, and 10\d{5} bytes of variables\)", text(result))


def test_a_command_in_the_background_is_a_run(client: Peer) -> None:
    """declarations-21: a switch of other tools is the value that it stands for."""
    started = text(client.call("run_command", command="cat", run_in_background=True, stdin=""))
    run = re.search(r"run-[0-9a-f]+", started)
    assert run is not None, started
    assert "still running" in started
    assert "still running" not in text(client.call("stop_run", shell_id=run[0]))


def test_structured_answers_fit_their_listed_schemas(client: Peer, tools: dict[str, dict[str, Any]]) -> None:
    """declarations-5: the default profile lists the schema of what it sends."""
    assert [name for name, tool in tools.items() if "outputSchema" in tool] == [
        *("git_status", "git_log", "git_diff", "git_conflicts", "ci_test")
    ]
    calls = {name: {} for name in ("git_status", "git_log", "git_diff", "git_conflicts")}
    for name, arguments in (*calls.items(), ("ci_test", {"command": "true"})):
        result = client.call(name, **arguments)
        jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
        assert result["structuredContent"].keys() <= tools[name]["outputSchema"]["properties"].keys()


POLICY = """
[tools]
ask = ["git_commit"]
[[commands.rule]]
program = "rm"
arguments = ["-r", "**"]
verdict = "ask"
[[commands.rule]]
program = "curl"
verdict = "deny"
[[remote]]
url = "https://example.org/acme/**"
push = true
[[remote]]
url = "/srv/git/*.git"
"""
REMOTES = "https://example.org/acme/** (fetch and push), /srv/git/*.git (fetch)"


def discovered(client: Peer) -> str:
    found: str = client.ask("server/discover", {"_meta": ENVELOPE})["result"]["instructions"]
    return found


def test_the_instructions_say_what_can_be_done_here(tmp_path: Path) -> None:
    """workstation-23, git-remotes-27: roots and rights, network, toolchains, approval; then the tier."""
    for name in ("work", "docs", "policy", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "cargo").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "cargo").chmod(0o755)
    policy = tmp_path / "policy" / "policy.toml"
    policy.write_text(POLICY)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    roots = (tmp_path / "work", f"{tmp_path / 'docs'}:ro")
    with peer(*roots, "--policy", policy, "--network", "allow", environment=environment) as client:
        text_at_start = discovered(client)
        for part in (
            f"beneath {tmp_path / 'work'} (read and write)",
            f"{tmp_path / 'docs'} (read only)",
            "may use the network",
            "cargo",
            "A person must approve: rm -r **, git_commit.",
            "Denied: curl.",
            f"The git tools reach: {REMOTES}.",
        ):
            assert part in text_at_start
        call = {"name": "get_diagnostics", "arguments": {}, "_meta": ENVELOPE}
        report = client.ask("tools/call", call)["result"]["content"][0]["text"]
        assert f"remotes that the git tools may reach: {REMOTES}\n" in report
        tier = re.search(r"confined in tier: (\w+)", report)
        assert tier is not None
        while f"tier {tier[1]}" not in discovered(client):
            assert client.process.poll() is None


DENIED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("run_command", {"cmd": "curl x"}, "denied-command"),
    ("run_command", {"command_line": ["curl", "x"]}, "denied-command"),
    ("run_command", {"commandLine": "env curl x", "description": "Say hello"}, "denied-command"),
    ("run_command", {"command": "true", "cmd": "curl x"}, "invalid-arguments"),
    ("run_command", {"command": "true", "Command": "curl x"}, "invalid-arguments"),
    ("run_command", {"cmd": "rm -r one"}, "denied-command"),
    ("git_commit", {"commitMessage": "m", "repoPath": "."}, "answer-needed"),
    ("read_file", {"filePath": "../policy/policy.toml"}, "outside-root"),
    ("edit_file", {"filePath": "../policy/policy.toml", "oldString": "deny", "newString": "allow"}, "outside-root"),
)  # fmt: skip


def test_another_name_leads_past_no_policy(tmp_path: Path) -> None:
    """declarations-21: rules, confirmations and roots see the arguments under their own names only."""
    for name in ("work", "work/one", "policy"):
        (tmp_path / name).mkdir()
    policy = tmp_path / "policy" / "policy.toml"
    policy.write_text(POLICY)
    with peer(tmp_path / "work", "--policy", policy) as client:
        client.start_session()
        for tool, arguments, kind in DENIED:
            result = client.call(tool, **arguments)
            assert result["isError"], arguments
            assert result["_meta"]["coretools/error"] == kind, text(result)
    assert (tmp_path / "work" / "one").is_dir()
    assert policy.read_text() == POLICY


def test_the_instructions_are_bounded(tmp_path: Path) -> None:
    """workstation-23, git-remotes-27, git-55: at most 1,999 bytes, whatever the roots and rules; each part has room."""
    roots = [tmp_path / f"{number:02}-{'é' * 60}" for number in range(30)]
    for root in roots:
        root.mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True, env={"PATH": os.environ["PATH"], "HOME": str(roots[0])})
    (tmp_path / "policy").mkdir()
    policy = tmp_path / "policy" / "policy.toml"
    rules = [
        f'[[commands.rule]]\nprogram = "{verdict[0] * 99}{number}"\nverdict = "{verdict}"\n'
        for number in range(50)
        for verdict in ("ask", "deny")
    ]
    hosts = [f"{'h' * 60}{number}.example.org" for number in range(30)]
    rules += [f'[[remote]]\nurl = "https://{host}/{"p" * 60}/**"\n' for host in hosts]
    rules.insert(0, '[commands]\ndefault = "deny"\nopaque = "ask"\n')
    policy.write_text(f"[confinement]\nnetwork = {json.dumps(hosts)}\n{''.join(rules)}")
    with peer(*roots, "--git-above", "--policy", policy) as client:
        found = client.ask("initialize", HANDSHAKE)["result"]["instructions"]
    assert len(found.encode()) <= MOST_BYTES < 2_000
    assert len(found.splitlines()) == 9
    assert "folder of a larger repository" in found
    for part in (
        " more",
        "tier",
        "reach only hhh",
        "Toolchains",
        "approve: code that a command",
        "Denied: programs",
        "tools reach: https://",
        "Tools: Find: search_text, ",
        "Why something is refused: get_diagnostics.",
    ):
        assert part in found


def test_the_instructions_lead_to_the_tools(tmp_path: Path, tools: dict[str, dict[str, Any]]) -> None:
    """workstation-23: by what they are for, for clients that load tools on demand; and to those that are not listed."""
    with peer(tmp_path) as client:
        found = discovered(client)
    guide, unlisted = found.splitlines()[-2:]
    assert "Read: read_file, read_files; Change: edit_file, " in guide
    assert set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", guide)) <= tools.keys()
    names = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", unlisted))
    assert unlisted.startswith("Not listed, but can be called: apply_patch, checkpoint, ")
    assert "more" not in unlisted
    assert names.isdisjoint(tools)
    assert len(names) > 20


def test_without_commands_the_instructions_do_not_speak_of_them(tmp_path: Path) -> None:
    """workstation-23."""
    with peer(f"{tmp_path}:ro", "--profile", "read") as client:
        found = client.ask("initialize", HANDSHAKE)["result"]["instructions"]
    assert "(read only)" in found
    assert not re.search("run_command|tier|Toolchains|network", found)
