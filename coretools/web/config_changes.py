"""Compares two states of the operator's files and tells which changes need a restart. Does no I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coretools.config.operator_policy import network_text
from coretools.web.common.config import Config
from coretools.web.common.principals import Role

NEEDS_RESTART = (
    "server.host",
    "server.port",
    "server.proxies",
    "server.lame_duck_seconds",
    "server.drain_seconds",
    "limits.connections",
    "limits.body_bytes",
    "limits.events",
    "limits.event_bytes",
    "console",
    "metrics",
    "redis",
    "services",
    "telemetry",
    "log.format",
)
"""Keys and sections that take effect only at a start: listening sockets, stores and metrics depend on them."""

LONGEST = 60
"""Largest value shown in the log, in characters."""

_POLICY_NAMES = {
    "environment_pass": "environment.pass",
    "redact_output": "output.redact",
}
_UNSET: tuple[object, ...] = (None, "", ())


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A key of the operator's files with a new value."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        before, after = _shown(self.before), _shown(self.after)
        return self.key if before is None or after is None or before == after else f"{self.key} {before} -> {after}"


def changes_of_config(before: Config, after: Config) -> list[ConfigChange]:
    """Return every key that differs, in the order of the file."""
    old, new = before.model_dump(), after.model_dump()
    both = before.roles.keys() & after.roles.keys()
    added = [ConfigChange(f"roles.{name} (added)", None, None) for name in after.roles if name not in both]
    removed = [ConfigChange(f"roles.{name} (removed)", None, None) for name in before.roles if name not in both]
    for values in (old, new):
        values["roles"] = {name: section for name, section in values["roles"].items() if name in both}
    return [*_changes(dict(_flat(old)), dict(_flat(new))), *added, *removed]


def changes_of_policy(before: Mapping[str, Role], after: Mapping[str, Role]) -> list[ConfigChange]:
    """Return every key of the policy file that differs; all roles share that file."""
    return _changes(_policy_of(before), _policy_of(after))


def needs_restart(change: ConfigChange, before: Config, after: Config) -> bool:
    """Whether a changed key takes effect only at a start."""
    if any(change.key == key or change.key.startswith(f"{key}.") for key in NEEDS_RESTART):
        return True
    if change.key.startswith("server.tls_"):
        return bool(before.server.tls_certificate) != bool(after.server.tls_certificate)
    return change.key.startswith("auth.") and before.auth.has_tokens != after.auth.has_tokens


def effective_config(before: Config, after: Config) -> Config:
    """Return the configuration that a reload can apply: keys that need a restart keep their old values."""
    old, new = before.model_dump(), after.model_dump()
    for change in changes_of_config(before, after):
        if not needs_restart(change, before, after):
            continue
        if change.key.startswith("auth."):
            new["auth"] = old["auth"]
        else:
            section, _, key = change.key.partition(".")
            new[section][key] = old[section][key]
    return Config.model_validate(new)


def pluralized(number: int, noun: str) -> str:
    """Return a count with its noun, such as `2 tokens`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[ConfigChange]:
    changes = [ConfigChange(key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    return [one for one in changes if one.before != one.after]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _policy_of(roles: Mapping[str, Role]) -> dict[str, object]:
    """The keys of the policy file. The network of a role may come from its own section and is reported there."""
    policy = next(iter(roles.values())).settings.policy
    values = {f"policy.{_POLICY_NAMES.get(key, key)}": value for key, value in _flat(asdict(policy))}
    for key in ("policy.confinement.network", "policy.source"):
        values.pop(key, None)
    networks = {network_text(role.settings.policy.confinement.network) for role in roles.values()}
    return {**values, "policy.confinement.network": ", ".join(sorted(networks))}


def _shown(value: object) -> str | None:
    """Format a value for the log; None if it is too long."""
    if value in _UNSET:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        if any(isinstance(one, dict) for one in value):
            return pluralized(len(value), "rule")
        text = f"[{', '.join(map(str, value))}]"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else None
