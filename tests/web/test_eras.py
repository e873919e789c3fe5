"""Both protocol eras on one endpoint of a running `coretools-http`, request by request (docs/specs/http.md)."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.process.tree import until
from tests.protocol.peer import marker, wait_until_none, wait_until_some
from tests.web.http_mcp_client import ACCEPT, STATELESS
from tests.web.http_server_peer import HttpServer, http_server
from tests.web.mcp_peer import (
    JSON,
    META,
    SECONDS,
    STREAM,
    Event,
    Peer,
    Stream,
    as_session,
    call,
    enveloped,
    handshake,
    request,
    routing,
    session,
    stateless,
)

COMMANDS = "tests.web.gated_commands:COMMANDS"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST = HANDSHAKES[-1]

UNSUPPORTED, CAPABILITY_MISSING, MISMATCH = -32022, -32021, -32020


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("eras")
    root = folder / "root"
    root.mkdir()
    (root / "file.txt").write_text("a line\n")
    with http_server(folder, "--root", root, "--profile", "all", "--ask", "sampling", "--with", COMMANDS) as one:
        yield one


def text_of(message: dict[str, Any]) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


async def until_state(peer: Peer, name: str, state: str) -> None:
    """Wait until a gated call has this state."""
    with anyio.fail_after(SECONDS):
        while await peer.say("state", name=name) != state:
            await anyio.lowlevel.checkpoint()


def error_of(answer: httpx2.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error"]["code"]


async def fetched(peer: Peer, last: Event) -> list[Event]:
    """The messages after an event, until the response."""
    async with peer.listening(last.id) as missed:
        assert (missed.response.status_code, missed.kind) == (200, STREAM)
        return await missed.rest()


# The handshake era


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_session_from_its_beginning_to_its_end(server: HttpServer, revision: str) -> None:
    """http-1, http-7: requests, the one stream of GET, DELETE; afterwards every method gets 404."""
    async with session(server.url, revision) as peer:
        async with peer.listening() as stream:
            assert (stream.response.status_code, stream.kind) == (200, STREAM)
            async with peer.listening() as second:
                assert second.response.status_code == 409
            changed = await peer.post(call("change_list"))
            assert changed.status_code == 200
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            assert (await peer.delete()).status_code == 200
            await stream.rest()
        answers = [await peer.post(request("ping")), await peer.delete()]
        async with peer.listening() as stream:
            answers.append(stream.response)
        assert [answer.status_code for answer in answers] == [404, 404, 404]


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_what_needs_a_session_is_refused_without_one(server: HttpServer, revision: str) -> None:
    """http-1: 400, and 404 for an unknown id."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        nobody = Peer(http, server.url, {"MCP-Protocol-Version": revision})
        assert (await nobody.post(request("tools/list"))).status_code == 400
        assert (await nobody.delete()).status_code == 400
        async with nobody.listening() as stream:
            assert stream.response.status_code == 400
        invented = as_session(server.url, http, revision, "0" * 32)
        assert (await invented.post(request("tools/list"))).status_code == 404
        assert (await invented.delete()).status_code == 404
        async with invented.listening() as stream:
            assert stream.response.status_code == 404


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_tool_is_called_in_every_revision(server: HttpServer, revision: str) -> None:
    """http-1, http-2: a tool that only responds gets JSON."""
    async with session(server.url, revision) as peer, peer.asking(call("read_file", path="file.txt")) as answer:
        assert answer.kind == JSON
        assert "a line" in text_of(await answer.body())


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_client_that_disconnected_gets_what_it_missed(server: HttpServer, revision: str) -> None:
    """http-3, http-4: the call goes on without it, and the response follows the id of the last event received."""
    name = f"away {revision}"
    async with session(server.url, revision) as peer:
        async with peer.asking(call("hold", token="t", name=name, aloud=True)) as answer:
            assert answer.kind == STREAM
            while not (last := await event_of(answer)).data:
                pass
            assert last.message["params"]["message"] == f"{name} is waiting"
        assert await peer.say("state", name=name) == "waiting"
        await peer.say("let_go", name=name)
        [event] = await fetched(peer, last)
        assert text_of(event.message) == f"{name} is over"


async def event_of(stream: Stream) -> Event:
    event = await stream.event()
    assert event is not None
    return event


