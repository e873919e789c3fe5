"""SIGHUP: read the operator's files again, verify them, and apply all changes or none.

Resources for the new state are opened beside the old ones. Once everything is verified, the switch happens without
awaiting anything. Active calls continue with the state that they began with (docs/adr/0020).
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread

from coretools.app.assembly import Assembly
from coretools.config.logs import configure_logging
from coretools.errors import BadSetting, CoreError
from coretools.operations.declare import Surface
from coretools.operations.live_catalog import LiveCatalog
from coretools.web.app import AppComponents, ReplaceableApp, configured_app
from coretools.web.auth.exposure_checks import require_safe
from coretools.web.auth.hashed_tokens import read_tokens
from coretools.web.auth.verifiers import create_verifier
from coretools.web.common.config import Config, LimitsSection
from coretools.web.common.principals import Role, Verifier
from coretools.web.config_changes import (
    ConfigChange,
    changes_of_config,
    changes_of_policy,
    effective_config,
    needs_restart,
    pluralized,
)
from coretools.web.connection.tls import Certificate, certificate_of, tls_context, warn_of_key
from coretools.web.observability.snapshots import ReloadStatus
from coretools.web.sessions.session_limiter import SessionLimiter
from coretools.web.tenants import Tenant, Tenants

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """Reads the operator's decisions: the flags and variables of the start, and the files as they are now."""

    config: Callable[[], Config]
    roles: Callable[[Config], Mapping[str, Role]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """The parts of the running server that a reload reads or replaces."""

    components: AppComponents
    app: ReplaceableApp
    tenants: Tenants
    session_limiter: SessionLimiter
    status: ReloadStatus
    environment: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """The verified content of the files, not applied yet."""

    config: Config
    roles: Mapping[str, Role]
    changes: list[ConfigChange]
    restart: list[ConfigChange]
    tls: ssl.SSLContext | None
    certificate: Certificate | None
    tokens: Mapping[str, frozenset[str]]
    verifier: Verifier | None
    moved: frozenset[str]
    """Roles with a root that is no longer where it was opened."""


@dataclass(slots=True)
class _Prepared:
    """Resources opened beside the active ones."""

    tenants: list[Tenant] = field(default_factory=list)
    successors: list[tuple[Tenant, Role, Assembly]] = field(default_factory=list)


class Reloader:
    """Applies the operator's files again."""

    def __init__(
        self, config: Config, roles: Mapping[str, Role], source: ConfigSource | None, running: RunningServer
    ) -> None:
        """`config` and `roles` are active.

        Raises:
            BadSetting: a token file or the certificate can't be read.
        """
        self.connections: Callable[[LimitsSection, ssl.SSLContext | None], object] = lambda *_: None
        """Sets limits and certificate of later connections; assigned by the listener."""
        self._config = config
        self._roles = roles
        self._source = source
        self._running = running
        self._certificate = certificate_of(config.server)
        self._note(has_succeeded=True)
        self._tokens: Mapping[str, frozenset[str]] = _tokens(config)

    async def reload(self) -> None:
        """Read, verify, apply, and log in one line what changed or why nothing did. Raises nothing."""
        if self._running.components.draining.has_begun:
            logger.info("not reloaded: the server is ending")
            return
        # In its own task: an error in it must not end the server.
        preparing = asyncio.get_running_loop().create_task(self._prepared())
        try:
            await asyncio.wait({preparing})
        # No effect after its end; without this a cancelled reload would go on alone.
        finally:
            preparing.cancel()
        failure = preparing.exception()
        if failure is not None:
            trace = None if isinstance(failure, CoreError) else failure
            logger.error("reload refused, nothing changed: %s", failure, exc_info=trace)
            self._note(has_succeeded=False)
            return
        candidate, opened = preparing.result()
        # Nothing is awaited until every change is applied.
        lists = self._apply(candidate, opened)
        self._note(has_succeeded=True)
        _log_reload(candidate)
        for catalog, kinds in lists:
            await catalog.notify(kinds)

    def _note(self, *, has_succeeded: bool) -> None:
        """Note the outcome for the metrics."""
        status = self._running.status
        status.at, status.has_succeeded = time.time(), has_succeeded
        status.certificate_ends = self._certificate.ends.timestamp() if self._certificate is not None else None

    async def _prepared(self) -> tuple[_Candidate, _Prepared]:
        candidate = await anyio.to_thread.run_sync(self._read)
        return candidate, await self._open(candidate)

    def _read(self) -> _Candidate:
        """Read and verify all that needs no open tenant. Blocks."""
        if self._source is None:
            raise BadSetting("this server was not started from files that can be read again")
        wanted = self._source.config()
        config = effective_config(self._config, wanted)
        roles = self._source.roles(config)
        changes = [*changes_of_config(self._config, wanted), *changes_of_policy(self._roles, roles)]
        restart = [change for change in changes if needs_restart(change, self._config, wanted)]
        changes = [change for change in changes if change not in restart]
        verifier = create_verifier(config, self._running.components.accepted)
        require_safe(config, has_auth=verifier is not None)
        certificate = certificate_of(config.server)
        warn_of_key(config.server)
        if certificate is not None and certificate != self._certificate:
            certificate.require_valid(config.server.tls_certificate)
            changes.append(ConfigChange(f"certificate, valid until {certificate.ends:%Y-%m-%d}", None, None))
        tokens = _tokens(config)
        for key, ids in tokens.items():
            if ids != self._tokens.get(key):
                changes.append(ConfigChange(f"{pluralized(len(ids), 'token')} in {key}", None, None))
        changes += _changes_of_user(self._roles, roles)
        moved = [name for name, one in tuple(self._running.tenants.opened.items()) if not one.is_ready]
        changes += [ConfigChange(f"roles.{name}: its roots are opened again", None, None) for name in moved]
        return _Candidate(
            config=config,
            roles=roles,
            changes=changes,
            restart=restart,
            tls=tls_context(config.server),
            certificate=certificate,
            tokens=tokens,
            verifier=verifier,
            moved=frozenset(moved),
        )

    async def _open(self, candidate: _Candidate) -> _Prepared:
        """Open the resources of new and changed roles.

        Raises:
            BadSetting: a role can't be served; all are closed again.
            Unconfined: commands can't be confined as the operator requires.
        """
        tenants, opened = self._running.tenants, _Prepared()
        async with AsyncExitStack() as undo:
            for name, role in candidate.roles.items():
                before = tenants.opened.get(name)
                if before is None:
                    tenant = await tenants.open(role)
                    undo.callback(tenant.over.set)
                    opened.tenants.append(tenant)
                elif role.settings != before.role.settings or name in candidate.moved:
                    assembly = await tenants.successor(before, role)
                    undo.push_async_callback(assembly.retire)
                    opened.successors.append((before, role, assembly))
                elif role != before.role:
                    opened.successors.append((before, role, before.assembly))
            # Every role can be served: what was opened now belongs to the caller.
            undo.pop_all()
        return opened

    def _apply(self, candidate: _Candidate, opened: _Prepared) -> list[tuple[LiveCatalog, frozenset[Surface]]]:
        """Apply the changes; return the lists that changed, by catalog."""
        running, config = self._running, candidate.config
        for name in self._roles.keys() - candidate.roles.keys():
            running.tenants.withdraw(name)
        for tenant in opened.tenants:
            running.tenants.serve(tenant)
        lists = [(one.catalog, running.tenants.replace(one, role, new)) for one, role, new in opened.successors]
        self._apply_to_middleware(candidate)
        running.session_limiter.limits = config.limits
        self.connections(config.limits, candidate.tls)
        if config.log.level != self._config.log.level:
            configure_logging(config.log.level, running.environment, config.log.format)
        self._config, self._roles, self._certificate, self._tokens = (
            config,
            candidate.roles,
            candidate.certificate,
            candidate.tokens,
        )
        return lists

    def _apply_to_middleware(self, candidate: _Candidate) -> None:
        """Make the middleware anew if its configuration changed; its counters start at zero then."""
        running, old, new = self._running, self._config, candidate.config
        has_changed = (old.auth, old.server, old.limits) != (new.auth, new.server, new.limits)
        has_new_verifier = has_changed or old.roles.keys() != new.roles.keys()
        if has_new_verifier and running.components.verifier is not None and candidate.verifier is not None:
            running.components.verifier.replace(candidate.verifier)
        if has_changed:
            running.app.replace(configured_app(replace(running.components, config=new)))
        if running.components.verifier is not None:
            running.tenants.stop_revoked(running.components.verifier)


def _changes_of_user(before: Mapping[str, Role], after: Mapping[str, Role]) -> list[ConfigChange]:
    """Return the change of the git configuration of the server's user, if there is one. All roles have the same."""
    digests = {role.settings.git_config_digest for role in (*before.values(), *after.values())}
    return [ConfigChange("git configuration of the server's user", None, None)] if len(digests) > 1 else []


def _tokens(config: Config) -> dict[str, frozenset[str]]:
    """Return the ids of the tokens in each file.

    Raises:
        BadSetting: a file can't be used.
    """
    files = {"auth": config.auth.tokens, "console": config.console.tokens, "metrics": config.metrics.tokens}
    return {
        f"{name}.tokens": frozenset(entry.id for entry in read_tokens(path)[0]) for name, path in files.items() if path
    }


def _log_reload(candidate: _Candidate) -> None:
    changes = "; ".join(map(str, candidate.changes)) or "nothing changed"
    if candidate.restart:
        keys = ", ".join(change.key for change in candidate.restart)
        logger.warning("reloaded: %s; needs a restart: %s", changes, keys)
    else:
        logger.info("reloaded: %s", changes)
