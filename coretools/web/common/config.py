"""What the operator of the HTTP server decides: a TOML file, variables over it, flags over those.

A key of the file is a variable too: `[server] port` is `CORETOOLS_HTTP_SERVER__PORT`, a list has commas between its
items. An unknown key, or an unknown variable of that prefix, ends the start: a typing error in what guards a server
must not pass as a wish.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from coretools.config.logs import LogFormat
from coretools.config.toml_file import (
    LONGEST,
    UNKNOWN,
    key_of,
    meant_key,
    parse_toml,
    problem_of,
    problems_of,
    value_type,
)
from coretools.errors import BadSetting

VARIABLES = "CORETOOLS_HTTP_"
CONFIG_VARIABLE = "CORETOOLS_HTTP_CONFIG"
"""Names the file where no flag does."""

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ServerSection(_Section):
    """Where it listens, and by which names it is known."""

    host: str = "127.0.0.1"
    """Address or name to listen on; `0.0.0.0` is every one."""
    port: int = Field(default=8765, ge=0, le=65535)
    """0 takes a free one."""
    hosts: tuple[str, ...] = ()
    """Values of the Host header, with the port where it is not 443 (without TLS: 80); `NAME:*` is any port. Required
    beyond loopback."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may call (CORS), such as `https://console.example.com`."""
    public_url: str = ""
    """How clients reach the endpoint, such as `https://coretools.example.com/mcp`; what tokens are issued for."""
    tls_certificate: str = ""
    """File with the certificate and what signed it (PEM)."""
    tls_key: str = ""
    """File with its key (PEM)."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that end TLS before this server; only they may say who a client is."""
    allow_plain_http: bool = False
    """Serve beyond loopback without TLS and without a proxy: what is sent can be read on the way."""
    drain_seconds: Seconds = 10.0
    """Between SIGTERM and the end: calls under way may finish."""


class LimitsSection(_Section):
    """What one request, one connection and one session may use. Sizes in bytes, times in seconds."""

    body_bytes: Positive = 4 * 1024 * 1024
    """Of one request."""
    bodies_bytes: Positive = 128 * 1024 * 1024
    """Of all requests that are under way; one principal's hold a quarter of it at most, and one body at least."""
    header_bytes: Positive = 16 * 1024
    """Of one request, with its first line."""
    headers: Positive = 64
    """Of one request."""
    header_seconds: Seconds = 10.0
    """From the first byte of a request, or from the connection, to the end of its header."""
    body_seconds: Seconds = 30.0
    """From the end of the header to the end of the body."""
    write_seconds: Seconds = 60.0
    """A client that takes nothing of what it is sent for so long is cut off."""
    keep_alive_seconds: Seconds = 15.0
    """A connection without a request is closed then."""
    connections: Positive = 2_048
    """At once."""
    json_depth: Positive = 64
    """Levels of brackets in a body."""
    sessions: Positive = 1_024
    """Of the handshake era, all principals together."""
    sessions_per_principal: int = Field(default=0, ge=0)
    """0 is a sixteenth of `sessions`, at least one."""
    session_idle_seconds: float = Field(default=300.0, ge=0)
    """A session without a request under way for so long is ended; 0: never."""
    events: Positive = 1_024
    """Kept for one session, for clients that come back; the oldest go first."""
    event_bytes: Positive = 4 * 1024 * 1024
    """The same in bytes."""
    failures_per_minute: Positive = 30
    """Wrong tokens from one address within a minute; further wrong ones must wait, valid ones never do."""


class JwtSection(_Section):
    """Tokens of an authorization server."""

    issuer: str
    """Its URL, as its tokens have it in `iss`."""
    jwks_url: str = ""
    """Where its keys are; by default as its metadata say."""
    audience: str = ""
    """By default the server's `public_url`."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    leeway_seconds: float = Field(default=30.0, ge=0)
    """For clocks that differ."""
    scopes: tuple[str, ...] = ()
    """Which a token must have."""
    token_types: tuple[str, ...] = ("at+jwt",)
    """Values of the `typ` header (RFC 9068). Add `JWT` for an issuer that marks its access tokens so, or not at all:
    Keycloak, Entra ID, and Auth0 without its RFC 9068 profile."""
    name_claim: str = ""
    """The claim with the name to commit under, such as `name`; goes with `email_claim`."""
    email_claim: str = ""
    """The claim with the address to commit under, such as `email`."""
    role_claim: str = ""
    """The claim that names the role; without one everybody has the default role."""
    roles: dict[str, str] = {}
    """Role by value of that claim. A value that is not here is nobody's."""

    @model_validator(mode="after")
    def _has_both_claims(self) -> "JwtSection":
        if bool(self.name_claim) != bool(self.email_claim):
            raise ValueError("name_claim and email_claim go together; a commit has a name and an address")
        return self


class AuthSection(_Section):
    """Who may call. Without tokens and without an issuer: everybody, which is for loopback only."""

    tokens: str = ""
    """File of hashed bearer tokens, as `coretools token` writes it; reread when it changes."""
    jwt: JwtSection | None = None


