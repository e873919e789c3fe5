"""Commands and tools that the operator's policy has a person confirm (docs/specs/questions.md)."""

import json
import os
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from coretools.app.assembly import open_assembly
from coretools.config.limits import Limits
from coretools.config.operator_policy import CommandPolicy, CommandRule, ConfinementPolicy, OperatorPolicy, ToolPolicy
from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.protocol.results import ERROR_KEY, FACTS_KEY
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server
from tests.protocol import task_client
from tests.protocol.peer import ENVELOPE, Peer, peer
from tests.protocol.unasked import unasked

ERAS = ("legacy", "auto")
RULES = CommandPolicy(
    rule=(
        CommandRule(program="touch", verdict="ask", reason="makes files"),
        CommandRule(program="sh", verdict="ask"),
        CommandRule(program="rm", verdict="deny"),
    )
)


class ConsistentPerson:
    """Answers each form in the same way, records the answer, and checks the disk while it is asked."""

    def __init__(self, directory: Path, answer: Any = True) -> None:
        self.seen: list[str] = []
        self.made: list[list[str]] = []
        self._directory = directory
        self._answer = answer

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.seen.append(params.message)
        self.made.append(sorted(os.listdir(self._directory)))
        return types.ElicitResult(action="accept", content={"answer": self._answer})


@asynccontextmanager
async def serving(
    directory: Path,
    era: str,
    someone: ConsistentPerson | None,
    *,
    tools: ToolPolicy | None = None,
    profile: str = "dev",
) -> Any:
    policy = OperatorPolicy(
        commands=RULES, tools=tools or ToolPolicy(), confinement=ConfinementPolicy(allow_unconfined=True)
    )
    settings = Settings(
        roots=(str(directory),), policy=policy, profile=profile, limits=Limits(grace_seconds=0.3, ask_seconds=20)
    )
    with anyio.fail_after(60):
        async with open_assembly(settings, dict(os.environ)) as built:
            server = build_server(
                built.catalog,
                built.dispatcher,
                built.identity,
                ServerOptions(questions=QuestionFactory(settings.asking)),
            )
            async with Client(server, mode=era, elicitation_callback=someone) as client:
                yield client


def text(result: Any) -> str:
    return str(result.content[0].text)


def kind(result: Any) -> str | None:
    return (result.meta or {}).get(ERROR_KEY)


@pytest.mark.parametrize("era", ERAS)
async def test_a_command_waits_for_its_confirmation(tmp_path: Path, era: str) -> None:
    """questions-16: the form shows every word, the directory, the input and the rule; nothing runs before it."""
    (tmp_path / "sub").mkdir()
    someone = ConsistentPerson(tmp_path)
    async with serving(tmp_path, era, someone) as client:
        result = await client.call_tool(
            "run_command", {"command": "touch made 'a b' \"it's\"", "directory": ".", "stdin": "x\u202e"}
        )
        assert kind(result) is None
        refused = await client.call_tool("run_command", {"command": "rm made"})
        assert (kind(refused), refused.meta[FACTS_KEY]["verdict"]) == ("denied-command", "deny")
        assert kind(await client.call_tool("run_command", {"command": "ls"})) is None
    assert someone.made == [["sub"]]
    assert sorted(os.listdir(tmp_path)) == ["a b", "it's", "made", "sub"]
    first, *others = someone.seen[0].split("\n")
    assert first == "Run touch made 'a b' \"it's\"?"
    assert others == ["in: .", "input: 'x\\u202e'", "asked because rule 1 says ask for touch (makes files)"]
    assert len(someone.seen) == 1


async def test_a_person_confirms_a_whole_line_with_its_variables(tmp_path: Path) -> None:
    """shell-7, shell-14, questions-16: the question shows the line as it is run, and what is asked about."""
    someone = ConsistentPerson(tmp_path, answer=True)
    call = {"command": "cd . &&\n touch 'a b' > log", "env": {"CI": "x y"}}
    async with serving(tmp_path, ERAS[0], someone) as client:
        assert kind(await client.call_tool("run_command", call)) is None
    assert sorted(os.listdir(tmp_path)) == ["a b", "log"]
    lines = someone.seen[0].split("\n")
    assert lines[:3] == ["Run \"cd . &&\\n touch 'a b' > log\"?", "in: .", "with: CI='x y'"]
    assert (lines[3:], len(someone.seen)) == (["asked because rule 1 says ask for touch (makes files)"], 1)


@pytest.mark.parametrize("era", ERAS)
async def test_a_declined_command_does_not_run(tmp_path: Path, era: str) -> None:
    """questions-16: neither to its end nor as a run."""
    someone = ConsistentPerson(tmp_path, answer=False)
    async with serving(tmp_path, era, someone) as client:
        for more in ({}, {"wait_seconds": 0}):
            result = await client.call_tool("run_command", {"command": "touch made", **more})
            assert kind(result) == "declined"
    assert (os.listdir(tmp_path), len(someone.seen)) == ([], 2)