async def test_several_calls_of_a_session_have_a_stream_each(server: HttpServer) -> None:
    """http-3: whatever the order in which they end; no stream has messages of another call."""
    names = ["one", "two", "three"]
    async with session(server.url, LATEST) as peer, AsyncExitStack() as stack:
        streams = {}
        for name in names:
            waiting = call("hold", token=name, name=name, aloud=True)
            streams[name] = await stack.enter_async_context(peer.asking(waiting))
            assert (await streams[name].message())["params"]["progressToken"] == name
        for name in reversed(names):
            await peer.say("let_go", name=name)
            assert [text_of(event.message) for event in await streams[name].rest()] == [f"{name} is over"]


async def test_a_disconnect_before_the_first_event_changes_nothing(server: HttpServer) -> None:
    """http-4: the call goes on to its end."""
    async with session(server.url, LATEST) as peer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.post, call("hold", name="early"))
            await until_state(peer, "early", "waiting")
            tasks.cancel_scope.cancel()
        assert await peer.say("state", name="early") == "waiting"
        await peer.say("let_go", name="early")
        await until_state(peer, "early", "over")


async def test_a_silent_call_can_be_resumed(server: HttpServer) -> None:
    """http-2, http-4: a slow call streams; its first event has only an id and a retry time."""
    async with session(server.url, LATEST) as peer:
        async with peer.asking(call("hold", name="silent")) as answer:
            assert answer.kind == STREAM
            first = await event_of(answer)
            assert (first.data, first.retry.isdecimal()) == ("", True)
        await peer.say("let_go", name="silent")
        [event] = await fetched(peer, first)
        assert text_of(event.message) == "silent is over"


async def test_a_client_whose_stream_the_server_closes_resumes(server: HttpServer) -> None:
    """http-3: the stream ends without the response, which is fetched while the call still runs, in two requests."""
    async with session(server.url, LATEST) as peer:
        async with peer.asking(call("go_away", name="sent away")) as answer:
            assert answer.kind == STREAM
            [first] = await answer.rest()
            assert first.data == ""
        async with peer.listening(first.id) as early:
            assert early.response.status_code == 200
        async with peer.listening(first.id) as missed:
            await peer.say("let_go", name="sent away")
            assert text_of(await missed.message()) == "sent away came back"


async def test_an_event_of_another_session_is_not_found(server: HttpServer) -> None:
    """http-8: also if both belong to one principal."""
    async with session(server.url, LATEST) as peer, session(server.url, LATEST) as other:
        async with peer.asking(call("go_away", name="private")) as answer:
            [first] = await answer.rest()
        await peer.say("let_go", name="private")
        assert len(await fetched(peer, first)) == 1
        async with other.listening(first.id) as stolen:
            assert stolen.response.status_code != 200 or await stolen.rest() == []


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_notifications_before_the_response_arrive_before_it(server: HttpServer, revision: str) -> None:
    """http-3: messages of a call, on its own stream."""
    async with session(server.url, revision) as peer, peer.asking(call("tell")) as answer:
        assert answer.kind == STREAM
        reply_result = await answer.message()
        assert (reply_result["method"], reply_result["params"]["data"]) == (
            "notifications/message",
            "before the answer",
        )
        assert text_of(await answer.message()) == "logged"


@pytest.mark.parametrize(
    ("tool", "capability", "method", "result", "says"),
    [
        (
            "paint",
            "elicitation",
            "elicitation/create",
            {"action": "accept", "content": {"colour": "red"}},
            "painted red",
        ),
        (
            "think",
            "sampling",
            "sampling/createMessage",
            {"role": "assistant", "model": "m", "content": {"type": "text", "text": "word"}},
            "word",
        ),
    ],
)
async def test_a_question_comes_in_the_middle_of_a_call(
    server: HttpServer, tool: str, capability: str, method: str, result: dict[str, Any], says: str
) -> None:
    """http-3: on the call's stream; the answer is a separate request, with which the call goes on."""
    async with session(server.url, LATEST, {capability: {}}) as peer, peer.asking(call(tool)) as answer:
        question = await answer.message()
        assert question["method"] == method
        accepted = await peer.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert accepted.status_code == 202
        assert text_of(await answer.message()) == says


