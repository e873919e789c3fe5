"""Long-running tools as tasks, with the SDK's client (docs/specs/tasks.md)."""

import os
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server

from coretools.app.assembly import Assembly, open_assembly
from coretools.cancellation import check_cancelled
from coretools.config.limits import Limits
from coretools.config.operator_policy import OperatorPolicy, ToolPolicy
from coretools.config.settings import Asking, AskMode, Settings
from coretools.errors import NotFound, RequestRefused
from coretools.operations.call import Call, require_confirmation
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.mcp_apps import IDENTIFIER as VIEWS
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerInfo, ServerOptions, build_server
from coretools.protocol.tasks.extension import IDENTIFIER, TaskExtension
from coretools.protocol.tasks.store import Task, TaskAnswer, TaskLimits, TaskStore
from coretools.questions.kinds import AskChoice, AskConfirmation, AskModel, AskRoots, AskSecret, AskText
from tests.protocol.peer import ENVELOPE, peer, wait_until_none, wait_until_some
from tests.protocol.task_client import ENDED, SECONDS, Handle, ask, begin, client, until

NOW = TaskLimits(answer_seconds=0.001)
"""Only what needs no wait is answered at once."""

PATIENT = TaskLimits(answer_seconds=SECONDS)

SILENT = OperatorPolicy()