@pytest.mark.parametrize("era", ERAS)
async def test_a_command_is_refused_if_nobody_can_be_asked(tmp_path: Path, era: str) -> None:
    """questions-8, policy-12: an agent cannot confirm for the person; the refusal has the lines for the operator."""
    async with serving(tmp_path, era, None) as client:
        for more in ({}, {"answers": {"confirm": True}}):
            call = client.call_tool("run_command", {"command": "touch made", **more})
            output = await unasked(era, call, kind="denied-command")
            assert 'program = "touch"\narguments = ["made"]' in output
            assert "does not count" in output
    assert os.listdir(tmp_path) == []


async def test_the_operator_may_accept_confirmation_by_argument(tmp_path: Path) -> None:
    """questions-8: then the refusal names the argument, and it counts."""
    async with serving(tmp_path, "auto", None, tools=ToolPolicy(trusts_answers=True)) as client:
        output = await unasked("auto", client.call_tool("run_command", {"command": "touch made"}))
        assert 'send answers={"confirm": true}' in output
        result = await client.call_tool("run_command", {"command": "touch made", "answers": {"confirm": True}})
        assert kind(result) is None
    assert os.listdir(tmp_path) == ["made"]


async def test_a_run_is_confirmed_once_and_started_once(tmp_path: Path) -> None:
    """questions-15, questions-16: the same confirmation starts nothing the second time."""
    async with serving(tmp_path, "auto", ConsistentPerson(tmp_path)) as client:

        async def call(**more: Any) -> Any:
            arguments = {"command": "sh -c 'echo once >> log'"}
            return await client.session.call_tool("run_command", arguments, allow_input_required=True, **more)

        asked = await call()
        yes: Mapping[str, Any] = {"confirm": types.ElicitResult(action="accept", content={"answer": True})}
        assert kind(await call(input_responses=yes, request_state=asked.request_state)) is None
        assert kind(await call(input_responses=yes, request_state=asked.request_state)) == "conflict"
    assert (tmp_path / "log").read_text() == "once\n"


async def test_a_command_that_becomes_a_task_waits_for_its_confirmation(tmp_path: Path) -> None:
    """questions-8, questions-16: the question comes before the task; the argument does not confirm."""
    policy = OperatorPolicy(commands=RULES, confinement=ConfinementPolicy(allow_unconfined=True))
    settings = Settings(roots=(str(tmp_path),), policy=policy, limits=Limits(grace_seconds=0.3))
    someone = ConsistentPerson(tmp_path)
    with anyio.fail_after(60):
        async with open_assembly(settings, dict(os.environ)) as built:
            questions = QuestionFactory(settings.asking)
            beside = ServerOptions(extensions=built.extensions(questions), questions=questions)
            server = build_server(built.catalog, built.dispatcher, built.identity, beside)
            async with task_client.client(server, elicitation_callback=someone) as client:
                result = await client.call_tool("run_command", {"command": "touch made", "answers": {"confirm": True}})
    assert kind(result) is None
    assert [message.partition("\n")[0] for message in someone.seen] == ["Run touch made?"]
    assert someone.made == [[]]
    assert os.listdir(tmp_path) == ["made"]


async def test_what_is_too_long_to_show_cannot_be_confirmed(tmp_path: Path) -> None:
    """questions-16: no word is left out of the question, so a longer one is refused."""
    someone = ConsistentPerson(tmp_path)
    async with serving(tmp_path, "auto", someone) as client:
        result = await client.call_tool("run_command", {"command": f"touch {'x' * 9000}"})
        assert kind(result) == "invalid-arguments"
        result = await client.call_tool("run_command", {"command": "touch x", "stdin": "y" * 9000})
        assert kind(result) == "invalid-arguments"
    assert someone.seen == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_waits_for_its_confirmation(tmp_path: Path, era: str) -> None:
    """questions-9: the file exists until the person has confirmed."""
    (tmp_path / "x").touch()
    no, yes = ConsistentPerson(tmp_path, answer=False), ConsistentPerson(tmp_path)
    tools = ToolPolicy(ask=("delete_*", "git_*"))
    async with serving(tmp_path, era, no, tools=tools) as client:
        assert kind(await client.call_tool("delete_file", {"path": "x"})) == "declined"
    async with serving(tmp_path, era, None, tools=tools) as client:
        await unasked(era, client.call_tool("delete_file", {"path": "x"}))
        await unasked(era, client.call_tool("git_status", {}))
        assert kind(await client.call_tool("read_file", {"path": "x"})) is None
    assert os.listdir(tmp_path) == ["x"]
    async with serving(tmp_path, era, yes, tools=tools) as client:
        assert kind(await client.call_tool("delete_file", {"path": "x"})) is None
    assert yes.made == [["x"]]
    assert yes.seen == ['Run delete_file?\npath: "x"']
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_file_resource_waits_like_the_tool_that_reads_it(tmp_path: Path, era: str) -> None:
    """questions-9: the question before read_file cannot be bypassed."""
    (tmp_path / "x").write_text("canary")
    tools = ToolPolicy(ask=("read_file",))
    async with serving(tmp_path, era, None, tools=tools) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("coretools://files/x")
        assert "canary" not in str(caught.value)
    someone = ConsistentPerson(tmp_path)
    async with serving(tmp_path, era, someone, tools=tools) as client:
        found = await client.read_resource("coretools://files/x")
    assert (found.contents[0].text, len(someone.seen)) == ("canary", 1)


