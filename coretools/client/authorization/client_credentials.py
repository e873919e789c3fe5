"""The SDK's providers for the credentials of an entry, without a person. A module of its own: it loads cryptography."""

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

from coretools.client.authorization.credential_store import Credentials
from coretools.client.authorization.oauth_providers import CompletedProvider, Provider
from coretools.client.common.failures import origin_of
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.errors import BadSetting

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def credentials_provider(url: str, client: OAuthClient, storage: TokenStorage, credentials: Credentials) -> Provider:
    """Return the provider for the entry's own credentials. They go to the configured issuer only.

    Raises:
        BadSetting: the key can't be used.
    """
    client_id = client.client_id or ""
    issuer = client.issuer or origin_of(url)
    provider: CompletedProvider
    if client.private_key is None:
        secret = client.client_secret or ""
        provider = _SecretProvider(url, storage, client_id=client_id, client_secret=secret, issuer=issuer)
    else:
        signed = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=client.private_key,
            signing_algorithm=_algorithm(client.private_key),
        )
        assertion = signed.create_assertion_provider()
        provider = _KeyProvider(url, storage, client_id=client_id, assertion_provider=assertion, issuer=issuer)
    provider.client, provider.missing_scope = client, credentials.missing_scope
    return provider


class _SecretProvider(CompletedProvider, ClientCredentialsOAuthProvider):
    pass


class _KeyProvider(CompletedProvider, PrivateKeyJWTOAuthProvider):
    pass


def _algorithm(pem: str) -> str:
    """Return the algorithm that a private key signs with.

    Raises:
        BadSetting: the key can't be used.
    """
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError) as error:
        raise BadSetting("oauth.privateKey: is no private key in PEM without a password") from error
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    raise BadSetting("oauth.privateKey: must be an RSA, P-256, P-384, P-521 or Ed25519 key")
