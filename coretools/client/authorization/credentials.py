"""The credentials of a remote server by OAuth: stored tokens, renewed in time, or a login that a person asked for.

The SDK's providers know the flow. This module gives them what they lack: tokens that outlive the process, a renewal
that two processes don't do at once, and requests that are bounded and go where they may (`requests`).
Contact authorization servers only during a login, or when the entry has its own client credentials.
"""

import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial

import anyio
import httpx2
from anyio import to_thread
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken, ProtectedResourceMetadata
from pydantic import ValidationError

from coretools.client.authorization.credential_store import Credentials, CredentialStore
from coretools.client.authorization.login_listener import LoginListener, ShowAddress, login_listener
from coretools.client.authorization.oauth_providers import Discovery, Provider, configured_client, person_provider
from coretools.client.authorization.requests import AddressRules, answer, authorization_http
from coretools.client.common.errors import AuthenticationRequired, LoginRequired
from coretools.client.common.failures import origin_of
from coretools.client.configuration.oauth_settings import OAuthClient
from coretools.client.connection.remote_transport import RemoteCredentials
from coretools.errors import BadSetting, CoreError

# Its tracebacks hold answers of authorization servers. What is wrong becomes an error of ours.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)

_FLOW_ERRORS = (OAuthFlowError, OAuthRegistrationError, OAuthTokenError, ValueError, OverflowError, httpx2.InvalidURL)