@pytest.mark.parametrize("era", ERAS)
async def test_a_directory_is_deleted_like_a_file_after_confirmation(tmp_path: Path, era: str) -> None:
    """questions-9: a rule for delete_file covers all deletions."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").touch()
    someone = ConsistentPerson(tmp_path, answer=False)
    async with serving(tmp_path, era, someone, tools=ToolPolicy(ask=("delete_file",))) as client:
        assert kind(await client.call_tool("delete_directory", {"path": "d"})) == "declined"
    assert someone.seen == ['Run delete_directory?\npath: "d"']
    assert (tmp_path / "d" / "x").exists()


async def test_the_list_of_tools_is_unchanged(tmp_path: Path) -> None:
    """questions-9: `answers` is listed for the tools that use it, and for no other."""
    listed = {}
    for name, tools in {
        "plain": ToolPolicy(),
        "asking": ToolPolicy(ask=("delete_file",)),
        "trusting": ToolPolicy(ask=("delete_file",), trusts_answers=True),
    }.items():
        async with serving(tmp_path, "auto", None, tools=tools) as client:
            listed[name] = {one.name: one.input_schema for one in (await client.list_tools()).tools}
    assert listed["plain"] == listed["asking"]
    asking = [name for name, schema in listed["trusting"].items() if "answers" in schema["properties"]]
    assert asking == ["delete_file", "delete_directory", "undo"]


async def test_a_policy_that_names_no_tool_ends_the_start(tmp_path: Path) -> None:
    """questions-9: with the name."""
    with pytest.raises(BadSetting, match="'delete_fil'"):
        async with serving(tmp_path, "auto", None, tools=ToolPolicy(ask=("delete_fil",))):
            pass


POLICY = """
[tools]
ask = ["delete_file"]
"""


def asked(client: Peer) -> tuple[int, dict[str, Any]]:
    """Call delete_file in the handshake era; returns the id of the call, and the question."""
    capabilities = {"elicitation": {}}
    about = {"name": "peer", "version": "1"}
    client.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": about})
    client.notify("notifications/initialized")
    call = client.send("tools/call", {"name": "delete_file", "arguments": {"file_path": "x", "explanation": "y"}})
    return call, client.receive()


def test_over_stdio_a_person_is_asked_in_both_eras(tmp_path: Path) -> None:
    """questions-10, questions-12, declarations-21: real pipes; a policy file; a request of the server, then a result.

    The question names an argument as the tool does, however the caller named it.
    """
    root = tmp_path / "root"
    root.mkdir()
    (root / "x").touch()
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    file.chmod(0o600)
    with peer(root, "--policy", file) as client:
        call, question = asked(client)
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == 'Run delete_file?\npath: "x"'
        assert (root / "x").exists()
        answer = {"action": "accept", "content": {"answer": True}}
        client.send_line(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": answer}).encode())
        assert not client.answer(call)["result"].get("isError")
        assert not (root / "x").exists()
    (root / "x").touch()
    with peer(root, "--policy", file) as client:
        meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        params = {"name": "delete_file", "arguments": {"path": "x"}, "_meta": meta}
        by_link = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}}}
        assert client.ask("tools/call", params | {"_meta": by_link})["error"]["code"] == -32021
        result = client.ask("tools/call", params)["result"]
        assert result["resultType"] == "input_required"
        assert (root / "x").exists()
        responses = {"confirm": {"action": "accept", "content": {"answer": True}}}
        sent = {"inputResponses": responses, "requestState": result["requestState"]}
        assert "resultType" in client.ask("tools/call", params | sent)["result"]
        assert not (root / "x").exists()
        for wrong in (5, None, {"action": "maybe"}):
            (root / "x").touch()
            again = client.ask("tools/call", params)["result"]
            sent = {"inputResponses": {"confirm": wrong}, "requestState": again["requestState"]}
            client.ask("tools/call", params | sent)
            assert (root / "x").exists()
