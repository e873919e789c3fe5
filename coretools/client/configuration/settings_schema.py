"""The keys of one server in the files of the known clients, as one model.

VS Code, Claude Desktop, Claude Code, Cursor, Gemini and Codex name the same things differently. A key that none of
them documents is reported, and so is one that has no effect here.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from coretools.client.configuration.oauth_settings import (
    OAuthSettings,
    Scopes,
    known_keys,
    remarks_about_oauth,
    spelled,
)
from coretools.config.toml_file import key_of
from coretools.errors import BadSetting

Transport = Literal["stdio", "http", "sse", "any-remote"]

_TYPES = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}

NO_EFFECT = frozenset(
    {
        *("description", "icon", "gallery", "dev", "version", "trust", "alwaysAllow", "autoApprove", "alwaysLoad"),
        *("extensionName", "authProviderType", "targetAudience", "targetServiceAccount", "required", "tools"),
        *("default_tools_approval_mode", "supports_parallel_tool_calls", "sandboxEnabled", "sandbox", "headersHelper"),
        *("oauth_resource", "experimental_environment", "tcp"),
    }
)
"""Documented keys of the clients that this one ignores. `trust` and the like would skip our approval."""


def _as_text(value: Any) -> Any:
    """VS Code permits numbers as values of variables."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _oauth_keys(value: Any) -> Any:
    """FastMCP: `"auth": "oauth"`."""
    return {} if value == "oauth" else value


Text = Annotated[str, BeforeValidator(_as_text)]


class ServerSettings(BaseModel):
    """What an entry says, before variables are replaced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    type: str | None = None
    command: str | None = None
    args: list[str] = []
    env: dict[str, Text | None] = {}
    env_vars: list[str] = []
    """Codex: variables to pass on by name."""
    env_file: str | None = spelled("envFile", "env_file")
    cwd: str | None = None
    url: str | None = spelled("url", "serverUrl")
    http_url: str | None = spelled("httpUrl")
    headers: dict[str, Text] | None = spelled("headers", "http_headers")
    env_http_headers: dict[str, str] = {}
    """Codex: headers whose values are in variables."""
    bearer_token_env_var: str | None = None
    oauth: Annotated[OAuthSettings | None, BeforeValidator(_oauth_keys)] = spelled("oauth", "auth")
    scopes: Scopes | None = None
    """Codex: of a login."""
    startup_timeout_sec: float | None = Field(default=None, gt=0)
    startup_timeout_ms: float | None = Field(default=None, gt=0)
    tool_timeout_sec: float | None = Field(default=None, gt=0)
    timeout: float | None = Field(default=None, gt=0)
    """Claude Code and Gemini: milliseconds of a request."""
    enabled: bool = True
    disabled: bool = False
    only_tools: list[str] | None = spelled("includeTools", "enabled_tools")
    without_tools: list[str] | None = spelled("excludeTools", "disabled_tools", "disabledTools")

    @property
    def transport(self) -> Transport:
        """How to reach it. A bare `url` may be either remote transport, except in Gemini's files beside `httpUrl`."""
        if self.type is not None:
            return _TYPES[self.type]  # type: ignore[return-value]  # checked by `parse_settings`
        if self.command is not None:
            return "stdio"
        return "http" if self.http_url is not None else "any-remote"

    @property
    def address(self) -> str:
        """URL of a remote server."""
        return self.http_url or self.url or ""

    @property
    def connect_seconds(self) -> float | None:
        """Seconds until it must have answered the first request."""
        if self.startup_timeout_ms is not None and self.startup_timeout_sec is None:
            return self.startup_timeout_ms / 1000
        return self.startup_timeout_sec

    @property
    def call_seconds(self) -> float | None:
        """Seconds for one call."""
        return self.tool_timeout_sec or (None if self.timeout is None else self.timeout / 1000)

    @property
    def is_enabled(self) -> bool:
        """Whether the file switches it on."""
        return self.enabled and not self.disabled

    def offers(self, tool: str) -> bool:
        """Whether the file lets the client use a tool."""
        return (self.only_tools is None or tool in self.only_tools) and tool not in (self.without_tools or ())


def parse_settings(raw: Any) -> ServerSettings:
    """Read an entry.

    Raises:
        BadSetting: names each wrong value, or says which key is missing.
    """
    if not isinstance(raw, dict):
        raise BadSetting("must be an object with `command` or `url`")
    try:
        settings = ServerSettings.model_validate(raw)
    except ValidationError as error:
        raise BadSetting("; ".join(map(_fault, error.errors()[:5]))) from None
    if problem := _problem(settings):
        raise BadSetting(problem)
    if any("\0" in text for text in texts_in(raw)):
        raise BadSetting("text must not contain a NUL character")
    return settings


def _problem(settings: ServerSettings) -> str:
    """What is wrong with keys that are right one by one; empty if nothing is."""
    if settings.type is not None and settings.type not in _TYPES:
        return f"type: {settings.type[:40]!r} is not supported; use stdio, http or sse"
    if settings.type is None and settings.command and settings.address:
        return "has both `command` and `url`; keep one, or set `type`"
    if settings.transport == "stdio":
        return "" if settings.command else "command: is missing"
    missing = "url: is missing" if settings.type else "has neither `command` nor `url`"
    return "" if settings.address else missing


def remarks_about(raw: Mapping[str, Any]) -> list[str]:
    """Return remarks about keys of an entry that are unknown or have no effect."""
    known = known_keys(ServerSettings)
    remarks = []
    for key in raw:
        if key in NO_EFFECT:
            remarks.append(f"the key {key!r} has no effect here")
        elif key not in known:
            near = get_close_matches(key, known, n=1)
            remarks.append(f"unknown key {key!r}" + (f"; did you mean {near[0]}?" if near else ""))
    for key in ("oauth", "auth"):
        if isinstance(raw.get(key), dict):
            remarks += remarks_about_oauth(raw[key])
    return remarks


_WANTED = {
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "greater_than": "must be more than 0",
}


def _fault(fault: ErrorDetails) -> str:
    # The value is not shown: it may be a token.
    return f"{key_of(fault['loc'])}: {_WANTED.get(fault['type'], fault['msg'][:100])}"


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *texts_in(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
