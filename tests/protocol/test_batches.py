"""Batches of messages over the pipes of a real server (docs/specs/workstation.md); over HTTP in `web/test_eras.py`."""

import json
from pathlib import Path
from typing import Any

import pytest

from coretools.protocol.stdio.lines import MAX_BATCHED
from tests.protocol.peer import HANDSHAKE, Peer, peer


def begun(client: Peer, revision: str) -> None:
    assert client.ask("initialize", {**HANDSHAKE, "protocolVersion": revision})["result"]["protocolVersion"] == revision
    client.notify("notifications/initialized")


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_a_batch_is_served_if_the_revision_has_batches(tmp_path: Path) -> None:
    """workstation-22: each message by itself; a bad one is refused with its id, and what is no batch as a whole."""
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
    batch = [request(100, "ping"), notification, request(101, "tools/list"), {"jsonrpc": "1.0", "id": 102}]
    with peer(tmp_path) as client:
        begun(client, "2025-03-26")
        client.send_line(json.dumps(batch).encode())
        answers = {message["id"]: message for message in (client.receive() for _ in range(3))}
        assert answers[100]["result"] == {}
        assert answers[101]["result"]["tools"]
        assert answers[102]["error"]["code"] == -32600
        for bad in (
            [],
            [1],
            [[request(103, "ping")]],
            [request(103, "initialize", **HANDSHAKE)],
            [request(number, "ping") for number in range(MAX_BATCHED + 1)],
        ):
            client.send_line(json.dumps(bad).encode())
            refused = client.receive()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600), bad
        client.send_line(json.dumps([request(number, "ping") for number in range(MAX_BATCHED)]).encode())
        assert {client.receive()["id"] for _ in range(MAX_BATCHED)} == set(range(MAX_BATCHED))


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_if_the_revision_has_none(tmp_path: Path, revision: str) -> None:
    """workstation-22: as a whole, and nothing of it is executed."""
    with peer(tmp_path) as client:
        begun(client, revision)
        client.send_line(json.dumps([request(100, "ping")]).encode())
        refused = client.receive()
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert client.ask("ping")["result"] == {}
