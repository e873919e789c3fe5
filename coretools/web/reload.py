"""SIGHUP: the operator's files are read again and verified; then all of it is in force, or nothing is.

What is opened for the new state stands beside the old one until everything was verified; the exchange itself waits for
nothing. Calls under way go on under what they began with (docs/adr/0020).
"""

import asyncio
import logging
import ssl
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
from coretools.protocol.process_exit import Draining
from coretools.web.app import Parts, Replaceable, application
from coretools.web.auth.exposure import require_safe
from coretools.web.auth.hashed_tokens import read_tokens
from coretools.web.auth.verifiers import verifier_of
from coretools.web.common.config import Config, LimitsSection
from coretools.web.common.principals import Role, Verifier
from coretools.web.config_changes import Change, changes_of_config, changes_of_policy, counted, needs_restart, settled
from coretools.web.connection.tls import Certificate, certificate_of, now, tls_context, warn_of_key
from coretools.web.sessions.session_manager import Admission, session_limits
from coretools.web.tenants import Workplace, Workplaces

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the operator's decisions are read: the same flags and variables, and the files as they are then."""

    config: Callable[[], Config]
    roles: Callable[[Config], Mapping[str, Role]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Living:
    """What the server is made of, and what of it a reload exchanges."""

    parts: Parts
    app: Replaceable
    workplaces: Workplaces
    admission: Admission
    draining: Draining
    environment: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class _Read:
    """What the files say and what was made of them: verified, and not in force yet."""

    config: Config
    roles: Mapping[str, Role]
    changes: list[Change]
    restart: list[Change]
    tls: ssl.SSLContext | None
    certificate: Certificate | None
    tokens: Mapping[str, frozenset[str]]
    verifier: Verifier | None
    moved: frozenset[str]
    """Roles of which a root is not any more where it was opened."""


@dataclass(slots=True)
class _Opened:
    """What stands beside what is in force."""

    workplaces: list[Workplace] = field(default_factory=list)
    successors: list[tuple[Workplace, Role, Assembly]] = field(default_factory=list)


class Reloading:
    """Brings the operator's files into force again."""

    def __init__(self, config: Config, roles: Mapping[str, Role], source: Source | None, living: Living) -> None:
        """`config` and `roles` are in force.

        Raises:
            BadSetting: a token file or the certificate can't be read.
        """
        self.connections: Callable[[LimitsSection, ssl.SSLContext | None], None] = _no_connections
        """Gives connections that come from now on limits and certificate; set by who listens."""
        self._config = config
        self._roles = roles
        self._source = source
        self._living = living
        self._certificate = certificate_of(config.server)
        self._tokens: Mapping[str, frozenset[str]] = _tokens(config)

    async def reload(self) -> None:
        """Read, verify, exchange, and say in one line what changed, or why nothing did. Raises nothing."""
        if self._living.draining.has_begun:
            logger.info("not reloaded: the server ends")
            return
        # In a task of its own: whatever fails in it must not end the server.
        preparing = asyncio.get_running_loop().create_task(self._prepared())
        try:
            await asyncio.wait({preparing})
        finally:
            preparing.cancel()
        failure = preparing.exception()
        if failure is not None:
            trace = None if isinstance(failure, CoreError) else failure
            logger.error("reload refused, nothing changed: %s", failure, exc_info=trace)
            return
        read, opened = preparing.result()
        # Nothing is waited for until all of it is in force.
        lists = self._exchange(read, opened)
        _say(read)
        for catalog, kinds in lists:
            await catalog.notify(kinds)

    async def _prepared(self) -> tuple[_Read, _Opened]:
        read = await anyio.to_thread.run_sync(self._read)
        return read, await self._open(read)

    def _read(self) -> _Read:
        """Everything that can be verified without opening a workplace. Blocks."""
        if self._source is None:
            raise BadSetting("this server was not started from files that can be read again")
        wanted = self._source.config()
        config = settled(self._config, wanted)
        roles = self._source.roles(config)
        changes = [*changes_of_config(self._config, wanted), *changes_of_policy(self._roles, roles)]
        restart = [change for change in changes if needs_restart(change, self._config, wanted)]
        changes = [change for change in changes if change not in restart]
        verifier = verifier_of(config, self._living.parts.accepted)
        require_safe(config, has_auth=verifier is not None)
        certificate = certificate_of(config.server)
        warn_of_key(config.server)
        if certificate is not None and certificate != self._certificate:
            certificate.require_valid(config.server.tls_certificate, now())
            changes.append(Change(f"certificate, valid until {certificate.ends:%Y-%m-%d}", None, None))
        tokens = _tokens(config)
        for key, ids in tokens.items():
            if ids != self._tokens.get(key):
                changes.append(Change(f"{counted(len(ids), 'token')} in {key}", None, None))
        moved = [name for name, one in tuple(self._living.workplaces.opened.items()) if not one.is_ready]
        changes += [Change(f"roles.{name}: its roots are opened again", None, None) for name in moved]
        return _Read(
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

    async def _open(self, read: _Read) -> _Opened:
        """Open what new and changed roles have.

        Raises:
            BadSetting: one of them can't be served; all are closed again.
            Unconfined: commands can't be held as the operator requires.
        """
        workplaces, opened = self._living.workplaces, _Opened()
        async with AsyncExitStack() as undo:
            for name, role in read.roles.items():
                before = workplaces.opened.get(name)
                if before is None:
                    workplace = await workplaces.open(role)
                    undo.callback(workplace.over.set)
                    opened.workplaces.append(workplace)
                elif role.settings != before.role.settings or name in read.moved:
                    assembly = await workplaces.successor(before, role)
                    undo.push_async_callback(assembly.retire)
                    opened.successors.append((before, role, assembly))
                elif role != before.role:
                    opened.successors.append((before, role, before.assembly))
            undo.pop_all()
        return opened

    def _exchange(self, read: _Read, opened: _Opened) -> list[tuple[LiveCatalog, frozenset[Surface]]]:
        """Bring it into force; says which lists changed in which graphs."""
        living, config = self._living, read.config
        for name in self._roles.keys() - read.roles.keys():
            living.workplaces.withdraw(name)
        for workplace in opened.workplaces:
            living.workplaces.serve(workplace)
        lists = [(one.catalog, living.workplaces.replace(one, role, new)) for one, role, new in opened.successors]
        self._exchange_gate(read)
        living.admission.use(session_limits(config.limits))
        self.connections(config.limits, read.tls)
        if config.log.level != self._config.log.level:
            configure_logging(config.log.level, living.environment, config.log.format)
        self._config, self._roles, self._certificate, self._tokens = config, read.roles, read.certificate, read.tokens
        return lists

    def _exchange_gate(self, read: _Read) -> None:
        """What stands before the workplaces is made anew where it must be: what it counts begins anew with it."""
        living, old, new = self._living, self._config, read.config
        has_changed = (old.auth, old.server, old.limits) != (new.auth, new.server, new.limits)
        is_judged_anew = has_changed or old.roles.keys() != new.roles.keys()
        if is_judged_anew and living.parts.verifier is not None and read.verifier is not None:
            living.parts.verifier.replace(read.verifier)
        if has_changed:
            living.app.replace(application(replace(living.parts, config=new)))
        if living.parts.verifier is not None:
            living.workplaces.stop_revoked(living.parts.verifier)


def _tokens(config: Config) -> dict[str, frozenset[str]]:
    """Ids of the tokens in each file.

    Raises:
        BadSetting: a file can't be used.
    """
    files = {"auth": config.auth.tokens, "console": config.console.tokens, "metrics": config.metrics.tokens}
    return {
        f"{name}.tokens": frozenset(entry.id for entry in read_tokens(path)[0]) for name, path in files.items() if path
    }


def _say(read: _Read) -> None:
    said = "; ".join(map(str, read.changes)) or "nothing changed"
    if read.restart:
        keys = ", ".join(change.key for change in read.restart)
        logger.warning("reloaded: %s; needs a restart: %s", said, keys)
    else:
        logger.info("reloaded: %s", said)


def _no_connections(limits: LimitsSection, tls: ssl.SSLContext | None) -> None:
    """Nobody listens."""
