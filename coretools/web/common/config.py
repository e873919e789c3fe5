"""The configuration of the HTTP server: a TOML file, overridden by variables, overridden by flags.

Every key is also a variable: `[server] port` is `CORETOOLS_HTTP_SERVER__PORT`; items of a list are separated by commas.
An unknown key, or an unknown variable with that prefix, ends the start: a typing error must not weaken the server
silently.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from coretools.config.logs import LogFormat
from coretools.config.operator_policy import NetworkAccess, NetworkSchema
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
from coretools.services.limits import ServiceLimits

VARIABLES = "CORETOOLS_HTTP_"
CONFIG_VARIABLE = "CORETOOLS_HTTP_CONFIG"
"""Names the file if no flag does."""

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


Anonymous = Literal["no", "user", "machine"]

_WITHOUT_CONFIG: tuple[str, ...] = ("server.host", "server.port", "log.level", "log.format")
"""Keys that say nothing about who may call."""


class _ConfigSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ServerSection(_ConfigSection):
    """Where the server listens, and the names that clients call it by."""

    host: str = "127.0.0.1"
    """Address or name to listen on; `0.0.0.0` means all addresses."""
    port: int = Field(default=8765, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    hosts: tuple[str, ...] = ()
    """Accepted values of the Host header, with the port if it is not 443 (without TLS: 80); `NAME:*` accepts any port.
    Required beyond loopback."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may call (CORS), such as `https://console.example.com`."""
    public_url: str = ""
    """URL by which clients reach the endpoint, e.g. `https://coretools.example.com/mcp`; tokens are issued for it."""
    tls_certificate: str = ""
    """File with the certificate and its chain (PEM)."""
    tls_key: str = ""
    """File with the private key (PEM)."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that terminate TLS before this server; only they may state client addresses."""
    allow_plain_http: bool = False
    """Serve beyond loopback without TLS and without a proxy: traffic can be read on the way."""
    lame_duck_seconds: float = Field(default=0.0, ge=0)
    """Time after SIGTERM in which `/readyz` already answers 503 and everything is still served: longer than a balancer
    needs to notice. Then the drain begins."""
    drain_seconds: Seconds = 10.0
    """Time in which active calls may finish."""


