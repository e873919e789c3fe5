"""Loops of servers that offer the tools of each other: recognised by identities that are handed on.

A server that offers tools of others has a random identity. It hands the identities before it and its own on to each
server that it uses: in the environment of a local one, and as a client extension on every connection. A tool that it
offers carries the identities that it came through.
"""

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mcp_types as types
from mcp.client.extension import ClientExtension, advertise

from coretools.client.configuration.launch import Launch, LocalLaunch
from coretools.errors import BadSetting

VARIABLE = "CORETOOLS_UPSTREAM_CHAIN"
"""Identities of the servers that use this one, and of the entries that started them, separated by commas."""

EXTENSION = "coretools.dev/upstream-chain"
"""Identifier of the client extension whose setting `ids` has the same identities."""

META = "coretools/upstream-chain"
"""Key in the `_meta` of a tool: the servers that it came through."""

MAX_SERVERS = 8
"""Servers of one chain that each offer tools of the next."""

_MAX_IDENTITIES = 2 * MAX_SERVERS
"""Each server hands on its own and that of the entry."""


_IDENTITY = re.compile("[0-9a-f]{16}")
"""Nothing else is handed on: these are texts of another server that nobody has approved."""


@cache
def own_identity() -> str:
    """Return the identity of this process."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Chain:
    """The identities before this server."""

    before: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> "Chain":
        """Read the chain that this process was started with."""
        text = (os.environ if environment is None else environment).get(VARIABLE, "")
        return cls(tuple(one for one in text.split(",") if one))

    @property
    def handed_on(self) -> tuple[str, ...]:
        """The chain for servers that this one uses."""
        return (*self.before, own_identity())

    def require_new(self, server: str, entry: str) -> None:
        """Refuse an entry that already leads here; `entry` is its digest.

        Raises:
            BadSetting: the servers form a loop.
        """
        if len(self.before) >= _MAX_IDENTITIES:
            raise BadSetting(
                f"--upstream {server}: this server comes after {MAX_SERVERS} that use each other; use {server} directly"
            )
        if entry[:16] in self.before:
            raise BadSetting(
                f"--upstream {server}: leads back to this server: it was started, directly or through others, by a"
                " server that uses the same entry; name another server"
            )

    def launched(self, launch: Launch, entry: str) -> Launch:
        """Return how a server is started that knows the chain."""
        if not isinstance(launch, LocalLaunch):
            return launch
        text = ",".join((*self.handed_on, entry[:16]))
        return replace(launch, environment={**launch.environment, VARIABLE: text})

    def extension(self) -> ClientExtension:
        """Return the extension that hands the chain on."""
        return advertise(EXTENSION, {"ids": list(self.handed_on)})


def came_through(tool: types.Tool) -> tuple[str, ...]:
    """Return the servers that a tool came through."""
    ids = (tool.meta or {}).get(META)
    known = ids[: MAX_SERVERS + 1] if isinstance(ids, list) else []
    return tuple(one for one in known if isinstance(one, str) and _IDENTITY.fullmatch(one))


def is_loop(settings: Mapping[str, Any] | None) -> bool:
    """Whether a client's setting of the extension has this server in its chain."""
    ids = (settings or {}).get("ids")
    return isinstance(ids, list) and (own_identity() in ids or len(ids) > _MAX_IDENTITIES)
