"""A server whose tools another server offers: `python upstream_server.py LOG`. Its calls change it."""

import json
import os
import sys
from typing import Any

LOG = sys.argv[1] if len(sys.argv) > 1 else os.devnull
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SLOW = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a|a)*$"}}}
ANY = {"type": "object"}
tools: dict[str, dict[str, Any]] = {
    "echo": {"name": "echo", "description": "Returns its text.", "inputSchema": TEXT},
    "getIssue": {"name": "getIssue", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    "read_file": {"name": "read_file", "description": "Reads.", "inputSchema": ANY},
    "two words": {"name": "two words", "inputSchema": ANY},
    "slow_pattern": {"name": "slow_pattern", "inputSchema": SLOW},
    "bad_schema": {"name": "bad_schema", "inputSchema": {"type": "object", "properties": 5}},
    **{name: {"name": name, "inputSchema": ANY} for name in ("result", "die", "hang", "change", "progress")},
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def log(text: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def answer(number: Any, result: Any) -> None:
    send({"id": number, "result": result})


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def call(number: Any, params: dict[str, Any]) -> None:
    name, given = params["name"], params.get("arguments") or {}
    log(f"called {name}")
    if name == "result":
        answer(number, given["result"])
    elif name == "die":
        print("about to die", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "change":
        tools["echo"] = {**tools["echo"], **given}
        tools["fresh"] = {"name": "fresh", "inputSchema": ANY}
        send({"method": "notifications/tools/list_changed"})
        answer(number, text("changed"))
    elif name == "progress":
        token = params["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        send({"method": "notifications/progress", "params": progress})
        answer(number, text("done"))
    elif name != "hang":
        answer(number, text(json.dumps(given)))


def handle(message: dict[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        offered = {"tools": {"listChanged": True}}
        info = {"name": "upstream", "version": "1"}
        version = params["protocolVersion"]
        answer(number, {"protocolVersion": version, "capabilities": offered, "serverInfo": info})
    elif method == "tools/list":
        answer(number, {"tools": list(tools.values())})
    elif method == "tools/call":
        call(number, params)
    elif method == "notifications/cancelled":
        log("cancelled")
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": f"unknown method {method}"}})


log(f"started {os.getpid()}")
for line in sys.stdin:
    handle(json.loads(line))
