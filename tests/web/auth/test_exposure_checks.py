"""What a server refuses to start with (docs/specs/authentication.md)."""

from typing import Any

import pytest

from coretools.errors import BadSetting
from coretools.web.auth.exposure_checks import allowed_hosts, is_exposed, is_proxy, require_safe
from coretools.web.common.config import Config
from coretools.web.common.urls import is_host, is_loopback, is_origin, parsed_url

URL = "https://coretools.example.com/mcp"
ISSUER = "https://as.example.com"
SAFE: dict[str, Any] = {
    "host": "0.0.0.0",
    "hosts": ("coretools.example.com",),
    "tls_certificate": "server.crt",
    "tls_key": "server.key",
}


def config(
    server: dict[str, Any] | None = None, jwt: dict[str, Any] | None = None, anonymous: str = "no", **more: Any
) -> Config:
    auth: dict[str, Any] = {"anonymous": anonymous} | ({"jwt": {"issuer": ISSUER, **jwt}} if jwt is not None else {})
    return Config.model_validate({"server": server or {}, "auth": auth, **more})


def refused(found: Config, *, has_auth: bool = True) -> str:
    with pytest.raises(BadSetting) as error:
        require_safe(found, has_auth=has_auth)
    return str(error.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.10", "::ffff:127.0.0.1"])
def test_on_loopback_nothing_is_needed(host: str) -> None:
    """auth-26, auth-33: no names, no TLS, and no tokens if that is declared."""
    for anonymous in ("user", "machine"):
        found = config({"host": host}, anonymous=anonymous)
        require_safe(found, has_auth=False)
        assert "auth.anonymous is for servers without tokens" in refused(found)
    assert "nobody would need a token" in refused(config({"host": host}), has_auth=False)
    assert not is_exposed(config({"host": host}))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "0", "10.1.2.3", "fe80::1", "192.0.2.1", "no-such-host.invalid", "a b", "*", "\ud800"]
)
def test_beyond_loopback_everything_that_is_missing_is_reported_at_once(host: str) -> None:
    """auth-26: also for all interfaces, and for names that do not resolve."""
    message = refused(config({"host": host}), has_auth=False)
    assert "set auth.tokens or [auth.jwt]" in message
    assert "needs server.hosts" in message
    assert "server.tls_certificate and tls_key, or server.proxies" in message
    assert is_exposed(config({"host": host}))


@pytest.mark.parametrize(
    ("changed", "has_auth", "expected"),
    [
        ({}, False, "auth.tokens"),
        ({"hosts": ()}, True, "server.hosts"),
        ({"tls_certificate": "", "tls_key": ""}, True, "plain text"),
    ],
    ids=["tokens", "names", "TLS"],
)
def test_each_of_them_is_needed(changed: dict[str, Any], has_auth: bool, expected: str) -> None:
    """auth-26: one missing setting is enough to refuse."""
    require_safe(config(SAFE), has_auth=True)
    message = refused(config({**SAFE, **changed}), has_auth=has_auth)
    assert expected in message
    assert ";" not in message


@pytest.mark.parametrize("instead", [{"proxies": ("10.0.0.7",)}, {"allow_plain_http": True}], ids=["proxy", "plain"])
def test_tls_may_end_before_the_server_or_be_waived(instead: dict[str, Any]) -> None:
    """auth-26: by a declared proxy, or by an explicit setting."""
    require_safe(config({**SAFE, "tls_certificate": "", "tls_key": "", **instead}), has_auth=True)


def test_behind_a_proxy_loopback_counts_as_exposed() -> None:
    """auth-26: other hosts reach the proxy."""
    message = refused(config({"proxies": ("127.0.0.1",)}), has_auth=False)
    assert "auth.tokens" in message
    assert "server.hosts" in message


def test_invalid_settings_are_refused() -> None:
    """auth-27: the message names the setting."""
    for server, jwt, expected in (
        ({"tls_key": "x"}, None, "go together"),
        ({"tls_certificate": "x"}, None, "go together"),
        ({"hosts": ("*",)}, None, "server.hosts: *: no host"),
        ({"hosts": ("*.example.com",)}, None, "no host"),
        ({"origins": ("*",)}, None, "no origin"),
        ({"origins": ("https://x.example.com/",)}, None, "no origin"),
        ({"hosts": ("a",), "proxies": ("0.0.0.0/0",)}, None, "no address or network"),
        ({"hosts": ("a",), "proxies": ("*",)}, None, "no address or network"),
        ({"public_url": "coretools.example.com"}, None, "server.public_url"),
        ({"public_url": "http://coretools.example.com/mcp"}, None, "https is needed"),
        ({"public_url": f"{URL}?x=1"}, None, "a query"),
        ({"public_url": f"{URL}#x"}, None, "fragment"),
        ({}, {}, "needs server.public_url"),
        ({"public_url": URL}, {"issuer": "as.example.com"}, "auth.jwt.issuer"),
        ({"public_url": URL}, {"issuer": "http://as.example.com"}, "https is needed"),
        ({"public_url": URL}, {"issuer": f"{ISSUER}?x"}, "a query"),
        ({"public_url": URL}, {"jwks_url": "http://as.example.com/keys"}, "https is needed"),
        ({"public_url": URL}, {"jwks_url": "file:///etc/keys"}, "no https URL"),
        ({"public_url": URL}, {"algorithms": ("HS256",)}, "auth.jwt.algorithms: HS256"),
        ({"public_url": URL}, {"algorithms": ("RS256", "none")}, "auth.jwt.algorithms: none"),
        ({"public_url": URL}, {"algorithms": ()}, "algorithms is empty"),
        ({"public_url": URL}, {"token_types": ()}, "token_types is empty"),
        ({"public_url": URL}, {"scopes": ("a b",)}, "no scope"),
        ({"public_url": URL}, {"scopes": ('a"',)}, "no scope"),
        ({"public_url": URL}, {"role_claim": "team"}, "go together"),
        ({"public_url": URL}, {"roles": {"x": "default"}}, "go together"),
        ({"public_url": URL}, {"role_claim": "team", "roles": {"x": "admin"}}, "there is no [roles.admin]"),
    ):
        message = refused(config(server, jwt))
        assert expected in message, (server, jwt, expected)
        assert ";" not in message, (server, jwt, expected)


