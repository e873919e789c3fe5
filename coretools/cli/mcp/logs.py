"""`coretools mcp logs`: what servers wrote to standard error, and their log messages."""

import sys
from collections.abc import Sequence

import anyio

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line
from coretools.cli.mcp.output import as_json, in_line
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.connection.server_log import LogDirectory, LogFollower

LINES = 100
"""Printed without an option."""

POLL_SECONDS = 0.25
"""Between two looks at files that are followed."""


async def logs(line: Line) -> int:
    """Print the last lines of one server or of all, and then, if they are followed, each new one."""
    words = line.options.words
    entries = [line.entry(words[0])] if words else list(line.configuration.effective)
    directory = LogDirectory(line.environment)
    followers = {entry.name: directory.follower(entry) for entry in entries}
    lines = _last_lines(directory, entries, LINES if line.options.lines is None else line.options.lines)
    if line.options.as_json and not line.options.follow:
        return print_text(as_json([_fields(name, text) for text, name in lines]))
    if not lines and not line.options.follow:
        print_error("no server has written anything yet")
    _print(lines, entries)
    if line.options.follow:
        await _follow(followers, entries)
    return 0


def _last_lines(directory: LogDirectory, entries: Sequence[ServerEntry], count: int) -> list[tuple[str, str]]:
    """Return the last lines of several servers by time, each with the name of its server."""
    lines = [(text, entry.name) for entry in entries for text in directory.lines(entry, count)]
    lines.sort(key=lambda one: one[0][:20])
    return lines[max(0, len(lines) - count) :]


def _fields(name: str, text: str) -> dict[str, str]:
    time, source, rest = (*text.split(" ", 2), "", "")[:3]
    return {"server": name, "time": time, "source": source, "text": rest}


def _print(lines: Sequence[tuple[str, str]], entries: Sequence[ServerEntry]) -> None:
    for text, name in lines:
        print_text(in_line(text if len(entries) == 1 else f"{name}: {text}"))


async def _follow(followers: dict[str, LogFollower], entries: Sequence[ServerEntry]) -> None:
    """Print new lines until a signal ends it."""
    while True:
        for name, follower in followers.items():
            _print([(text, name) for text in follower.new_lines()], entries)
        sys.stdout.flush()
        await anyio.sleep(POLL_SECONDS)
