"""Principals and roles of HTTP callers: a principal has a role, a role has roots, rights and limits.

`AuthMiddleware` puts the principal into the ASGI scope; everything behind it reads it there. The rights of a role are
those of the operator's files at the last reload.
"""

from dataclasses import dataclass
from typing import Protocol

from starlette.types import Scope

from coretools.config.commit_author import Author
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.operations.call import LOCAL
from coretools.protocol.call_adapter import AUTHOR_KEY, PRINCIPAL_KEY

DEFAULT_ROLE = "default"
"""The role of principals without a named one: of everybody on a loopback server without tokens."""

ROLE_KEY = "coretools.role"
"""ASGI scope key of the principal's role."""


REQUESTS_PER_SECOND = 50.0
"""Default rate of one principal with a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rate limits of one principal."""

    requests_per_second: float = REQUESTS_PER_SECOND
    """Average requests of any kind; 0 is no limit."""
    burst: int = 100
    """Requests at once after an idle time."""
    concurrent: int = 64
    """Concurrent requests, including `subscriptions/listen`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Rights of a group of principals: they see the same tools and the same roots."""

    name: str = DEFAULT_ROLE
    settings: Settings
    """Roots, profile, rights and limits of the tools."""
    rates: Rates = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The authenticated caller of a request."""

    name: str = LOCAL
    """Unique for a caller and the same for all its credentials: sessions, runs and limits belong to it."""
    role: str = DEFAULT_ROLE
    author: Author | None = None
    """Author of its commits; None: that of the role."""
    expires_at: float | None = None
    """Expiry of the credential, in seconds since the epoch; None: it does not expire."""


class NotEntitled(CoreError):
    """A valid token gives no access here: scopes are missing, or its owner has no role."""

    kind = "not-entitled"
    exit_code = 77  # EX_NOPERM

    def __init__(self, message: str, *, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.scopes = scopes
        """Required scopes; empty if another token of the same owner would not help."""


class Verifier(Protocol):
    """Verifies bearer tokens."""

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if the token is not valid, or no longer.

        Raises:
            Unreachable: tokens can't be verified now.
            NotEntitled: its owner may not call here.
        """
        ...

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal with this name and role still has access.

        Raises:
            Unreachable: access can't be verified now.
        """
        ...


def set_principal(scope: Scope, principal: Principal) -> None:
    """Put the principal into the scope of a request."""
    scope[PRINCIPAL_KEY] = principal.name
    scope[ROLE_KEY] = principal.role
    scope[AUTHOR_KEY] = principal.author


def principal_name(scope: Scope) -> str:
    """Return the principal's name; a server without authentication has one principal."""
    name: str = scope.get(PRINCIPAL_KEY, LOCAL)
    return name


def principal_role(scope: Scope) -> str:
    """Return the role of the principal."""
    role: str = scope.get(ROLE_KEY, DEFAULT_ROLE)
    return role
