"""A server of the older era that sends its client the request that a call names: `python asking.py [LOG]`.

The tool `ask` takes a method and its parameters, and returns the client's answer as JSON. `wait` asks and never answers
the call.
"""

import json
import os
import sys
from typing import Any

LOG = sys.argv[1] if len(sys.argv) > 1 else os.devnull
SCHEMA = {
    "type": "object",
    "properties": {"method": {"type": "string"}, "params": {"type": "object"}, "logs": {"type": "array"}},
}
calls: dict[Any, Any] = {}
capabilities: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def log(text: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def answer(number: Any, result: Any) -> None:
    send({"id": number, "result": result})


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def call(number: Any, name: str, given: dict[str, Any]) -> None:
    for entry in given.get("logs", ()):
        send({"method": "notifications/message", "params": entry})
    if "method" not in given:
        answer(number, text(capabilities))
        return
    request = f"ask-{number}"
    calls[request] = number if name == "ask" else None
    send({"id": request, "method": given["method"], "params": given.get("params", {})})
    log("asked")


def handle(message: dict[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        waiting = calls.pop(number, None)
        if waiting is not None:
            answer(waiting, text(message.get("result") or {"error": message.get("error")}))
    elif method == "initialize":
        capabilities.update(params["capabilities"])
        offered = {"tools": {}, "logging": {}}
        info = {"name": "asking", "version": "1"}
        answer(number, {"protocolVersion": params["protocolVersion"], "capabilities": offered, "serverInfo": info})
    elif method == "tools/list":
        answer(number, {"tools": [{"name": name, "inputSchema": SCHEMA} for name in ("ask", "wait")]})
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments") or {})
    elif method == "notifications/cancelled":
        log("cancelled")
    elif method == "logging/setLevel":
        capabilities["level"] = params["level"]
        answer(number, {})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": f"unknown method {method}"}})


for line in sys.stdin:
    handle(json.loads(line))
