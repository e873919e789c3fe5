"""`coretools install --list`: which clients are here, where this server is configured, and whether it starts."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import anyio
from mcp import Client as McpClient
from mcp import MCPError, StdioServerParameters

from coretools.cli.common.terminal import aligned, for_terminal, print_text
from coretools.cli.installed_program import server_command
from coretools.client.configuration.places import Scope
from coretools.client.installation.clients import CLIENTS, Client
from coretools.client.installation.config_file import open_config
from coretools.client.installation.plan import argv_of, configured, starts_coretools
from coretools.errors import CoreError, Unreachable

ANSWER_SECONDS = 20.0
"""For one entry, from its start to the answer to the handshake."""

DOES_NOT_START = "does not start"

PROJECT_FLAGS = frozenset({"--read-only", "--no-login-path", "--no-default-deny"})
"""Options with which an entry of a project is started: others may have written that file."""

KEYS = frozenset({"type", "command", "args", "cmd", "enabled", "name", "description", "timeout"})
"""Keys of an entry that is started. Others, such as `env`, could make our program load another one's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    client: str
    scope: str
    state: str
    path: str


def listing(roots: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print a line for each file, and each entry of ours in it. Returns 0, or 69 if an entry does not start."""
    project = os.path.realpath(roots[0] if roots else os.getcwd())
    rows = [row for client in CLIENTS for row in _rows(client, project, environment)]
    if not rows:
        return print_text("no client was found; `coretools install --help` lists those that are known")
    print_text("\n".join(aligned([[for_terminal(text) for text in _cells(row)] for row in rows])))
    return Unreachable.exit_code if any(DOES_NOT_START in row.state for row in rows) else 0


def client_steps(environment: Mapping[str, str]) -> list[str]:
    """Return what a user does next about the clients on this machine. No entry is started for that."""
    added: list[Client] = []
    others: list[Client] = []
    for client in CLIENTS:
        for _, path in _files(client, os.getcwd(), environment, ("user",)):
            try:
                is_added = any(map(starts_coretools, configured(open_config(path), client).values()))
            except CoreError:
                continue
            (added if is_added else others).append(client)
    if added:
        names = ", ".join(client.title for client in added)
        return [f"nothing more for {names}: it has coretools; `coretools install --list` checks whether it starts"]
    named = [client.name for client in others] or ["CLIENT"]
    return [
        f"coretools install {named[0]} DIRECTORY: add it to a client"
        + (f"; here are also {', '.join(named[1:])}" if named[1:] else ""),
        "coretools try: see what an agent can and cannot do",
    ]


def _cells(row: _Row) -> list[str]:
    return [row.client, row.scope, row.state, row.path]


def _rows(client: Client, project: str, environment: Mapping[str, str]) -> Iterator[_Row]:
    scopes: tuple[Scope, ...] = ("user", "project") if client.project else ("user",)
    for scope, path in _files(client, project, environment, scopes):
        for state in _states(client, scope, path, project, environment):
            yield _Row(client=client.name, scope=scope, state=state, path=path)


def _files(
    client: Client, project: str, environment: Mapping[str, str], scopes: Sequence[Scope]
) -> Iterator[tuple[Scope, str]]:
    """Return the files of a client that are here, or could be: its directory is."""
    for scope in scopes:
        try:
            path = client.path(scope, project, environment, sys.platform)
        except CoreError:
            continue
        # A client that was never configured has its directory all the same.
        if not os.path.lexists(path) and (scope == "project" or not os.path.isdir(os.path.dirname(path))):
            continue
        if not os.path.lexists(path) and os.path.dirname(path) == environment.get("HOME"):
            continue
        yield scope, path


def _states(client: Client, scope: Scope, path: str, project: str, environment: Mapping[str, str]) -> Iterator[str]:
    try:
        file = open_config(path, within=project if scope == "project" else None)
        entries = configured(file, client)
    except CoreError as error:
        yield f"unusable: {str(error).removeprefix(f'{path}: ')}"
        return
    ours = {name: entry for name, entry in entries.items() if starts_coretools(entry) or name == "coretools"}
    if not ours:
        yield "not configured"
    for name, entry in ours.items():
        yield f"{name}: {_started(entry, scope, environment)}"


def _started(entry: Any, scope: Scope, environment: Mapping[str, str]) -> str:
    argv = argv_of(entry)
    if not argv:
        return "configured by address"
    if reason := _why_not_started(entry, argv, scope, environment):
        return f"configured, not started: {reason}"
    return _handshake_of(tuple(argv), tuple(environment.items()))


def _why_not_started(entry: Any, argv: Sequence[str], scope: Scope, environment: Mapping[str, str]) -> str:
    """Return why an entry is not started; empty if it is. Only this very installation is."""
    command, args = server_command(environment)
    if os.path.realpath(argv[0]) != os.path.realpath(command) or tuple(argv[1 : 1 + len(args)]) != args:
        return "it is another installation"
    if more := sorted(set(entry) - KEYS):
        return f"it has the key {more[0]!r}"
    flags = [word for word in argv[1 + len(args) :] if word.startswith("-")]
    if scope == "project" and not PROJECT_FLAGS.issuperset(flags):
        return "it is in a file of a project and has options"
    return ""


@cache  # several clients often have the same entry
def _handshake_of(argv: Sequence[str], environment: Sequence[tuple[str, str]]) -> str:
    return anyio.run(_handshake, argv, dict(environment))


async def _handshake(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    parameters = StdioServerParameters(
        command=argv[0], args=list(argv[1:]), env={"CORETOOLS_LOG_LEVEL": "error", **environment}
    )
    failure: BaseException | None = None
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            async with McpClient(parameters) as client:
                tools = (await client.list_tools()).tools
    except* (OSError, TimeoutError, MCPError) as errors:
        failure = errors.exceptions[0]
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    if failure is not None:
        return f"{DOES_NOT_START}: {str(failure) or type(failure).__name__}"
    return f"starts, {len(tools)} tools"
