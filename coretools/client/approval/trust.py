"""Which entries may be started: those of the user, and those of the project that somebody approved."""

from collections.abc import Mapping
from dataclasses import dataclass

from coretools.client.approval.decisions import Decisions, server_digest
from coretools.client.common.errors import NotTrusted
from coretools.client.configuration.server_entries import ServerEntry
from coretools.errors import BadSetting, CoreError


@dataclass(frozen=True, slots=True)
class Trust:
    """The decisions of a user, or `everything` for a line or a program that trusts the project."""

    decisions: Decisions
    environment: Mapping[str, str]
    everything: bool = False
    option: str = "--trust-project"
    """The option that trusts everything; empty where there is none."""

    def covers(self, entry: ServerEntry) -> bool:
        """Whether the entry may be started.

        Raises:
            BadSetting: the file of decisions can't be used.
        """
        is_users = entry.place.scope == "user" or self.everything
        return is_users or self.decisions.has("trusted_servers", server_digest(entry, self.environment))

    def why_not(self, entry: ServerEntry) -> CoreError | None:
        """Why an entry is not started: it can't be used, is disabled or is not trusted; None if it may be."""
        if entry.settings is None:
            return BadSetting(f"server {entry.name!r}: {entry.error} ({entry.place.path})")
        if not entry.settings.is_enabled:
            return BadSetting(f"server {entry.name!r}: is disabled in {entry.place.path}")
        if not self.covers(entry):
            return NotTrusted(
                f"server {entry.name!r}: {entry.place.path} belongs to the project and is not trusted yet;"
                f" look at it with `coretools mcp trust {entry.words}`"
                + (f", or give {self.option}" if self.option else "")
            )
        return None
