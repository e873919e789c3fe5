"""The schema of the policy file: its tables and keys for the values of `operator_policy`.

pydantic builds the values and refuses unknown keys and wrong types; the dataclasses validate the values.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from coretools.config.operator_policy import (
    CatalogPolicy,
    CommandPolicy,
    ConfinementPolicy,
    FilePolicy,
    GitGrants,
    GitOptions,
    OperatorPolicy,
    ToolPolicy,
    expand_home,
)
from coretools.config.remote_policy import RemoteRule
from coretools.config.toml_file import UNKNOWN, key_of, parse_toml, problem_of, problems_of
from coretools.errors import BadSetting


class _Table(BaseModel):
    # Dataclasses in fields inherit this configuration.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Environment(_Table):
    passed: tuple[str, ...] = Field(default=(), alias="pass")


class _Output(_Table):
    redact: bool = False


class _Root(_Table):
    git: GitGrants = GitGrants()


class PolicyFile(_Table):
    """The whole file."""

    commands: CommandPolicy = CommandPolicy()
    tools: ToolPolicy = ToolPolicy()
    catalog: CatalogPolicy = CatalogPolicy()
    confinement: ConfinementPolicy = ConfinementPolicy()
    files: FilePolicy = FilePolicy()
    git: GitOptions = GitOptions()
    roots: Mapping[str, _Root] = {}
    remote: tuple[RemoteRule, ...] = ()
    environment: _Environment = _Environment()
    output: _Output = _Output()


_RENAMED = {"offer": "catalog"}
"""Tables of earlier versions."""


def parse_policy(data: bytes, path: str, environment: Mapping[str, str]) -> OperatorPolicy:
    """Parse the bytes of a policy file; `path` names it in errors.

    Raises:
        BadSetting: not TOML, an unknown key, or an unusable value; names each.
    """
    tables = parse_toml(data, path)
    try:
        # Via JSON, where strict models accept a list for a tuple. A date becomes a table, which no key accepts.
        file = PolicyFile.model_validate_json(json.dumps(tables, default=lambda date: {"date": str(date)}))
    except ValidationError as error:
        problems = problems_of(error, _problem)
        raise BadSetting(f"{path}: {problems}") from error
    confinement = replace(
        file.confinement,
        readable=_absolute(file.confinement.readable, f"{path}: confinement.readable", environment),
        writable=_absolute(file.confinement.writable, f"{path}: confinement.writable", environment),
    )
    return OperatorPolicy(
        commands=file.commands,
        tools=file.tools,
        catalog=file.catalog,
        confinement=confinement,
        files=file.files,
        git=file.git,
        git_grants=_grants(file.roots, path, environment),
        remote=tuple(_located(rule, path, environment) for rule in file.remote),
        environment_pass=file.environment.passed,
        redact_output=file.output.redact,
        source=path,
    )


def _grants(roots: Mapping[str, _Root], path: str, environment: Mapping[str, str]) -> dict[str, GitGrants]:
    by_path = {_absolute([root], f'{path}: roots."{root}"', environment)[0]: one.git for root, one in roots.items()}
    return {os.path.realpath(root): grants for root, grants in by_path.items()}


def _problem(fault: ErrorDetails) -> str:
    key = key_of(fault["loc"])
    if fault["type"] in UNKNOWN and key in _RENAMED:
        return f"{key}: unknown key; the table [{key}] is now [{_RENAMED[key]}]"
    return f"{key}: {problem_of(fault, PolicyFile)}"


def _located(rule: RemoteRule, path: str, environment: Mapping[str, str]) -> RemoteRule:
    """Return the rule with `~/` in its paths replaced."""
    token, authorities, keys = (
        "".join(_absolute([file], f"{path}: remote.{name}", environment)) if file else ""
        for name, file in (
            ("token_file", rule.token_file),
            ("ca_file", rule.ca_file),
            ("known_hosts", rule.known_hosts),
        )
    )
    return replace(rule, token_file=token, ca_file=authorities, known_hosts=keys)


def _absolute(paths: Sequence[str], key: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    expanded = [expand_home(path, environment) for path in paths]
    for path in expanded:
        if not os.path.isabs(path):
            raise BadSetting(f"{key}: {path!r}: write absolute paths, or ~/ for the home directory")
    return tuple(map(os.path.normpath, expanded))
