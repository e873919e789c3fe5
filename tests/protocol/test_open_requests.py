"""Unanswered requests of one connection, over the pipes of a real server (docs/specs/workstation.md)."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.peer import ENVELOPE, Peer, marker, peer, wait_until_none, wait_until_some

INVALID_REQUEST, INTERNAL = -32600, -32603


def send(client: Peer, number: int | str, method: str, **params: object) -> None:
    client.send_line(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())


def sleeping(seconds: str) -> dict[str, Any]:
    return {"name": "run_command", "arguments": {"command": f"sleep {seconds}"}}


def rest(client: Peer) -> list[dict[str, Any]]:
    """What still arrives until the server closes its end."""
    messages = []
    while True:
        try:
            messages.append(client.receive())
        except EOFError:
            return messages


@pytest.mark.parametrize("end", ["input", "TERM", "INT"])
def test_open_requests_are_answered_at_the_end(tmp_path: Path, end: str) -> None:
    """workstation-20: a stream of notifications with its result, a call with an error; once each, nothing after it."""
    seconds = marker()
    with peer(tmp_path, "--limit", "grace_seconds=0.3") as client:
        send(client, 1, "subscriptions/listen", notifications={"toolsListChanged": True}, _meta=ENVELOPE)
        assert client.receive()["method"] == "notifications/subscriptions/acknowledged"
        send(client, "two", "tools/call", **sleeping(seconds), _meta=ENVELOPE)
        wait_until_some(f"sleep {seconds}", 1)
        if end == "input":
            assert client.process.stdin is not None
            client.process.stdin.close()
        else:
            client.process.send_signal(getattr(signal, f"SIG{end}"))
        answers = {message["id"]: message for message in rest(client)}
        assert client.process.wait(60) == {"input": 0, "TERM": 143, "INT": 130}[end]
        assert wait_until_none(f"sleep {seconds}") == []
    assert set(answers) == {1, "two"}
    assert answers[1]["result"]["resultType"] == "complete"
    assert answers[1]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
    assert answers["two"]["error"]["code"] == INTERNAL
    assert answers["two"]["error"]["data"] == {"kind": "server-ends"}


def test_requests_piped_into_a_server_are_answered(tmp_path: Path) -> None:
    """workstation-20: requests that are open when the input ends may complete for a moment."""
    (tmp_path / "file").write_text("here")
    with peer(tmp_path) as client:
        client.start_session()
        client.call("read_file", path="file")  # the first call loads what the next needs, and the moment is short
        send(client, 5, "tools/call", name="read_file", arguments={"path": "file"})
        assert client.process.stdin is not None
        client.process.stdin.close()
        [answer] = rest(client)
    assert "here" in answer["result"]["content"][0]["text"]


def test_an_id_is_one_request_and_only_that_id_cancels_it(tmp_path: Path) -> None:
    """workstation-21: neither the text of a number nor another spelling of it; a second request with it is refused."""
    seconds = marker()
    with peer(tmp_path, "--limit", "grace_seconds=0.3") as client:
        client.start_session()
        send(client, 73, "tools/call", **sleeping(seconds))
        wait_until_some(f"sleep {seconds}", 1)
        for other in ("73", " 73", "7_3", 73.0, True, None, [73], "x"):
            client.notify("notifications/cancelled", {"requestId": other})
        for again in (73, "73"):
            send(client, again, "ping")
            refused = client.receive()
            assert (refused["id"], refused["error"]["code"]) == (again, INVALID_REQUEST)
            assert refused["error"]["data"] == {"kind": "id-in-use"}
        wait_until_some(f"sleep {seconds}", 1)
        client.notify("notifications/cancelled", {"requestId": 73})
        assert wait_until_none(f"sleep {seconds}") == []
        send(client, 73, "ping")
        assert client.receive() == {"jsonrpc": "2.0", "id": 73, "result": {}}
        assert client.end() == 0
