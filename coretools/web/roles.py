"""Builds the roles from the configuration and the common flags."""

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from coretools.config.commit_author import read_author
from coretools.config.options import policy_from, settings_from, with_upstreams
from coretools.config.policy_file import require_out_of_reach
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
    base = with_upstreams(base, environment, vars(options).get("upstream"))
    roots = {name: section.roots or base.roots for name, section in sections.items()}
    # The operator's policy file must be where no role can write.
    writable = () if base.read_only else _all(roots, [name for name in sections if not sections[name].read_only])
    digest = user_configuration_digest(environment)
    base = replace(base, policy=policy_from(options, environment, writable), git_config_digest=digest)
    for path in _operator_files(config, options, environment):
        _require_out_of_reach(path, _all(roots, sections))
    return _build_each(
        {name: partial(_role, name, section, roots[name], base, config) for name, section in sections.items()}
    )


def _build_each(made: Mapping[str, Callable[[], Role]]) -> dict[str, Role]:
    """Build all roles.

    Raises:
        BadSetting: names the fault of each role that can't be built.
    """
    found, wrong = {}, []
    for name, make in made.items():
        try:
            found[name] = make()
        except BadSetting as error:
            wrong.append(str(error))
    if wrong:
        raise BadSetting("; ".join(wrong))
    return found


def _all(roots: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(root for name in names for root in roots[name])


def _require_out_of_reach(path: str, roots: Sequence[str]) -> None:
    require_out_of_reach(path, [root.removesuffix(":ro").removesuffix(":rw") for root in roots])
    if is_granted(path):
        raise BadSetting(f"{path}: commands may read this path; move the file, for instance to /etc/coretools")


def _operator_files(config: Config, options: argparse.Namespace, environment: Mapping[str, str]) -> list[str]:
    named = (
        options.config or environment.get(CONFIG_VARIABLE),
        config.auth.tokens,
        config.console.tokens,
        config.metrics.tokens,
        config.server.tls_key,
    )
    # A missing file is refused when it is opened; here it must not hide other faults.
    return [path for path in named if path and os.path.lexists(path)]


def _role(name: str, section: RoleSection, roots: tuple[str, ...], base: Settings, config: Config) -> Role:
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
    has_tokens = config.auth.tokens or config.auth.jwt is not None
    identity = base.policy.git.identity or ("caller" if has_tokens else "server")
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
    return Role(name=name, settings=settings, rates=_rates(section, config))


def _rates(section: RoleSection, config: Config) -> Rates:
    """Return the rates of a role. Without tokens there is no limit: only this machine can call."""
    wanted = section.requests_per_second
    if wanted is None:
        has_tokens = config.auth.tokens or config.auth.jwt is not None
        wanted = REQUESTS_PER_SECOND if has_tokens else 0.0
    return Rates(requests_per_second=wanted, burst=section.burst, concurrent=section.concurrent)
