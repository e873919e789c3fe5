"""`coretools mcp list`, `tools`, `ping` and `doctor`: what is configured, and how the servers are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mcp_types as types

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, connected, from_each
from coretools.cli.mcp.output import as_json, in_line, signature, table, tool_page
from coretools.cli.mcp.pipeline_display import print_checks, print_events
from coretools.client.approval.decisions import launch_digest
from coretools.client.background.client import running_servers
from coretools.client.common.errors import LoginRequired, NotTrusted
from coretools.client.configuration.places import project_of, usual_places
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.options import State
from coretools.client.connection.server_connection import Connection
from coretools.config.options import working_directory
from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.pipelines.outcome import Outcome, Step
from coretools.pipelines.runner import find_tool


async def list_servers(line: Line) -> int:
    """Print every entry with its state."""
    states: dict[str, dict[str, Any]] = {}
    async with connected(line, line.configuration.effective if line.options.connects else ()) as connections:
        for name, connection in connections.items():
            await connection.wait_settled()
            states[name] = await _state_of(connection)
    background = _background(line)
    rows = [_row(line, entry, states) | _in_background(line, entry, background) for entry in line.configuration.entries]
    if line.options.as_json:
        return print_text(as_json({"servers": rows, "problems": list(line.configuration.problems)}))
    if line.options.pipeline.output == "ndjson":
        return print_events("server", rows)
    if not rows:
        print_error("no servers are configured; `coretools mcp doctor` shows where was looked")
        return 0
    return print_text(table(_cells(rows, shows_background=bool(background)), line.width))


def _cells(rows: Sequence[Mapping[str, Any]], *, shows_background: bool) -> list[list[str]]:
    cells = [["SERVER", "STATE", "KIND", "TOOLS", "BACKGROUND", "FILE", "REASON"]]
    for row in rows:
        count = "" if row["tools"] is None else str(row["tools"])
        reason = (row["error"] or "").removeprefix(f"server {row['name']!r}: ")
        cells.append([row["name"], row["state"], row["transport"], count, _since(row), row["file"], reason])
    return cells if shows_background else [[*one[:4], *one[5:]] for one in cells]


def _background(line: Line) -> dict[str, dict[str, Any]]:
    """Return what runs in the background; nothing if there can be none, or the socket is another user's."""
    try:
        return {row["key"]: row for row in running_servers(line.environment)}
    except (BadSetting, Unreachable):
        return {}


