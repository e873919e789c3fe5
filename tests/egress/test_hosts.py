"""Spellings of hosts and ports, the entries of the operator's list, and which addresses are public."""

from ipaddress import ip_address

import pytest

from coretools.egress.allow_list import MAX_ENTRIES, AllowList, suggested_entry
from coretools.egress.blocked_connections import MAX_KEPT, Refusal, RefusalLog
from coretools.egress.environment import PORT, java_options, proxy_variables
from coretools.egress.host_sets import HOST_SETS
from coretools.egress.hosts import InvalidHost, authority, host, host_name, is_public, port_number, shown

NUMBERS = ("127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "1.2.3.4.5", "1.2.3.4.", "a.0x", "a.1", "x.08")
ODD = ("", ".", "a..b", "a b", "a\n", "bücher.example", "\u0661.\u0662.\u0663.\u0664", "a" * 254, "-a.b", "a-.b")


def test_a_host_has_one_spelling() -> None:
    """network-2"""
    for text in ("Example.COM", "example.com.", "EXAMPLE.com"):
        assert host(text) == "example.com"
    assert host("xn--BCHER-kva.example") == "xn--bcher-kva.example"
    assert host("a_b.example") == "a_b.example"
    assert host("1.2.3.4") == ip_address("1.2.3.4")
    assert shown(host("[0:0::1]")) == "[::1]"
    assert authority("[::1]:80") == (ip_address("::1"), 80)


@pytest.mark.parametrize(
    "text", [*NUMBERS, "", ".", "a..b", "a b", "a\n", "bücher.example", "\u0661.\u0662.\u0663.\u0664", "a" * 254]
)
def test_what_could_mean_something_else_is_no_host(text: str) -> None:
    """network-2"""
    with pytest.raises(InvalidHost):
        host(text)
    with pytest.raises(InvalidHost):
        host_name(text)


def test_a_port_is_plain_decimal() -> None:
    """network-2"""
    assert (port_number("1"), port_number("65535")) == (1, 65535)
    for text in ("", "0", "65536", "080", "+80", " 80", "80 ", "8_0", "0x50", "٨٠", "99999999999"):
        with pytest.raises(InvalidHost):
            port_number(text)


ELSEWHERE = (
    *("127.0.0.1", "127.255.255.255", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "203.0.113.9", "224.0.0.1"),
    *("255.255.255.255", "240.0.0.1", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "fe80::1"),
    *("::ffff:0:127.0.0.1", "fd00:ec2::254", "fec0::1", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::808:808"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::1", "2001::1", "2001:0:4136:e378::", "2001:db8::1"),
    *("2001:10::1", "100::1", "5f00::1", "4000::1"),
)


def test_only_addresses_of_hosts_on_the_internet_are_public() -> None:
    """network-4"""
    assert [text for text in ELSEWHERE if is_public(ip_address(text))] == []
    for text in ("1.1.1.1", "151.101.0.223", "2606:4700::6810:84e5", "2a04:4e42::223", "2620:fe::fe"):
        assert is_public(ip_address(text)), text


def test_entries_name_sets_hosts_wildcards_addresses_networks_and_ports() -> None:
    """network-1"""
    listed = AllowList.parse(["pypi", "GitHub.com.", "*.Example.org", "a.example:8443", "10.0.0.0/8", "[fd00::1]:5000"])
    for target, port, is_allowed in (
        ("pypi.org", 443, True),
        ("files.pythonhosted.org", 80, True),
        ("pypi.org", 8443, False),
        ("github.com", 443, True),
        ("api.github.com", 443, False),
        ("x.example.org", 443, True),
        ("y.x.example.org", 443, True),
        ("example.org", 443, False),
        ("a.example", 8443, True),
        ("a.example", 443, False),
        ("10.1.2.3", 443, True),
        ("10.1.2.3", 22, False),
        ("11.1.2.3", 443, False),
        ("[fd00::1]", 5000, True),
        ("[fd00::1]", 443, False),
        ("[::ffff:10.1.2.3]", 443, False),
    ):
        assert listed.allows(host(target), port) is is_allowed, (target, port)
    assert "*.example.org" in listed.hosts()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("pipy", "did you mean pypi"),
        ("intranet", "needs a port: intranet:443"),
        ("*", "write a set"),
        ("*.com", "two labels"),
        ("a.*.com", "not a host name"),
        ("*example.com", "not a host name"),
        ("https://example.com", "not a network"),
        ("example.com/x", "not a network"),
        ("0.0.0.0/0", "too large"),
        ("::/0", "too large"),
        ("10.0.0.1/8", "not a network"),
        ("127.1", "not an address"),
        ("::1", "write a set"),
        ("bücher.example", "xn--"),
        ("example.com:0", "not a port"),
        ("example.com:", "not a port"),
        ("localhost:80", "list an address"),
        ("", "write a set"),
        ("a" * 300, "not a host name"),
    ],
)
def test_an_entry_that_can_not_be_meant_is_an_error_that_says_what_works(entry: str, said: str) -> None:
    """network-1"""
    with pytest.raises(ValueError, match=said):
        AllowList.parse([entry])


def test_a_list_is_bounded_and_every_set_can_be_parsed() -> None:
    """network-1"""
    AllowList.parse(HOST_SETS)
    with pytest.raises(ValueError, match="more than"):
        AllowList.parse(["pypi"] * (MAX_ENTRIES + 1))
    for name, hosts in HOST_SETS.items():
        assert all(AllowList.parse([name]).allows(host(one), 443) for one in hosts)
        assert all(AllowList.parse([suggested_entry(one, 443)]).allows(one, 443) for one in hosts)


def test_refusals_are_bounded_and_numbered() -> None:
    """network-11"""
    log = RefusalLog()
    for number in range(3 * MAX_KEPT):
        log.add(Refusal("not listed", f"h{number}.example", 443))
    assert (log.count, len(log.since(0))) == (3 * MAX_KEPT, MAX_KEPT)
    log.add(Refusal("not listed", "h0.example", 443))
    assert [one.target for one in log.since(3 * MAX_KEPT)] == ["h0.example"]


def test_the_variables_name_the_listener_in_both_cases() -> None:
    """network-12"""
    found = proxy_variables()
    assert {found[name] for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY")} == {f"http://127.0.0.1:{PORT}"}
    assert "127.0.0.1" in found["no_proxy"].split(",")
    assert f"-Dhttps.proxyPort={PORT}" in java_options()


def test_a_refusal_suggests_the_set_that_a_host_is_known_for() -> None:
    """network-11: not one that needs it too."""
    for one, name in (("github.com", "github"), ("repo.maven.apache.org", "maven"), ("services.gradle.org", "gradle")):
        assert suggested_entry(one, 443) == name
