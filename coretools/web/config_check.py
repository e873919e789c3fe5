"""`coretools-http --check`: verify everything that a start opens, and what a start would find out later.

It does not listen and does not join the replicas. Each part is verified independently of the others, so one run
shows all faults.
"""

import errno
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from coretools.app.assembly import confinement_status
from coretools.app.root_specs import root_specs
from coretools.app.trust_report import trust_report
from coretools.config.operator_policy import network_text
from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.protocol.draining import Draining
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.services.connect import open_services
from coretools.web.auth.exposure_checks import allowed_hosts, is_exposed, require_safe
from coretools.web.auth.hashed_tokens import read_tokens
from coretools.web.auth.issuer_keys import IssuerKeys
from coretools.web.auth.issuer_metadata import KeysUnavailable
from coretools.web.auth.local_caller import anonymous_callers
from coretools.web.common.config import AuthSection, Config
from coretools.web.common.principals import DEFAULT_ROLE, Role
from coretools.web.common.urls import ENDPOINT
from coretools.web.config_changes import pluralized
from coretools.web.connection.tls import certificate_of, open_key, require_chain, tls_context
from coretools.web.observability.tracing import collector_of
from coretools.web.service import ServerConfig, bind_sockets, require_redis, require_shared_services, running_app

FEW_DAYS = 14
"""Warn about a certificate with fewer days left; renewals are usually tried from 30 days before the end."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of a check."""

    lines: list[str] = field(default_factory=list)
    """What was verified, and warnings (`warning: ...`)."""
    faults: list[str] = field(default_factory=list)
    """Faults that end a start or make every call fail."""


_Check = Callable[[ServerConfig], Awaitable[list[str]]]


async def check_config(server_config: ServerConfig) -> CheckReport:
    """Verify every part of the configuration and report what would be served and every fault."""
    report = CheckReport()
    roles = [partial(_check_role, role=role) for role in server_config.roles.values()]
    roots = [
        partial(_check_root, root=root) for role in server_config.roles.values() for root in root_specs(role.settings)
    ]
    parts: list[_Check] = [
        _check_address,
        _check_tls,
        _check_token_file,
        _check_exposure,
        _check_issuer,
        _check_redis,
        _check_services,
        _check_observability,
        _check_telemetry,
        _check_policy,
        _check_trust,
        *roots,
        *roles,
    ]
    for part in parts:
        try:
            report.lines.extend(await part(server_config))
        except CoreError as error:
            if str(error) not in report.faults:  # also found for another role, or by the start of a role
                report.faults.append(str(error))
    return report


async def _check_address(server_config: ServerConfig) -> list[str]:
    server = server_config.config.server
    reach = "other machines" if is_exposed(server_config.config) else "this machine only"
    hosts = ", ".join(allowed_hosts(server_config.config, server.port))
    lines = [f"{server.host}:{server.port}{ENDPOINT}, for {reach}; hosts {hosts}"]
    try:
        with ExitStack() as sockets:
            bind_sockets(server_config.config, sockets, does_listen=False)
    except BadSetting as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or isinstance(cause, socket.gaierror) or cause.errno != errno.EADDRINUSE:
            raise
        return [*lines, f"warning: {server.host} port {server.port} is in use now, by this server or another program"]
    return [*lines, f"{server.host} port {server.port} is free"]


async def _check_tls(server_config: ServerConfig) -> list[str]:
    server = server_config.config.server
    tls_context(server)
    certificate = certificate_of(server)
    if certificate is None:
        return ["tls: none; a proxy has it" if server.proxies else "tls: none"]
    certificate.require_valid(server.tls_certificate)
    require_chain(server.tls_certificate)
    left = certificate.days_left
    days = pluralized(left, "day")
    reason = f"tls: {server.tls_certificate} and its key; {certificate.chain} in the chain; valid until "
    lines = [f"{reason}{certificate.ends:%Y-%m-%d}, {days} left"]
    if left < FEW_DAYS:
        lines.append(f"warning: tls: {days} left; renew it and send SIGHUP")
    readable = open_key(server)
    return [*lines, f"warning: tls: {readable}"] if readable else lines


async def _check_token_file(server_config: ServerConfig) -> list[str]:
    path = server_config.config.auth.tokens
    if not path:
        callers = anonymous_callers(server_config.config.auth.anonymous)
        return ["auth: no token file"] if server_config.config.auth.jwt else [f"warning: auth: {callers}"]
    return list(_token_lines("auth", path, known=server_config.config.roles or {DEFAULT_ROLE}))