def _in_background(line: Line, entry: ServerEntry, background: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return whether a server runs in the background, and since when."""
    one = background.get(entry.key) if entry.hidden_by is None else None
    if one is None:
        return {"background": None}
    is_same = one["digest"] == launch_digest(entry, line.environment)
    shown = {"state": one["state"], "since": one["since"], "error": one["error"], "changed": not is_same}
    return {"background": shown}


def _since(row: Mapping[str, Any]) -> str:
    one = row["background"]
    if one is None:
        return ""
    changed = "; the entry has changed, use refresh" if one["changed"] else ""
    return f"{one['state']} since {one['since']}{changed}"


async def list_tools(line: Line) -> int:
    """Print the tools of one server or of all."""
    server, name = (*line.options.words, "", "")[:2]
    lists = await from_each(line, Connection.tools)
    if name:
        lists = {server: [find_tool(lists[server], server, name)]}
    if name and line.options.pipeline.output == "text":
        return print_text(tool_page(lists[server][0]))
    return _print_tools(line, lists)


def _print_tools(line: Line, lists: Mapping[str, Sequence[types.Tool]]) -> int:
    if line.options.as_json:
        return print_text(as_json({one: list(map(_shape, tools)) for one, tools in lists.items()}))
    listed = [(one, tool) for one, tools in lists.items() for tool in tools]
    if line.options.pipeline.output == "ndjson":
        return print_events("tool", [{"server": one} | _shape(tool) for one, tool in listed])
    if line.options.pipeline.signatures:
        rows = [f"{one}: {signature(tool)}  {(tool.description or '').split('. ')[0]}" for one, tool in listed]
        return print_text("\n".join(map(in_line, rows)))
    cells = [(one, tool.name, (tool.description or "").split(". ")[0]) for one, tool in listed]
    if not cells:
        print_error("no tools are offered; `coretools mcp logs` may say why")
        return 0
    return print_text(table([("SERVER", "TOOL", "DESCRIPTION"), *cells], line.width))


def _shape(tool: types.Tool) -> dict[str, Any]:
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


async def ping(line: Line) -> int:
    """Ask servers for a sign of life; the exit code is that of the first that gives none."""
    words = dict.fromkeys(line.options.words)
    errors: dict[str, CoreError | None] = {}
    async with connected(line, [line.startable(word) for word in words] or line.configuration.effective) as connections:
        for name, connection in connections.items():
            await connection.wait_settled()
            errors[name] = None
            try:
                await connection.ping()
            except CoreError as error:
                errors[name] = error
    codes = [error.exit_code for error in errors.values() if error]
    return _print_pings(line, errors) or (codes[0] if codes else 0)


def _print_pings(line: Line, errors: Mapping[str, CoreError | None]) -> int:
    if line.options.as_json:
        rows = [{"name": name, "ok": not error, "error": error and str(error)} for name, error in errors.items()]
        return print_text(as_json(rows))
    checks = [_checked(name, name, "", error) for name, error in errors.items()]
    if line.options.pipeline.output == "text":
        print_text("\n".join(_mark(in_line(str(error or name)), is_ok=not error) for name, error in errors.items()))
    return print_checks(line, "ping", checks)


def _checked(name: str, title: str, file: str, error: CoreError | None) -> Outcome:
    """Return a check of a server as an outcome, which every report can show."""
    step = Step(id=name, server=name, tool="", name=title, file=file)
    return Outcome(step=step, status="failed" if error else "passed", error=error)


async def doctor(line: Line) -> int:
    """Print what is wrong with files, entries and servers; the exit code is that of the first problem."""
    problems = line.configuration.problems
    lines = [_mark(in_line(problem), is_ok=False) for problem in problems]
    checks = [_checked("", "configuration", "", BadSetting(problem)) for problem in problems]
    async with connected(line, line.configuration.effective) as connections:
        for entry in line.configuration.entries:
            connection = connections.get(entry.name) if entry.hidden_by is None else None
            if connection is not None:
                await connection.wait_settled()
            error = _problem(line, entry, connection)
            checks.append(_checked(entry.name, f"{entry.name} in {entry.place.path}", entry.place.path, error))
            lines += _findings(entry, connection, error)
    if not lines:
        lines = ["no servers are configured; these files are read:", *(f"        {path}" for path in _paths(line))]
    printed = print_text("\n".join(lines)) if line.options.pipeline.output == "text" else 0
    return print_checks(line, "doctor", checks) or printed


def _paths(line: Line) -> list[str]:
    home = line.environment.get("HOME", "")
    places = usual_places(project_of(working_directory(), home), line.environment)
    return [f"{in_line(place.path)} ({place.client})" for place in places]


def _problem(line: Line, entry: ServerEntry, connection: Connection | None) -> CoreError | None:
    if entry.hidden_by is not None or (entry.settings is not None and not entry.settings.is_enabled):
        return None
    return line.trust.why_not(entry) or (connection.error if connection is not None else None)


def _findings(entry: ServerEntry, connection: Connection | None, error: CoreError | None) -> Iterator[str]:
    place = in_line(f"{entry.name} in {entry.place.path}")
    if entry.hidden_by is not None:
        yield f"hidden  {place}: by {in_line(entry.hidden_by.path)}"
        return
    if entry.settings is not None and not entry.settings.is_enabled:
        yield f"off     {place}: is disabled there"
        return
    yield _mark(place + (f": {in_line(str(error))}" if error else ""), is_ok=error is None)
    for remark in (*entry.remarks, *(connection.remarks() if connection is not None else ())):
        yield f"        {in_line(remark)}"


def _mark(text: str, *, is_ok: bool) -> str:
    return f"{'ok' if is_ok else 'FAILED':<8}{text}"


async def _state_of(connection: Connection) -> dict[str, Any]:
    facts: dict[str, Any] = {"state": str(connection.state), "protocol": connection.protocol_version}
    error = connection.error
    if connection.state is State.READY:
        try:
            facts["tools"] = len(await connection.tools())
        except CoreError as failure:
            error = failure
            facts["state"] = str(State.FAILED)
    if isinstance(error, LoginRequired):
        facts["state"] = "needs login"
    facts["error"] = str(error) if error else None
    return facts | {"remarks": connection.remarks()}


def _row(line: Line, entry: ServerEntry, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    error = line.trust.why_not(entry)
    state = "hidden" if entry.hidden_by else "not started"
    if error is not None and not entry.hidden_by:
        is_off = entry.settings is not None and not entry.settings.is_enabled
        state = "disabled" if is_off else "not trusted" if isinstance(error, NotTrusted) else "invalid"
    row: dict[str, Any] = {
        "name": entry.name,
        "state": state,
        "transport": entry.settings.transport if entry.settings else "",
        "tools": None,
        "protocol": "",
        "file": entry.place.path,
        "scope": entry.place.scope,
        "error": str(error) if error else None,
        "remarks": [],
    }
    facts = states.get(entry.name, {}) if not entry.hidden_by else {}
    return row | dict(facts) | {"remarks": [*entry.remarks, *facts.get("remarks", ())]}