class Work:
    """Long-running tools, each controlled by the test."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()
        self.cancelled = anyio.Event()

    @tool(Effect.READ, long_running=True)
    async def work(self, call: Call, size: int = 4) -> str:
        """Wait for the test."""
        await call.progress(3, 10, "at \udcff")
        self.begun.set()
        try:
            await self.go_on.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        await call.progress(4, 10, "nearly there")
        return "x" * size

    @tool(Effect.READ, long_running=True)
    def work_in_a_thread(self) -> str:
        """Turn round and round until it is cancelled."""
        while True:
            check_cancelled()

    @tool(Effect.READ, long_running=True)
    async def miss(self, call: Call) -> str:
        """Find nothing, later."""
        await call.progress(3, 10)
        await self.go_on.wait()
        raise NotFound("x: not found", path="x")

    @tool(Effect.READ, long_running=True)
    async def be_refused(self) -> str:
        """Fail as a request does, later."""
        await self.go_on.wait()
        raise RequestRefused("not now", code=-32099, data={"why": "late"})

    @tool(Effect.READ)
    async def greet(self, name: str) -> str:
        """Greet at once."""
        return f"Hello, {name}!"

    @asks("confirm")
    @tool(Effect.CHANGE, long_running=True)
    async def remove(self, name: str, call: Call) -> str:
        """Remove, if a person says so, later."""
        await self.go_on.wait()
        await require_confirmation(call, AskConfirmation(key="confirm", message=f"remove {name}?", is_prefillable=True))
        return f"removed {name}"

    @asks("name", "colour")
    @tool(Effect.READ, long_running=True)
    async def meet(self, call: Call) -> str:
        """Ask for two things at once, and then for the first again, later."""
        await self.go_on.wait()
        name, colour = await call.ask_all(
            AskText(key="name", message="your name"), AskChoice(key="colour", message="which", choices=("red", "blue"))
        )
        again = await call.ask(AskText(key="name", message="and your other name"))
        return f"{name} {again} likes {colour}"

    @asks("poem", "roots")
    @tool(Effect.READ, long_running=True)
    async def look_around(self, call: Call) -> str:
        """Ask a model and for the directories, later."""
        await self.go_on.wait()
        output, roots = await call.ask_all(AskModel(key="poem", message="a poem"), AskRoots(key="roots"))
        return f"{output} in {', '.join(roots)}"

    @asks("name", "more")
    @tool(Effect.READ, long_running=True)
    async def order(self, call: Call) -> str:
        """Ask at once, and again later."""
        name = await call.ask(AskText(key="name", message="your name"))
        await self.go_on.wait()
        more = await call.ask(AskText(key="more", message="what else"))
        return f"{name} {more}"

    @asks("token")
    @tool(Effect.READ, long_running=True)
    async def log_in(self, call: Call) -> str:
        """Need a secret."""
        return str(len(await call.ask(AskSecret(key="token", message="the token"))))


@asynccontextmanager
async def served(
    work: Work, limits: TaskLimits = NOW, *, mode: AskMode = "elicitation"
) -> AsyncIterator[tuple[Server[Any], TaskStore]]:
    registry = Registry()
    registry.add_set("work", work)
    catalog = LiveCatalog(registry, Selection(profile="all"))
    dispatcher = Dispatcher(threads=2)
    async with TaskStore(limits) as tasks:
        questions = QuestionFactory(Asking(mode=mode))
        extension = TaskExtension(catalog, dispatcher, tasks, limits=Limits(), questions=questions)
        beside = ServerOptions(extensions=[extension], questions=questions)
        yield build_server(catalog, dispatcher, ServerInfo(), beside), tasks


async def nobody(*_: object) -> types.ElicitResult:
    raise AssertionError("asked on the request's own stream")


def text(result: dict[str, Any]) -> str:
    output: str = result["result"]["content"][0]["text"]
    return output


async def test_a_long_call_becomes_a_task_that_is_polled_for_its_result() -> None:
    """tasks-1, tasks-2, tasks-6: a handle with all its fields; then working, completed, and the ordinary result."""
    work = Work()
    async with served(work) as (server, _), client(server) as connected:
        handle = await begin(connected, "work")
        assert (handle.status, handle.ttl_ms, handle.poll_interval_ms) == ("working", 7_200_000, 1000)
        assert handle.task_id.startswith("task-")
        assert len(handle.task_id) == len("task-") + 32
        assert handle.created_at.endswith("Z")
        await work.begun.wait()
        during = await ask(connected.session, "tasks/get", handle.task_id)
        assert during["resultType"] == "complete"
        assert (during["status"], during["statusMessage"]) == ("working", "at \\udcff")
        assert during.keys().isdisjoint({"result", "error", "inputRequests", "requestState", "ttl", "pollInterval"})
        work.go_on.set()
        after = await until(connected.session, handle.task_id, *ENDED)
    assert after["status"] == "completed"
    assert after["result"]["content"] == [{"type": "text", "text": "xxxx"}]
    assert after["result"]["isError"] is False
    assert after["createdAt"] == handle.created_at
    assert after["lastUpdatedAt"] >= during["lastUpdatedAt"]


async def test_the_sdk_client_finishes_a_task_by_itself() -> None:
    """tasks-1: `call_tool` of a client with the extension returns the result, as without it."""
    work = Work()
    work.go_on.set()
    async with served(work) as (server, _), client(server) as connected:
        result = await connected.call_tool("work", {"size": 2})
    assert result.content[0].text == "xx"  # type: ignore[union-attr]  # a text block


async def test_a_quick_call_needs_no_task() -> None:
    """tasks-3: answered with the result, errors too; no task is kept."""
    work = Work()
    work.go_on.set()
    async with served(work, PATIENT) as (server, tasks), client(server) as connected:
        result = await connected.session.call_tool("work", {}, allow_claimed=True)
        missed = await connected.session.call_tool("miss", {}, allow_claimed=True)
        with pytest.raises(MCPError, match="not now") as refused:
            await connected.session.call_tool("be_refused", {}, allow_claimed=True)
        assert tasks.has_room("local")
    assert isinstance(result, types.CallToolResult)
    assert isinstance(missed, types.CallToolResult)
    assert missed.is_error
    assert (refused.value.code, refused.value.data) == (-32099, {"why": "late"})


async def test_only_long_running_tools_become_tasks() -> None:
    """tasks-1: the declaration decides; a `task` parameter of the revision before is ignored."""
    async with served(Work()) as (server, _), client(server) as connected:
        result = await connected.session.call_tool("greet", {"name": "Ada"}, allow_claimed=True)
        assert isinstance(result, types.CallToolResult)
        params = {"name": "greet", "arguments": {"name": "Ada"}, "task": {"ttl": 60_000}}
        request = types.Request[Any, str](method="tools/call", params=params)
        hinted = await connected.session.send_request(request, types.CallToolResult)
        assert hinted.content[0].text == "Hello, Ada!"  # type: ignore[union-attr]  # a text block


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_without_the_extension_gets_the_result(mode: str) -> None:
    """tasks-4: in both eras; its requests for tasks are refused with the missing capability, or as unknown."""
    work = Work()
    work.go_on.set()
    async with served(work) as (server, _), client(server, knows_tasks=False, mode=mode) as connected:
        result = await connected.call_tool("work", {})
        assert result.content[0].text == "xxxx"  # type: ignore[union-attr]  # a text block
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await ask(connected.session, method, "task-0")
            if mode == "auto":
                assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert refused.value.data == {"requiredCapabilities": {"extensions": {IDENTIFIER: {}}}}
            else:
                assert refused.value.code == types.METHOD_NOT_FOUND


async def test_a_client_of_the_handshake_era_gets_no_task_even_with_the_extension() -> None:
    """tasks-4: runs serve that purpose there (docs/specs/runs.md)."""
    work = Work()
    work.go_on.set()
    async with served(work) as (server, _), client(server, mode="legacy") as connected:
        result = await connected.call_tool("work", {})
    assert result.content[0].text == "xxxx"  # type: ignore[union-attr]  # a text block


async def test_the_extension_is_advertised_to_the_stateless_era() -> None:
    """tasks-4: under `extensions`, and never as the `tasks` of the revision before."""
    async with served(Work()) as (server, _), client(server) as connected:
        capabilities = connected.server_capabilities
        assert capabilities is not None
        assert (capabilities.extensions or {})[IDENTIFIER] == {}
        assert capabilities.tasks is None


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_methods_of_the_revision_before_are_unknown(method: str) -> None:
    """tasks-4: the result is in `tasks/get`, and tasks are not listed."""
    async with served(Work()) as (server, _), client(server) as connected:
        with pytest.raises(MCPError) as refused:
            await ask(connected.session, method, "task-0")
    assert refused.value.code == types.METHOD_NOT_FOUND


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_an_error_of_the_request(method: str) -> None:
    """tasks-5: -32602, for every method."""
    async with served(Work()) as (server, _), client(server) as connected:
        with pytest.raises(MCPError, match="no such task") as refused:
            await ask(connected.session, method, "task-0")
    assert refused.value.code == types.INVALID_PARAMS


async def test_a_task_of_another_principal_is_unknown() -> None:
    """tasks-5: with the same message as one that never existed."""
    async with TaskStore(NOW) as tasks:
        task = tasks.start("ada", _never)
        with pytest.raises(NotFound) as other:
            tasks.get(task.id, "bob")
        with pytest.raises(NotFound) as none:
            tasks.get("task-0", "ada")
        assert tasks.get(task.id, "ada") is task
    assert str(other.value).partition(": ")[2] == str(none.value).partition(": ")[2]


async def test_a_tool_error_completes_the_task_and_a_request_error_fails_it() -> None:
    """tasks-6: a tool's error is a result; the protocol's own error is the task's error."""
    work = Work()
    async with served(work) as (server, _), client(server) as connected:
        missing = await begin(connected, "miss")
        refused = await begin(connected, "be_refused")
        assert (await ask(connected.session, "tasks/get", missing.task_id))["statusMessage"] == "3 of 10"
        work.go_on.set()
        missed = await until(connected.session, missing.task_id, *ENDED)
        failed = await until(connected.session, refused.task_id, *ENDED)
    assert missed["status"] == "completed"
    assert missed["result"]["isError"] is True
    assert missed["result"]["_meta"]["coretools/error"] == "not-found"
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": -32099, "message": "not now", "data": {"why": "late"}}
    assert failed["statusMessage"] == "not now"
    assert "result" not in failed


