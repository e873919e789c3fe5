"""`coretools-http --check`: everything that a start opens and refuses, and what it would find out later.

Listens nowhere and becomes no replica. Each part is verified whatever becomes of the others, so that an operator
corrects his files once.
"""

import errno
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from coretools.app.assembly import root_specs
from coretools.errors import BadSetting, CoreError
from coretools.protocol.process_exit import Draining
from coretools.roots.deny import DenyRules
from coretools.roots.root_set import Roots, RootSpec
from coretools.web.app import PATH
from coretools.web.auth.exposure import allowed_hosts, is_exposed, require_safe
from coretools.web.auth.hashed_tokens import read_tokens
from coretools.web.auth.issuer_keys import IssuerKeys, NotFetched
from coretools.web.common.config import Config
from coretools.web.common.principals import DEFAULT_ROLE, Role
from coretools.web.config_changes import counted
from coretools.web.connection.tls import certificate_of, now, open_key, require_chain, tls_context
from coretools.web.service import Plan, bound, require_engine, served

FEW_DAYS = 14
"""A certificate with fewer days left is warned of: renewals are tried from 30 days before the end on, as a rule."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found."""

    lines: list[str] = field(default_factory=list)
    """What was verified, and what is worth a look (`warning: ...`)."""
    faults: list[str] = field(default_factory=list)
    """What would end the start, or have every call refused."""


_Part = Callable[[Plan], Awaitable[list[str]]]


async def checked(plan: Plan) -> Report:
    """What would be served, a line each, and everything that is wrong."""
    report = Report()
    roles = [partial(_role, role=role) for role in plan.roles.values()]
    roots = [partial(_root, root=root) for role in plan.roles.values() for root in root_specs(role.settings)]
    parts: list[_Part] = [_listens, _tls, _auth, _exposure, _issuer, _redis, _watching, _policy, *roots, *roles]
    for part in parts:
        try:
            report.lines.extend(await part(plan))
        except CoreError as error:
            if str(error) not in report.faults:  # one of several roles, or found by the start of a role again
                report.faults.append(str(error))
    return report


async def _listens(plan: Plan) -> list[str]:
    server = plan.config.server
    reach = "other machines" if is_exposed(plan.config) else "this machine only"
    hosts = ", ".join(allowed_hosts(plan.config, server.port))
    lines = [f"{server.host}:{server.port}{PATH}, for {reach}; hosts {hosts}"]
    try:
        with ExitStack() as sockets:
            bound(plan.config, sockets, does_listen=False)
    except BadSetting as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or isinstance(cause, socket.gaierror) or cause.errno != errno.EADDRINUSE:
            raise
        return [*lines, f"warning: {server.host} port {server.port} is in use now, by this server or another program"]
    return [*lines, f"{server.host} port {server.port} is free"]


async def _tls(plan: Plan) -> list[str]:
    server = plan.config.server
    tls_context(server)
    certificate = certificate_of(server)
    if certificate is None:
        return ["tls: none; a proxy has it" if server.proxies else "tls: none"]
    certificate.require_valid(server.tls_certificate, now())
    require_chain(server.tls_certificate)
    left = certificate.days_left(now())
    days = counted(left, "day")
    said = f"tls: {server.tls_certificate} and its key; {certificate.chain} in the chain; valid until "
    lines = [f"{said}{certificate.ends:%Y-%m-%d}, {days} left"]
    if left < FEW_DAYS:
        lines.append(f"warning: tls: {days} left; renew it and send SIGHUP")
    readable = open_key(server)
    return [*lines, f"warning: tls: {readable}"] if readable else lines


async def _auth(plan: Plan) -> list[str]:
    path = plan.config.auth.tokens
    if not path:
        return ["auth: no token file"] if plan.config.auth.jwt else ["auth: nobody is asked for a token"]
    return list(_tokens("auth", path, known=plan.config.roles or {DEFAULT_ROLE}))


async def _issuer(plan: Plan) -> list[str]:
    jwt = plan.config.auth.jwt
    if jwt is None:
        return []
    keys = IssuerKeys(jwt.issuer, url=jwt.jwks_url, algorithms=jwt.algorithms)
    try:
        count = await keys.fetch_now()
    except NotFetched as error:
        raise BadSetting(f"auth.jwt: the keys of {jwt.issuer} can't be fetched: {error}") from error
    audience = jwt.audience or plan.config.server.public_url
    roles = f"role by {jwt.role_claim}" if jwt.role_claim else f"role {DEFAULT_ROLE}"
    taken = f"types {', '.join(jwt.token_types)}; algorithms {', '.join(jwt.algorithms)}"
    return [f"auth.jwt: {jwt.issuer}: {counted(count, 'key')} fetched; audience {audience}; {taken}; {roles}"]


async def _redis(plan: Plan) -> list[str]:
    section = plan.config.redis
    return [f"redis: version {await require_engine(section)} answers"] if section.url else ["redis: none; memory"]


async def _watching(plan: Plan) -> list[str]:
    config = plan.config
    lines = ["console: off"]
    if config.console.tokens:
        lines = list(_tokens("console", config.console.tokens))
    if not config.metrics.enabled:
        return [*lines, "metrics: off"]
    if config.metrics.tokens:
        return [*lines, *_tokens("metrics", config.metrics.tokens)]
    if is_exposed(config):
        return [*lines, "metrics: off, since other machines reach the server and metrics.tokens names no file"]
    return [*lines, "metrics: for this machine"]


async def _exposure(plan: Plan) -> list[str]:
    auth = plan.config.auth
    require_safe(plan.config, has_auth=bool(auth.tokens) or auth.jwt is not None)
    return []


async def _policy(plan: Plan) -> list[str]:
    role = next(iter(plan.roles.values()), None)
    if role is None:
        return []
    policy = role.settings.policy
    commands = policy.commands
    rules = counted(len(commands.rule), "rule")
    name = policy.source or "no file, the defaults"
    opaque = commands.opaque or "as default"
    said = f"policy: {name}: {rules}, default {commands.default}, opaque {opaque}"
    return [f"{said}; network {policy.confinement.network}"]


async def _root(_: Plan, root: RootSpec) -> list[str]:
    Roots([root], deny=DenyRules(())).close()
    return []


async def _role(plan: Plan, role: Role) -> list[str]:
    """Start one role without the others and without what has a part of its own; Redis may know our name."""
    settings, config = role.settings, Config(limits=plan.config.limits, telemetry=plan.config.telemetry)
    async with served(replace(plan, config=config, roles={role.name: role}), config.server.port, Draining()):
        pass
    rights = ", read-only" if settings.read_only else ""
    return [f"role {role.name}: {', '.join(settings.roots)}; profile {settings.profile}{rights}"]


def _tokens(name: str, path: str, known: Collection[str] | None = None) -> Iterator[str]:
    entries, _ = read_tokens(path)
    over = sum(entry.expires is not None and entry.expires <= datetime.now(UTC) for entry in entries)
    said = f", {over} of them expired" if over else ""
    principals = counted(len({entry.name for entry in entries}), "principal")
    yield f"{name}: {path}: {counted(len(entries), 'token')} of {principals}{said}"
    if len(entries) == over:
        yield f"warning: {name}: {path} lets nobody in; make a token with coretools token create"
    for entry in entries:
        if known is not None and entry.role not in known:
            yield f"warning: {name}: token {entry.id} of {entry.name}: no role {entry.role} here; it is refused"
