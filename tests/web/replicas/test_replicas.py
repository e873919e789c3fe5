"""Three `coretools-http` on one Redis behind HAProxy, through real clients (docs/specs/replicas.md)."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from redis import Redis

from tests.process.tree import until
from tests.web.http_mcp_client import LATEST, messages_in
from tests.web.mcp_peer import Peer, StatelessPeer, call, handshake, request
from tests.web.replicas.balanced import NAMES, Cluster, cluster

SECONDS = 60


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("replicas")
    with cluster(folder) as found:
        (folder / "root" / "note.txt").write_text("the same on all")
        yield found


@asynccontextmanager
async def stateless(replicas: Cluster, url: str = "", principal: str = "ann") -> AsyncIterator[StatelessPeer]:
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        yield StatelessPeer(http, url or replicas.url, replicas.authorization(principal))


@asynccontextmanager
async def session(replicas: Cluster, url: str = "", principal: str = "ann") -> AsyncIterator[Peer]:
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        opening = Peer(http, url or replicas.url, replicas.authorization(principal))
        opened = await opening.post(handshake(LATEST))
        assert opened.status_code == 200, opened.text
        headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": LATEST}
        peer = Peer(http, opening.url, {**opening.headers, **headers})
        assert (await peer.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        yield peer


def elsewhere(peer: Peer, url: str, **changed: str) -> Peer:
    """The same client at another address, with these headers."""
    return Peer(peer.http, url, {**peer.headers, **changed})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_s_client_works_through_the_balancer(replicas: Cluster, mode: str) -> None:
    """replicas-15: in both eras, call after call."""
    async with (
        httpx2.AsyncClient(headers=replicas.authorization(), timeout=SECONDS) as http,
        Client(streamable_http_client(replicas.url, http_client=http), mode=mode) as client,
    ):
        for _ in range(5):
            result = await client.call_tool("read_file", {"path": "note.txt"})
            assert "the same on all" in result.content[0].text  # type: ignore[union-attr]  # a text block


async def test_sessions_are_spread_and_each_stays_where_it_was_opened(replicas: Cluster) -> None:
    """replicas-15: even for different principals; no client gets "unknown session"."""
    seen: dict[str, set[str]] = {}
    for principal in ("ann", "ben"):
        for _ in range(4):
            async with session(replicas, principal=principal) as peer:
                places = {await peer.say("where") for _ in range(4)}
                assert len(places) == 1
                seen.setdefault(principal, set()).update(places)
    assert all(places <= {*NAMES} for places in seen.values())


async def test_a_principal_finds_its_run_in_the_next_call(replicas: Cluster) -> None:
    """replicas-15: without a session, because its calls go to one replica; the id of the run names it."""
    async with stateless(replicas) as peer:
        place = await peer.say("where")
        started = await peer.say("run_command", command="sleep 60", wait_seconds=0.1)
        run = f"run-{place}-"
        assert run in started
        name = started[started.index(run) :].split()[0].rstrip("],:")
        assert name in await peer.say("list_runs")
        assert "stopped because stop_run was called" in await peer.say("stop_run", run=name)


async def test_a_run_of_another_replica_is_reported_as_such(replicas: Cluster) -> None:
    """replicas-14: not as unknown; as a tool, as a resource and as a task."""
    run = f"run-b-{'0' * 8}"
    async with stateless(replicas, replicas.replicas["a"].url) as peer:
        # Another test kills Redis: b is known again when it renews its lease.
        with anyio.fail_after(SECONDS):
            while "has ended" in (output := await peer.say("read_run", run=run)):
                pass
        assert "belongs to replica b, which was alive a moment ago, and this is a" in output
        assert "belonged to replica gone, which has ended" in await peer.say("read_run", run=f"run-gone-{'0' * 8}")
        assert "no such run" in await peer.say("read_run", run=f"run-a-{'0' * 8}")
        answer = await peer.post(request("resources/read", {"uri": f"coretools://runs/{run}/output"}))
        assert "belongs to replica b" in answer.json()["error"]["message"]


async def test_a_rate_is_of_all_replicas_together(replicas: Cluster) -> None:
    """replicas-7: spreading requests over all of them gains nothing."""
    statuses = []
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        for number in range(9):
            url = replicas.replicas[NAMES[number % 3]].url
            peer = StatelessPeer(http, url, replicas.authorization("slow"))
            statuses.append((await peer.post(call("where"))).status_code)
    assert statuses == [200] * 4 + [429] * 5


async def test_a_question_is_answered_on_another_replica_and_once(replicas: Cluster) -> None:
    """replicas-8, replicas-9: a sealed state opens on every replica; it is used up on all of them."""
    places = {name: server.url for name, server in replicas.replicas.items()}

    async def agreed(name: str, principal: str = "ann", **params: Any) -> Any:
        async with stateless(replicas, places[name], principal) as peer:
            asking = {**call("agree")["params"], **params}
            body = request("tools/call", asking | {"_meta": {CAPABILITIES: {"elicitation": {"form": {}}}}})
            (message,) = messages_in(await peer.post(body))
            return message

    asked = (await agreed("a"))["result"]
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    form = asked["inputRequests"][key]["params"]["requestedSchema"]["properties"]
    response = {key: {"action": "accept", "content": dict.fromkeys(form, True)}}
    answer = {"requestState": asked["requestState"], "inputResponses": response}
    assert "error" in await agreed("b", "ben", **answer), "another principal's"
    assert (await agreed("b", **answer))["result"]["content"][0]["text"] == "True on b"
    for name in NAMES:
        result = (await agreed(name, **answer))["result"]
        assert result["isError"]
        assert "already used" in result["content"][0]["text"]


CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def test_a_list_change_on_one_replica_is_notified_on_the_others(replicas: Cluster) -> None:
    """replicas-10: to listeners of both eras."""
    async with (
        session(replicas, replicas.replicas["c"].url) as old,
        stateless(replicas, replicas.replicas["a"].url) as new,
        old.listening() as stream,
        new.asking(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})) as listening,
    ):
        assert "acknowledged" in (await listening.message())["method"]
        async with stateless(replicas, replicas.replicas["b"].url) as peer:
            assert (await peer.say("grow")).startswith("another_")
        for hearing in (listening, stream):
            assert (await hearing.message())["method"] == "notifications/tools/list_changed"


async def test_a_disconnect_cancels_the_call_through_the_balancer(replicas: Cluster) -> None:
    """replicas-15: in the stateless era; HAProxy alone would let the call run on."""
    async with stateless(replicas) as peer:
        place = replicas.replicas[await peer.say("where")]
        before = len([call for call in place.calls if call[0] == "linger"])
        body = call("linger")
        body["params"]["_meta"] = {"io.modelcontextprotocol/logLevel": "debug"}
        async with peer.asking(body) as stream:
            await stream.message()
        # The server notices only when its second comment is not accepted: one is sent each 15 s.
        await until(lambda: len([call for call in place.calls if call[0] == "linger"]) > before, seconds=1.5 * SECONDS)
        assert ("linger", "cancelled") in place.calls


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """The log messages that a client received."""
    return [one["params"]["data"] for one in messages if one.get("method") == "notifications/message"]


async def missed(peer: Peer, last: str) -> tuple[int, list[str]]:
    """The status of resuming, and the messages that were missed."""
    async with peer.listening(last) as stream:
        if stream.response.status_code != 200:
            return stream.response.status_code, []
        return 200, texts([event.message for event in await stream.rest() if event.data])


async def test_a_client_of_a_killed_replica_gets_what_was_kept_or_starts_anew(replicas: Cluster) -> None:
    """replicas-4, replicas-6, replicas-14: what was stored, of its own session only; never a wrong answer."""
    others = [replicas.replicas[name].url for name in ("a", "b")]
    async with (
        replica_of_its_own(replicas, "d") as doomed,
        session(replicas, doomed.url) as ann,
        session(replicas, doomed.url, "ben") as ben,
    ):
        ids: dict[str, list[str]] = {}
        for name, peer in (("ann", ann), ("ben", ben)):
            async with peer.asking(call("linger")) as stream:
                first = await stream.event()
                assert first is not None
                events = [await stream.event() for _ in range(3)]
                ids[name] = [first.id, *(event.id for event in events if event is not None)]
        started = await ann.say("run_command", command="sleep 60", wait_seconds=0.1)
        run = started[started.index("run-d-") :].split()[0].rstrip("],:")
        assert await missed(elsewhere(ann, others[0]), ids["ann"][0]) == (404, []), "its replica is alive"
        doomed.process.kill()
        doomed.process.wait()
        redis = Redis.from_url(replicas.redis.url)
        redis.delete("coretools:replica:d")  # what Redis does by itself when the lease expires
        for url in (*others, replicas.url):
            assert await missed(elsewhere(ann, url), ids["ann"][0]) == (200, ["one", "two", "three"])
            assert await missed(elsewhere(ann, url), ids["ann"][2]) == (200, ["three"])
            assert await missed(elsewhere(ben, url), ids["ben"][1]) == (200, ["two", "three"])
            for wrong in (ids["ben"][0], "", f"{ids['ann'][0][:-1]}9", "lost-0123456789abcdef"):
                assert await missed(elsewhere(ann, url), wrong or "0") == (404, [])
            thief = elsewhere(ann, url, **replicas.authorization("ben"))
            assert await missed(thief, ids["ann"][0]) == (404, [])
            answer = await elsewhere(ann, url).post(call("where"))
            assert (answer.status_code, answer.json()["error"]["data"]["kind"]) == (404, "unknown-session")
        redis.zrem("coretools:replicas", "d")
        async with stateless(replicas, others[0]) as peer:
            with anyio.fail_after(SECONDS):
                while "which has ended" not in (output := await peer.say("read_run", run=run)):
                    assert "belongs to replica d" in output
        async with session(replicas) as anew:
            assert await anew.say("where") in NAMES


async def test_a_replica_that_lost_its_lease_ends_its_sessions(replicas: Cluster) -> None:
    """replicas-5: by itself, when it cannot renew the lease; new sessions are its own again."""
    url = replicas.replicas["a"].url
    async with session(replicas, url) as peer:
        assert await peer.say("where") == "a"
        Redis.from_url(replicas.redis.url).delete("coretools:replica:a")
        with anyio.fail_after(SECONDS):
            while (answer := await peer.post(call("where"))).status_code == 200:
                assert answer.json()["result"]["content"][0]["text"] == "a"
        assert (answer.status_code, answer.json()["error"]["data"]["kind"]) == (404, "unknown-session")
        assert (await peer.post(call("where"))).status_code == 404
        async with session(replicas, url) as anew:
            assert await anew.say("where") == "a"
        ready = await peer.http.get(url.replace("/mcp", "/readyz"))
        assert ready.status_code == 200, ready.text


@asynccontextmanager
async def replica_of_its_own(replicas: Cluster, name: str) -> AsyncIterator[Any]:
    with replicas.replica(name) as server:
        yield server


async def test_without_redis_requests_fail_and_later_work_again(replicas: Cluster) -> None:
    """replicas-11: 503 and not ready, on every replica; only Redis is restarted."""
    async with session(replicas) as peer, stateless(replicas) as other:
        replicas.redis.kill()
        for name in NAMES:
            async with stateless(replicas, replicas.replicas[name].url) as direct:
                refused = await direct.post(call("where"))
                assert refused.status_code == 503, refused.text
        replicas.redis.start()
        with anyio.fail_after(SECONDS):
            while (answer := await other.post(call("where"))).status_code != 200:
                assert answer.status_code == 503
        answer = await peer.post(call("where"))
        assert answer.status_code in (200, 404)
        assert json.loads(answer.text)
    # Redis lost the leases. A session opened before the replica renews its lease ends then.
    redis = Redis.from_url(replicas.redis.url)
    await until(lambda: all(redis.exists(f"coretools:replica:{name}") for name in NAMES))