async def test_cancelling_a_task_stops_its_work() -> None:
    """tasks-7: the acknowledgement is empty, the status follows, and cancelling again changes nothing."""
    work = Work()
    async with served(work) as (server, _), client(server) as connected:
        handle = await begin(connected, "work")
        done = await ask(connected.session, "tasks/cancel", handle.task_id)
        assert done["resultType"] == "complete"
        assert done.keys().isdisjoint({"taskId", "status", "result"})
        with anyio.fail_after(SECONDS):
            await work.cancelled.wait()
        assert (await until(connected.session, handle.task_id, *ENDED))["status"] == "cancelled"
        await ask(connected.session, "tasks/cancel", handle.task_id)
        assert (await ask(connected.session, "tasks/get", handle.task_id))["status"] == "cancelled"


async def test_cancelling_stops_work_in_a_thread() -> None:
    """tasks-7: at its next cancellation check."""
    async with served(Work()) as (server, _), client(server) as connected:
        handle = await begin(connected, "work_in_a_thread")
        await ask(connected.session, "tasks/cancel", handle.task_id)
        assert (await until(connected.session, handle.task_id, *ENDED))["status"] == "cancelled"


async def test_cancelling_the_request_before_its_response_ends_the_work() -> None:
    """tasks-7: no client knows the task's id."""
    work = Work()
    async with served(work, PATIENT) as (server, _), client(server) as connected:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(connected.session.call_tool, "work", {}, allow_claimed=True))
            await work.begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(SECONDS):
            await work.cancelled.wait()