class LimitsSection(_ConfigSection):
    """Limits of requests, connections and sessions. Sizes in bytes, times in seconds."""

    body_bytes: Positive = 4 * 1024 * 1024
    """Body of one request."""
    bodies_bytes: Positive = 128 * 1024 * 1024
    """Bodies of all active requests; one principal may use a quarter, at least one body."""
    header_bytes: Positive = 16 * 1024
    """Header of one request, with its first line."""
    header_seconds: Seconds = 10.0
    """From the first byte of a request, or from the connection, to the end of its header."""
    body_seconds: Seconds = 30.0
    """From the end of the header to the end of the body."""
    write_seconds: Seconds = 60.0
    """A client that reads nothing of a response for so long is cut off."""
    keep_alive_seconds: Seconds = 15.0
    """An idle connection is closed after this time."""
    connections: Positive = 2_048
    """Concurrent connections."""
    sessions: Positive = 1_024
    """Sessions of the handshake era, of all principals."""
    sessions_per_principal: int = Field(default=0, ge=0)
    """Sessions of one principal; 0 means a sixteenth of `sessions`, at least one."""
    session_idle_seconds: float = Field(default=300.0, ge=0)
    """A session without an active request for so long is ended; 0: never."""
    resume_seconds: Seconds = 60.0
    """Calls of a session without a connection run on for so long, for a client that comes back; then they are
    cancelled."""
    events: Positive = 1_024
    """Events stored for one session, for clients that resume; the oldest are dropped first."""
    event_bytes: Positive = 4 * 1024 * 1024
    """Size of the stored events of one session."""
    failures_per_minute: Positive = 30
    """Wrong tokens from one address within a minute; further wrong ones are delayed, valid ones never are."""

    @property
    def session_share(self) -> int:
        """Largest number of sessions of one principal."""
        return self.sessions_per_principal or max(1, self.sessions // 16)


class JwtSection(_ConfigSection):
    """Tokens of an authorization server."""

    issuer: str
    """URL of the issuer, as in the `iss` claim of its tokens."""
    jwks_url: str = ""
    """URL of its keys; by default the one in its metadata."""
    audience: str = ""
    """Required audience; by default the server's `public_url`."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    leeway_seconds: float = Field(default=30.0, ge=0)
    """Tolerance for clock differences."""
    scopes: tuple[str, ...] = ()
    """Scopes that a token must have."""
    token_types: tuple[str, ...] = ("at+jwt",)
    """Values of the `typ` header (RFC 9068). Add `JWT` for an issuer that uses that type for access tokens, or none:
    Keycloak, Entra ID, and Auth0 without its RFC 9068 profile."""
    name_claim: str = ""
    """The claim with the name to commit under, such as `name`; goes with `email_claim`."""
    email_claim: str = ""
    """The claim with the address to commit under, such as `email`."""
    role_claim: str = ""
    """The claim that names the role; if unset, everybody has the default role."""
    roles: dict[str, str] = {}
    """Role by value of that claim. Other values give no access."""

    @model_validator(mode="after")
    def _has_both_claims(self) -> "JwtSection":
        if bool(self.name_claim) != bool(self.email_claim):
            raise ValueError("name_claim and email_claim go together; a commit has a name and an address")
        return self


class AuthSection(_ConfigSection):
    """Authentication: by tokens, by an issuer, or, on loopback only, declared to need none."""

    tokens: str = ""
    """File of hashed bearer tokens, written by `coretools token`; read again when it changes."""
    anonymous: Anonymous = "no"
    """Who may call if there are no tokens and no issuer: `user`, processes of the server's own user, without a proxy;
    `machine`, every process on this machine, and whoever reaches a proxy on it. Without a configuration `user`."""
    jwt: JwtSection | None = None

    @property
    def has_tokens(self) -> bool:
        """Whether a token is required."""
        return bool(self.tokens) or self.jwt is not None


class RoleSection(_ConfigSection):
    """Rights and limits of the principals of one role."""

    roots: tuple[str, ...] = ()
    """Directories, `PATH:ro` for read-only; by default those of the flags."""
    profile: str = ""
    """`read`, `dev`, `ci` or `all`; by default that of the flags."""
    read_only: bool = False
    """Disable all tools that change anything, whatever the profile and the roots allow."""
    author: str = ""
    """Commit author of principals without their own, such as `Ada <ada@example.com>`; by default that of the flags."""
    deny: tuple[str, ...] = ()
    """Globs of paths to deny, in addition to those of the flags."""
    network: Annotated[NetworkAccess, NetworkSchema()] | None = None
    """Whether commands may use the network, or the hosts; by default as set by the flags and the policy file."""
    requests_per_second: float | None = Field(default=None, ge=0)
    """Average rate of one principal; 0 means no limit. By default 50; without tokens (loopback) no limit."""
    burst: Positive = 100
    """Requests at once after an idle time."""
    concurrent: Positive = 64
    """Concurrent calls of one principal."""


class ConsoleSection(_ConfigSection):
    """The operator's page at `/console`; disabled without its own token file."""

    tokens: str = ""
    """File of hashed tokens for the console; those of `[auth]` do not open it."""


class MetricsSection(_ConfigSection):
    """`/metrics`, for Prometheus."""

    enabled: bool = True
    tokens: str = ""
    """File of hashed tokens for the metrics; beyond loopback they are disabled without it."""


class RedisSection(_ConfigSection):
    """The Redis that replicas share; without a URL all state is in the memory of the process."""

    url: str = Field(default="", repr=False)
    """URL, such as `redis://host:6379/0`, `rediss://` with TLS, or `unix:///path`."""
    prefix: str = "coretools:"
    """Prefix of every key."""
    replica: str = ""
    """Name of this replica; by default a random one."""
    timeout_seconds: Seconds = 2.0
    lease_seconds: Seconds = 15.0
    """A replica that did not renew its lease for so long is gone, and its sessions end."""


_SERVICE_LIMITS = ServiceLimits()


class ServicesSection(_ConfigSection):
    """The services of commands (`Services`: values, topics, queues), which replicas share; without a URL in memory."""

    url: str = Field(default="", repr=False)
    """URL of a Redis (`redis://host:6379/1`, `rediss://` with TLS, `unix:///path`) or of NATS JetStream
    (`nats://host:4222`, `tls://`)."""
    keys: Positive = _SERVICE_LIMITS.keys
    """Values."""
    work_items: Positive = _SERVICE_LIMITS.work_items
    """Items in all queues, with dead letters."""
    kept_bytes: Positive = _SERVICE_LIMITS.kept_bytes
    """Size of all keys and values, and separately of all items in queues."""
    attempts: Positive = _SERVICE_LIMITS.attempts
    """Deliveries of an item before it becomes a dead letter."""

    @property
    def limits(self) -> ServiceLimits:
        """The limits of the services."""
        return ServiceLimits(
            keys=self.keys, work_items=self.work_items, kept_bytes=self.kept_bytes, attempts=self.attempts
        )


class TelemetrySection(_ConfigSection):
    """Traces, configured by OpenTelemetry's variables (OTEL_EXPORTER_OTLP_ENDPOINT and others)."""

    traces: bool = False


class LogSection(_ConfigSection):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: LogFormat = "json"


class Config(_ConfigSection):
    """The whole configuration."""

    server: ServerSection = ServerSection()
    limits: LimitsSection = LimitsSection()
    auth: AuthSection = AuthSection()
    roles: dict[str, RoleSection] = {}
    """Roles by name; `default` is the role of principals without a named one."""
    console: ConsoleSection = ConsoleSection()
    metrics: MetricsSection = MetricsSection()
    redis: RedisSection = RedisSection()
    services: ServicesSection = ServicesSection()
    telemetry: TelemetrySection = TelemetrySection()
    log: LogSection = LogSection()


def read_config(path: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """Read the configuration from a file, if one is named, and apply variables and flags.

    `flags` are values by dotted key (`server.port`).

    Raises:
        BadSetting: a missing file, invalid TOML, unknown keys or invalid values; names each fault.
    """
    path = path or environment.get(CONFIG_VARIABLE) or None
    tables: dict[str, Any] = _parsed(path) if path else {}
    variables: dict[str, str] = {}
    for name, text in sorted(environment.items()):
        if name.startswith(VARIABLES) and name != CONFIG_VARIABLE:
            keys = name.removeprefix(VARIABLES).lower().split("__")
            _put(tables, keys, text, name)
            variables[".".join(keys)] = name
    if not path and {*variables, *flags} <= {*_WITHOUT_CONFIG}:
        _put(tables, ["auth", "anonymous"], "user", "auth.anonymous")
    for key, value in flags.items():
        _put(tables, key.split("."), value, key)
        variables.pop(key, None)
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        raise BadSetting(problems_of(error, lambda fault: _sentence(fault, path, variables))) from error


def _parsed(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise BadSetting(f"{path}: {os.strerror(error.errno or 0)}") from error
    return parse_toml(data, path)


def _put(tables: dict[str, Any], keys: list[str], value: Any, name: str) -> None:
    at: Any = tables
    for key in keys[:-1]:
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            raise BadSetting(f"{name}: {key} is no table")
    at[keys[-1]] = _items(keys, value)


def _items(keys: list[str], value: Any) -> Any:
    """Split a list in a variable at its commas."""
    if not isinstance(value, str):
        return value
    kind: Any = Config
    for key in keys:
        kind = value_type(kind, key)
    return tuple(item.strip() for item in value.split(",") if item.strip()) if kind == tuple[str, ...] else value


def _sentence(error: ErrorDetails, path: str | None, variables: Mapping[str, str]) -> str:
    """Describe a fault and where the operator wrote it."""
    key = key_of(error["loc"])
    written = next((one for one in variables if one == key or one.startswith(f"{key}.")), None)
    if written is None:
        return f"{path or 'configuration'}: {key}: {problem_of(error, Config)}"
    if error["type"] not in UNKNOWN:
        return f"{variables[written]}: {problem_of(error, Config)}"
    meant = meant_key(written.split("."), Config)
    suggestion = f"; did you mean {VARIABLES + meant.upper().replace('.', '__')}?" if meant else ""
    return f"{variables[written]}: unknown variable{suggestion}"
