"""Verifies JWT access tokens of an authorization server with its public keys (RFC 7519, RFC 9068, RFC 8725).

PyJWT verifies signature, times, issuer and audience. This module decides which tokens and keys it gets, and
whose a valid token is.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from coretools.config.commit_author import Author, author_from
from coretools.web.auth.issuer_keys import IssuerKeys
from coretools.web.common.config import JwtSection
from coretools.web.common.principals import DEFAULT_ROLE, NotEntitled, Principal

LONGEST_ID = 256
"""Largest key id, subject and client id, in characters: OpenID Connect Core 1.0 allows 255 for a subject."""

ID_TOKEN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash", "s_hash"})
"""Claims that only ID tokens have (OpenID Connect Core 1.0, 2 and 3.3.2.11); those are for clients, not for servers."""

MOST_KNOWN = 1_024
"""Verified tokens remembered; verifying one takes a quarter of a millisecond."""

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "it is expired (auth.jwt.leeway_seconds allows for clocks that differ)"),
    (jwt.ImmatureSignatureError, "it is not valid yet (auth.jwt.leeway_seconds allows for clocks that differ)"),
    (jwt.InvalidIssuedAtError, "its iat is no time in the past"),
    (jwt.InvalidAudienceError, "its aud does not name this server (auth.jwt.audience, by default server.public_url)"),
    (jwt.InvalidIssuerError, "its iss is not auth.jwt.issuer, character by character"),
    (jwt.InvalidAlgorithmError, "its alg is none of auth.jwt.algorithms"),
    (jwt.InvalidKeyError, "its kid names no usable key of the issuer (auth.jwt.jwks_url, auth.jwt.algorithms)"),
    (jwt.InvalidSignatureError, "its signature is not by the key of the issuer that its kid names"),
    (jwt.DecodeError, "it is no JWT"),
)
"""Reasons for the operator's log. Fixed texts: the text of an exception could contain parts of the token."""

_logger = logging.getLogger(__name__)


class TokenRejected(jwt.InvalidTokenError):
    """A token that PyJWT would accept is refused here. The text is logged and has nothing from the token."""


class AcceptedClaims:
    """Claims of the newest accepted token of each principal and role.

    They outlive a verifier: its replacement decides with them who lost access.
    """

    def __init__(self) -> None:
        self._claims: OrderedDict[tuple[str, str], Mapping[str, Any]] = OrderedDict()

    def note(self, principal: Principal, claims: Mapping[str, Any]) -> None:
        """Remember the claims of an accepted token."""
        key = (principal.name, principal.role)
        self._claims[key] = claims
        self._claims.move_to_end(key)
        while len(self._claims) > MOST_KNOWN:
            self._claims.popitem(last=False)

    def of(self, name: str, role: str) -> Mapping[str, Any] | None:
        """Return the remembered claims, or None."""
        return self._claims.get((name, role))


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """A verified token and its key."""

    principal: Principal
    until: float
    kid: str
    key: jwt.PyJWK


