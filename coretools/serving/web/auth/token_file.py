"""Bearer tokens from a file of hashes, as `coretools token` writes it: who is in it may call, from the next request on.

The file is looked at with every request: that is one system call, and a token that was revoked is refused at once.
"""

import logging
import os
import time
from collections.abc import Collection

from coretools.errors import BadSetting, Unreachable
from coretools.sandbox.kinds import version_of
from coretools.serving.web.auth.hashed_tokens import Entry, entry_of, read_tokens
from coretools.serving.web.principals import NotEntitled, Principal

_logger = logging.getLogger(__name__)


class TokenFile:
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
        self._entries: tuple[Entry, ...] | None
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
        entry = entry_of(self._entries, token)
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