class RoleSection(_Section):
    """What principals of one role may do."""

    roots: tuple[str, ...] = ()
    """Directories, `PATH:ro` for reading only; by default those of the flags."""
    profile: str = ""
    """`read`, `dev`, `ci` or `all`; by default that of the flags."""
    read_only: bool = False
    """Nothing that changes anything, whatever the profile and the roots say."""
    author: str = ""
    """As whom its principals commit who have none of their own, such as `Ada <ada@example.com>`; by default that of the
    flags."""
    deny: tuple[str, ...] = ()
    """Globs of paths to deny beside those of the flags."""
    network: Literal["allow", "deny", ""] = ""
    """Whether commands may use the network; by default as the flags and the policy file say."""
    requests_per_second: float | None = Field(default=None, ge=0)
    """Of one principal, on average; 0 is no limit. By default 50, and no limit without tokens, which is on loopback."""
    burst: Positive = 100
    """Requests at once after a quiet time."""
    concurrent: Positive = 64
    """Calls of one principal that are worked on at once."""


class ConsoleSection(_Section):
    """The operator's page at `/console`; off without a token file of its own."""

    tokens: str = ""
    """File of hashed tokens that open it; those of `[auth]` do not."""


class MetricsSection(_Section):
    """`/metrics`, for Prometheus."""

    enabled: bool = True
    tokens: str = ""
    """File of hashed tokens that may read it; beyond loopback it is off without one."""


class RedisSection(_Section):
    """The engine that replicas share; without a URL everything is in the memory of the process."""

    url: str = Field(default="", repr=False)
    """Such as `redis://host:6379/0`, `rediss://` with TLS, or `unix:///path`."""
    prefix: str = "coretools:"
    """Of every key."""
    replica: str = ""
    """Name of this replica; by default a random one."""
    timeout_seconds: Seconds = 2.0
    lease_seconds: Seconds = 15.0
    """A replica that did not say for so long that it is alive is gone: its sessions are ended."""


class TelemetrySection(_Section):
    """Traces, by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT and the like)."""

    traces: bool = False


class LogSection(_Section):
    """On standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: LogFormat = "json"


class Config(_Section):
    """The whole file."""

    server: ServerSection = ServerSection()
    limits: LimitsSection = LimitsSection()
    auth: AuthSection = AuthSection()
    roles: dict[str, RoleSection] = {}
    """By name; `default` is that of whoever has none named."""
    console: ConsoleSection = ConsoleSection()
    metrics: MetricsSection = MetricsSection()
    redis: RedisSection = RedisSection()
    telemetry: TelemetrySection = TelemetrySection()
    log: LogSection = LogSection()


def read_config(path: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The configuration in a file, if one is named, with what variables and flags change of it.

    `flags` are values by dotted key (`server.port`).

    Raises:
        BadSetting: no such file, not TOML, an unknown key, or a value that can't be used; names each.
    """
    path = path or environment.get(CONFIG_VARIABLE) or None
    found: dict[str, Any] = _parsed(path) if path else {}
    variables: dict[str, str] = {}
    for name, text in sorted(environment.items()):
        if name.startswith(VARIABLES) and name != CONFIG_VARIABLE:
            keys = name.removeprefix(VARIABLES).lower().split("__")
            _put(found, keys, text, name)
            variables[".".join(keys)] = name
    for key, value in flags.items():
        _put(found, key.split("."), value, key)
        variables.pop(key, None)
    try:
        return Config.model_validate(found)
    except ValidationError as error:
        raise BadSetting(problems_of(error, lambda fault: _sentence(fault, path, variables))) from error


def _parsed(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise BadSetting(f"{path}: {os.strerror(error.errno or 0)}") from error
    return parse_toml(data, path)


def _put(found: dict[str, Any], keys: list[str], value: Any, name: str) -> None:
    at: Any = found
    for key in keys[:-1]:
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            raise BadSetting(f"{name}: {key} is no table")
    at[keys[-1]] = _items(keys, value)


def _items(keys: list[str], value: Any) -> Any:
    """A list in a variable has commas between its items."""
    if not isinstance(value, str):
        return value
    kind: Any = Config
    for key in keys:
        kind = value_type(kind, key)
    return tuple(item.strip() for item in value.split(",") if item.strip()) if kind == tuple[str, ...] else value


def _sentence(error: ErrorDetails, path: str | None, variables: Mapping[str, str]) -> str:
    """What is wrong, and where the operator wrote it."""
    key = key_of(error["loc"])
    written = next((one for one in variables if one == key or one.startswith(f"{key}.")), None)
    if written is None:
        return f"{path or 'configuration'}: {key}: {problem_of(error, Config)}"
    if error["type"] not in UNKNOWN:
        return f"{variables[written]}: {problem_of(error, Config)}"
    meant = meant_key(written.split("."), Config)
    suggestion = f"; did you mean {VARIABLES + meant.upper().replace('.', '__')}?" if meant else ""
    return f"{variables[written]}: unknown variable{suggestion}"
