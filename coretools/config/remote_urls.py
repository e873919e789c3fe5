"""URLs of git remotes, each accepted in one spelling, and patterns of them in the policy file. Pure.

What the policy permits must be what is connected to, so a URL that two programs could read differently is refused.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from typing import Literal, Self, get_args

from coretools.egress.hosts import InvalidHost, host, host_name, port_number, shown

Scheme = Literal["https", "http", "ssh", "git", "path"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

DEFAULT_PORTS: dict[str, int] = {"https": 443, "http": 80, "ssh": 22, "git": 9418}

MAX_URL = 1_000
"""Characters of a URL."""

EXAMPLES = "https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, git://HOST/PATH or an absolute path"

_UNSUPPORTED = f"not a URL of a remote that is supported; write {EXAMPLES}"

_PART = re.compile(r"(?!\.\.?$)\S(?:.*\S)?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_ESCAPE = re.compile("%(.{0,2})", re.DOTALL)
_PLAIN_ESCAPE = re.compile("[0-9A-Fa-f]{2}")
_NEVER_ESCAPED = frozenset(b"%./\\?#:~")
"""Bytes that an escape may not stand for: a server that decodes it would serve another path than the one compared."""


class InvalidUrl(ValueError):
    """A URL is not accepted; the text says why."""


@dataclass(frozen=True)
class RemoteUrl:
    """Where a remote repository is. Contains no password."""

    scheme: Scheme
    path: str
    """Begins with a slash, but for `HOST:PATH`, which ssh resolves in the home directory."""
    host: str | IPv4Address | IPv6Address = ""
    port: int = 0
    user: str = ""
    """Of ssh; empty: none is named."""

    @cached_property
    def text(self) -> str:
        """The URL in its one spelling, without credentials."""
        if self.scheme == "path":
            return self.path
        user = f"{self.user}@" if self.user else ""
        if not self.path.startswith("/"):
            return f"{user}{shown(self.host)}:{self.path}"
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{user}{shown(self.host)}{port}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port, as an entry of a list of hosts."""
        return f"{shown(self.host)}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL, without its password: credentials come from the policy file alone.

        Raises:
            InvalidUrl: not a URL of a git remote, or not in the accepted spelling.
        """
        return cls(*_parsed(text, is_pattern=False))


@dataclass(frozen=True)
class RemotePattern:
    """The remotes that one rule of the policy file is about."""

    url: RemoteUrl
    """With wildcards in its path: `*` for a part of one component, `**` for anything."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a pattern: a URL; `*` and `**` may be in its path, and `*.` before the host.

        Raises:
            InvalidUrl: it could not match as intended.
        """
        return cls(RemoteUrl(*_parsed(text, is_pattern=True)))

    @cached_property
    def _path(self) -> re.Pattern[str]:
        parts = re.split(r"(\*\*|\*)", self.url.path)
        words = {"**": ".+", "*": "[^/]+"}
        return re.compile("".join(words.get(part) or re.escape(part) for part in parts), re.DOTALL)

    def matches(self, url: RemoteUrl) -> bool:
        """Whether a remote is one of these. A user in the pattern must be the same."""
        own = self.url
        if (own.scheme, own.port) != (url.scheme, url.port) or (own.user and own.user != url.user):
            return False
        if isinstance(own.host, str) and own.host.startswith("*."):
            is_host = isinstance(url.host, str) and url.host.endswith(own.host[1:])
        else:
            is_host = own.host == url.host
        return is_host and self._path.fullmatch(url.path) is not None


_Parts = tuple[Scheme, str, str | IPv4Address | IPv6Address, int, str]


def _parsed(text: str, *, is_pattern: bool) -> _Parts:
    if not text or len(text) > MAX_URL or not text.isprintable() or text != text.strip():
        raise InvalidUrl(f"a URL has 1 to {MAX_URL} printable characters; write {EXAMPLES}")
    if text.startswith(("/", "file:///")):
        return "path", _checked_path(text.removeprefix("file://"), is_pattern=is_pattern), "", 0, ""
    named, separator, rest = text.partition("://")
    scheme = next((known for known in SCHEMES if known == named != "path"), None)
    if separator and scheme is not None:
        return _with_scheme(scheme, rest, is_pattern=is_pattern)
    if separator:
        raise InvalidUrl(_UNSUPPORTED)
    return _without_scheme(text, is_pattern=is_pattern)


def _without_scheme(text: str, *, is_pattern: bool) -> _Parts:
    """Parse `USER@HOST:PATH`, as scp writes it."""
    place, colon, path = text.partition(":")
    if not colon or "/" in place or not path or path[0] in ":/":
        raise InvalidUrl(_UNSUPPORTED)
    user, at, name = place.rpartition("@")
    _check_user(user, is_named=bool(at))
    path = _checked_path(f"/{path}", is_pattern=is_pattern).removeprefix("/")
    return "ssh", path, _host(name, is_pattern=is_pattern), DEFAULT_PORTS["ssh"], user


def _with_scheme(scheme: Scheme, rest: str, *, is_pattern: bool) -> _Parts:
    authority, _, path = rest.partition("/")
    user, at, place = authority.rpartition("@")
    if scheme == "ssh":
        _check_user(user, is_named=bool(at))
    elif scheme == "git" and at:
        raise InvalidUrl("a git:// URL names no user")
    name, port = _name_and_port(place, DEFAULT_PORTS[scheme])
    if not path.strip("/") and not is_pattern:
        raise InvalidUrl("a URL needs a path after its host")
    path = _checked_path(f"/{path}", is_pattern=is_pattern) if path else "/**"
    return scheme, path, _host(name, is_pattern=is_pattern), port, user if scheme == "ssh" else ""


def _name_and_port(place: str, default: int) -> tuple[str, int]:
    if ":" not in place.rpartition("]")[2]:
        return place, default
    name, _, number = place.rpartition(":")
    try:
        return name, port_number(number)
    except InvalidHost as error:
        raise InvalidUrl(f"{number[:20]!r}: {error}") from error


def _check_user(user: str, *, is_named: bool) -> None:
    if is_named and not _USER.fullmatch(user):
        raise InvalidUrl("the user before @ has letters, digits, dots, hyphens and underscores, and no password")


def _host(name: str, *, is_pattern: bool) -> str | IPv4Address | IPv6Address:
    is_wildcard = is_pattern and name.startswith("*.")
    try:
        parsed = f"*.{host_name(name[2:])}" if is_wildcard else host(name)
    except InvalidHost as error:
        raise InvalidUrl(f"{name[:80]!r}: {error}") from error
    if parsed == "localhost":
        raise InvalidUrl("localhost: write its address, 127.0.0.1")
    if is_wildcard and name.count(".") == 1:
        raise InvalidUrl(f"{name[:80]!r}: a wildcard needs two labels after it")
    return parsed


def _checked_path(path: str, *, is_pattern: bool) -> str:
    path = path.rstrip("/") if path != "/" else path
    parts = path.split("/")[1:]
    if not parts or not all(map(_PART.fullmatch, parts)):
        raise InvalidUrl("a path has no empty part, no `.`, no `..`, and no blank around a part")
    if parts[0].startswith("-") or set(path) & set("\\?#"):
        raise InvalidUrl("a path has no backslash, no `?` and no `#`, and does not begin with a hyphen")
    if "*" in path and not is_pattern:
        raise InvalidUrl("a path has no `*`, except in the policy file")
    for digits in _ESCAPE.findall(path):
        if not _PLAIN_ESCAPE.fullmatch(digits) or int(digits, 16) in _NEVER_ESCAPED or int(digits, 16) < 0x20:
            raise InvalidUrl(f"a path has no escape %{digits}")
    return path
