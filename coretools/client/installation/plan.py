"""What `coretools install` and its `--undo` would change in a configuration file, as texts. Writes nothing.

An undo gives back the bytes from before, if nothing but our entry was changed since; else it removes the entry, or puts
the one back that it had replaced, and leaves the rest as it is now.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from coretools.client.common.secret_values import secret_words
from coretools.client.configuration.settings_schema import texts_in
from coretools.client.installation import json_text, toml_text, yaml_text
from coretools.client.installation.clients import Address, Client, Server
from coretools.client.installation.config_file import ConfigFile, read_backup
from coretools.errors import AlreadyExists, BadSetting, NotFound, WrongType
from coretools.redaction.redactor import Redactor

PROGRAM = "coretools-workstation"
"""The server that clients start, and the package that has it."""

MAX_SHOWN = 300
"""Characters of an entry in a message."""


class _Editor(Protocol):
    """A module that edits a format."""

    @property
    def entries(self) -> Callable[[str, Sequence[str]], dict[str, Any]]: ...

    @property
    def insert(self) -> Callable[[str, Sequence[str], str, dict[str, Any]], str]: ...

    @property
    def remove(self) -> Callable[[str, Sequence[str], str], str]: ...


_EDITORS: Mapping[str, _Editor] = {"json": json_text, "toml": toml_text, "yaml": yaml_text}

_INPUTS = ("inputs",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file, and what it would be. Without a difference there is nothing to do."""

    file: ConfigFile
    data: bytes | None
    """None: the file is deleted, because it was made for the entry."""
    is_restored: bool = False
    """The bytes are those from before the entry was added."""
    has_earlier: bool = False
    """The entry that ours had replaced is there again."""

    @property
    def is_needed(self) -> bool:
        """Whether anything changes."""
        return self.data != self.file.data


def configured(file: ConfigFile, client: Client) -> dict[str, Any]:
    """Return the entries of a client's file, of all servers.

    Raises:
        BadSetting: the file can't be read.
    """
    with _of_file(file):
        return _EDITORS[client.format].entries(file.text, [client.key])


def starts_coretools(entry: Any) -> bool:
    """Whether an entry starts our server, from an installation or by uvx."""
    argv = argv_of(entry)
    return any(os.path.basename(word) == PROGRAM for word in argv[:2])


def argv_of(entry: Any) -> list[str]:
    """Return the command line of an entry; empty if it starts no program."""
    if not isinstance(entry, dict):
        return []
    command, args = entry.get("command", entry.get("cmd")), entry.get("args", [])
    words = [command, *args] if isinstance(args, list) else []
    return words if all(isinstance(one, str) for one in words) else []


def plan_install(file: ConfigFile, client: Client, name: str, server: Server, *, force: bool = False) -> Change:
    """Add the entry of a server.

    Raises:
        AlreadyExists: an entry of this name is another one, or one of another name is for the same server; `force`
            replaces the former and permits the latter.
        BadSetting: the file can't be edited.
    """
    editor, path = _EDITORS[client.format], [client.key]
    wanted = client.entry(server, name)
    present = configured(file, client)
    with _of_file(file):
        # As it is read from the file: YAML has texts in place of numbers.
        expected = editor.entries(editor.insert("", path, name, wanted), path)[name]
        if present.get(name) == expected:
            return Change(file=file, data=file.data)
        if not force:
            _require_new(file, present, name, expected)
        text = editor.remove(file.text, path, name) if name in present else file.text
        text = editor.insert(text, path, name, wanted)
        for one in client.inputs(server):
            known = [item.get("id") for item in json_text.items(text, _INPUTS) if isinstance(item, dict)]
            text = text if one["id"] in known else json_text.insert_item(text, _INPUTS, one)
    return Change(file=file, data=file.encoded(text))


