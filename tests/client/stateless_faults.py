"""A server of the stateless era, by hand: `endless` asks again after every answer, `needs` requires capabilities."""

import json
import sys
from typing import Any

COMPLETE: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("endless", "needs")]
REQUIRED = {"sampling": {}, "extensions": {"com.example/maps": {}}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        return {"result": {**COMPLETE, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    if method == "tools/list":
        return {"result": {**COMPLETE, "tools": TOOLS}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Unknown"}}
    if params["name"] == "needs":
        return {"error": {"code": -32021, "message": "Not like this", "data": {"requiredCapabilities": REQUIRED}}}
    return {"result": {"resultType": "input_required", "requestState": "again"}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params") or {})}
        print(json.dumps(reply), flush=True)
