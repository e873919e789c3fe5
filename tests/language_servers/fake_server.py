"""A language server that does what its project tells it: planted as a program of the project."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

PLAN = json.loads(Path("plan.json").read_text())
MODE = PLAN["mode"]
ASKED: list[object] = []
TEXTS: list[str] = []
OPEN: dict[str, list[str]] = {}
"""The lines of the open documents."""
PULL = {"diagnosticProvider": {}}


def send(message: dict[str, object]) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
    sys.stdout.buffer.flush()


def receive() -> dict[str, object]:
    length = 0
    while line := sys.stdin.buffer.readline():
        if line == b"\r\n":
            return dict(json.loads(sys.stdin.buffer.read(length)))
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    sys.exit(0)


def reached() -> list[str]:
    """What this process could reach of what it must not."""
    found = []
    for name in ("home", "other_root", "hidden"):
        with suppress(OSError):
            found.append(name + Path(PLAN[name]).read_text())
    for name in ("written", "home_written", "other_written"):
        try:
            Path(PLAN[name]).write_text("x")
            if name != "home_written":  # the sandbox has a home of its own, at the same path
                found.append(name)
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", PLAN["port"]), 2).close()
        found.append("network")
    except OSError:
        pass
    found += [name for name in os.environ if name == "PASSED_SECRET"]
    return found


def attack() -> str:
    subprocess.Popen(["sleep", PLAN["marker"]], start_new_session=True)
    replies = []
    edit = {"changes": {Path("a.py").absolute().as_uri(): []}}
    for number, (method, params) in enumerate(
        (("workspace/applyEdit", {"edit": edit}), ("workspace/executeCommand", {"command": "rm"}))
    ):
        send({"id": f"x{number}", "method": method, "params": params})
        while (message := receive()).get("id") != f"x{number}":
            pass
        replies.append(json.dumps(message.get("result") or message.get("error")))
    return f"REACHED {reached()} REPLIES {replies}"


def crash() -> None:
    print("no memory left", file=sys.stderr)
    os._exit(3)


def garbage() -> None:
    sys.stdout.write("Traceback (most recent call last):\n" * 100)
    sys.stdout.flush()


def flood() -> None:
    while True:
        send({"method": "window/logMessage", "params": {"type": 3, "message": "x" * 1_000_000}})


def spin() -> None:
    while True:
        pass


def memory() -> None:
    kept = bytearray(1 << 30)
    print(len(kept), file=sys.stderr)
    os._exit(4)


FAILURES = {
    "spin": spin,
    "memory": memory,
    "crash": crash,
    "garbage": garbage,
    "flood": flood,
    "hang": partial(time.sleep, 1000),
}


EDITED = {
    "zero": [],
    "stale": [{"start": {"line": 3, "character": 0}, "end": {"line": 3, "character": 5}}],
    "outside": [{"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 9}}],
}


def rename() -> object:
    target = "file:///etc/passwd" if MODE == "outside" else Path("a.py").absolute().as_uri()
    return {"changes": {target: [{"range": one, "newText": "other"} for one in EDITED[MODE]]}}


RESULTS = {
    "textDocument/rename": rename,
    "textDocument/references": lambda: [one for uri in OPEN for one in mentions(uri)],
    "workspace/executeCommand": lambda: {"body": {"fileNames": [str(Path("known.ts").absolute())]}},
}


def mentions(uri: str) -> list[dict[str, object]]:
    """The lines of an open document that begin with the name."""
    found = [number for number, line in enumerate(OPEN[uri]) if line.startswith("parse")]
    ranges = [{"start": {"line": one, "character": 0}, "end": {"line": one, "character": 5}} for one in found]
    return [{"uri": uri, "range": one} for one in ranges]


def introduce(number: object) -> None:
    if MODE != "pushes":
        words = f"can't\nread: {PLAN['complaint']}"
        send({"method": "window/showMessage", "params": {"type": 1, "message": words}})
    known = {"referencesProvider": True, "renameProvider": True, **({} if MODE == "pushes" else PULL)}
    send({"id": number, "result": {"capabilities": {**known, "positionEncoding": "utf-32"}}})
    if MODE == "indexing":
        send({"method": "$/progress", "params": {"token": 1, "value": {"kind": "begin", "title": "Reading"}}})
    if MODE == "unloaded":
        failed = {"kind": "begin", "title": "Error loading workspace", "message": "go.mod"}
        send({"method": "$/progress", "params": {"token": 1, "value": failed}})


def answered(number: object, method: str, params: object) -> None:
    if method == "initialize":
        introduce(number)
    elif MODE in FAILURES:
        FAILURES[MODE]()
    elif MODE == "attack":
        send({"id": number, "error": {"code": 1, "message": attack()}})
    elif MODE == "late" and method == "textDocument/diagnostic":
        ASKED.append(number)
        if len(ASKED) % 2:
            here = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 9}}
            item = {"range": here, "message": f"asked {len(ASKED)} times", "severity": 1}
            send({"id": number, "result": {"kind": "full", "items": [item]}})
    elif MODE == "parts" and method == "workspace/executeCommand":
        kind = params["arguments"][0]  # type: ignore[index]
        found = {"start": {"line": 1}, "text": TEXTS[-1], "code": 2322, "category": "error"}
        send({"id": number, "result": {"body": [found] if kind == "semanticDiagnosticsSync" else []}})
    elif method in RESULTS and MODE in ("separate", *EDITED):
        send({"id": number, "result": RESULTS[method]()})
    else:
        send({"id": number, "result": {"shape": "of nothing"}})


def noticed(method: str, params: dict[str, Any]) -> None:
    """As typescript-language-server: what is wrong comes in parts, and nothing is wrong with what is closed."""
    if method in ("textDocument/didOpen", "textDocument/didChange"):
        changes = params.get("contentChanges") or [params["textDocument"]]
        TEXTS.append(changes[0]["text"])
        OPEN[params["textDocument"]["uri"]] = TEXTS[-1].split("\n")
        if MODE == "pushes":
            checked(params["textDocument"]["uri"])
    if method == "textDocument/didClose":
        del OPEN[params["textDocument"]["uri"]]
    if MODE == "parts" and method.startswith("textDocument/"):
        uri = params["textDocument"]["uri"]
        send({"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "diagnostics": []}})


def checked(uri: str) -> None:
    """Send one diagnostic, the text of another file as it is now, and what is wrong with the project."""
    start = {"line": 0, "character": 0}
    one = {"range": {"start": start, "end": start}, "message": Path("other.py").read_text()}
    status = {"health": "warning", "quiescent": True, "message": "can't read\n the manifest"}
    send({"method": "experimental/serverStatus", "params": status})
    send({"method": "textDocument/publishDiagnostics", "params": {"uri": uri, "diagnostics": [one]}})


while True:
    message = receive()
    if "id" not in message:
        noticed(str(message["method"]), message["params"])  # type: ignore[arg-type]
    if "id" in message and "method" in message:
        answered(message["id"], str(message["method"]), message.get("params"))