def cancelling(request_id: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_call_is_cancelled_by_its_client_s_notification(server: HttpServer, revision: str) -> None:
    """http-4, http-25: not by a disconnect; by its own id only; its stream ends without a response, for good."""
    name = f"unwanted {revision}"
    async with session(server.url, revision) as peer:
        body = call("hold", token="t", name=name, aloud=True)
        async with peer.asking(body) as answer:
            while not (last := await event_of(answer)).data:
                pass
            for other in (str(body["id"]), body["id"] + 0.0, None):
                assert (await peer.post(cancelling(other))).status_code == 202
            assert await peer.say("state", name=name) == "waiting"
            assert (await peer.post(cancelling(body["id"]))).status_code == 202
            await until_state(peer, name, "cancelled")
            assert await answer.rest() == []
        async with peer.listening(last.id) as gone:
            assert gone.response.status_code == 405
        assert (await peer.post(request("ping") | {"id": body["id"]})).json()["result"] == {}


async def test_a_batch_is_served_if_the_revision_has_batches(server: HttpServer) -> None:
    """http-26: one stream, each response as it comes; questions work meanwhile; cancelled requests get no response."""
    async with session(server.url, "2025-03-26", {"sampling": {}}) as peer:
        waiting, asking, ping = call("hold", name="in a batch"), call("think"), request("ping")
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
        async with peer.asking([waiting, asking, note, ping, call("state", name="nothing")]) as answer:
            assert (answer.response.status_code, answer.kind) == (200, STREAM)
            found: dict[Any, dict[str, Any]] = {}
            while len(found) < 3:
                message = await answer.message()
                if "method" in message:
                    reply_result = {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m"}
                    reply = {"jsonrpc": "2.0", "id": message["id"], "result": reply_result}
                    assert (await peer.post([reply])).status_code == 202
                else:
                    found[message["id"]] = message
            assert found[ping["id"]]["result"] == {}
            assert "word" in text_of(found[asking["id"]])
            await until_state(peer, "in a batch", "waiting")
            assert (await peer.post([cancelling(waiting["id"]), note])).status_code == 202
            assert [event for event in await answer.rest() if event.data] == []


async def test_a_batch_is_refused_if_the_revision_has_none(server: HttpServer) -> None:
    """http-26: 400, and nothing of it is executed; nor without a session, in another's, too many, or nested."""
    before = len(server.calls)
    batch = [call("let_go", name="never"), request("ping")]
    for revision in HANDSHAKES:
        async with session(server.url, revision) as peer:
            bad: list[object] = [[], [1], [batch], [handshake(revision)], [request("ping") for _ in range(65)]]
            if revision != "2025-03-26":
                bad.append(batch)
            for body in bad:
                assert error_of(await peer.post(body)) == (400, -32600), (revision, body)
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        for headers in ({}, {"Mcp-Session-Id": "0" * 32}, {"MCP-Protocol-Version": "2025-03-26"}):
            assert error_of(await Peer(http, server.url, headers).post(batch)) == (400, -32600)
    assert len(server.calls) == before


@pytest.mark.parametrize("tool", ["hold", "spin"])
async def test_a_call_that_is_cancelled_at_once_is_not_answered_either(server: HttpServer, tool: str) -> None:
    """http-25: an empty stream, without an id to resume from, whichever format the response would have had."""
    name = f"{tool} at once"
    async with session(server.url, LATEST) as peer:
        body = call(tool, name=name)
        answers = []

        async def asked() -> None:
            answers.append(await peer.post(body))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked)
            await until_state(peer, name, "waiting")
            await peer.post(cancelling(body["id"]))
        [answer] = answers
        kind = answer.headers["content-type"].partition(";")[0]
        assert (answer.status_code, kind) == (200, STREAM)
        assert not [event for event in answer.text.splitlines() if event.startswith("data: {")]
        assert await peer.say("state", name=name) == "cancelled"


async def test_a_call_whose_client_disconnected_ends_at_its_deadline(server: HttpServer) -> None:
    """http-4: its child is terminated, and the response with the error is kept."""
    seconds = marker()
    async with session(server.url, LATEST) as peer:
        async with peer.asking(call("run_command", command=f"sleep {seconds}", timeout_seconds=2)) as answer:
            first = await event_of(answer)
        [event] = await fetched(peer, first)
    assert event.message["result"]["_meta"]["coretools/facts"]["timed_out"]
    assert "timed out after" in text_of(event.message)
    assert wait_until_none(f"sleep {seconds}") == []


# The stateless era


async def test_the_server_describes_itself_without_a_session(server: HttpServer) -> None:
    """http-1: `server/discover`, with every revision that it supports."""
    async with stateless(server.url) as peer:
        answer = await peer.post(request("server/discover"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)
    assert "mcp-session-id" not in answer.headers
    found = answer.json()["result"]
    assert found["supportedVersions"] == [STATELESS, *reversed(HANDSHAKES)]
    assert found["_meta"][META + "serverInfo"]["name"] == "coretools"


async def test_what_streams_is_a_stream_and_what_does_not_is_json(server: HttpServer) -> None:
    """http-2: the same tool, with and without a notification before its response."""
    async with stateless(server.url) as peer:
        await peer.say("let_go", name="form")
        async with peer.asking(call("hold", name="form")) as answer:
            assert answer.kind == JSON
            assert text_of(await answer.body()) == "form is over"
        async with peer.asking(call("hold", token="t", name="form", aloud=True)) as answer:
            assert answer.kind == STREAM
            assert (await answer.message())["params"]["message"] == "form is waiting"
            assert text_of(await answer.message()) == "form is over"


async def test_lists_may_be_cached_publicly_if_everybody_sees_the_same(server: HttpServer) -> None:
    """http-13: by shared caches; a server with tokens says `private` (`tests/clients/test_over_http.py`)."""
    async with stateless(server.url) as peer:
        for method in ("tools/list", "prompts/list", "resources/templates/list"):
            result = (await peer.post(request(method))).json()["result"]
            assert (result["cacheScope"], result["ttlMs"] > 0) == ("public", True)


async def test_listeners_are_notified_of_changes(server: HttpServer) -> None:
    """http-1: of those that they asked for; each notification names its subscription."""
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with stateless(server.url) as peer, peer.asking(listen) as stream:
        assert stream.kind == STREAM
        agreed = await stream.message()
        assert agreed["method"] == "notifications/subscriptions/acknowledged"
        await peer.say("change_list")
        changed = await stream.message()
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"][META + "subscriptionId"] == listen["id"]


def wrong(**changed: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in changed.items()}


@pytest.mark.parametrize(
    "headers",
    [
        wrong(Mcp_Method="tools/list"),
        wrong(Mcp_Method=""),
        wrong(Mcp_Name="read_file"),
        wrong(Mcp_Name=""),
        wrong(Mcp_Param_Region="north"),
    ],
    ids=["another method", "no method", "another name", "no name", "another argument"],
)
async def test_headers_that_contradict_the_body_are_refused(server: HttpServer, headers: dict[str, str]) -> None:
    """http-1: with -32020, and the tool is not called."""
    before = server.calls.count(("place", "ok"))
    async with stateless(server.url) as peer:
        assert error_of(await peer.post(call("place", region="south"), headers)) == (400, MISMATCH)
    assert server.calls.count(("place", "ok")) == before


async def test_headers_that_repeat_the_body_are_accepted(server: HttpServer) -> None:
    """http-1: as plain text and as Base64."""
    async with stateless(server.url) as peer:
        for value in ("south", "=?base64?c291dGg=?="):
            answer = await peer.post(call("place", region="south"), wrong(Mcp_Param_Region=value))
            assert text_of(answer.json()) == "region south"


async def test_what_a_header_repeats_goes_by_its_own_name_only(server: HttpServer) -> None:
    """http-1, declarations-21: in another style it would reach the tool without having been compared."""
    async with stateless(server.url) as peer:
        assert error_of(await peer.post(call("place", Region="south"), wrong(Mcp_Param_Region="north"))) == (
            400,
            MISMATCH,
        )
        answer = await peer.post(call("place", Region="south"), {})
        assert "unknown argument 'Region'; did you mean 'region'?" in text_of(answer.json())


async def test_different_revisions_in_header_and_body_are_refused(server: HttpServer) -> None:
    """http-1: with -32020."""
    body = call("state", name="x")
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = await Peer(http, server.url).post(enveloped(body, revision="2027-01-01"), routing(body))
    assert error_of(answer) == (400, MISMATCH)


@pytest.mark.parametrize("revision", ["2027-01-01", "1.0", "2024-11-5", "latest"])
async def test_an_unknown_revision_is_refused_with_the_supported_ones(server: HttpServer, revision: str) -> None:
    """http-1: with -32022 and the revisions with which the request can be repeated; a handshake proposes its own."""
    body = call("state", name="x")
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = await Peer(http, server.url).post(enveloped(body, revision=revision), routing(body, revision))
        assert error_of(answer) == (400, UNSUPPORTED)
        data = answer.json()["error"]["data"]
        assert data == {"requested": revision, "supported": [STATELESS]}
        opened = await Peer(http, server.url).post(handshake(revision))
        assert opened.json()["result"]["protocolVersion"] == LATEST
        await as_session(server.url, http, LATEST, opened.headers["mcp-session-id"]).delete()


async def test_a_command_that_needs_a_missing_capability_names_it(server: HttpServer) -> None:
    """http-1, questions-17: an error of the request, -32021 with status 400; with the capability the call works."""
    body, asking = call("need_model"), call("think")
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        peer = Peer(http, server.url)
        unasked = await peer.post(enveloped(asking), routing(asking))
        assert error_of(unasked) == (400, CAPABILITY_MISSING)
        assert len(unasked.json()["error"]["data"]["requiredCapabilities"]) == 1
        assert "send answers=" in unasked.json()["error"]["message"]
        lacking = await peer.post(enveloped(body), routing(body))
        assert error_of(lacking) == (400, CAPABILITY_MISSING)
        assert lacking.json()["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
        having = await peer.post(enveloped(body, sampling={}), routing(body))
    assert text_of(having.json()) == "it has one"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_get_and_delete_without_sessions_are_refused(server: HttpServer, method: str) -> None:
    """http-22: with the allowed methods, and what to do instead."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = await http.request(method, server.url, headers={**ACCEPT, "MCP-Protocol-Version": STATELESS})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "subscriptions/listen" in answer.json()["error"]["message"]


@pytest.mark.parametrize("named", [None, *HANDSHAKES, STATELESS])
@pytest.mark.parametrize("in_body", [LATEST, STATELESS, "2027-01-01", 5, None])
async def test_a_header_with_another_revision_than_the_request_is_refused(
    server: HttpServer, named: str | None, in_body: object
) -> None:
    """http-21: -32020 with the request's id, with a session and without; the call is not executed."""
    if named == in_body == STATELESS:
        return
    body = enveloped(call("let_go", name="header"))
    body["params"]["_meta"][META + "protocolVersion"] = in_body
    async with session(server.url, LATEST) as opened:
        before = len(server.calls)
        for more in ({}, {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}):
            headers = {**ACCEPT, **routing(body), **more}
            headers.pop("MCP-Protocol-Version")
            headers |= {} if named is None else {"MCP-Protocol-Version": named}
            async with httpx2.AsyncClient(timeout=SECONDS) as http:
                answer = await http.post(server.url, json=body, headers=headers)
            if named is not None and named == in_body:  # a revision without an envelope: valid in a session
                assert answer.status_code == (200 if more else 400)
            else:
                assert error_of(answer) == (400, MISMATCH)
                assert answer.json()["id"] == body["id"]
        assert len(server.calls) == before + (named is not None and named == in_body)


async def test_a_refusal_has_the_id_of_the_request_if_it_can_be_read(server: HttpServer) -> None:
    """validation-34: in sessions and without, also for malformed messages; no id for what has none."""
    async with session(server.url, LATEST) as peer, httpx2.AsyncClient(timeout=SECONDS) as http:
        bodies: list[tuple[dict[str, Any], object]] = [
            ({"jsonrpc": "1.0", "id": 7, "method": "ping"}, 7),
            ({"jsonrpc": "2.0", "id": "seven", "method": 5}, "seven"),
            ({"jsonrpc": "2.0", "id": 2**70, "method": "ping"}, None),
            ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None),
            ({"jsonrpc": "2.0", "id": "x" * 300, "method": "ping"}, None),
        ]
        for body, expected in bodies:
            answer = await peer.post(body)
            assert (answer.status_code, answer.json()["id"]) == (400, expected)
        gone = await as_session(server.url, http, LATEST, "0" * 32).post(request("tools/list") | {"id": 12})
        assert (gone.status_code, gone.json()["id"]) == (404, 12)


async def test_a_session_is_initialized_once_and_may_call_discover(server: HttpServer) -> None:
    """interoperability-14: a second handshake is refused, and the session goes on; `server/discover` is answered."""
    async with session(server.url, LATEST) as peer:
        again = await peer.post(handshake(LATEST))
        assert again.json()["error"]["code"] == -32600
        found = (await peer.post(request("server/discover"))).json()["result"]
        assert set(found["supportedVersions"]) == {STATELESS, *HANDSHAKES}
        assert "tools" in found["capabilities"]
        assert (await peer.post(request("ping"))).status_code == 200


@pytest.mark.parametrize("value", ["0" * 32, "nonsense", None], ids=["unknown", "none", "of a session"])
async def test_a_session_id_means_nothing_to_a_stateless_request(server: HttpServer, value: str | None) -> None:
    """http-1: it is neither looked up nor returned, and a session with that id is unaffected."""
    async with session(server.url, LATEST) as opened, stateless(server.url) as peer:
        sent = {"Mcp-Session-Id": value or opened.headers["Mcp-Session-Id"]}
        answer = await peer.post(call("state", name="nothing"), sent)
        assert text_of(answer.json()) == "unknown"
        assert "mcp-session-id" not in answer.headers
        assert (await opened.post(request("ping"))).status_code == 200


@pytest.mark.parametrize("token", ["", "t"], ids=["before any answer", "in the middle of a stream"])
async def test_a_stateless_disconnect_cancels_its_call(server: HttpServer, token: str) -> None:
    """http-4: the child of the call is terminated, whichever format its response would have had."""
    seconds = marker()
    cancelled = ("run_command", "cancelled")
    before = server.calls.count(cancelled)
    body = call("run_command", token=token, command=f"sleep {seconds}")
    async with stateless(server.url) as peer, anyio.create_task_group() as tasks:
        heard = anyio.Event()

        async def ask() -> None:
            async with peer.asking(body) as answer:
                await answer.message()
                heard.set()
                await anyio.sleep_forever()

        tasks.start_soon(ask)
        await anyio.to_thread.run_sync(wait_until_some, f"sleep {seconds}")
        if token:
            with anyio.fail_after(SECONDS):
                await heard.wait()
        tasks.cancel_scope.cancel()
    assert wait_until_none(f"sleep {seconds}") == []
    await until(lambda: server.calls.count(cancelled) > before)


async def test_a_question_is_a_result_and_the_call_is_repeated(server: HttpServer) -> None:
    """http-1: a request of several round trips, none of which keeps a connection open."""
    body = call("paint")
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        peer = Peer(http, server.url)
        first = (await peer.post(enveloped(body, elicitation={}), routing(body))).json()["result"]
        assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["colour"])
        reply_result = {"colour": {"action": "accept", "content": {"colour": "blue"}}}
        params = {**body["params"], "inputResponses": reply_result, "requestState": first["requestState"]}
        again = {**body, "id": body["id"] + 1_000_000, "params": params}
        second = await peer.post(enveloped(again, elicitation={}), routing(again))
    assert text_of(second.json()) == "painted blue"


async def test_both_eras_share_one_registry(tmp_path: Path, server: HttpServer) -> None:
    """http-1: a call that waits in one era is let go from the other."""
    name = tmp_path.name
    async with (
        session(server.url, LATEST) as peer,
        stateless(server.url) as other,
        peer.asking(call("hold", name=name)) as answer,
    ):
        await until_state(other, name, "waiting")
        await other.say("let_go", name=name)
        message = await (answer.body() if answer.kind == JSON else answer.message())
        assert text_of(message) == f"{name} is over"


async def test_each_session_knows_what_it_has_read_and_the_stateless_era_what_its_principal_has(
    server: HttpServer,
) -> None:
    """filesystem-41: a session is not allowed to replace what another one wrote, though both have one principal."""
    async with session(server.url, LATEST) as one, session(server.url, LATEST) as two, stateless(server.url) as third:
        await one.say("write_file", path="shared", content="old\n")
        for peer in (two, third):
            assert "old" in await peer.say("read_file", path="shared")
        await one.say("write_file", path="shared", content="new\n")
        for peer in (two, third):
            answer = (await peer.post(call("write_file", path="shared", content="mine\n"))).json()["result"]
            assert (answer["isError"], "-old\n+new\n" in answer["content"][0]["text"]) == (True, True)
        await two.say("write_file", path="shared", content="mine\n", overwrite=True)
        assert "edited" in await one.say("edit_file", path="shared", edits=[{"old": "mine", "new": "ours"}])
