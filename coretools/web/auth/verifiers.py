"""Which tokens the configuration lets in: those of a file, those of an authorization server, or both."""

import logging
import os
import time
from collections.abc import Collection

from coretools.errors import BadSetting, Unreachable
from coretools.roots.file_version import version_of
from coretools.web.auth.hashed_tokens import PREFIX, TokenRecord, find_record, read_tokens
from coretools.web.auth.jwt_tokens import AcceptedClaims, JwtVerifier
from coretools.web.common.config import Config
from coretools.web.common.principals import DEFAULT_ROLE, NotEntitled, Principal, Verifier

# Bearer tokens from a file of hashes, as `coretools token` writes it: who is in it may call, from the next request on.
#
# The file is looked at with every request: that is one system call, and a token that was revoked is refused at once.


_logger = logging.getLogger(__name__)


class TokenFileVerifier:
    """The tokens in one file.

    A file that can't be used any more lets nobody in until it can: what it was to say may be that a token is revoked.
    """

    def __init__(self, path: str, *, roles: Collection[str] | None = None) -> None:
        """`roles` are those that there are; None: the role of a token is not looked at.

        Raises:
            BadSetting: the file can't be used.
        """
        self._path = path
        self._roles = roles
        self._entries: tuple[TokenRecord, ...] | None
        """None: the file can't be used."""
        self._entries, self._version = read_tokens(path)
        self._fault = ""
        if not self._entries:
            _logger.warning("token file %s has no token: nobody can call; make one with coretools token create", path)
        self._warn_of_roles()

    async def verify(self, token: str) -> Principal | None:
        """The principal of a token.

        Raises:
            Unreachable: the file can't be used. NotEntitled: there is no such role here.
        """
        self._look()
        if self._entries is None:
            raise Unreachable("tokens can't be looked up now; try again later")
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
        """Whether a token of this principal and role is in the file; one whose time is over counts too.

        Raises:
            Unreachable: the file can't be used.
        """
        self._look()
        if self._entries is None:
            raise Unreachable("tokens can't be looked up now; try again later")
        has_role = self._roles is None or role in self._roles
        return has_role and any((entry.name, entry.role) == (name, role) for entry in self._entries)

    def _look(self) -> None:
        """Read the file when it is another one than before; one that can't be used each time."""
        if self._entries is not None and self._is_as_read():
            return
        try:
            self._entries, self._version = read_tokens(self._path)
        except BadSetting as error:
            self._entries = None
            if self._fault != str(error):
                self._fault = str(error)
                _logger.error("nobody is let in by the token file: %s", error)  # noqa: TRY400  # foreseen
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
    """Tokens of ours are looked up in the file, all others are the authorization server's."""

    def __init__(self, ours: Verifier, others: Verifier) -> None:
        self._ours = ours
        self._others = others

    async def verify(self, token: str) -> Principal | None:
        """The principal of a token.

        Raises:
            Unreachable: it can't be told now. NotEntitled: it is somebody's who may not call here.
        """
        return await (self._ours if token.startswith(PREFIX) else self._others).verify(token)

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal could be let in again, by either kind of token.

        Raises:
            Unreachable: it can't be told now.
        """
        return self._others.admits(name, role) or self._ours.admits(name, role)


class ReplaceableVerifier:
    """A verifier that another one can take the place of; streams that listen are judged by the new one too."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    async def verify(self, token: str) -> Principal | None:
        """The principal of a token.

        Raises:
            Unreachable: it can't be told now. NotEntitled: it is somebody's who may not call here.
        """
        return await self._verifier.verify(token)

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal could be let in again.

        Raises:
            Unreachable: it can't be told now.
        """
        return self._verifier.admits(name, role)

    def replace(self, verifier: Verifier) -> None:
        """Judge by this one from now on."""
        self._verifier = verifier


def replaceable(verifier: Verifier | None) -> ReplaceableVerifier | None:
    """A verifier as one that a reload can replace; None where everybody is let in."""
    return None if verifier is None else ReplaceableVerifier(verifier)


def create_verifier(config: Config, accepted: AcceptedClaims | None = None) -> Verifier | None:
    """What judges tokens; None where everybody is let in. `accepted` is what the verifier before has accepted.

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
