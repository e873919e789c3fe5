"""Read the configurations of MCP servers, in the dialects of the known clients, and layer them.

A file or an entry that can't be used is reported and never hides the others. Nothing is started here, and no variable
is replaced: that happens when a server is started (`launch`).
"""

import hashlib
import json
import os
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coretools.client.common.bounded_file import read_bounded
from coretools.client.configuration.json_with_comments import parse_json
from coretools.client.configuration.places import TYPED, Place, named_place, project_of, typed_name, usual_places
from coretools.client.configuration.settings_schema import ServerSettings, parse_settings, remarks_about
from coretools.errors import BadSetting

MAX_NAME = 128
"""Characters of the name of a server."""

MAX_SERVERS = 500
"""Servers of one file."""

_FILE_KEYS = frozenset({"servers", "mcpServers", "inputs", "$schema", "sandbox"})
"""Keys of a file that holds nothing but servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInput:
    """A value that a file asks the user for."""

    id: str
    description: str = ""
    default: str | None = None
    is_secret: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """One server as a file describes it."""

    name: str
    place: Place
    project: str
    """Directory of the project, in which its own servers run; `${workspaceFolder}` stands for it."""
    raw: Any
    inputs: Mapping[str, ServerInput] = field(default_factory=dict)
    settings: ServerSettings | None = None
    """None if the entry can't be used; `error` has the reason."""
    error: str = ""
    remarks: tuple[str, ...] = ()
    hidden_by: Place | None = None
    """The file with an entry of this name that takes precedence."""

    @property
    def key(self) -> str:
        """What tells this entry from every other of the user: its name, its file and its project."""
        return json.dumps([self.name, self.place.path, self.project])

    @property
    def words(self) -> str:
        """What a line of `coretools mcp` writes to mean this entry."""
        return self.place.option.strip() if self.place.client == TYPED else shlex.quote(self.name) + self.place.option


@dataclass(frozen=True, slots=True)
class Configuration:
    """What all files say, those entries first that take precedence."""

    entries: tuple[ServerEntry, ...]
    problems: tuple[str, ...]
    """Files that can't be used, each with its reason, and keys of files that are unknown."""

    @property
    def effective(self) -> tuple[ServerEntry, ...]:
        """The entries that no other one hides."""
        return tuple(entry for entry in self.entries if entry.hidden_by is None)

    def find(self, name: str) -> ServerEntry | None:
        """Return the entry of this name that takes precedence."""
        return next((entry for entry in self.effective if entry.name == name), None)


def load_configuration(directory: str, environment: Mapping[str, str], *, file: str | None = None) -> Configuration:
    """Read the file that the user names, or else the usual ones of the project and the user.

    Raises:
        BadSetting: the named file can't be read, or names no servers.
    """
    home = environment.get("HOME", "")
    project = project_of(directory, home)
    if file is None:
        places = [place for place in usual_places(project, environment) if os.path.lexists(place.path)]
    else:
        places = [named_place(os.path.join(directory, file), project, home)]
    entries: list[ServerEntry] = []
    problems: list[str] = []
    for place in places:
        of_place, faults = _read(place, project)
        entries += of_place
        problems += faults
    if file is not None and not entries:
        no_servers = f"{places[0].path}: names no servers; expected `servers`, `mcpServers` or [mcp_servers]"
        raise BadSetting("; ".join(problems) or no_servers)
    return Configuration(_layered(entries), tuple(problems))


def typed_configuration(url: str, directory: str, environment: Mapping[str, str]) -> Configuration:
    """Return one server of the user, whose address was typed."""
    place = Place("the command line", "user", TYPED, option=f" --url {shlex.quote(url)}")
    project = project_of(directory, environment.get("HOME", ""))
    return Configuration((_entry(typed_name(url), {"url": url}, {}, place=place, project=project),), ())


