"""Host names, ports and addresses of a request, each accepted in exactly one spelling.

A spelling that two programs could understand differently is refused, never repaired: what was compared with the
operator's list must be what is connected to. Pure.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

MAX_NAME = 253
"""Characters of a host name (RFC 1035, 2.3.4: 255 octets on the wire)."""

_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
"""A last label that inet_aton(3) and the URL standard ("ends in a number") take for a part of an IPv4 address."""
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)

SUBSCRIBER_BITS = 64
"""Prefix of the IPv6 network of one subscriber, whose addresses cost nothing (RFC 4291, 2.5.4; RFC 6177)."""

_GLOBAL_V6 = IPv6Network("2000::/3")
"""Global unicast (RFC 4291, 2.4). Outside it are the mapped, NAT64, unique local and link-local addresses."""
_TRANSLATED_V6 = (IPv6Network("2002::/16"), IPv6Network("2001::/23"))
"""6to4 (RFC 3056), and special purposes (RFC 2928) such as Teredo: they contain or stand for other addresses."""
_SPECIAL_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""Protocol assignments (RFC 6890) and 6to4 relays (RFC 7526): `is_global` of Python 3.11 calls them global."""


class InvalidHost(ValueError):
    """A host or port is not in the accepted spelling; the text says why, without repeating the input."""


def host_name(text: str) -> str:
    """Return a host name in lower case, without the dot that marks it as absolute.

    Raises:
        InvalidHost: not a name in ASCII (internationalized names are written as A-labels, `xn--`), or an address.
    """
    if not text.isascii():
        raise InvalidHost("a host name has ASCII letters only; write an internationalized name as xn--")
    name = text.removesuffix(".").lower()
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidHost("not a host name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise InvalidHost("not a host name, and not an address in its usual spelling")
    return name


def host(text: str) -> str | Address:
    """Return the host of a request: a name, an IPv4 address in dotted decimal, or an IPv6 address in brackets.

    Raises:
        InvalidHost: none of them; a zone id, a shortened or octal IPv4 address, and so on.
    """
    try:
        if text.startswith("["):
            if not text.endswith("]") or "%" in text:
                raise InvalidHost("not an IPv6 address in brackets")
            return IPv6Address(text[1:-1])
        if text[-1:].isdecimal() and text.isascii():
            return IPv4Address(text)
    except AddressValueError as error:
        if text.startswith("["):
            raise InvalidHost("not an IPv6 address in brackets") from error
    return host_name(text)


def port_number(text: str) -> int:
    """Return a port in plain decimal.

    Raises:
        InvalidHost: a sign, a blank, a leading zero, or not within 1 and 65535.
    """
    if not _PORT.fullmatch(text) or int(text) > 0xFFFF:
        raise InvalidHost("not a port")
    return int(text)


def authority(text: str) -> tuple[str | Address, int]:
    """Return host and port of `HOST:PORT`.

    Raises:
        InvalidHost: the port is missing, or either is not in its accepted spelling.
    """
    name, colon, port = text.rpartition(":")
    if not colon:
        raise InvalidHost("not HOST:PORT")
    return host(name), port_number(port)


def is_public(address: Address) -> bool:
    """Whether an address belongs to one host on the internet.

    False for loopback, private, link-local (with the metadata services of clouds), multicast and reserved addresses,
    and for every IPv6 address that contains an IPv4 address, since it leads where that one does.
    """
    if address.is_multicast or not address.is_global:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _TRANSLATED_V6)


def shown(host_or_address: str | Address) -> str:
    """Return a host as it is written before a port."""
    return f"[{host_or_address}]" if isinstance(host_or_address, IPv6Address) else str(host_or_address)


# Addresses of connections and of this machine: the system wrote them, in spellings of its own.


def system_address(text: str) -> Address:
    """Return an address without its zone; one of IPv4 that is mapped to IPv6 as that of IPv4.

    Raises:
        ValueError: it is not an address.
    """
    address = ip_address(text.partition("%")[0] if ":" in text else text)
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def subscriber(address: Address) -> str:
    """Return what stands for one subscriber: an address of IPv4, a network of IPv6."""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((address, SUBSCRIBER_BITS), strict=False))
