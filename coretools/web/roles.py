"""Builds the roles from the configuration and the common flags."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace

from coretools.config.agent_reach import OperatorFile, files_of_installation, files_of_policy, require_out_of_reach
from coretools.config.commit_author import read_author
from coretools.config.options import settings_from, with_upstreams
from coretools.config.settings import Settings, require_profile
from coretools.confinement.allowed_paths import is_granted
from coretools.confinement.user_git import user_configuration_digest
from coretools.errors import BadSetting
from coretools.web.common.config import CONFIG_VARIABLE, Config, RoleSection
from coretools.web.common.principals import DEFAULT_ROLE, REQUESTS_PER_SECOND, Rates, Role


def build_roles(
    config: Config, options: argparse.Namespace, environment: Mapping[str, str], directory: str
) -> dict[str, Role]:
    """Return every role by name. A configuration without roles has one, `default`, set by the flags.

    `directory` is the root of that role if no root is named at all.

    Raises:
        BadSetting: names each role without a root or with an unknown profile, and flags that can't be used.
    """
    sections = config.roles or {DEFAULT_ROLE: RoleSection()}
    base = settings_from(options, options.root or (), environment, None if config.roles else directory)
    base = with_upstreams(base, environment, options)
    base = replace(base, git_config_digest=user_configuration_digest(environment))
    built, wrong = dict[str, Role](), list[str]()
    for name, section in sections.items():
        try:
            built[name] = _role(name, section, base, config)
        except BadSetting as error:
            wrong.append(str(error))
    if wrong:
        raise BadSetting("; ".join(wrong))
    # The operator's files must be where no role can write.
    files = [*files_of_installation(), *files_of_policy(base.policy), *_operator_files(config, options, environment)]
    require_out_of_reach(files, [role.settings for role in built.values()])
    for file in files:
        if file.is_secret and is_granted(file.path):
            raise BadSetting(
                f"{file.what}: {file.path}: commands may read this path; move the file, for instance to /etc/coretools"
            )
    return built


def _operator_files(config: Config, options: argparse.Namespace, environment: Mapping[str, str]) -> list[OperatorFile]:
    named = (
        ("the configuration", options.config or environment.get(CONFIG_VARIABLE), True),
        ("auth.tokens", config.auth.tokens, True),
        ("console.tokens", config.console.tokens, True),
        ("metrics.tokens", config.metrics.tokens, True),
        ("server.tls_key", config.server.tls_key, True),
        ("server.tls_certificate", config.server.tls_certificate, False),
        ("redis.url", config.redis.url.partition("?")[0].partition("unix://")[2], True),
        ("services.url", config.services.url.partition("?")[0].partition("unix://")[2], True),
    )
    # A missing file is refused when it is opened; here it must not hide other faults.
    return [OperatorFile(what, path, is_secret) for what, path, is_secret in named if path and os.path.lexists(path)]


def _role(name: str, section: RoleSection, base: Settings, config: Config) -> Role:
    roots = section.roots or base.roots
    if not roots:
        raise BadSetting(f"role {name}: no root; name one in [roles.{name}] roots, or with --root")
    try:
        profile = require_profile(section.profile or base.profile)
    except BadSetting as error:
        raise BadSetting(f"role {name}: {error}") from error
    # All roles and their principals share the machine's loopback: no port of commands is exposed there.
    confinement = replace(
        base.policy.confinement, network=section.network or base.policy.confinement.network, expose=()
    )
    identity = base.policy.git.identity or ("caller" if config.auth.has_tokens else "server")
    settings = replace(
        base,
        has_git_identity=identity == "server",
        policy=replace(base.policy, confinement=confinement),
        roots=roots,
        profile=profile,
        read_only=base.read_only or section.read_only,
        deny=(*base.deny, *section.deny),
        author=read_author(section.author, f"roles.{name}.author") if section.author else base.author,
    )
    return Role(name=name, settings=replace(settings, role=name), rates=_rates(section, config))


def _rates(section: RoleSection, config: Config) -> Rates:
    """Return the rates of a role. Without tokens there is no limit: only this machine can call."""
    wanted = section.requests_per_second
    if wanted is None:
        wanted = REQUESTS_PER_SECOND if config.auth.has_tokens else 0.0
    return Rates(requests_per_second=wanted, burst=section.burst, concurrent=section.concurrent)