async def test_tasks_end_with_their_server() -> None:
    """tasks-8: their work is stopped before the resources it uses are closed."""
    work = Work()
    async with served(work) as (server, _):
        async with client(server) as connected:
            await begin(connected, "work")
        assert not work.cancelled.is_set()
    assert work.cancelled.is_set()


async def test_an_expired_task_is_stopped_and_deleted() -> None:
    """tasks-9: whether it has ended or not; until then it can be polled."""
    work = Work()
    limits = TaskLimits(answer_seconds=0.001, ttl_seconds=0.2)
    async with served(work, limits) as (server, _), client(server) as connected:
        handle = await begin(connected, "work")
        assert handle.ttl_ms == 200
        with pytest.raises(MCPError, match="has expired"):
            await until(connected.session, handle.task_id, "completed")
        with anyio.fail_after(SECONDS):
            await work.cancelled.wait()


async def test_beyond_the_task_limit_a_call_is_answered_without_one() -> None:
    """tasks-9: running and ended tasks both count."""
    work = Work()
    limits = TaskLimits(answer_seconds=0.001, alive=1, kept=2)
    async with served(work, limits) as (server, tasks), client(server, elicitation_callback=nobody) as connected:
        first = await begin(connected, "work")
        assert not tasks.has_room("local")
        assert tasks.has_room("somebody else")
        work.go_on.set()
        assert isinstance(await connected.session.call_tool("work", {}, allow_claimed=True), types.CallToolResult)
        await until(connected.session, first.task_id, *ENDED)
        work.go_on = anyio.Event()
        second = await begin(connected, "remove", name="x")
        await ask(connected.session, "tasks/cancel", second.task_id)
        await until(connected.session, second.task_id, "cancelled")
        work.go_on.set()
        assert isinstance(await connected.session.call_tool("work", {}, allow_claimed=True), types.CallToolResult)


async def test_stored_results_are_bounded() -> None:
    """tasks-9: one that does not fit becomes an error with the reason; the task before it is unaffected."""
    work = Work()
    limits = TaskLimits(answer_seconds=0.001, result_bytes=2000)
    async with served(work, limits) as (server, _), client(server) as connected:
        small = await begin(connected, "work", size=600)
        large = await begin(connected, "work", size=600)
        work.go_on.set()
        ended = [await until(connected.session, one.task_id, *ENDED) for one in (small, large)]
    assert [one["status"] for one in ended] == ["completed", "failed"]
    assert "ask for less of it" in ended[1]["error"]["message"]