class JwtVerifier:
    """Verifies the tokens of one issuer for one audience."""

    def __init__(
        self,
        section: JwtSection,
        *,
        audience: str,
        roles: Collection[str],
        clock: Callable[[], float] = time.monotonic,
        most_known: int = MOST_KNOWN,
        accepted: AcceptedClaims | None = None,
    ) -> None:
        """`roles` are the configured ones; `audience` applies if the section names none."""
        self._accepted = accepted or AcceptedClaims()
        self._section = section
        self._audience = section.audience or audience
        self._roles = roles
        self._types = {type_of(one) for one in section.token_types}
        self._most_known = most_known
        self._known: OrderedDict[bytes, _VerifiedToken] = OrderedDict()
        self._keys = IssuerKeys(section.issuer, url=section.jwks_url, algorithms=section.algorithms, clock=clock)

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token, or None if it is not valid.

        Raises:
            Unreachable: its key is unknown and the keys can't be fetched. NotEntitled: a scope or a role is missing.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        # A fetch creates new key objects even if no key changed.
        if known is not None and known.until > time.time() and known.key is await self._key_of(known):
            return known.principal
        try:
            verified = await self._judged(token)
        # OverflowError: a time that is no number of seconds, such as 1e999.
        except (jwt.PyJWTError, OverflowError) as error:
            _logger.info("token refused: %s (%s)", _reason(error), type(error).__name__)
            return None
        self._known[digest] = verified
        while len(self._known) > self._most_known:
            self._known.popitem(last=False)
        return verified.principal

    def admits(self, name: str, role: str) -> bool:
        """Whether the last accepted claims of this principal would still be accepted for the role."""
        if not name.startswith(f"{self._section.issuer}#"):
            return False
        claims = self._accepted.of(name, role)
        if claims is None:
            return role in self._roles
        audience = claims["aud"]
        if self._audience not in (audience if isinstance(audience, list) else [audience]):
            return False
        try:
            self._require_scopes(claims)
            return self._role(claims) == role
        except NotEntitled:
            return False

    async def _key_of(self, verified: _VerifiedToken) -> jwt.PyJWK | None:
        return await self._keys.key(verified.kid, verified.key.algorithm_name)

    async def _judged(self, token: str) -> _VerifiedToken:
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if algorithm not in self._section.algorithms:
            raise jwt.InvalidAlgorithmError
        if type_of(header.get("typ", "JWT")) not in self._types:
            raise TokenRejected(self._type_fault(header))
        key = await self._keys.key(kid, algorithm) if kid and len(kid) <= LONGEST_ID else None
        if key is None:
            raise jwt.InvalidKeyError
        claims = self._claims(token, key)
        self._require_scopes(claims)
        until = float(claims["exp"]) + self._section.leeway_seconds
        principal = Principal(
            name=self._name(claims), role=self._role(claims), author=self._author(claims), expires_at=until
        )
        self._accepted.note(principal, claims)
        return _VerifiedToken(principal, until, kid, key)

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self._audience,
            issuer=self._section.issuer,
            leeway=self._section.leeway_seconds,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        # `cnf` binds a token to a key of its owner (RFC 7800, 9449, 8705): possession of the token is not enough.
        if "cnf" in claims:
            raise TokenRejected(
                "it is bound to a key (cnf: DPoP or mutual TLS), which no setting takes; have the issuer give this "
                "client plain bearer tokens"
            )
        if ID_TOKEN_CLAIMS & claims.keys():
            raise TokenRejected("it is an ID token, which no setting takes; the client is to send its access token")
        return claims

    def _type_fault(self, header: Mapping[str, Any]) -> str:
        accepted = ", ".join(self._section.token_types)
        if type_of(header.get("typ", "JWT")) != "jwt":
            return f"its typ is none of auth.jwt.token_types ({accepted})"
        has = "its typ is JWT" if "typ" in header else "it has no typ, which counts as JWT"
        return f'{has}, and auth.jwt.token_types is {accepted}; add "JWT" there if the issuer marks access tokens so'

    def _name(self, claims: Mapping[str, Any]) -> str:
        """Return the principal's name. It has `#` and `:`, which names in a token file never have."""
        kind, claim = ("sub", "sub") if claims.get("sub") is not None else ("client", "client_id")
        value = claims.get(claim)
        if isinstance(value, str) and value and value.isprintable() and len(value) <= LONGEST_ID:
            return f"{self._section.issuer}#{kind}:{value}"
        raise jwt.MissingRequiredClaimError(claim)

    def _author(self, claims: Mapping[str, Any]) -> Author | None:
        """Return the commit author from the configured claims, if there are any."""
        if not self._section.name_claim:
            return None
        name, email = (claims.get(claim) for claim in (self._section.name_claim, self._section.email_claim))
        author = author_from(name, email) if isinstance(name, str) and isinstance(email, str) else None
        if author is None:
            _logger.warning("a token's claims name nobody to commit under; its owner commits as the role does")
        return author

    def _require_scopes(self, claims: Mapping[str, Any]) -> None:
        given = _words(claims.get("scope", claims.get("scp")))
        missing = [scope for scope in self._section.scopes if scope not in given]
        if missing:
            raise NotEntitled(f"the token lacks the scope {' '.join(missing)}", scopes=self._section.scopes)

    def _role(self, claims: Mapping[str, Any]) -> str:
        """Return the first configured role that the claim names. Without one the caller is refused."""
        claim, roles = self._section.role_claim, self._section.roles
        if claim:
            value = claims.get(claim)
            values = value if isinstance(value, list) else [value]
            role = next((role for wanted, role in roles.items() if wanted in values), None)
        else:
            role = DEFAULT_ROLE
        if role is None or role not in self._roles:
            raise NotEntitled("no role here goes with this token; ask the operator")
        return role


def _reason(error: Exception) -> str:
    if isinstance(error, TokenRejected):
        return str(error)
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it lacks the claim {error.claim}"  # one of those that we ask for
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "it can't be used")


def type_of(typ: object) -> str:
    """Normalize a `typ`: a media type without `application/` (RFC 7515, 4.1.9)."""
    return typ.lower().removeprefix("application/") if isinstance(typ, str) else ""


def _words(value: object) -> Collection[str]:
    """Split scopes: words in a string (RFC 9068, 2.2.3), or a list with some servers."""
    if isinstance(value, str):
        return value.split(" ")
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else ()
