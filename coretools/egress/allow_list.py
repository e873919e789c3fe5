"""The operator's list of hosts: parsed at start, asked once for every connection. Pure.

Entries: a named set (`pypi`), a host name (`github.com`), all names beneath one (`*.example.com`), an address or a
network (`10.0.0.5`, `10.0.0.0/8`, `[fd00::1]`), each but the first and the network with a port (`example.com:8443`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Self

from coretools.egress.host_sets import HOST_SETS, set_with
from coretools.egress.hosts import Address, InvalidHost, host, host_name, port_number, shown

DEFAULT_PORTS = frozenset({80, 443})
"""Ports of an entry that names none."""

MAX_ENTRIES = 1000
"""Most entries of a list; each is compared with every request."""

SHORTEST_PREFIX = 8
"""Fewest bits of a network; a larger one is no longer a list of hosts."""

_PORT_SUFFIX = re.compile(r"(.*):([^:\]]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One host or network, and the ports that are allowed there."""

    target: str | IPv4Network | IPv6Network
    """A name, `*.name`, or a network; an address is a network of one."""
    ports: frozenset[int]


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts that may be connected to."""

    entries: tuple[str, ...]
    """As the operator wrote them."""
    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Parse the entries.

        Raises:
            ValueError: names the entry, what is wrong with it, and what would be valid.
        """
        entries = tuple(entries)
        if len(entries) > MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} hosts")
        return cls(entries, tuple(rule for entry in entries for rule in _rules(entry)))

    def allows(self, target: str | Address, port: int) -> bool:
        """Whether a name is listed with this port, or an address by itself or in a network."""
        if isinstance(target, str):
            labels = target.split(".")
            names = {target, *(f"*.{'.'.join(labels[number:])}" for number in range(1, len(labels)))}
            return any(port in rule.ports and rule.target in names for rule in self.rules)
        return any(
            port in rule.ports and not isinstance(rule.target, str) and target in rule.target for rule in self.rules
        )

    def hosts(self) -> tuple[str, ...]:
        """Return the names and networks of all entries, sets expanded, sorted."""
        return tuple(sorted({str(rule.target) for rule in self.rules}))


def suggested_entry(target: str | Address, port: int) -> str:
    """Return the entry that would allow a destination: the set that contains it, or the host itself."""
    name = shown(target)
    if port not in DEFAULT_PORTS:
        return f"{name}:{port}"
    if isinstance(target, str) and "." not in target:
        return f"{name}:{port}"  # a word alone would be read as the name of a set
    return (isinstance(target, str) and set_with(target)) or name


def _rules(entry: str) -> list[_Rule]:
    if entry in HOST_SETS:
        return [_Rule(name, DEFAULT_PORTS) for name in HOST_SETS[entry]]
    if network := _network(entry):
        return [_Rule(network, DEFAULT_PORTS)]
    name, ports = entry, DEFAULT_PORTS
    try:
        if match := _PORT_SUFFIX.fullmatch(entry):
            name, ports = match[1], frozenset({port_number(match[2])})
        target = f"*.{_beneath(name[2:])}" if name.startswith("*.") else host(name)
    except InvalidHost as error:
        raise ValueError(f"{entry[:80]!r}: {error}; {_VALID}") from error
    if not isinstance(target, str):
        return [_Rule(ip_network(target), ports)]
    _require_meant(target, entry)
    return [_Rule(target, ports)]


def _require_meant(target: str, entry: str) -> None:
    if target == "localhost":
        raise ValueError(f"{entry[:80]!r}: programs connect to it directly; list an address, such as 127.0.0.1:5432")
    if "." not in target and ":" not in entry:
        raise ValueError(f"{entry[:80]!r}: {_unknown_set(entry)}")


_VALID = "write a set (pypi), a host (example.com, *.example.com, example.com:8443) or an address (10.0.0.5:443)"


def _beneath(name: str) -> str:
    name = host_name(name)
    if "." not in name:
        raise InvalidHost("a wildcard needs two labels after it")
    return name


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    if "/" not in entry:
        return None
    try:
        network = ip_network(entry)
    except ValueError:
        raise ValueError(f"{entry[:80]!r}: not a network; {_VALID}, or a network (10.0.0.0/8)") from None
    if network.prefixlen < SHORTEST_PREFIX:
        raise ValueError(f"{entry[:80]!r}: too large for a list of hosts; network = true allows everything")
    return network


def _unknown_set(entry: str) -> str:
    near = get_close_matches(entry, HOST_SETS, n=1, cutoff=0.5)
    meant = f"did you mean {near[0]}? " if near else ""
    sets = ", ".join(HOST_SETS)
    return f"no set of this name; {meant}(sets: {sets}; a host of one label needs a port: {entry[:40]}:443)"