async def test_a_question_waits_in_the_task() -> None:
    """tasks-10: `input_required`, the request in the client's form, and the answer by `tasks/update`."""
    work = Work()
    async with served(work) as (server, _), client(server, elicitation_callback=nobody) as connected:
        handle = await begin(connected, "remove", name="old.txt")
        work.go_on.set()
        asking = await until(connected.session, handle.task_id, "input_required", *ENDED)
        assert asking["inputRequests"] == {
            "confirm": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "remove old.txt?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"answer": {"type": "boolean"}},
                        "required": ["answer"],
                    },
                },
            }
        }
        responses = {"confirm": {"action": "accept", "content": {"answer": True}}, "other": {"ignored": True}}
        done = await ask(connected.session, "tasks/update", handle.task_id, inputResponses=responses)
        assert done.keys().isdisjoint({"taskId", "status", "result", "inputRequests"})
        after = await until(connected.session, handle.task_id, *ENDED)
        assert text(after) == "removed old.txt"


async def test_an_invalid_answer_is_asked_for_again() -> None:
    """tasks-10: under another key, with the reason; in the end the call fails."""
    work = Work()
    async with served(work) as (server, _), client(server, elicitation_callback=nobody) as connected:
        handle = await begin(connected, "remove", name="x")
        work.go_on.set()
        for key in ("confirm", "confirm-2", "confirm-3"):
            while key not in (asking := await until(connected.session, handle.task_id, "input_required", *ENDED)).get(
                "inputRequests", {}
            ):
                assert asking["status"] != "completed"
            message = asking["inputRequests"][key]["params"]["message"]
            assert ("must be true or false" in message) == (key != "confirm")
            response = {key: {"action": "accept", "content": {"answer": "perhaps"}}}
            await ask(connected.session, "tasks/update", handle.task_id, inputResponses=response)
        after = await until(connected.session, handle.task_id, *ENDED)
    assert after["result"]["_meta"]["coretools/error"] == "invalid-arguments"


async def test_a_header_that_names_another_task_is_refused() -> None:
    """tasks-5: over HTTP, where intermediaries route by the header (SEP-2663, "Routing Headers")."""
    work = Work()
    async with served(work) as (server, tasks):
        task = tasks.start("local", _never)
        app = server.streamable_http_app(host="127.0.0.1")
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http,
        ):
            codes = []
            for named in (task.id, "task-0"):
                answer = await http.post("/mcp", json=_get(task.id), headers={**HEADERS, "Mcp-Name": named})
                codes.append(answer.json().get("error", {}).get("code"))
    assert codes == [None, types.HEADER_MISMATCH]


HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tasks/get",
}


def _get(task_id: str) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "check", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {IDENTIFIER: {}}},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": task_id, "_meta": meta}}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_question_ends_the_task_like_a_call(action: str) -> None:
    """tasks-10: a tool error with its kind."""
    work = Work()
    async with served(work) as (server, _), client(server, elicitation_callback=nobody) as connected:
        handle = await begin(connected, "remove", name="old.txt")
        work.go_on.set()
        await until(connected.session, handle.task_id, "input_required")
        await ask(connected.session, "tasks/update", handle.task_id, inputResponses={"confirm": {"action": action}})
        after = await until(connected.session, handle.task_id, *ENDED)
    assert after["status"] == "completed"
    assert after["result"]["_meta"]["coretools/error"] == "declined"


async def test_several_questions_may_be_answered_one_by_one() -> None:
    """tasks-10: what is answered is not asked again, no key is used twice, and an invalid response changes nothing."""
    work = Work()
    async with served(work) as (server, _), client(server, elicitation_callback=nobody) as connected:
        handle = await begin(connected, "meet")
        work.go_on.set()
        both = await until(connected.session, handle.task_id, "input_required")
        assert set(both["inputRequests"]) == {"name", "colour"}

        async def answer(**responses: object) -> None:
            await ask(connected.session, "tasks/update", handle.task_id, inputResponses=responses)

        with pytest.raises(MCPError, match=r"inputResponses\.name: no response") as broken:
            await answer(name={"content": {}})
        assert broken.value.code == types.INVALID_PARAMS
        await answer(name={"action": "accept", "content": {"answer": "Ada"}})
        one = await ask(connected.session, "tasks/get", handle.task_id)
        assert (one["status"], set(one["inputRequests"])) == ("input_required", {"colour"})
        await answer(name={"action": "accept", "content": {"answer": "nobody"}})
        await answer(colour={"action": "accept", "content": {"answer": "bl"}})
        while "name-2" not in (again := await until(connected.session, handle.task_id, "input_required", *ENDED)).get(
            "inputRequests", {}
        ):
            assert again["status"] == "input_required"
        await answer(**{"name-2": {"action": "accept", "content": {"answer": "Lovelace"}}})
        assert text(await until(connected.session, handle.task_id, *ENDED)) == "Ada Lovelace likes blue"