def plan_undo(file: ConfigFile, client: Client, name: str, *, force: bool = False) -> Change:
    """Remove an entry.

    Raises:
        NotFound: there is none. AlreadyExists: it does not start coretools; `force` removes it all the same.
        BadSetting: the file can't be edited.
    """
    present = configured(file, client)
    if name not in present:
        raise NotFound(f"{file.path}: has no entry {name!r}")
    entry = present[name]
    is_address = isinstance(entry, dict) and not argv_of(entry)
    if not (force or starts_coretools(entry) or is_address):
        raise AlreadyExists(
            f"{file.path}: the entry {name!r} starts something else: {shown(entry)}; --force removes it"
        )
    with _of_file(file):
        without = _without(file.text, client, name)
    before = read_backup(file, name)
    if _leaves(before, client, name, file) == without:
        return Change(file=file, data=before, is_restored=True)
    earlier = _entries_before(before, [client.key], client, file).get(name)
    if not isinstance(earlier, dict):
        if client.format == "json" and (starts_coretools(entry) or is_address):
            known = _entries_before(before, [], client, file)
            without = _without_empty(without, [key for key in (client.key, *_INPUTS) if key not in known])
        return Change(file=file, data=file.encoded(without))
    with _of_file(file):
        text = _EDITORS[client.format].insert(without, [client.key], name, earlier)
    return Change(file=file, data=file.encoded(text), has_earlier=True)


def shown(entry: Any) -> str:
    """Return an entry for a message: on one line, without what may be a secret."""
    text = json.dumps(entry, ensure_ascii=False)
    text = Redactor(secret_words(list(texts_in(entry)))).text(text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."


def _require_new(file: ConfigFile, present: Mapping[str, Any], name: str, expected: Any) -> None:
    if name in present:
        raise AlreadyExists(
            f"{file.path}: the entry {name!r} is another one:\n"
            f"  now: {shown(present[name])}\n  new: {shown(expected)}\n"
            "Replace it with --force, or choose another name with --name"
        )
    target = _target_of(expected)
    same = next((other for other, entry in present.items() if _target_of(entry) == target), None)
    if same is not None:
        raise AlreadyExists(
            f"{file.path}: the entry {same!r} is for the same server; add a second one with --force, or undo that "
            f"one with --undo --name {same}"
        )


def _target_of(entry: Any) -> Any:
    """Return what an entry starts or reaches."""
    argv = argv_of(entry)
    if argv:
        return [os.path.realpath(argv[0]), *argv[1:]]
    keys = ("url", "httpUrl", "serverUrl", "uri")
    return next((entry[key] for key in keys if key in entry), None) if isinstance(entry, dict) else None


def _without(text: str, client: Client, name: str) -> str:
    """Return a text without an entry, and without inputs of ours that nothing refers to any more."""
    text = _EDITORS[client.format].remove(text, [client.key], name)
    for one in _inputs_of_ours(client):
        if f"${{input:{one['id']}}}" not in text and one in json_text.items(text, _INPUTS):
            text = json_text.remove_item(text, _INPUTS, one)
    return text


def _leaves(before: bytes | None, client: Client, name: str, file: ConfigFile) -> str | None:
    """Return what an undo leaves of a file that was `before`, if nothing else was changed since; None if unknown."""
    editor, path = _EDITORS[client.format], [client.key]
    earlier = ConfigFile(path=file.path, target=file.target, data=before)
    try:
        text = earlier.text
        if name in editor.entries(text, path):  # it was replaced
            text = editor.remove(text, path, name)
        text = editor.insert(text, path, name, {"command": ""})
        for one in _inputs_of_ours(client):
            if one in json_text.items(file.text, _INPUTS) and one not in json_text.items(text, _INPUTS):
                text = json_text.insert_item(text, _INPUTS, one)
        return _without(text, client, name)
    except (ValueError, WrongType, BadSetting):
        return None


def _entries_before(before: bytes | None, path: Sequence[str], client: Client, file: ConfigFile) -> dict[str, Any]:
    """Return what was at a path before our entry; empty if it is not known."""
    try:
        text = ConfigFile(path=file.path, target=file.target, data=before).text
        return _EDITORS[client.format].entries(text, path)
    except (ValueError, WrongType, BadSetting):
        return {}


def _without_empty(text: str, keys: Sequence[str]) -> str:
    """Return a JSON text without those keys that came with our entry, and have nothing under them now."""
    for key in keys:
        if json_text.entries(text, []).get(key) in ({}, []):
            removed = json_text.remove(text, [], key)
            text = removed if removed.count("/") == text.count("/") else text  # a comment stays
    return text


def _inputs_of_ours(client: Client) -> list[dict[str, Any]]:
    return client.inputs(Address(url=""))


@contextmanager
def _of_file(file: ConfigFile) -> Iterator[None]:
    """Name the file in errors of its content."""
    try:
        yield
    except (ValueError, WrongType) as error:
        raise BadSetting(f"{file.path}: {error}; it is left as it is") from error
