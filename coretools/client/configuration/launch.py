"""From an entry to what is started or reached: variables replaced, environment complete, secrets known."""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coretools.client.common.bounded_file import read_bounded
from coretools.client.common.secret_values import is_secret, secret_parts, secret_words
from coretools.client.configuration.oauth_settings import OAuthClient, oauth_client
from coretools.client.configuration.server_entries import ServerEntry
from coretools.client.configuration.settings_schema import ServerSettings
from coretools.client.configuration.variables import Values
from coretools.errors import BadSetting
from coretools.process.environment import NAME, child_environment

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLaunch:
    """A program to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    cwd: str
    secrets: tuple[str, ...] = field(repr=False)
    user_environment: Mapping[str, str] = field(repr=False)
    """The variables of the user's process, from which some of `environment` are taken."""
    own_variables: frozenset[str] = frozenset()
    """Names in `environment` that the entry chooses."""
    environment_file: str | None = None
    """Path of the `envFile`."""
    confinement: str = ""
    """How it is confined, and what the user can do about that; empty if it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLaunch:
    """An address to reach."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    transports: tuple[str, ...]
    """`http` or `sse`, in the order in which they are tried."""
    secrets: tuple[str, ...] = field(repr=False)
    oauth: OAuthClient | None = None
    """None if the entry has its own credentials, or switches OAuth off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundLaunch:
    """A server that runs in the background, and to which this connection is attached."""

    connection: socket.socket
    secrets: tuple[str, ...] = ()


Launch = LocalLaunch | RemoteLaunch | BackgroundLaunch


def launch_of(entry: ServerEntry, environment: Mapping[str, str], inputs: Mapping[str, str]) -> Launch:
    """Complete an entry.

    Raises:
        BadSetting: the entry can't be used; names the key.
    """
    if entry.settings is None:
        raise BadSetting(entry.error)
    values = Values(entry, environment, inputs)
    if entry.settings.transport == "stdio":
        return _local(entry, entry.settings, environment, values)
    return _remote(entry.settings, environment, values)


def _local(entry: ServerEntry, settings: ServerSettings, environment: Mapping[str, str], values: Values) -> LocalLaunch:
    command = values.replace(settings.command or "", "command")
    argv = (command, *(values.replace(word, f"args #{at}") for at, word in enumerate(settings.args, 1)))
    usual = entry.project if entry.place.scope == "project" else home_directory(environment)
    cwd = os.path.join(entry.project, values.replace(settings.cwd, "cwd")) if settings.cwd else usual
    if not os.path.isdir(cwd):
        raise BadSetting(f"cwd: {cwd}: is no directory")
    inherited = child_environment(environment, passed=[name for name in settings.env_vars if NAME.fullmatch(name)])
    environment_file = _environment_file(entry, values)
    added = {} if environment_file is None else _variables_in(environment_file)
    added |= _variables(settings.env, values)
    complete = {name: value for name, value in (inherited | added).items() if settings.env.get(name, "") is not None}
    secrets = [*secret_words(argv), *(value for name, value in added.items() if is_secret(name, value))]
    return LocalLaunch(
        argv=argv,
        environment=complete,
        cwd=cwd,
        secrets=_secrets([*secrets, *values.secrets]),
        user_environment=environment,
        own_variables=frozenset({*added, *settings.env_vars}),
        environment_file=environment_file,
    )


def home_directory(environment: Mapping[str, str]) -> str:
    """Return where a server of the user runs: in no project, for programs look for code where they start."""
    home = environment.get("HOME", "")
    return home if os.path.isabs(home) and os.path.isdir(home) else "/"


def _variables(env: Mapping[str, str | None], values: Values) -> dict[str, str]:
    for name in env:
        if not name or "=" in name:
            raise BadSetting(f"env: {name[:80]!r} is not the name of a variable")
    return {name: values.replace(text, f"env.{name}") for name, text in env.items() if text is not None}


def _variables_in(environment_file: str) -> dict[str, str]:
    variables = {}
    text = read_bounded(environment_file).decode("utf-8-sig", "replace")
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        assignment = _ASSIGNMENT.fullmatch(line)
        if assignment is None or "\0" in line:
            raise BadSetting(f"envFile: {environment_file}: line {number} is not NAME=value")
        variables[assignment[1]] = _unquoted(assignment[2])
    return variables


def _environment_file(entry: ServerEntry, values: Values) -> str | None:
    """Return the path of the `envFile`; None if the entry has none."""
    if entry.settings is None or entry.settings.env_file is None:
        return None
    return os.path.join(entry.project, values.replace(entry.settings.env_file, "envFile"))


def environment_file_content(entry: ServerEntry, environment: Mapping[str, str]) -> bytes:
    """Return the content of the `envFile`, for the digest of the entry; empty if it can't be read."""
    try:
        path = _environment_file(entry, Values(entry, environment, {}))
        return b"" if path is None else read_bounded(path)
    except BadSetting:
        return b""


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return re.split(r"[ \t]#", value)[0].rstrip()


def _remote(settings: ServerSettings, environment: Mapping[str, str], values: Values) -> RemoteLaunch:
    url = values.replace(settings.address, "url")
    if not re.match(r"https?://[^/\s]", url):
        raise BadSetting("url: must begin with http:// or https://")
    headers = _headers(settings, environment, values)
    transports = {"http": ("http",), "sse": ("sse",)}.get(settings.transport, ("http", "sse"))
    bare = [value.removeprefix("Bearer ") for value in headers.values()]
    oauth = _oauth(settings, headers, values)
    secrets = [*headers.values(), *bare, *secret_parts(url), *(oauth.secrets if oauth else ()), *values.secrets]
    return RemoteLaunch(url=url, headers=headers, transports=transports, secrets=_secrets(secrets), oauth=oauth)


def _oauth(settings: ServerSettings, headers: Mapping[str, str], values: Values) -> OAuthClient | None:
    is_off = settings.oauth is not None and not settings.oauth.enabled
    if is_off or any(name.lower() == "authorization" for name in headers):
        return None
    return oauth_client(settings.oauth, settings.scopes, values.replace)


def _headers(settings: ServerSettings, environment: Mapping[str, str], values: Values) -> dict[str, str]:
    headers = {name: values.replace(text, f"headers.{name}") for name, text in (settings.headers or {}).items()}
    for name, variable in settings.env_http_headers.items():
        headers[name] = _variable(environment, variable, f"env_http_headers.{name}")
    if settings.bearer_token_env_var:
        token = _variable(environment, settings.bearer_token_env_var, "bearer_token_env_var")
        headers["Authorization"] = f"Bearer {token}"
    for name, value in headers.items():
        # RFC 9110, 5.1 and 5.5: a token, and no line breaks. The value is not shown.
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(
            r"[\t\x20-\x7e\x80-\xff]*", value
        ):
            raise BadSetting(f"headers.{name[:80]}: not a header that HTTP can carry")
    return headers


def _variable(environment: Mapping[str, str], name: str, key: str) -> str:
    if name not in environment:
        raise BadSetting(f"{key}: the environment variable {name} is not set")
    return environment[name]


def _secrets(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
