"""The operator's policy for calls: rules by server, tool and arguments, of which the first that matches decides.

Patterns are those of the policy for commands (docs/specs/policy.md): a rule that allows matches narrowly, one that
refuses matches widely.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from coretools.client.common.bounded_file import read_bounded
from coretools.client.configuration.places import named_place, project_of
from coretools.command_policy.rules import folded, matches_narrowly, wide_pattern
from coretools.config.operator_policy import Verdict, expand_home
from coretools.config.policy_file import read_own_file
from coretools.config.toml_file import LONGEST, key_of, parse_toml, problem_of, problems_of
from coretools.errors import BadSetting
from coretools.own_state import configuration_path

FILE_NAME = "mcp-policy.toml"
"""In the directory of coretools' configuration, beside `policy.toml`."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CallRule(_Table):
    """The decision about some calls."""

    server: str
    tool: str
    verdict: Verdict
    arguments: dict[str, str] = {}
    """A pattern for each of these arguments; others may have any value."""
    reason: str = ""

    def matches(self, server: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule decides about a call."""
        if self.verdict == "allow":
            names = matches_narrowly(self.server, server) and matches_narrowly(self.tool, tool)
            return names and all(_is_allowed(text, arguments.get(name)) for name, text in self.arguments.items())
        names = _is_refused(self.server, server) and _is_refused(self.tool, tool)
        return names and all(
            name in arguments and _is_refused(text, arguments[name]) for name, text in self.arguments.items()
        )


class _PolicyFile(_Table):
    default: Literal["ask", "deny"] = "deny"
    rule: tuple[CallRule, ...] = ()


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """The decision about one call, and the rule that it comes from."""

    verdict: Verdict
    because: str


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """The content of a policy file. `ask` leaves the decision to a person, or to what a person decided before."""

    source: str
    default: Verdict
    rules: Sequence[CallRule]

    def verdict(self, server: str, tool: str, arguments: Mapping[str, Any]) -> CallVerdict:
        """Decide about a call."""
        for number, rule in enumerate(self.rules, 1):
            if rule.matches(server, tool, arguments):
                reason = f": {rule.reason}" if rule.reason else ""
                where = f"rule {number} (server {rule.server!r}, tool {rule.tool!r}) of {self.source}"
                return CallVerdict(rule.verdict, where + reason)
        return CallVerdict(self.default, f"no rule of {self.source} allows it")


def find_policy(
    named: str | None, directory: str, environment: Mapping[str, str], *, trusts_project: bool = False
) -> CallPolicy | None:
    """Read the policy file that is named, else the one in the user's configuration; None if there is none.

    Raises:
        BadSetting: it can't be used, others could have written it, or it belongs to a project that is not trusted.
    """
    if named is None:
        path = configuration_path(environment, FILE_NAME) or ""
        return _parsed(read_own_file(path), path) if path and os.path.lexists(path) else None
    path = os.path.abspath(expand_home(named, environment))
    home = environment.get("HOME", "")
    if named_place(path, project_of(directory, home), home).scope == "user":
        return _parsed(read_own_file(path), path)
    if not trusts_project:
        raise BadSetting(f"{named}: belongs to the project, which could allow itself anything; give --trust-project")
    # Of a trusted checkout: continuous integration often makes those writable for everybody.
    return _parsed(read_bounded(path, LONGEST), path)


def _parsed(data: bytes, path: str) -> CallPolicy:
    table = parse_toml(data, path)
    try:
        # Via JSON, where strict models accept a list for a tuple.
        file = _PolicyFile.model_validate_json(json.dumps(table, default=lambda date: {"date": str(date)}))
    except ValidationError as error:
        raise BadSetting(f"{path}: {problems_of(error, _problem)}") from error
    return CallPolicy(path, file.default, file.rule)


def _problem(error: ErrorDetails) -> str:
    return f"{key_of(error['loc'])}: {problem_of(error, _PolicyFile)}"


def _is_allowed(pattern: str, value: Any) -> bool:
    """Whether a value, or each item of a list, matches narrowly. A path with `..` matches no pattern."""
    texts = [_text(item) for item in value] if isinstance(value, list) else [] if value is None else [_text(value)]
    return bool(texts) and all(
        text == pattern or (".." not in re.split(r"[/\\]", text) and matches_narrowly(pattern, text)) for text in texts
    )


def _is_refused(pattern: str, value: Any) -> bool:
    """Whether any text in a value matches widely."""
    return any(wide_pattern(pattern).fullmatch(folded(text)) for text in _leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        else:
            yield _text(one)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
