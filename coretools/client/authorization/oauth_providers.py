"""The SDK's provider for a person, with the checks that it leaves to the client; documents that an entry replaces."""

import json
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    is_valid_client_metadata_url,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl

from coretools.client.authorization.credential_store import Credentials
from coretools.client.common.failures import origin_of
from coretools.client.configuration.oauth_settings import OAuthClient

Provider = OAuthClientProvider

_BASIC, _POST = "client_secret_basic", "client_secret_post"


def configured_client(client: OAuthClient, redirect: str | None = None) -> OAuthClientInformationFull | None:
    """Return the client that the entry names; None if it registers itself, or its id is the address of a document."""
    if client.client_id is None or is_valid_client_metadata_url(client.client_id):
        return None
    return OAuthClientInformationFull(
        client_id=client.client_id,
        client_secret=client.client_secret,
        redirect_uris=None if redirect is None else [AnyUrl(redirect)],
        token_endpoint_auth_method=_BASIC if client.client_secret else "none",
        issuer=client.issuer,
    )


def person_provider(
    url: str, client: OAuthClient, storage: TokenStorage, credentials: Credentials, redirect: str | None = None
) -> Provider:
    """Return the provider for a person with a browser."""
    metadata = OAuthClientMetadata(
        client_name="coretools",
        redirect_uris=[AnyUrl(redirect or f"http://{client.redirect_host}{client.redirect_path}")],
        scope=client.scope,
    )
    document = client.client_id if is_valid_client_metadata_url(client.client_id) else None
    provider = _PersonProvider(url, metadata, storage, client_metadata_url=document)
    provider.client = client
    provider.missing_scope = credentials.missing_scope
    return provider


class CompletedProvider(OAuthClientProvider):
    """A provider of the SDK that asks for the scopes, and sends the secret, as the entry and the server want it."""

    client = OAuthClient()
    missing_scope: str | None = None

    async def _perform_authorization(self) -> httpx2.Request:
        _complete(self.context, self.client, self.missing_scope)
        return await super()._perform_authorization()


class _PersonProvider(CompletedProvider):
    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self.client.issuer
        if issuer is None:
            return advertised[0]
        for one in advertised:
            if issuers_match(one, issuer):
                return one
        raise OAuthFlowError(f"the server names {advertised[0]} as its authorization server, and its entry {issuer}")

    async def _perform_authorization(self) -> httpx2.Request:
        if self.context.oauth_metadata is not None:
            _check_metadata(self.context.oauth_metadata, self.client)
        return await super()._perform_authorization()


def _check_metadata(metadata: OAuthMetadata, client: OAuthClient) -> None:
    """Refuse an authorization server that could lead the login to another one, or has no PKCE."""
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise OAuthFlowError(f"the authorization server {metadata.issuer} does not support PKCE with S256")
    if client.issuer is not None or client.token_url is not None:
        return
    issuer = origin_of(str(metadata.issuer))
    login = origin_of(str(metadata.authorization_endpoint))
    token = origin_of(str(metadata.token_endpoint))
    # A server in the middle would show the login page of another one, and get its code (RFC 9700, 4.4).
    if login != issuer or (client.client_secret and token != issuer):
        other = login if login != issuer else token
        raise OAuthFlowError(
            f"the authorization server {metadata.issuer} leads to {other};"
            f" set `oauth.issuer` to {str(metadata.issuer)!r} in the server's entry if that is right"
        )


def _complete(context: OAuthContext, client: OAuthClient, missing_scope: str | None) -> None:
    """Choose the scope, and how a configured secret is sent."""
    named = context.client_metadata.scope
    context.client_metadata.scope = union_scopes(client.scope if client.scope is not None else named, missing_scope)
    registered = context.client_info
    methods = context.oauth_metadata and context.oauth_metadata.token_endpoint_auth_methods_supported
    if registered is not None and registered.token_endpoint_auth_method == _BASIC and methods:
        registered.token_endpoint_auth_method = _POST if _BASIC not in methods and _POST in methods else _BASIC


class Discovery:
    """Documents that the entry replaces: where the authorization server is, and its endpoints."""

    def __init__(self, client: OAuthClient, url: str, response: httpx2.Response | None) -> None:
        named = None if response is None else extract_resource_metadata_from_www_auth(response)
        self._client = client
        self._url = url
        self._resource_urls = build_protected_resource_metadata_discovery_urls(named, url)
        self._issuer = client.issuer or (client.authorization_url and origin_of(client.authorization_url))

    def configured(self, request: httpx2.Request) -> httpx2.Response | None:
        """Return the document that the entry replaces; None if it must be fetched."""
        client = self._client
        if self._issuer is None or client.authorization_url is None or request.method != "GET":
            return None
        if str(request.url) in self._resource_urls:
            return self._resource(request)
        if str(request.url) not in build_oauth_authorization_server_metadata_discovery_urls(self._issuer, self._url):
            return None
        endpoints = {"authorization_endpoint": client.authorization_url, "token_endpoint": client.token_url}
        return _document(request, {"issuer": self._issuer, **endpoints, "code_challenge_methods_supported": ["S256"]})

    def completed(self, response: httpx2.Response) -> httpx2.Response:
        """Name the configured authorization server for a server that publishes none."""
        is_last = str(response.request.url) == self._resource_urls[-1]
        if self._issuer is None or response.is_success or not is_last:
            return response
        return self._resource(response.request)

    def _resource(self, request: httpx2.Request) -> httpx2.Response:
        return _document(request, {"resource": self._url, "authorization_servers": [self._issuer]})


def _document(request: httpx2.Request, content: dict[str, Any]) -> httpx2.Response:
    headers = {"Content-Type": "application/json"}
    return httpx2.Response(200, headers=headers, content=json.dumps(content).encode(), request=request)
