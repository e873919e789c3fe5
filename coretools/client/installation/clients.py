"""The clients that `coretools install` knows: where their files are, and how an entry is written. One row each.

Every fact is from the vendor's own pages, named in the row, as they were in November 2026.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coretools.client.configuration.places import Scope
from coretools.errors import BadSetting, NotFound

Format = Literal["json", "toml", "yaml"]
"""`json` stands for JSON with comments: what a file has of them stays, and none is added."""

TOKEN_VARIABLE = "CORETOOLS_TOKEN"  # noqa: S105  # the name of the variable, not a token
"""Environment variable, or secret of the client, from which it takes the bearer token of a server."""

TOKEN_INPUT = "coretools-token"  # noqa: S105  # the id of a question
"""Id of the input by which VS Code asks for the token once, and keeps it in its secret storage."""

TIMEOUT_SECONDS = 300
"""goose: of one call, its own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that the client starts."""

    command: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server that the client reaches."""

    url: str
    has_token: bool = True
    """The client sends a bearer token, which it takes from its own place for secrets."""


Server = Program | Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client: its files, and its way to write an entry."""

    name: str
    title: str
    format: Format
    key: str
    """Key of the file under which the servers are, each under its name."""
    user: str
    """The user's file. `{home}`, `{config}` (XDG_CONFIG_HOME) and the directories of some clients are replaced."""
    user_on_macos: str = ""
    """Where that differs on macOS."""
    project: str = ""
    """The file in a project; empty if the client has none."""
    type_of_program: str = ""
    """Value of the key `type` for a program; empty if the client has no such key."""
    type_of_address: str = ""
    url: str = ""
    """Key of the address; empty if its file can't name one."""
    token: str = ""
    """How a header refers to the token; empty if the client has no reference to a secret there."""
    no_address: str = ""
    """What to do instead, for a client without `url`, or with a token but without `token`."""

    def path(self, scope: Scope, project: str, environment: Mapping[str, str], system: str) -> str:
        """Return the client's file; `system` is as in `sys.platform`.

        Raises:
            NotFound: the client has no file of a project. BadSetting: there is no home.
        """
        if scope == "project":
            if not self.project:
                raise NotFound(f"{self.title} has no configuration for one project; leave out --scope project")
            return os.path.join(project, self.project)
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            raise BadSetting("HOME is not set: no place for the user's configuration; use --scope project")
        template = self.user_on_macos if system == "darwin" and self.user_on_macos else self.user
        return template.format(
            home=home,
            config=_directory(environment, "XDG_CONFIG_HOME", f"{home}/.config"),
            codex=_directory(environment, "CODEX_HOME", f"{home}/.codex"),
            claude=_directory(environment, "CLAUDE_CONFIG_DIR", home),
        )

    def entry(self, server: Server, name: str) -> dict[str, Any]:
        """Return the entry of a server.

        Raises:
            BadSetting: this client's file can't name such a server.
        """
        if self.format == "yaml":
            return _goose_entry(server, name)
        if isinstance(server, Program):
            typed = {"type": self.type_of_program} if self.type_of_program else {}
            return {**typed, "command": server.command, "args": list(server.args)}
        self._require_address(server)
        typed = {"type": self.type_of_address} if self.type_of_address else {}
        address = {**typed, self.url: server.url}
        if server.has_token and self.format == "toml":
            return {**address, "bearer_token_env_var": TOKEN_VARIABLE}
        return {**address, "headers": {"Authorization": f"Bearer {self.token}"}} if server.has_token else address

    def inputs(self, server: Server) -> list[dict[str, Any]]:
        """Return the questions that the entry refers to (VS Code)."""
        if self.token != f"${{input:{TOKEN_INPUT}}}" or not (isinstance(server, Address) and server.has_token):
            return []
        asked = {"type": "promptString", "id": TOKEN_INPUT, "description": "Token of the coretools server"}
        return [{**asked, "password": True}]

    def _require_address(self, server: Address) -> None:
        if not self.url or (server.has_token and self.format == "json" and not self.token):
            raise BadSetting(f"{self.title}: {self.no_address}")


def _directory(environment: Mapping[str, str], variable: str, usual: str) -> str:
    named = environment.get(variable, "")
    return named if os.path.isabs(named) else usual


def _goose_entry(server: Server, name: str) -> dict[str, Any]:
    common = {"name": name, "description": "Files, search, git, commands", "timeout": TIMEOUT_SECONDS}
    if isinstance(server, Program):
        return {"enabled": True, "type": "stdio", **common, "cmd": server.command, "args": list(server.args)}
    address = {"enabled": True, "type": "streamable_http", **common, "uri": server.url}
    if not server.has_token:
        return address
    # goose takes the value from its keyring, and asks for it if it is not there.
    header = {"Authorization": f"Bearer ${{{TOKEN_VARIABLE}}}"}
    return {**address, "env_keys": [TOKEN_VARIABLE], "headers": header}