async def _check_issuer(server_config: ServerConfig) -> list[str]:
    jwt = server_config.config.auth.jwt
    if jwt is None:
        return []
    keys = IssuerKeys(jwt.issuer, url=jwt.jwks_url, algorithms=jwt.algorithms)
    try:
        count = await keys.fetch_now()
    except KeysUnavailable as error:
        raise BadSetting(f"auth.jwt: the keys of {jwt.issuer} can't be fetched: {error}") from error
    audience = jwt.audience or server_config.config.server.public_url
    roles = f"role by {jwt.role_claim}" if jwt.role_claim else f"role {DEFAULT_ROLE}"
    accepted = f"types {', '.join(jwt.token_types)}; algorithms {', '.join(jwt.algorithms)}"
    return [f"auth.jwt: {jwt.issuer}: {pluralized(count, 'key')} fetched; audience {audience}; {accepted}; {roles}"]


async def _check_redis(server_config: ServerConfig) -> list[str]:
    section = server_config.config.redis
    return [f"redis: version {await require_redis(section)} answers"] if section.url else ["redis: none; memory"]


async def _check_services(server_config: ServerConfig) -> list[str]:
    require_shared_services(server_config)
    section = server_config.config.services
    if not section.url:
        return ["services: none; memory"]
    async with open_services(section.url, section.limits) as services:
        try:
            version, *losses = (await services.check()).split("; ")
        except Unreachable as error:
            cause = type(error.__cause__).__name__
            raise BadSetting(f"services.url: no store answers there, or it refuses us ({cause})") from None
    return [f"services: {version} answers", *(f"warning: services: {loss}" for loss in losses)]


async def _check_telemetry(server_config: ServerConfig) -> list[str]:
    if not server_config.config.telemetry.traces:
        return ["traces: off"]
    return [f"traces: to {collector_of(server_config.environment)}"]


async def _check_observability(server_config: ServerConfig) -> list[str]:
    config = server_config.config
    lines = ["console: off"]
    if config.console.tokens:
        lines = list(_token_lines("console", config.console.tokens))
    if not config.metrics.enabled:
        return [*lines, "metrics: off"]
    if config.metrics.tokens:
        return [*lines, *_token_lines("metrics", config.metrics.tokens)]
    if is_exposed(config):
        return [*lines, "metrics: off, since other machines reach the server and metrics.tokens names no file"]
    return [*lines, "metrics: for this machine"]


async def _check_exposure(server_config: ServerConfig) -> list[str]:
    require_safe(server_config.config, has_auth=server_config.config.auth.has_tokens)
    return []


async def _check_policy(server_config: ServerConfig) -> list[str]:
    role = next(iter(server_config.roles.values()), None)
    if role is None:
        return []
    policy = role.settings.policy
    commands = policy.commands
    rules = pluralized(len(commands.rule), "rule")
    name = policy.source or "no file, the defaults"
    opaque = commands.opaque or "as default"
    return [f"policy: {name}: {rules}, default {commands.default}, opaque {opaque}"]


async def _check_trust(server_config: ServerConfig) -> list[str]:
    servers = [role.settings for role in server_config.roles.values()]
    return [f"trusted: {line}" for line in trust_report(servers, server_config.environment)]


async def _check_root(_: ServerConfig, root: RootSpec) -> list[str]:
    Roots([root], deny=DenyRules(())).close()
    return []


async def _check_role(server_config: ServerConfig, role: Role) -> list[str]:
    """Start one role alone, with stores in memory: in Redis a running replica may have this name."""
    settings = role.settings
    config = Config(auth=AuthSection(anonymous="user"), limits=server_config.config.limits)
    alone = replace(server_config, config=config, roles={role.name: role})
    async with running_app(alone, config.server.port, Draining()) as site:
        status = await confinement_status(site.tenants[role.name].assembly)
    rights = ", read-only" if settings.read_only else ""
    access = settings.policy.confinement.network
    network = network_text(access)
    if status is not None and status.tier != "full" and not isinstance(access, str):
        network = f"none ({network} needs tier full)"
    commands = "no commands" if status is None else f"commands in tier {status.tier}, network {network}"
    return [f"role {role.name}: {', '.join(settings.roots)}; profile {settings.profile}{rights}; {commands}"]


def _token_lines(name: str, path: str, known: Collection[str] | None = None) -> Iterator[str]:
    entries, _ = read_tokens(path)
    expired = sum(entry.expires is not None and entry.expires <= datetime.now(UTC) for entry in entries)
    reason = f", {expired} of them expired" if expired else ""
    principals = pluralized(len({entry.name for entry in entries}), "principal")
    yield f"{name}: {path}: {pluralized(len(entries), 'token')} of {principals}{reason}"
    if len(entries) == expired:
        yield f"warning: {name}: {path} lets nobody in; make a token with coretools token create"
    for entry in entries:
        if known is not None and entry.role not in known:
            yield f"warning: {name}: token {entry.id} of {entry.name}: no role {entry.role} here; it is refused"