async def test_a_model_and_the_roots_are_asked_through_the_task_too() -> None:
    """tasks-10: if the client supports them, and the operator lets a model answer."""

    async def unasked(*_: object) -> Any:
        raise AssertionError("asked on the request's own stream")

    work = Work()
    async with (
        served(work, mode="sampling") as (server, _),
        client(server, sampling_callback=unasked, list_roots_callback=unasked) as connected,
    ):
        handle = await begin(connected, "look_around")
        work.go_on.set()
        asking = await until(connected.session, handle.task_id, "input_required", *ENDED)
        assert asking["inputRequests"]["roots"] == {"method": "roots/list"}
        poem = asking["inputRequests"]["poem"]
        assert poem["method"] == "sampling/createMessage"
        assert poem["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "a poem"}}]
        responses = {
            "roots": {"roots": [{"uri": "file:///home/ada"}]},
            "poem": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "roses"}},
        }
        await ask(connected.session, "tasks/update", handle.task_id, inputResponses=responses)
        assert text(await until(connected.session, handle.task_id, *ENDED)) == "roses in file:///home/ada"


async def test_a_question_that_cannot_be_asked_is_refused_in_a_task_as_in_a_call() -> None:
    """tasks-10: a client without the capability, and a secret; values sent beforehand count."""
    work = Work()
    work.go_on.set()
    async with served(work, PATIENT) as (server, _):
        async with client(server) as connected:
            with pytest.raises(MCPError, match="send answers=") as refused:
                await connected.session.call_tool("remove", {"name": "x"}, allow_claimed=True)
        async with client(server, elicitation_callback=nobody) as connected:
            secret = await connected.session.call_tool("log_in", {}, allow_claimed=True)
            given = await connected.session.call_tool("log_in", {"answers": {"token": "abc"}}, allow_claimed=True)
    assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {}}}
    assert isinstance(secret, types.CallToolResult)
    assert (secret.meta or {})["coretools/error"] == "answer-needed"
    assert isinstance(given, types.CallToolResult)
    assert given.content[0].text == "3"  # type: ignore[union-attr]  # a text block


async def test_a_cancelled_task_asks_nothing_more() -> None:
    """tasks-7, tasks-10: also if it waits for an answer."""
    work = Work()
    async with served(work) as (server, _), client(server, elicitation_callback=nobody) as connected:
        handle = await begin(connected, "remove", name="x")
        work.go_on.set()
        await until(connected.session, handle.task_id, "input_required")
        await ask(connected.session, "tasks/cancel", handle.task_id)
        after = await until(connected.session, handle.task_id, *ENDED)
    assert after["status"] == "cancelled"
    assert "inputRequests" not in after


async def test_a_bug_in_the_work_fails_the_task_and_not_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """tasks-8: logged once; its text is not sent."""

    async def broken(task: Task) -> TaskAnswer:
        raise ZeroDivisionError("secret detail")

    async with TaskStore(NOW) as tasks:
        task = tasks.start("ada", broken)
        with anyio.fail_after(SECONDS):
            await task.ended.wait()
            while task.answer is None:
                await anyio.lowlevel.checkpoint()
        assert task.status == "failed"
        assert "secret" not in str(task.answer)
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def _never(task: Task) -> TaskAnswer:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


@asynccontextmanager
async def real(
    tmp_path: Path, policy: OperatorPolicy = SILENT, **callbacks: Any
) -> AsyncIterator[tuple[Assembly, Client]]:
    settings = Settings(roots=(str(tmp_path),), limits=Limits(grace_seconds=0.3), policy=policy)
    async with open_assembly(settings, dict(os.environ)) as assembly:
        questions = QuestionFactory(settings.asking)
        beside = ServerOptions(extensions=assembly.extensions(questions), questions=questions)
        server = build_server(assembly.catalog, assembly.dispatcher, assembly.identity, beside)
        async with client(server, **callbacks) as connected:
            yield assembly, connected