CLIENTS = (
    # https://modelcontextprotocol.io/docs/develop/connect-local-servers. Remote servers are connectors of the account:
    # https://support.claude.com/en/articles/11175166-get-started-with-custom-connectors-using-remote-mcp
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        format="json",
        key="mcpServers",
        user="{config}/Claude/claude_desktop_config.json",
        user_on_macos="{home}/Library/Application Support/Claude/claude_desktop_config.json",
        no_address="its file names no remote servers; add the address in Settings, Connectors",
    ),
    # https://code.claude.com/docs/en/mcp (scopes, .mcp.json, ${VAR}); CLAUDE_CONFIG_DIR:
    # https://code.claude.com/docs/en/env-vars
    Client(
        name="claude-code",
        title="Claude Code",
        format="json",
        key="mcpServers",
        user="{claude}/.claude.json",
        project=".mcp.json",
        type_of_program="stdio",
        type_of_address="http",
        url="url",
        token=f"${{{TOKEN_VARIABLE}}}",
    ),
    # https://cursor.com/docs/context/mcp (files, ${env:NAME}); links: https://cursor.com/docs/mcp/install-links
    Client(
        name="cursor",
        title="Cursor",
        format="json",
        key="mcpServers",
        user="{home}/.cursor/mcp.json",
        project=".cursor/mcp.json",
        type_of_program="stdio",
        url="url",
        token=f"${{env:{TOKEN_VARIABLE}}}",
    ),
    # https://code.visualstudio.com/docs/agents/reference/mcp-configuration (files, `servers`, `inputs`); links:
    # https://code.visualstudio.com/api/extension-guides/ai/mcp
    Client(
        name="vscode",
        title="VS Code",
        format="json",
        key="servers",
        user="{config}/Code/User/mcp.json",
        user_on_macos="{home}/Library/Application Support/Code/User/mcp.json",
        project=".vscode/mcp.json",
        type_of_program="stdio",
        type_of_address="http",
        url="url",
        token=f"${{input:{TOKEN_INPUT}}}",
    ),
    # https://geminicli.com/docs/tools/mcp-server (`httpUrl` is Streamable HTTP, `url` SSE), $VAR:
    # https://geminicli.com/docs/reference/configuration
    Client(
        name="gemini",
        title="Gemini CLI",
        format="json",
        key="mcpServers",
        user="{home}/.gemini/settings.json",
        project=".gemini/settings.json",
        url="httpUrl",
        token=f"${TOKEN_VARIABLE}",
    ),
    # https://developers.openai.com/codex/mcp (files, `bearer_token_env_var`; a project's file only if it is trusted)
    Client(
        name="codex",
        title="Codex",
        format="toml",
        key="mcp_servers",
        user="{codex}/config.toml",
        project=".codex/config.toml",
        url="url",
    ),
    # https://docs.windsurf.com/windsurf/cascade/mcp (file, `serverUrl`, interpolation of environment variables)
    Client(
        name="windsurf",
        title="Windsurf",
        format="json",
        key="mcpServers",
        user="{home}/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        token=f"${{env:{TOKEN_VARIABLE}}}",
    ),
    # https://zed.dev/docs/ai/mcp (`context_servers`; without a header Zed logs in by OAuth), files:
    # https://zed.dev/docs/configuring-zed
    Client(
        name="zed",
        title="Zed",
        format="json",
        key="context_servers",
        user="{config}/zed/settings.json",
        user_on_macos="{home}/.config/zed/settings.json",
        project=".zed/settings.json",
        url="url",
        no_address="its settings can't refer to a secret; with a server that has OAuth use --no-token, and Zed logs in",
    ),
    # https://www.jetbrains.com/help/junie/model-context-protocol-mcp.html (files of Junie; stdio only)
    Client(
        name="jetbrains",
        title="JetBrains Junie",
        format="json",
        key="mcpServers",
        user="{home}/.junie/mcp/mcp.json",
        project=".junie/mcp/mcp.json",
        no_address="Junie's file is documented for programs only; install a program",
    ),
    # https://block.github.io/goose/docs/guides/config-files (file), types of extensions, `env_keys` and variables in
    # headers: https://github.com/block/goose/blob/main/crates/goose/src/agents/extension.rs
    Client(
        name="goose",
        title="goose",
        format="yaml",
        key="extensions",
        user="{config}/goose/config.yaml",
        user_on_macos="{home}/.config/goose/config.yaml",
        url="uri",
    ),
)


def client_named(name: str) -> Client:
    """Return the client of a name.

    Raises:
        NotFound: there is none.
    """
    for client in CLIENTS:
        if client.name == name:
            return client
    raise NotFound(f"unknown client {name[:40]!r}; choose one of {', '.join(one.name for one in CLIENTS)}")
