"""Remembered decisions: which entries of projects may be started, which tools are called without asking or never.

A decision stores a hash of what was approved, so any change needs a new approval.
"""

import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from coretools.client.configuration import ServerEntry, digest_of
from coretools.client.launch import environment_file_content
from coretools.errors import BadSetting, InputOutput

Kind = Literal["trusted_servers", "approved_tools", "refused_tools"]

MAX_BYTES = 16 * 1024 * 1024
"""Largest file of decisions that is read."""


class Decisions:
    """The file of a user's decisions, of mode 0600 in the state directory."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Without a home, nothing is remembered."""
        home = environment.get("HOME")
        state = environment.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home else "")
        self.path = os.path.join(state, "coretools", "mcp-decisions.json") if os.path.isabs(state) else None

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
        with self._changed() as found:
            found[kind].update(decided)

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
        with self._changed() as found:
            for kind, decided in found.items():
                found[kind] = {digest: text for digest, text in decided.items() if digest not in digests}

    @contextmanager
    def _changed(self) -> Iterator[dict[Kind, dict[str, Any]]]:
        """Yield all decisions; write them at the end of the body. Other processes wait."""
        if self.path is None:
            raise BadSetting("no HOME and no XDG_STATE_HOME: nothing can be remembered")
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            with _locked(f"{self.path}.lock"):
                found = self._read(self.path)
                yield found
                _replace(self.path, json.dumps(found, indent=1).encode())
        except OSError as error:
            raise InputOutput(f"{self.path}: cannot be written: {error.strerror}") from error

    def _read(self, path: str) -> dict[Kind, dict[str, Any]]:
        empty = _nothing()
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                content = json.loads(file.read(MAX_BYTES))
        except FileNotFoundError:
            return empty
        except (OSError, ValueError, RecursionError) as error:
            raise BadSetting(f"{path}: cannot be read ({error}); delete it to be asked again") from error
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022 or status.st_uid != os.geteuid():
            raise BadSetting(f"{path}: others can write it; delete it, or run chmod 600 {path}")
        for kind, decided in empty.items():
            value = content.get(kind) if isinstance(content, dict) else None
            decided.update(value if isinstance(value, dict) else {})
        return empty


def _nothing() -> dict[Kind, dict[str, Any]]:
    return {"trusted_servers": {}, "approved_tools": {}, "refused_tools": {}}


def server_digest(entry: ServerEntry, environment: Mapping[str, str]) -> str:
    """Identify an entry for a decision about it."""
    return digest_of(entry, environment_file_content(entry, environment))


def tool_digest(server: str, declaration: Mapping[str, Any]) -> str:
    """Identify a tool by a digest of its server and its declaration."""
    told = {name: declaration[name] for name in sorted(declaration) if name not in ("_meta", "icons")}
    text = json.dumps([server, told], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def refusal_digest(server: str, tool: str) -> str:
    """Identify a tool by its names alone: a refusal holds for every declaration."""
    return hashlib.sha256(json.dumps([server, tool]).encode()).hexdigest()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: str, data: bytes) -> None:
    handle, made = tempfile.mkstemp(dir=os.path.dirname(path))  # of mode 0600
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except OSError:
        os.unlink(made)
        raise
