"""Where the known clients keep their configuration, for a user and for a project."""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Scope = Literal["project", "user"]

TYPED = "--url"
"""In place of a client: the address was typed."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file that may name servers."""

    path: str
    scope: Scope
    client: str
    """Whose file it is."""
    is_shared: bool = False
    """The file has other settings too, so that its other keys are not reported."""
    option: str = ""
    """What a line adds to read this file, ` --config FILE`, or to use the address that was typed; empty if neither."""


def project_of(directory: str, home: str) -> str:
    """Return the directory of the project: the nearest one with a `.git`, else `directory`.

    The home directory is not a project: its files are the user's.
    """
    at = os.path.realpath(directory)
    home = os.path.realpath(home) if home else ""
    above = at
    while above != home:
        if os.path.lexists(os.path.join(above, ".git")):
            return above
        parent = os.path.dirname(above)
        if parent == above:
            break
        above = parent
    return at


def widest_project(directory: str, home: str) -> str:
    """Return the outermost directory with a `.git` around `directory`, else `directory`.

    What somebody may write in a project includes a `.git` further in, which would make the project appear smaller.
    """
    at = project = os.path.realpath(directory)
    while is_project(at, home):
        project = at if os.path.lexists(os.path.join(at, ".git")) else project
        at = os.path.dirname(at)
    return project


def usual_places(project: str, environment: Mapping[str, str]) -> Iterator[Place]:
    """Yield the usual files, those that take precedence first."""
    home = environment.get("HOME", "")
    if is_project(project, home):
        yield from _project_places(project)
    if os.path.isabs(home):
        yield from _user_places(home, environment)


def _project_places(project: str) -> Iterator[Place]:
    for client, name, is_shared in (
        ("Claude Code", ".mcp.json", False),
        ("coretools", "mcp.json", False),
        ("VS Code", ".vscode/mcp.json", False),
        ("Cursor", ".cursor/mcp.json", False),
        ("Gemini", ".gemini/settings.json", True),
        ("Codex", ".codex/config.toml", True),
    ):
        yield Place(os.path.join(project, name), "project", client, is_shared)


def _user_places(home: str, environment: Mapping[str, str]) -> Iterator[Place]:
    configuration = _absolute(environment.get("XDG_CONFIG_HOME")) or os.path.join(home, ".config")
    applications = os.path.join(home, "Library", "Application Support")  # macOS
    codex = _absolute(environment.get("CODEX_HOME")) or os.path.join(home, ".codex")
    for client, above, name, is_shared in (
        ("coretools", configuration, "coretools/mcp.json", False),
        ("coretools", home, "mcp.json", False),
        ("Claude Code", home, ".claude.json", True),
        ("VS Code", configuration, "Code/User/mcp.json", False),
        ("VS Code", applications, "Code/User/mcp.json", False),
        ("Claude Desktop", configuration, "Claude/claude_desktop_config.json", True),
        ("Claude Desktop", applications, "Claude/claude_desktop_config.json", True),
        ("Cursor", home, ".cursor/mcp.json", False),
        ("Gemini", home, ".gemini/settings.json", True),
        ("Codex", codex, "config.toml", True),
    ):
        yield Place(os.path.join(above, name), "user", client, is_shared)


def named_place(path: str, project: str, home: str) -> Place:
    """Return the place of a file that the user named. One beneath the project belongs to the project."""
    above = widest_project(project, home)
    # By its place and by what it links to: a link in a project may lead to another file that somebody prepared.
    here = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    is_beneath = is_project(project, home) and (_is_beneath(here, above) or _is_beneath(os.path.realpath(path), above))
    client = "Gemini" if path.endswith(".gemini/settings.json") else "--config"
    scope: Scope = "project" if is_beneath else "user"
    path = os.path.abspath(path)
    return Place(path, scope, client, is_shared=client == "Gemini", option=f" --config {shlex.quote(path)}")


def typed_name(url: str) -> str:
    """Return the name of a server whose address was typed: its host."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2] or "url"


def is_project(directory: str, home: str) -> bool:
    """Whether files in a directory may come from somebody else: not if the home directory lies in it."""
    real = os.path.realpath(directory)
    return real != "/" and not (home and _is_beneath(os.path.realpath(home), real))


def _is_beneath(path: str, directory: str) -> bool:
    return os.path.commonpath((path, directory)) == directory


def _absolute(path: str | None) -> str | None:
    return path if path and os.path.isabs(path) else None
