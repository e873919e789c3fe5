"""Checks before the server listens that nothing is exposed to other machines by mistake.

All faults are reported at once, so an operator can correct them in one edit.
"""

import ipaddress
import re
import socket
from collections.abc import Collection, Iterator

from coretools.errors import BadSetting
from coretools.web.auth.issuer_keys import ASYMMETRIC
from coretools.web.common.config import Config, JwtSection, ServerSection
from coretools.web.common.principals import DEFAULT_ROLE
from coretools.web.common.urls import (
    DEFAULT_PORTS,
    LOOPBACK_NAME,
    is_address,
    is_host,
    is_loopback,
    is_origin,
    parsed_url,
)

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, 3.3."""


def require_safe(config: Config, *, has_auth: bool) -> None:
    """Refuse a configuration that is unsafe or contradictory.

    `has_auth` tells whether tokens are required.

    Raises:
        BadSetting: names every fault.
    """
    wrong = [*_of_exposure(config, has_auth=has_auth), *_of_server(config.server), *_of_auth(config, has_auth=has_auth)]
    if wrong:
        raise BadSetting("; ".join(wrong))


def is_exposed(config: Config) -> bool:
    """Whether other machines can reach the server, directly or through a proxy."""
    return bool(config.server.proxies) or not _is_on_loopback(config.server.host)


def allowed_hosts(config: Config, port: int) -> tuple[str, ...]:
    """Return the accepted Host values; on loopback without a list, those of this machine with this port."""
    if config.server.hosts:
        return config.server.hosts
    here = tuple(f"{host}:{port}" for host in ("127.0.0.1", LOOPBACK_NAME, "[::1]"))
    # Clients leave out the default port of the scheme (RFC 9110, 7.2).
    scheme = "https" if config.server.tls_certificate else "http"
    return here + tuple(one.rpartition(":")[0] for one in here if port == DEFAULT_PORTS[scheme])


def _of_exposure(config: Config, *, has_auth: bool) -> Iterator[str]:
    server = config.server
    if has_auth and config.auth.anonymous != "no":
        yield "auth.anonymous is for servers without tokens: remove it, or auth.tokens and [auth.jwt]"
    if not is_exposed(config):
        if not has_auth and config.auth.anonymous == "no":
            yield (
                'nobody would need a token: set auth.tokens or [auth.jwt]; or auth.anonymous = "user" for direct calls '
                'of processes of this user, "machine" for whoever reaches a port of this machine (as a variable:'
                " CORETOOLS_HTTP_AUTH__ANONYMOUS)"
            )
        return
    where = f"server.host {server.host}" if not server.proxies else "a server behind a proxy"
    if not has_auth:
        yield f"{where} is reached by other machines: set auth.tokens or [auth.jwt]"
    if not server.hosts:
        yield f"{where} needs server.hosts, the names by which clients call it"
    if not (server.tls_certificate or server.proxies or server.allow_plain_http):
        yield f"{where} would send tokens in plain text: set server.tls_certificate and tls_key, or server.proxies"


def _of_server(server: ServerSection) -> Iterator[str]:
    if bool(server.tls_certificate) != bool(server.tls_key):
        yield "server.tls_certificate and server.tls_key go together"
    for host in server.hosts:
        if not is_host(host):
            yield f"server.hosts: {host[:200]}: no host, such as coretools.example.com or 10.0.0.1:8765"
    for origin in server.origins:
        if not is_origin(origin):
            yield f"server.origins: {origin[:200]}: no origin, such as https://console.example.com"
    for proxy in server.proxies:
        if not is_proxy(proxy):
            yield f"server.proxies: {proxy[:200]}: no address or network of a proxy, such as 10.0.0.7 or 10.1.0.0/24"
    if server.public_url:
        yield from _of_url("server.public_url", server.public_url, is_plain_allowed=server.allow_plain_http)


def _of_auth(config: Config, *, has_auth: bool) -> Iterator[str]:
    known = config.roles or {DEFAULT_ROLE}
    jwt = config.auth.jwt
    if DEFAULT_ROLE not in known and not has_auth:
        yield f"without tokens everybody has the role {DEFAULT_ROLE}, and there is no [roles.{DEFAULT_ROLE}]"
    if jwt is None:
        return
    if not config.server.public_url:
        yield "[auth.jwt] needs server.public_url: what tokens are issued for"
    yield from _of_url("auth.jwt.issuer", jwt.issuer)
    if jwt.jwks_url:
        yield from _of_url("auth.jwt.jwks_url", jwt.jwks_url, has_query=True)
    yield from _of_tokens(jwt)
    yield from _of_roles(jwt, known)


def _of_roles(jwt: JwtSection, known: Collection[str]) -> Iterator[str]:
    if DEFAULT_ROLE not in known and not jwt.role_claim:
        yield f"without auth.jwt.role_claim everybody has the role {DEFAULT_ROLE}: there is no [roles.{DEFAULT_ROLE}]"
    if bool(jwt.role_claim) != bool(jwt.roles):
        yield "auth.jwt.role_claim and auth.jwt.roles go together"
    for value, role in jwt.roles.items():
        if role not in known:
            yield f"auth.jwt.roles: {value[:200]}: there is no [roles.{role[:200]}]"


def _of_tokens(jwt: JwtSection) -> Iterator[str]:
    if not jwt.algorithms:
        yield "auth.jwt.algorithms is empty: no token could be good"
    for algorithm in jwt.algorithms:
        # With HS* everyone who can verify a token can create one; `none` has no signature.
        if algorithm not in ASYMMETRIC:
            yield f"auth.jwt.algorithms: {algorithm[:200]}: there are {', '.join(sorted(ASYMMETRIC))}"
    if not jwt.token_types:
        yield "auth.jwt.token_types is empty: no token could be good"
    for scope in jwt.scopes:
        if not _SCOPE.fullmatch(scope):
            yield f"auth.jwt.scopes: {scope[:200]!r}: no scope"


def _of_url(name: str, url: str, *, has_query: bool = False, is_plain_allowed: bool = False) -> Iterator[str]:
    try:
        parsed_url(url, is_plain_allowed=is_plain_allowed)
    except BadSetting as error:
        yield f"{name}: {error}"
        return
    if "?" in url and not has_query:
        yield f"{name}: {url[:200]}: a query can't stand in this URL"


def is_proxy(text: str) -> bool:
    """Whether a text is an address or a network, but not the whole address space."""
    try:
        return ipaddress.ip_network(text).prefixlen > 0
    except ValueError:
        return False


def _is_on_loopback(host: str) -> bool:
    """Whether a host name resolves to loopback addresses only; False if it does not resolve."""
    if not is_address(host):
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return False
        return bool(addresses) and all(is_loopback(str(one[4][0])) for one in addresses)
    return is_loopback(host)
