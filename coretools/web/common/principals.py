"""Who calls over HTTP, and what he may: a principal has a role, a role has roots, rights and limits.

The gate (`coretools.web.auth.middleware`) puts the principal into the scope of a request; everything behind it reads
it there. What a role may do is what the operator's files said when they were last read.
"""

from dataclasses import dataclass
from typing import Protocol

from starlette.types import Scope

from coretools.config.author import Author
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.operations.call import LOCAL
from coretools.protocol.call_adapter import AUTHOR_KEY, PRINCIPAL_KEY

DEFAULT_ROLE = "default"
"""The role of whoever has none named: of a loopback server without tokens, everybody's."""

ROLE_KEY = "coretools.role"
"""Where the role of a request's principal stands in its ASGI scope."""


REQUESTS_PER_SECOND = 50.0
"""Of one principal with a token, where the configuration says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How much one principal may ask for."""

    requests_per_second: float = REQUESTS_PER_SECOND
    """Requests of any kind, on average. 0 is no limit."""
    burst: int = 100
    """Requests at once after a quiet time."""
    concurrent: int = 64
    """Requests of his that are being answered at once; `subscriptions/listen` counts too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What principals of one kind may do. All of them see the same commands beneath the same roots."""

    name: str = DEFAULT_ROLE
    settings: Settings
    """Roots, profile, rights and limits of the tools."""
    rates: Rates = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever a request was authenticated as."""

    name: str = LOCAL
    """The same for every credential of one caller, and nobody else's: sessions, runs and limits are his by it."""
    role: str = DEFAULT_ROLE
    author: Author | None = None
    """As whom he commits; None: as his role does."""
    expires_at: float | None = None
    """When the credential ends, in seconds since the epoch; None where it does not."""


class NotEntitled(CoreError):
    """A token is good, but not for what is here: scopes are missing, or there is no role for its owner."""

    kind = "not-entitled"
    exit_code = 77  # EX_NOPERM

    def __init__(self, message: str, *, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.scopes = scopes
        """Which a token needs; empty where another token of the same owner would not help."""


class Verifier(Protocol):
    """Tells whose a bearer token is."""

    async def verify(self, token: str) -> Principal | None:
        """The principal of a token; None when it is nobody's, or not any more.

        Raises:
            Unreachable: it can't be told now, because what would tell it can't be asked.
            NotEntitled: it is somebody's who may not call here.
        """
        ...

    def admits(self, name: str, role: str) -> bool:
        """Whether a principal who was let in by this name and role could be let in so again.

        Raises:
            Unreachable: it can't be told now.
        """
        ...


def set_principal(scope: Scope, principal: Principal) -> None:
    """Say whose a request is."""
    scope[PRINCIPAL_KEY] = principal.name
    scope[ROLE_KEY] = principal.role
    scope[AUTHOR_KEY] = principal.author


def principal_name(scope: Scope) -> str:
    """Whose a request is; a server that asks nobody has one principal."""
    name: str = scope.get(PRINCIPAL_KEY, LOCAL)
    return name


def principal_role(scope: Scope) -> str:
    """The role of whoever made a request."""
    role: str = scope.get(ROLE_KEY, DEFAULT_ROLE)
    return role
