"""Verifiers of bearer tokens: from a token file, from an authorization server, or both; and a limit on wrong tokens."""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection

from coretools.egress.hosts import subscriber, system_address
from coretools.errors import BadSetting, Unreachable
from coretools.roots.file_version import version_of
from coretools.web.auth.hashed_tokens import PREFIX, TokenRecord, find_record, read_tokens
from coretools.web.auth.jwt_tokens import AcceptedClaims, JwtVerifier
from coretools.web.common.config import Config
from coretools.web.common.principals import DEFAULT_ROLE, NotEntitled, Principal, Verifier

# Every request checks whether the token file changed: one system call, and a revoked token is refused at once.


_logger = logging.getLogger(__name__)


class TokenFileVerifier:
    """Verifies the tokens in one file, as `coretools token` writes it.

    While the file can't be used, nobody has access: its new content may revoke a token.
    """

    def __init__(self, path: str, *, roles: Collection[str] | None = None) -> None:
        """`roles` are the configured ones; None: the role of a token is ignored.

        Raises:
            BadSetting: the file can't be used.
        """
        self._path = path
        self._roles = roles
        self._entries: tuple[TokenRecord, ...] | None
        """None while the file can't be used."""
        self._entries, self._version = read_tokens(path)
        self._fault = ""
        if not self._entries:
            _logger.warning("token file %s has no token: nobody can call; create one with coretools token create", path)
        self._warn_of_roles()

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token, or None.

        Raises:
            Unreachable: the file can't be used. NotEntitled: its role is not configured.
        """
        self._read_if_changed()
        if self._entries is None:
            raise Unreachable("tokens can't be verified now; try again later")
        entry = find_record(self._entries, token)
        if entry is None:
            return None
        expires_at = entry.expires.timestamp() if entry.expires else None
        if expires_at is not None and expires_at <= time.time():
            return None
        if self._roles is not None and entry.role not in self._roles:
            raise NotEntitled("the role of this token is not known here; ask the operator")
        return Principal(name=entry.name, role=entry.role, author=entry.commits_as, expires_at=expires_at)

    def admits(self, name: str, role: str) -> bool:
        """Whether a token of this principal and role is in the file, including expired ones.

        Raises:
            Unreachable: the file can't be used.
        """
        self._read_if_changed()
        if self._entries is None:
            raise Unreachable("tokens can't be verified now; try again later")
        has_role = self._roles is None or role in self._roles
        return has_role and any((entry.name, entry.role) == (name, role) for entry in self._entries)

    def _read_if_changed(self) -> None:
        """Read the file if it changed, and every time while it can't be used."""
        if self._entries is not None and self._is_as_read():
            return
        try:
            self._entries, self._version = read_tokens(self._path)
        except BadSetting as error:
            self._entries = None
            if self._fault != str(error):
                self._fault = str(error)
                _logger.error("nobody has access by the token file: %s", error)  # noqa: TRY400  # foreseen
            return
        self._fault = ""
        _logger.info("token file read: %d tokens", len(self._entries))
        self._warn_of_roles()

    def _is_as_read(self) -> bool:
        try:
            return version_of(os.stat(self._path)) == self._version
        except OSError:
            return False

    def _warn_of_roles(self) -> None:
        if self._roles is None or self._entries is None:
            return
        for entry in self._entries:
            if entry.role not in self._roles:
                _logger.warning("token %s of %s: no role %s here; it is refused", entry.id, entry.name, entry.role)


class CombinedVerifier:
    """Verifies tokens with our prefix by the file and all others by the authorization server."""

    def __init__(self, ours: Verifier, others: Verifier) -> None:
        self._ours = ours
        self._others = others

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token, or None.

        Raises:
            Unreachable: tokens can't be verified now. NotEntitled: its owner may not call here.
        """
        return await (self._ours if token.startswith(PREFIX) else self._others).verify(token)

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal still has access, by either kind of token.

        Raises:
            Unreachable: access can't be verified now.
        """
        return self._others.admits(name, role) or self._ours.admits(name, role)


class ReplaceableVerifier:
    """A verifier that a reload can replace; open streams are checked by the new one too."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token, or None.

        Raises:
            Unreachable: tokens can't be verified now. NotEntitled: its owner may not call here.
        """
        return await self._verifier.verify(token)

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal still has access.

        Raises:
            Unreachable: access can't be verified now.
        """
        return self._verifier.admits(name, role)

    def replace(self, verifier: Verifier) -> None:
        """Use this verifier from now on."""
        self._verifier = verifier


def create_verifier(config: Config, accepted: AcceptedClaims | None = None) -> Verifier | None:
    """Create the configured verifier; None if no tokens are required. `accepted` are claims from the previous verifier.

    Raises:
        BadSetting: the token file can't be used.
    """
    roles = frozenset(config.roles or (DEFAULT_ROLE,))
    section = config.auth.jwt
    in_file = TokenFileVerifier(config.auth.tokens, roles=roles) if config.auth.tokens else None
    url = config.server.public_url
    by_jwt = JwtVerifier(section, audience=url, roles=roles, accepted=accepted) if section else None
    if in_file is not None and by_jwt is not None:
        return CombinedVerifier(in_file, by_jwt)
    return in_file or by_jwt


WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 2_048
"""Addresses remembered; beyond it the one with the oldest failure is forgotten."""


class FailureLimiter:
    """Counts the wrong tokens of the last minute, by address, to slow down guessing.

    Only wrong tokens are counted and delayed (ADR 0021): a valid one is verified first. A token counts once. The number
    of addresses, and of tokens for each, is bounded.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._failures: OrderedDict[str, dict[int, float]] = OrderedDict()

    def record(self, address: str, token: str) -> float:
        """Count a wrong token without keeping it; return the seconds that its address must wait."""
        group = address_group(address)
        failures = self._within(group)
        if len(failures) >= self._per_minute:
            return min(failures.values()) + WINDOW_SECONDS - self._clock()
        # Hashes of strings differ in each process and are unpredictable (PYTHONHASHSEED).
        failures.setdefault(hash(token), self._clock())
        self._failures[group] = failures
        self._failures.move_to_end(group)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        return 0.0

    def _within(self, group: str) -> dict[int, float]:
        begin = self._clock() - WINDOW_SECONDS
        return {digest: at for digest, at in self._failures.get(group, {}).items() if at > begin}


def address_group(address: str) -> str:
    """Return the group that an address is counted in: an IPv4 address, an IPv6 network, or the text itself."""
    try:
        return subscriber(system_address(address))
    except ValueError:
        return address
