"""Remembered decisions: which entries of projects may be started, which tools are called without asking or never.

A decision stores a hash of what was approved, so any change needs a new approval.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from coretools.client.common.state_files import is_own_file, locked, read_state_file, replace_state_file
from coretools.client.configuration.launch import environment_file_content
from coretools.client.configuration.server_entries import ServerEntry, digest_of
from coretools.client.configuration.settings_schema import texts_in
from coretools.client.configuration.variables import input_variable, inputs_of
from coretools.errors import BadSetting, InputOutput
from coretools.own_state import state_path

Kind = Literal["trusted_servers", "approved_tools", "refused_tools"]


class Decisions:
    """The file of a user's decisions, of mode 0600 in the state directory."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Without a home, nothing is remembered."""
        self.path = state_path(environment, "mcp-decisions.json")

    def has(self, kind: Kind, digest: str) -> bool:
        """Whether there is a decision.

        Raises:
            BadSetting: the file is unreadable, or others can write it.
        """
        return self.path is not None and digest in self._read(self.path)[kind]

    def add(self, kind: Kind, decided: Mapping[str, str]) -> None:
        """Remember decisions: a description by hash.

        Raises:
            BadSetting: as `has`, or there is no home. InputOutput: the file can't be written.
        """
        with self._changed() as decisions:
            decisions[kind].update(decided)

    def all(self) -> dict[Kind, dict[str, Any]]:
        """Return every decision: its description by hash.

        Raises:
            BadSetting: as `has`.
        """
        return self._read(self.path) if self.path is not None else _nothing()

    def remove(self, digests: Collection[str]) -> None:
        """Forget decisions.

        Raises:
            BadSetting: as `has`. InputOutput: the file can't be written.
        """
        with self._changed() as decisions:
            for kind, decided in decisions.items():
                decisions[kind] = {digest: text for digest, text in decided.items() if digest not in digests}

    @contextmanager
    def _changed(self) -> Iterator[dict[Kind, dict[str, Any]]]:
        """Yield all decisions; write them at the end of the body. Other processes wait."""
        if self.path is None:
            raise BadSetting("no HOME and no XDG_STATE_HOME: nothing can be remembered")
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            with locked(f"{self.path}.lock"):
                decisions = self._read(self.path)
                yield decisions
                replace_state_file(self.path, json.dumps(decisions, indent=1).encode())
        except OSError as error:
            raise InputOutput(f"{self.path}: cannot be written: {error.strerror}") from error

    def _read(self, path: str) -> dict[Kind, dict[str, Any]]:
        empty = _nothing()
        try:
            data, status = read_state_file(path)
            content = json.loads(data)
        except FileNotFoundError:
            return empty
        except (OSError, ValueError, RecursionError) as error:
            raise BadSetting(f"{path}: cannot be read ({error}); delete it to be asked again") from error
        if not is_own_file(status, hidden_bits=0o022):
            raise BadSetting(f"{path}: others can write it, or it has another name; delete it, or run chmod 600")
        if isinstance(content, dict) and (unknown := sorted(set(content) - set(empty))):
            raise BadSetting(
                f"{path}: was written by a newer version of coretools (it has {unknown[0]!r}); install that version"
                " again, or delete the file to be asked again"
            )
        for kind, decided in empty.items():
            value = content.get(kind) if isinstance(content, dict) else None
            decided.update(value if isinstance(value, dict) else {})
        return empty


def _nothing() -> dict[Kind, dict[str, Any]]:
    return {"trusted_servers": {}, "approved_tools": {}, "refused_tools": {}}


def server_digest(entry: ServerEntry, environment: Mapping[str, str]) -> str:
    """Identify an entry for a decision about it."""
    return digest_of(entry, environment_file_content(entry, environment))


def launch_digest(entry: ServerEntry, environment: Mapping[str, str]) -> str:
    """Identify what an entry starts now: its text, its directory, and the values of the variables that it may name."""
    names = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", " ".join(texts_in(entry.raw)))
    inputs = (input_variable(one.id) for one in inputs_of(entry))
    values = {name: environment.get(name) for name in sorted({*names, *inputs})}
    text = json.dumps([server_digest(entry, environment), entry.place.path, entry.project, values])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def approved_part(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an approval shows and is about: the whole declaration but for what no model gets."""
    return {name: value for name, value in declaration.items() if name not in ("_meta", "icons")}


def tool_digest(server: str, declaration: Mapping[str, Any]) -> str:
    """Identify a tool by a digest of its server and its declaration."""
    text = json.dumps([server, approved_part(declaration)], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def refusal_digest(server: str, tool: str) -> str:
    """Identify a tool by its names alone: a refusal holds for every declaration."""
    return hashlib.sha256(json.dumps([server, tool]).encode()).hexdigest()
