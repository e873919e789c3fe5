"""`coretools mcp start`, `stop`, `restart` and `refresh`: servers that stay connected in the background."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anyio import to_thread

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, ask_inputs
from coretools.cli.mcp.output import as_json, in_line
from coretools.client.approval.decisions import launch_digest
from coretools.client.background import client
from coretools.client.configuration.places import project_of
from coretools.client.configuration.server_entries import ServerEntry
from coretools.config.options import working_directory
from coretools.errors import InvalidArguments, exit_code_of

IDLE_SECONDS = 28_800.0
"""Without any use the background process ends after eight hours."""

Row = Mapping[str, Any]


async def start(line: Line) -> int:
    """Start servers in the background: those that are named, or all that may be started."""
    words = list(dict.fromkeys(line.options.words))
    entries = [line.startable(word) for word in words] or _startable(line)
    if not entries:
        raise InvalidArguments("no server may be started; `coretools mcp list` says why")
    return await _start_all(line, entries, {}, follows=not words)


async def stop(line: Line) -> int:
    """Stop servers in the background: those that are named, or all of this user."""
    rows = client.running_servers(line.environment)
    keys = None
    if line.options.words:
        keys = [row["key"] for word in line.options.words for row in _named(line, rows, word)]
    answer = client.request(line.environment, {"do": "stop", "keys": keys}, None)
    names = answer["stopped"] if answer else []
    return _print(line, {name: {"change": "stopped"} for name in names})


async def restart(line: Line) -> int:
    """Stop servers and start them again with the entries that they have now."""
    rows = client.running_servers(line.environment)
    words = dict.fromkeys(line.options.words or [row["name"] for row in _of_this_configuration(line, rows)])
    entries = [line.startable(word) for word in words]
    return await _start_all(line, entries, {}, follows=None, replaces=True)


async def refresh(line: Line) -> int:
    """Follow a changed configuration: restart what changed, stop what is gone, start what is new."""
    rows = _of_this_configuration(line, client.running_servers(line.environment))
    words = line.options.words
    chosen = [row for word in words for row in _named(line, rows, word)] if words else rows
    startable = {entry.key: entry for entry in _startable(line)}
    changed = _changed(line, chosen, startable)
    gone = [row for row in chosen if row["key"] not in startable]
    outcomes = {row["name"]: {"change": "stopped" if row in gone else "kept"} for row in chosen}
    # Started before the others are stopped: without a server the background process ends.
    code = await _start_all(line, [*changed, *_new(startable, rows, words)], outcomes, follows=None)
    if gone:
        wanted = {"do": "stop", "keys": [row["key"] for row in gone]}
        client.request(line.environment, wanted, None)
    return code


def _changed(line: Line, rows: Sequence[Row], startable: Mapping[str, ServerEntry]) -> list[ServerEntry]:
    """Return the entries of servers that run with another entry, or no longer."""
    entries = [(row, startable[row["key"]]) for row in rows if row["key"] in startable]
    return [
        entry
        for row, entry in entries
        if row["digest"] != launch_digest(entry, line.environment) or row["state"] not in ("ready", "connecting")
    ]


def _new(startable: Mapping[str, ServerEntry], rows: Sequence[Row], words: Sequence[str]) -> list[ServerEntry]:
    """Return what does not run, if all servers of the configuration were started."""
    known = {row["key"] for row in rows}
    follows = not words and any(row["follows"] for row in rows)
    return [entry for key, entry in startable.items() if key not in known] if follows else []


def _startable(line: Line) -> list[ServerEntry]:
    return [entry for entry in line.configuration.effective if line.trust.why_not(entry) is None]


def _config_of(line: Line) -> str | None:
    return None if line.options.config is None else os.path.join(working_directory(), line.options.config)


def _of_this_configuration(line: Line, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    project = project_of(working_directory(), line.environment.get("HOME", ""))
    return [row for row in rows if row["config"] == _config_of(line) and row["project"] == project]


def _named(line: Line, rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the servers of a name, of this configuration if it has one.

    Raises:
        InvalidArguments: none runs.
    """
    named = [row for row in rows if row["name"] == name]
    if not named:
        names = ", ".join(dict.fromkeys(row["name"] for row in rows)) or "none"
        raise InvalidArguments(f"no server {name!r} runs in the background; there are: {names}")
    return [row for row in named if row in _of_this_configuration(line, rows)] or named


async def _start_all(
    line: Line,
    entries: Sequence[ServerEntry],
    outcomes: dict[str, dict[str, Any]],
    *,
    follows: bool | None,
    replaces: bool = False,
) -> int:
    """Start servers one after the other, and print what was done with each; `follows` None leaves it as it was."""
    before = {row["key"]: row for row in client.running_servers(line.environment)}
    if follows is None:
        follows = any(row["follows"] for row in _of_this_configuration(line, list(before.values())))
    code = 0
    for entry in entries:
        await ask_inputs(line, entry)
        wanted = _start_request(line, entry) | {"follows": follows, "replaces": replaces}
        begin = partial(client.start, line.environment, wanted, line.options.idle_seconds or IDLE_SECONDS)
        answer = await to_thread.run_sync(begin, abandon_on_cancel=True)
        code = code or (exit_code_of(answer["kind"]) if "error" in answer else 0)
        outcomes[entry.name] = _outcome(answer, was_there=entry.key in before)
    return _print(line, outcomes) or code


def _outcome(answer: Mapping[str, Any], *, was_there: bool) -> dict[str, Any]:
    if "error" in answer:
        return {"change": "failed", "error": answer["error"]}
    if answer["was_running"]:
        return {"change": "kept"}
    return {"change": "restarted" if was_there else "started"}


def _start_request(line: Line, entry: ServerEntry) -> dict[str, Any]:
    return {
        "do": "start",
        "name": entry.name,
        "directory": working_directory(),
        "config": _config_of(line),
        "environment": dict(line.environment),
        "inputs": line.options.inputs,
        "digest": launch_digest(entry, line.environment),
        "samples": line.samples,
        "confined": [f"{name}={access}" for name, access in line.containment.confined.items()],
        "unconfined": sorted(line.containment.unconfined),
        "connect_seconds": line.options.connect_seconds,
    }


def _print(line: Line, outcomes: Mapping[str, Mapping[str, Any]]) -> int:
    if line.options.as_json:
        return print_text(as_json({"servers": outcomes}))
    if not outcomes:
        print_error("no server runs in the background; `coretools mcp start` starts them")
    for name, one in outcomes.items():
        if "error" in one:
            print_error(in_line(str(one["error"])))
        else:
            print_text(f"{one['change']:<10}{in_line(name)}")
    return 0
