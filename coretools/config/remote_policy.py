"""The operator's rules about git remotes: which may be reached, in which direction, with which credentials. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from coretools.config.remote_urls import InvalidUrl, RemotePattern, RemoteUrl
from coretools.egress.allow_list import AllowList

Direction = Literal["fetch", "push"]
"""What a tool does with a remote."""

Credentials = Literal["none", "agent", "helper", "token"]
"""agent: the user's ssh agent. helper: the user's credential helper. token: a variable or a file."""

_LOOPBACK = ("127.0.0.1", "::1")
"""Hosts to which credentials go without TLS."""

_SCHEMES: dict[str, tuple[str, ...]] = {"agent": ("ssh",), "helper": ("https", "http"), "token": ("https", "http")}
"""Schemes with which credentials go."""

_USERNAME = re.compile("[!-9;-~]{1,200}")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class RemoteRule:
    """Remotes that the git tools may reach; the first rule that matches a URL decides about it."""

    url: str
    """A URL or an absolute path, with `*` and `**` in its path (`RemotePattern`)."""
    push: bool = False
    """Whether they may be changed; by default they are only read."""
    plain_force: bool = False
    """Whether a push may overwrite commits that nobody here has seen."""
    ask: tuple[Direction, ...] = ()
    """What a person confirms each time."""
    credentials: Credentials = "none"
    token_env: str = ""
    """Variable of the server that holds the token."""
    token_file: str = ""
    """File that holds the token; absolute or `~/`."""
    username: str = "git"
    """Sent with the token."""
    addresses: tuple[str, ...] = ()
    """Addresses and networks that are not public and to which the host may lead."""
    ca_file: str = ""
    """Certificates of the authorities that are trusted for https; by default those of the system."""
    known_hosts: str = "~/.ssh/known_hosts"
    """Keys of ssh hosts."""
    principals: bool = False
    """Whether callers with a token of the HTTP server may use it too."""

    def __post_init__(self) -> None:
        """Refuse a rule that cannot work as intended.

        Raises:
            ValueError: names the field and the correct form.
        """
        try:
            url = self.pattern.url
        except InvalidUrl as error:
            raise ValueError(f"url = {self.url[:200]!r}: {error}") from error
        _check_credentials(self, url)
        if self.principals and self.credentials in ("agent", "helper"):
            raise ValueError(
                f'principals = true: the {self.credentials} is that of one user; use credentials = "token" for others'
            )
        AllowList.parse(self.addresses)

    @cached_property
    def pattern(self) -> RemotePattern:
        """The parsed `url`."""
        return RemotePattern.parse(self.url)

    def allows(self, direction: Direction) -> bool:
        """Whether the remotes may be used so."""
        return direction == "fetch" or self.push

    def hosts(self, url: RemoteUrl) -> AllowList:
        """What a connection to one of the remotes may reach."""
        listed = (entry if "/" in entry else f"{entry}:{url.port}" for entry in self.addresses)
        return AllowList.parse((url.authority, *listed))


def _check_credentials(rule: RemoteRule, url: RemoteUrl) -> None:
    fitting = _SCHEMES.get(rule.credentials)
    if fitting is not None and url.scheme not in fitting:
        raise ValueError(f'credentials = "{rule.credentials}": goes with {" and ".join(fitting)} only')
    if fitting is not None and url.scheme == "http" and str(url.host) not in _LOOPBACK:
        raise ValueError("credentials would cross the network unencrypted; use https")
    if bool(rule.token_env) + bool(rule.token_file) != (rule.credentials == "token"):
        raise ValueError('credentials = "token" needs token_env or token_file, one of them; no other takes either')
    if rule.token_env and not _VARIABLE.fullmatch(rule.token_env):
        raise ValueError(f"token_env = {rule.token_env[:80]!r}: not the name of a variable")
    if not _USERNAME.fullmatch(rule.username):
        raise ValueError("username has printable ASCII characters, and no colon")


def matching_rule(rules: Iterable[RemoteRule], url: RemoteUrl) -> RemoteRule | None:
    """Return the rule that decides about a remote; None: it is not reached."""
    return next((rule for rule in rules if rule.pattern.matches(url)), None)


def required_key(url: RemoteUrl, direction: Direction) -> str:
    """Return the lines of the policy file that would allow it."""
    push = "\npush = true" if direction == "push" else ""
    return f'[[remote]]\nurl = "{url.text}"{push}'


def described(rules: Iterable[RemoteRule]) -> list[str]:
    """Return the remotes that the rules allow, with what is allowed; credentials are left out."""
    return [f"{rule.url} ({'fetch and push' if rule.push else 'fetch'})" for rule in rules]