YES = {"confirm": types.ElicitResult(action="accept", content={"answer": True})}


async def test_the_operators_question_comes_before_the_task(tmp_path: Path) -> None:
    """tasks-10, questions-9: nothing is done before the confirmation; the form has only the values sent."""
    policy = OperatorPolicy(tools=ToolPolicy(ask=("run_command",)))
    arguments = {"command": "sh -c 'touch made; exec tail -f /dev/null'", "answers": {"confirm": True}}
    async with real(tmp_path, policy, elicitation_callback=nobody) as (_, connected):
        call = partial(connected.session.call_tool, "run_command", arguments, allow_claimed=True)
        first = await call(allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        request = (first.input_requests or {})["confirm"]
        assert isinstance(request, types.ElicitRequest)
        assert request.params.message == "Run run_command?\ncommand: \"sh -c 'touch made; exec tail -f /dev/null'\""
        assert not (tmp_path / "made").exists()
        handle = await call(input_responses=YES, request_state=first.request_state)
        assert isinstance(handle, Handle)
        with anyio.fail_after(SECONDS):
            while not (tmp_path / "made").exists():
                await anyio.lowlevel.checkpoint()
        again = await call(input_responses=YES, request_state=first.request_state)
        await ask(connected.session, "tasks/cancel", handle.task_id)
        assert (await until(connected.session, handle.task_id, *ENDED))["status"] == "cancelled"
    assert isinstance(again, types.CallToolResult)
    assert (again.meta or {})["coretools/error"] == "conflict"


NAMED = {"name": types.ElicitResult(action="accept", content={"answer": "Ada"})}


async def test_a_question_may_come_before_the_task_and_another_in_it() -> None:
    """tasks-10: the first is the result of the request, which leaves no task; the later one waits in the task."""
    work = Work()
    limits = TaskLimits(answer_seconds=1.0)
    async with served(work, limits) as (server, tasks), client(server, elicitation_callback=nobody) as connected:
        call = partial(connected.session.call_tool, "order", allow_claimed=True)
        first = await call(allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert set(first.input_requests or {}) == {"name"}
        assert tasks.count == 0
        handle = await call(input_responses=NAMED, request_state=first.request_state)
        assert isinstance(handle, Handle)
        assert handle.status == "working"
        work.go_on.set()
        asking = await until(connected.session, handle.task_id, "input_required", *ENDED)
        assert set(asking["inputRequests"]) == {"more"}
        responses = {"more": {"action": "accept", "content": {"answer": "tea"}}}
        await ask(connected.session, "tasks/update", handle.task_id, inputResponses=responses)
        assert text(await until(connected.session, handle.task_id, *ENDED)) == "Ada tea"


async def test_an_answer_that_came_with_the_request_counts_in_its_task_too() -> None:
    """tasks-10: whenever its question is reached the second time."""
    work = Work()
    work.go_on.set()
    limits = TaskLimits(answer_seconds=1.0)
    async with served(work, limits) as (server, _), client(server, elicitation_callback=nobody) as connected:
        call = partial(connected.session.call_tool, "remove", {"name": "x"}, allow_claimed=True)
        first = await call(allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        work.go_on = anyio.Event()
        handle = await call(input_responses=YES, request_state=first.request_state)
        assert isinstance(handle, Handle)
        work.go_on.set()
        assert text(await until(connected.session, handle.task_id, "input_required", *ENDED)) == "removed x"


async def test_a_command_of_a_task_is_a_run(tmp_path: Path) -> None:
    """tasks-11: listed, readable and stoppable while it works; its result is that of the command."""
    async with real(tmp_path) as (_, connected):
        handle = await begin(connected, "run_command", command="sh -c 'echo on; exec tail -f /dev/null'")
        listed = await connected.call_tool("list_runs", {})
        line: str = listed.content[0].text  # type: ignore[union-attr]  # a text block
        run = line.partition(" ")[0]
        assert "running" in line
        waited = await connected.call_tool("wait_run", {"run": run, "pattern": "on"})
        assert "matched: on" in waited.content[0].text  # type: ignore[union-attr]  # a text block
        await connected.call_tool("stop_run", {"run": run})
        after = await until(connected.session, handle.task_id, *ENDED)
    assert after["status"] == "completed"
    assert after["result"]["_meta"]["coretools/facts"]["signal"] == "SIGTERM"


async def test_a_command_with_an_input_ends_with_it(tmp_path: Path) -> None:
    """tasks-11, declarations-21: it is not one of the runs whose input stays open, under whichever name it is given."""
    async with real(tmp_path) as (_, connected):
        for name in ("stdin", "input"):
            arguments = {"command": "sh -c 'sleep 1; cat'", name: "abc", "timeout_ms": 60_000}
            result = await connected.call_tool("run_command", arguments)
            assert result.content[0].text == "abc"  # type: ignore[union-attr]  # a text block
        result = await connected.call_tool("run_command", {"cmd": "echo abc", "timeout_ms": 60_000})
    assert "abc" in result.content[0].text  # type: ignore[union-attr]  # a text block


async def test_no_child_of_a_cancelled_task_is_left(tmp_path: Path) -> None:
    """tasks-7: nor a grandchild in its own session, checked in /proc."""
    seconds = f"4{uuid.uuid4().int % 10**12:012d}.5"
    script = f"sh -c 'setsid sleep {seconds} & sleep {seconds}; wait'"
    async with real(tmp_path) as (_, connected):
        for tool_name, arguments in (("run_command", {}), ("ci_build", {})):
            handle = await begin(connected, tool_name, command=script, **arguments)
            await anyio.to_thread.run_sync(wait_until_some, f"sleep {seconds}", 3)
            await ask(connected.session, "tasks/cancel", handle.task_id)
            assert (await until(connected.session, handle.task_id, *ENDED))["status"] == "cancelled"
            assert await anyio.to_thread.run_sync(wait_until_none, f"sleep {seconds}") == []


@pytest.mark.parametrize("end", ["input", "KILL"])
def test_a_server_that_ends_leaves_no_process_of_its_tasks(tmp_path: Path, end: str) -> None:
    """tasks-4, tasks-8: the workstation server, over stdio, checked in /proc."""
    seconds = f"4{uuid.uuid4().int % 10**12:012d}.5"
    extensions = {"extensions": {IDENTIFIER: {}}}
    envelope = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": extensions}
    with peer(tmp_path, "--limit", "grace_seconds=0.3") as connected:
        discovered = connected.ask("server/discover", {"_meta": envelope})["result"]
        assert set(discovered["capabilities"]["extensions"]) == {IDENTIFIER, VIEWS}
        arguments = {"command": f"sh -c 'setsid sleep {seconds} & sleep {seconds}; wait'"}
        params = {"name": "run_command", "arguments": arguments, "_meta": envelope}
        answer = connected.ask("tools/call", params)
        assert "result" in answer, answer
        task = answer["result"]
        assert (task["resultType"], task["status"]) == ("task", "working")
        wait_until_some(f"sleep {seconds}", 3)
        if end == "input":
            assert connected.end() == 0
        else:
            connected.process.kill()
            connected.process.wait(60)
        assert wait_until_none(f"sleep {seconds}") == []


async def test_progress_of_a_command_is_the_status_message_of_its_task(tmp_path: Path) -> None:
    """tasks-6: seconds, bytes and the last line, as in progress notifications."""
    async with real(tmp_path) as (_, connected):
        handle = await begin(connected, "run_command", command="sh -c 'echo on; exec tail -f /dev/null'")
        with anyio.fail_after(SECONDS):
            while not (output := (await ask(connected.session, "tasks/get", handle.task_id)).get("statusMessage")):
                await anyio.lowlevel.checkpoint()
        assert re.fullmatch(r"\d+ s, 3 bytes: on", output)
        await ask(connected.session, "tasks/cancel", handle.task_id)
