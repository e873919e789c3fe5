"""Which tokens the configuration lets in: those of a file, those of an authorization server, or both."""

from coretools.serving.web.auth.hashed_tokens import PREFIX
from coretools.serving.web.auth.jwt_tokens import AcceptedClaims, JwtTokens
from coretools.serving.web.auth.token_file import TokenFile
from coretools.serving.web.config import Config
from coretools.serving.web.principals import DEFAULT_ROLE, Principal, Verifier


class Either:
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


def verifier_of(config: Config, accepted: AcceptedClaims | None = None) -> Verifier | None:
    """What judges tokens; None where everybody is let in. `accepted` is what the verifier before has accepted.

    Raises:
        BadSetting: the token file can't be used.
    """
    roles = frozenset(config.roles or (DEFAULT_ROLE,))
    section = config.auth.jwt
    in_file = TokenFile(config.auth.tokens, roles=roles) if config.auth.tokens else None
    url = config.server.public_url
    by_jwt = JwtTokens(section, audience=url, roles=roles, accepted=accepted) if section else None
    if in_file is not None and by_jwt is not None:
        return Either(in_file, by_jwt)
    return in_file or by_jwt