def test_all_errors_are_reported_at_once() -> None:
    """auth-26, auth-27: the operator edits the file once."""
    server = {"host": "0.0.0.0", "tls_key": "x", "origins": ("nothing",), "proxies": ("x",)}
    assert refused(config(server, {"algorithms": ("HS512",)}), has_auth=False).count(";") == 6


def test_a_configuration_in_which_nobody_could_call_is_refused() -> None:
    """auth-27: the default role exists only if no other is configured."""
    roles = {"dev": {}}
    assert "no [roles.default]" in refused(config(roles=roles), has_auth=False)
    require_safe(config(roles=roles), has_auth=True)
    assert "role_claim" in refused(config({"public_url": URL}, {}, roles=roles))
    mapped = {"role_claim": "team", "roles": {"builders": "dev"}}
    require_safe(config({"public_url": URL}, mapped, roles=roles), has_auth=True)


def test_a_complete_configuration_is_accepted() -> None:
    """auth-27: examples of valid values."""
    server = {
        **SAFE,
        "hosts": (
            "coretools.example.com",
            "10.0.0.1:8765",
            "coretools.example.com:*",
            "[2001:db8::1]:443",
            "service_1",
        ),
        "origins": ("https://console.example.com", "http://localhost:6274", "https://[2001:db8::1]:8443"),
        "proxies": ("10.0.0.7", "10.1.0.0/24", "2001:db8::/32"),
        "public_url": URL,
    }
    jwt = {
        "issuer": f"{ISSUER}/tenant",
        "jwks_url": "https://keys.example.com/keys?tenant=1",
        "scopes": ("coretools:use", "https://x.example.com/y"),
        "algorithms": ("EdDSA", "PS512"),
    }
    require_safe(config(server, jwt), has_auth=True)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*",
        "a*",
        "*:80",
        "a:0",
        "a:65536",
        "a:",
        ":80",
        "a/b",
        "a b",
        "[::1",
        "[x]",
        "[1.2.3.4:5]",
        "::1",
        "-a",
        "a\n",
        "é",
    ],
)
def test_an_invalid_host_is_refused(host: str) -> None:
    """auth-27: a wildcard too."""
    assert not is_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        *("", "*", "null", "https://", "https://*", "https://a:*", "https://a/", "https://a/b", "https://a?b"),
        *("ftp://a", "file://", "HTTPS://a", "https://A", "https://a:443", "http://a:80", "https://u@a", "a"),
    ],
)
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    """auth-27: it would never match, or match every origin."""
    assert not is_origin(origin)


@pytest.mark.parametrize(
    "proxy", ["", "*", "proxy.example.com", "10.0.0.0/0", "::/0", "10.0.0.1/24", "10.0.0", "10.0.0.1:80"]
)
def test_an_invalid_network_is_refused(proxy: str) -> None:
    """auth-27: so is the network of all addresses: any client could then forge its own address."""
    assert not is_proxy(proxy)


def test_names_of_this_machine_are_served_on_loopback_with_the_port_alone() -> None:
    """auth-28: names that the operator configures replace them."""
    assert allowed_hosts(config(), 8765) == ("127.0.0.1:8765", "localhost:8765", "[::1]:8765")
    assert allowed_hosts(config(), 80)[3:] == ("127.0.0.1", "localhost", "[::1]")
    secured = config({"tls_certificate": "x", "tls_key": "x"})
    assert len(allowed_hosts(secured, 80)) == 3
    assert allowed_hosts(secured, 443)[3:] == ("127.0.0.1", "localhost", "[::1]")
    assert allowed_hosts(config({"hosts": ("x.example.com",)}), 8765) == ("x.example.com",)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("localhost", True),
        ("LocalHost", True),
        ("127.255.0.1", True),
        ("[::1]", True),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("0.0.0.0", False),
        ("::", False),
        ("127.1", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_loopback_is_decided_by_the_text_alone(host: str, is_it: bool) -> None:
    """auth-18: nothing is resolved, so DNS does not decide where plain text is sent."""
    assert is_loopback(host) is is_it


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "//x", "https://", "https:///x", "https://x:99999/", "https://x:0/", "https://x y/", "https://x\\y"),
        *("ftp://x/", "https://u@x/", "https://u:p@x/", "https://x/#y", "https://x/#", "http://x/", "https://[::1/"),
        *("https://x/\n", "http://localhost@x/", "http://127.0.0.1.x/", 'https://x/"y', "https://x/{y}"),
    ],
)
def test_an_invalid_url_to_fetch_from_is_refused(url: str) -> None:
    """auth-18: https, or this machine; no user, no fragment."""
    with pytest.raises(BadSetting):
        parsed_url(url)