class ServerAuthorization(RemoteCredentials):
    """Adds the token of one server to the requests to it."""

    def __init__(
        self,
        words: str,
        url: str,
        client: OAuthClient,
        environment: Mapping[str, str],
        show_address: ShowAddress | None = None,
    ) -> None:
        """With `show_address` a person logs in anew; without, a server that wants a login is refused.

        `words` follow `coretools mcp login` in the error that says so.
        """
        self.store = CredentialStore(environment, url, client)
        self.has_logged_in = False
        self.waits_for_person = False
        """A login has begun."""
        self._words = words
        self._url = url
        self._client = client
        self._show_address = show_address
        self._is_automatic = client.grant == "client_credentials"
        self._rules = AddressRules(url, (client.issuer, client.authorization_url, client.token_url))
        self._credentials: Credentials | None = None
        self._failure: CoreError | None = None
        self._lock = anyio.Lock()
        self._busy_until = -math.inf

    @property
    def failure(self) -> CoreError | None:
        """Why there are no credentials that the server accepts."""
        return self._failure

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain."""
        return self._credentials.secrets if self._credentials else ()

    @property
    def idle_seconds(self) -> float:
        """Seconds since requests waited for a token; 0 while they wait."""
        return 0.0 if self._lock.locked() else anyio.current_time() - self._busy_until

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; once more if the server refuses it and there is another."""
        if not _is_same_origin(request.url, httpx2.URL(self._url)):
            yield request
            return
        async with self._lock:
            await self._attempt(self._prepare, request)
        sent = self._add_token(request)
        response = yield request
        if not _is_challenge(response):
            return
        async with self._lock:
            if self._token == sent:
                await self._attempt(self._replace_token, request, response)
        if self._token in (None, sent):
            return
        self._add_token(request)
        response = yield request
        if _is_challenge(response):
            self._failure = await self._refused(response, "refuses the new token too")

    async def log_in(self) -> None:
        """Log in to a server that asks for no token, if it says where (RFC 9728): it may want one for calls."""
        request = httpx2.Request("POST", self._url)
        named = httpx2.Response(httpx2.codes.UNAUTHORIZED, request=request)
        async with self._lock:
            await self._attempt(self._prepare, request)
            if await self._names_authorization_server():
                await self._attempt(self._authorize, request, named)

    async def _names_authorization_server(self) -> bool:
        async with authorization_http() as http:
            for url in build_protected_resource_metadata_discovery_urls(None, self._url):
                with suppress(CoreError, ValidationError):
                    response = await answer(http, httpx2.Request("GET", url))
                    if response.is_success and ProtectedResourceMetadata.model_validate_json(response.content):
                        return True
        return False

    async def log_out(self) -> bool:
        """Delete what is stored, and have the tokens revoked (RFC 7009); return whether there were any.

        Raises:
            CoreError: they are deleted here, but the authorization server did not revoke them.
        """
        try:
            stored = await to_thread.run_sync(self.store.read)
        except BadSetting:
            stored = Credentials()  # nobody can use it; it is only deleted
        was_there = await to_thread.run_sync(self.store.delete)
        await self._revoke(stored)
        return was_there

    async def _revoke(self, stored: Credentials) -> None:
        server, tokens = stored.authorization_server, stored.tokens
        if server is None or server.revocation_endpoint is None or tokens is None:
            return
        address = str(server.revocation_endpoint)
        await self._rules.check(address)
        form = {"token": tokens.refresh_token or tokens.access_token}
        registered = configured_client(self._client) or stored.registration
        if registered is not None:
            form["client_id"] = registered.client_id
            form |= {"client_secret": registered.client_secret} if registered.client_secret else {}
        async with authorization_http() as http:
            response = await answer(http, httpx2.Request("POST", address, data=form))
        if not response.is_success:
            raise AuthenticationRequired(f"{origin_of(address)} answers HTTP {response.status_code}")

    @property
    def _token(self) -> str | None:
        tokens = self._credentials.tokens if self._credentials else None
        return tokens.access_token if tokens else None

    def _add_token(self, request: httpx2.Request) -> str | None:
        token = self._token
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return token

    async def _attempt(self, step: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Take a step. An error is kept: the server will refuse the request, and the error says why."""
        try:
            await step(*arguments)
        except CoreError as error:
            self._failure = error
        except _FLOW_ERRORS as error:
            self._failure = AuthenticationRequired(f"the login failed: {_sentence(error)}")

    async def _prepare(self, request: httpx2.Request) -> None:
        """Load the token, and renew one that expires."""
        if self._credentials is None:
            is_stored = self._show_address is None and not self._is_automatic
            self._credentials = await to_thread.run_sync(self.store.read) if is_stored else Credentials()
            if self._show_address is not None:
                stored = await to_thread.run_sync(self.store.read)
                granted = stored.tokens.scope if stored.tokens else None
                self._credentials.missing_scope = union_scopes(stored.missing_scope, granted)
        if self._credentials.tokens is not None and not self._credentials.is_fresh:
            await self._renew(request)

    async def _replace_token(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Get another token after the server has refused the one that was sent, or a request without one."""
        # A login replaces what is stored: that may be revoked, or have too small a scope.
        is_login = self._show_address is not None and not self.has_logged_in
        is_expired = response.status_code == httpx2.codes.UNAUTHORIZED
        if is_expired and not is_login and await self._renew(request):
            return
        if self._show_address is None and not self._is_automatic:
            raise await self._refused(response, "needs a login")
        if self.waits_for_person and not self.has_logged_in:
            return  # a failed login is final: negotiation repeats requests, and must not open a second login
        await self._authorize(request, response)

    async def _refused(self, response: httpx2.Response, reason: str) -> AuthenticationRequired:
        scope = self._note_scope(response)
        if scope and self._credentials is not None and not self._is_automatic:
            await to_thread.run_sync(self.store.write, self._credentials)
            reason = f"needs a login with the scope {scope[:200]!r}"
        if self._is_automatic:
            return AuthenticationRequired(f"{reason} (HTTP {response.status_code})")
        return LoginRequired(f"{reason}; run `coretools mcp login {self._words}`")

    def _note_scope(self, response: httpx2.Response) -> str | None:
        """Note the scope that a request lacked, for the next login: beside those that were granted (SEP-2350)."""
        scope = extract_scope_from_www_auth(response)
        if response.status_code != httpx2.codes.FORBIDDEN or scope is None or self._credentials is None:
            return None
        tokens = self._credentials.tokens
        before = union_scopes(self._credentials.missing_scope, tokens.scope if tokens else None)
        self._credentials.missing_scope = union_scopes(before, scope)
        return scope

    async def _renew(self, request: httpx2.Request) -> bool:
        """Exchange the refresh token, unless another process has done it; return whether there is a new token."""
        if self._is_automatic:
            return False  # RFC 6749, 4.4.3: client credentials have no refresh token
        async with self.store.locked():
            before = self._token
            stored = await to_thread.run_sync(self.store.read)
            if stored.tokens and stored.tokens.access_token != before and stored.is_fresh:
                self._credentials = stored
                return True
            credentials = self._credentials
            if credentials is None or credentials.tokens is None or credentials.tokens.refresh_token is None:
                return False
            await self._drive(self._renewing_provider(credentials), request)
            if self._credentials is credentials:  # refused: neither token is worth anything
                credentials.tokens = None
                await self._keep(credentials)
            return self._token is not None

    async def _authorize(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Log in: a person in a browser, or the entry's own credentials."""
        self._note_scope(response)
        self._failure = None
        if self._show_address is None:
            await self._drive(self._automatic_provider(), request, response)
        else:
            self.waits_for_person = True
            async with login_listener(self._client) as listener:
                await self._drive(self._login_provider(listener, self._show_address), request, response)
        self.has_logged_in = True

    def _automatic_provider(self) -> Provider:
        # Imported late: it loads cryptography, which only these entries need.
        from coretools.client.authorization.client_credentials import credentials_provider

        credentials = self._credentials or Credentials()
        return credentials_provider(self._url, self._client, _Storage(self, None, None), credentials)

    def _login_provider(self, listener: LoginListener, show_address: ShowAddress) -> Provider:
        storage = _Storage(self, None, configured_client(self._client, listener.address))
        credentials = self._credentials or Credentials()
        provider = person_provider(self._url, self._client, storage, credentials, listener.address)

        async def redirect(address: str) -> None:
            await self._rules.check(address)
            listener.expect(address)

        provider.context.redirect_handler = redirect
        provider.context.callback_handler = partial(listener.result, show_address)
        return provider

    def _renewing_provider(self, credentials: Credentials) -> Provider:
        registered = configured_client(self._client) or credentials.registration
        storage = _Storage(self, credentials.tokens, registered)
        provider = person_provider(self._url, self._client, storage, credentials)
        provider.context.token_expiry_time = 1.0  # long ago: the provider renews what has expired
        provider.context.oauth_metadata = credentials.authorization_server
        provider.context.protected_resource_metadata = credentials.resource
        return provider

    async def _drive(
        self, provider: Provider, request: httpx2.Request, response: httpx2.Response | None = None
    ) -> None:
        """Run the provider's flow: what it asks beside `request` is sent here, under our rules.

        Without a response the flow ends before `request` is sent: only the tokens were renewed.
        """
        storage = provider.context.storage
        assert isinstance(storage, _Storage)
        storage.provider = provider
        discovery = Discovery(self._client, self._url, response)
        async with authorization_http() as http, aclosing(provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            given = [response] if response is not None else []
            while outgoing is not request or given:
                if outgoing is request:
                    outgoing = await flow.asend(given.pop())
                    continue
                reply = discovery.configured(outgoing)
                if reply is None:
                    await self._rules.check(str(outgoing.url))
                    reply = discovery.completed(await answer(http, outgoing))
                outgoing = await flow.asend(reply)
        self._busy_until = anyio.current_time()

    async def keep_tokens(self, provider: Provider, tokens: OAuthToken) -> None:
        """Store new tokens, with what a renewal needs."""
        if not re.fullmatch(r"[\x21-\x7e]+", tokens.access_token):
            raise AuthenticationRequired("the authorization server sent a token that no header can carry")
        context = provider.context
        lifetime = tokens.expires_in
        registration = None if self._client.client_id and not context.client_metadata_url else context.client_info
        await self._keep(
            Credentials(
                tokens=tokens,
                expires_at=None if lifetime is None else time.time() + lifetime,
                registration=registration,
                authorization_server=context.oauth_metadata,
                resource=context.protected_resource_metadata,
            )
        )

    async def _keep(self, credentials: Credentials) -> None:
        self._credentials = credentials
        if not self._is_automatic:
            await to_thread.run_sync(self.store.write, credentials)


class _Storage:
    """What the SDK's provider reads and stores (`mcp.client.auth.TokenStorage`)."""

    def __init__(
        self, owner: ServerAuthorization, tokens: OAuthToken | None, client: OAuthClientInformationFull | None
    ) -> None:
        self.provider: Provider | None = None
        self._owner = owner
        self._tokens = tokens
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        if self.provider is not None:
            await self._owner.keep_tokens(self.provider, tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: the registration is kept with the tokens."""


def _is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _is_challenge(response: httpx2.Response) -> bool:
    """Whether another token may help: there is none or a refused one, or its scope is too small (RFC 6750, 3.1)."""
    lacks_scope = extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response.status_code == httpx2.codes.UNAUTHORIZED or (
        response.status_code == httpx2.codes.FORBIDDEN and lacks_scope
    )


def _sentence(error: Exception) -> str:
    cause = error if isinstance(error, ValidationError) else error.__context__
    if isinstance(cause, ValidationError):  # its text repeats the answer, which may hold a token
        fault = cause.errors(include_input=False, include_url=False)[0]
        return f"the authorization server sent a wrong answer: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"[:500]
    return " ".join(str(error).split())[:500]
