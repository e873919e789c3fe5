"""The OAuth keys of an entry, as the known clients name them, and the OAuth client that they describe."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from coretools.errors import BadSetting

CALLBACK_PATH = "/callback"

LOOPBACK_HOSTS = ("127.0.0.1", "localhost")
"""Hosts of a redirect address that a listener of ours can have."""

NO_EFFECT = frozenset({"audiences", "tokenParamName", "registrationUrl"})
"""Documented keys of the clients that this one ignores."""

_WELL_KNOWN = re.compile(r"/\.well-known/(?:oauth-authorization-server|openid-configuration)")


def _as_list(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


def spelled(*names: str) -> Any:
    """Return a field that may have any of these names in a file; None by default."""
    return Field(default=None, validation_alias=AliasChoices(*names))


def known_keys(model: type[BaseModel]) -> set[str]:
    """Return every name that a field of a model may have in a file."""
    keys: set[str] = set()
    for name, info in model.model_fields.items():
        alias = info.validation_alias
        keys |= set(map(str, alias.choices)) if isinstance(alias, AliasChoices) else {str(alias or name)}
    return keys


Scopes = Annotated[list[str], BeforeValidator(_as_list)]


class OAuthSettings(BaseModel):
    """What an entry says, before variables are replaced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    enabled: bool = True
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str | None = spelled("clientId", "client_id", "CLIENT_ID")
    client_secret: str | None = spelled("clientSecret", "client_secret", "CLIENT_SECRET")
    private_key: str | None = spelled("privateKey", "private_key")
    """PEM; signs what proves the identity of a client without a secret (RFC 7523)."""
    scopes: Scopes | None = spelled("scopes", "scope")
    issuer: str | None = None
    metadata_url: str | None = spelled("authServerMetadataUrl")
    """Claude Code: where the metadata of the authorization server is; names its issuer."""
    authorization_url: str | None = spelled("authorizationUrl")
    token_url: str | None = spelled("tokenUrl")
    callback_port: int | None = Field(default=None, validation_alias="callbackPort", ge=1, le=65_535)
    redirect_uri: str | None = spelled("redirectUri")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """How this client presents itself to an authorization server; without values, it registers itself."""

    grant: str = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    scope: str | None = None
    """Instead of the scopes that the server names."""
    issuer: str | None = None
    """The only authorization server that may be used."""
    authorization_url: str | None = None
    token_url: str | None = None
    redirect_host: str = LOOPBACK_HOSTS[0]
    redirect_port: int = 0
    """0: any that is free."""
    redirect_path: str = CALLBACK_PATH

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain."""
        return tuple(value for value in (self.client_secret, self.private_key) if value)


def oauth_client(
    settings: OAuthSettings | None, scopes: list[str] | None, replaced: Callable[[str, str], str]
) -> OAuthClient:
    """Complete the OAuth keys of an entry; `replaced` replaces the variables of a text, and takes the key for errors.

    Raises:
        BadSetting: keys do not fit together.
    """
    settings = settings or OAuthSettings()

    def value(name: str, text: str | None) -> str | None:
        return replaced(text, f"oauth.{name}") if text else None

    scopes = settings.scopes if settings.scopes is not None else scopes
    metadata_url = value("authServerMetadataUrl", settings.metadata_url)
    host, port, path = _redirect(value("redirectUri", settings.redirect_uri), settings.callback_port)
    client = OAuthClient(
        grant=settings.grant,
        client_id=value("clientId", settings.client_id),
        client_secret=value("clientSecret", settings.client_secret),
        private_key=value("privateKey", settings.private_key),
        scope=None if scopes is None else replaced(" ".join(scopes), "oauth.scopes"),
        issuer=value("issuer", settings.issuer) or (metadata_url and _WELL_KNOWN.sub("", metadata_url)),
        authorization_url=value("authorizationUrl", settings.authorization_url),
        token_url=value("tokenUrl", settings.token_url),
        redirect_host=host,
        redirect_port=port,
        redirect_path=path,
    )
    _check(client)
    return client


def _check(client: OAuthClient) -> None:
    if (client.authorization_url is None) != (client.token_url is None):
        raise BadSetting("oauth: give both `authorizationUrl` and `tokenUrl`, or neither")
    for name, url in (
        ("issuer", client.issuer),
        ("authorizationUrl", client.authorization_url),
        ("tokenUrl", client.token_url),
    ):
        if url is not None and not re.match(r"https?://[^/\s]", url):
            raise BadSetting(f"oauth.{name}: must begin with https://")
    if client.grant == "client_credentials" and not (client.client_id and client.secrets):
        raise BadSetting("oauth: client_credentials needs `clientId`, and `clientSecret` or `privateKey`")
    if client.client_secret and not client.client_id:
        raise BadSetting("oauth: `clientSecret` needs `clientId`")


def _redirect(uri: str | None, port: int | None) -> tuple[str, int, str]:
    """Return host, port and path of the address to which the browser comes back."""
    if uri is None:
        return LOOPBACK_HOSTS[0], port or 0, CALLBACK_PATH
    try:
        parts = urlsplit(uri)
        host, named_port = parts.hostname, parts.port or port
    except ValueError as error:
        raise BadSetting(f"oauth.redirectUri: {error}") from error
    if parts.scheme != "http" or host not in LOOPBACK_HOSTS or named_port is None or parts.query:
        raise BadSetting("oauth.redirectUri: must be http://localhost:PORT/PATH, or with 127.0.0.1")
    return host, named_port, parts.path or "/"


def remarks_about_oauth(raw: Mapping[str, Any]) -> list[str]:
    """Return remarks about keys within `oauth` that are unknown or have no effect."""
    known = known_keys(OAuthSettings)
    return [
        f"the key 'oauth.{key}' has no effect here" if key in NO_EFFECT else f"unknown key 'oauth.{key}'"
        for key in raw
        if key not in known
    ]