def digest_of(entry: ServerEntry, environment_file: bytes = b"") -> str:
    """Identify what an entry starts: its name, its text, the inputs it may use, its project, its `envFile`."""
    inputs = {one.id: [one.default, *one.options] for one in entry.inputs.values()}
    project = os.path.realpath(entry.project) if entry.place.scope == "project" else ""
    facts = [entry.name, entry.raw, inputs, project, hashlib.sha256(environment_file).hexdigest()]
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _layered(entries: Iterable[ServerEntry]) -> tuple[ServerEntry, ...]:
    first: dict[str, Place] = {}
    layered = []
    for entry in entries:
        layered.append(replace(entry, hidden_by=first.get(entry.name)))
        first.setdefault(entry.name, entry.place)
    return tuple(layered)


def _read(place: Place, project: str) -> tuple[list[ServerEntry], list[str]]:
    """Return the entries of a file, and what is wrong with the file."""
    try:
        content, problems = _parse(place)
        tables = list(_tables(content, project))
        inputs = _inputs(content.get("inputs"))
    except BadSetting as error:
        return [], [str(error)]
    if not place.is_shared and place.path.endswith(".json"):
        problems += [f"{place.path}: unknown key {key!r}" for key in content if key not in _FILE_KEYS | {"mcp"}]
    entries: list[ServerEntry] = []
    for key, table in tables:
        if not isinstance(table, dict):
            problems.append(f"{place.path}: {key}: must be an object with a key for each server")
            continue
        if len(table) > MAX_SERVERS:
            problems.append(f"{place.path}: {key}: has {len(table)} servers; the first {MAX_SERVERS} are used")
        named = list(table.items())[:MAX_SERVERS]
        entries += [_entry(name, raw, inputs, place=place, project=project) for name, raw in named]
    return entries, problems


def _parse(place: Place) -> tuple[dict[str, Any], list[str]]:
    data = read_bounded(place.path)
    try:
        text = data.decode("utf-8-sig")
        if place.path.endswith(".toml"):
            return tomllib.loads(text), []
        content, twice = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{place.path}: {str(error) or 'nested too deeply'}") from error
    if not isinstance(content, dict):
        raise BadSetting(f"{place.path}: must be an object")
    return content, [f"{place.path}: the key {key!r} occurs twice in one object; the last one counts" for key in twice]


def _tables(content: Mapping[str, Any], project: str) -> Iterable[tuple[str, Any]]:
    """Yield the tables of servers, those first that take precedence."""
    projects = content.get("projects")  # Claude Code's servers of one project, in the user's file
    local = projects.get(project) if isinstance(projects, dict) else None
    nested = content.get("mcp")  # the settings of VS Code
    for key, holder in (
        ("mcpServers", local),
        ("servers", content),
        ("mcpServers", content),
        ("mcp_servers", content),
        ("servers", nested),
    ):
        if isinstance(holder, dict) and key in holder:
            yield key, holder[key]


def _entry(name: str, raw: Any, inputs: Mapping[str, ServerInput], *, place: Place, project: str) -> ServerEntry:
    entry = ServerEntry(name=name, place=place, project=project, raw=raw, inputs=inputs)
    if not name or len(name) > MAX_NAME:
        return replace(entry, error=f"the name of a server has 1 to {MAX_NAME} characters")
    try:
        settings = parse_settings(raw)
    except BadSetting as error:
        return replace(entry, error="; ".join([str(error), *(remarks_about(raw) if isinstance(raw, dict) else ())]))
    return replace(entry, settings=settings, remarks=tuple(remarks_about(raw)))


def _inputs(raw: Any) -> dict[str, ServerInput]:
    """Read `inputs`; an unusable one is left out, and then missing where it is used."""
    inputs = {}
    for one in raw if isinstance(raw, list) else ():
        if isinstance(one, dict) and isinstance(one.get("id"), str) and one.get("type") != "command":
            default = one.get("default")
            options = one.get("options")
            inputs[one["id"]] = ServerInput(
                id=one["id"],
                description=str(one.get("description") or ""),
                default=default if isinstance(default, str) else None,
                is_secret=one.get("password") is True,
                options=tuple(map(_option, options)) if isinstance(options, list) else (),
            )
    return inputs


def _option(option: Any) -> str:
    return str(option.get("value", "")) if isinstance(option, dict) else str(option)
