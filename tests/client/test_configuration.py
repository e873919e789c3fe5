"""Configurations of the known clients, their layers and variables (docs/specs/client.md)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coretools.client.configuration.launch import LocalLaunch, RemoteLaunch, launch_of
from coretools.client.configuration.server_entries import Configuration, ServerEntry, digest_of, load_configuration
from coretools.client.configuration.variables import inputs_of
from coretools.errors import BadSetting

VS_CODE = """{
  // As in the reference of VS Code: comments, and a comma at the end.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
    {"type": "pickString", "id": "mode", "description": "Mode", "options": ["fast", "exact"], "default": "fast"},
  ],
  "servers": {
    "Perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "--mode=${input:mode}", "http://x//y"], /* not a comment */
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "PORT": 3000, "HOME": null},
      "envFile": "${workspaceFolder}/.env",
    },
    "fetch": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "${env:FETCH_KEY}"}},
  },
}
"""
CLAUDE_CODE = {
    "mcpServers": {
        "api-server": {
            "type": "http",
            "url": "${API_BASE_URL:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${API_KEY}"},
        },
        "events": {"type": "sse", "url": "https://example.com/sse"},
        "local": {"command": "./server.py", "args": [], "env": {}},
    }
}
CURSOR = {
    "mcpServers": {
        "web": {"url": "http://localhost:3000/mcp", "headers": {"API_KEY": "value"}},
        "local": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/tools.py"], "envFile": ".env"},
    }
}
GEMINI = {
    "theme": "Dark",
    "mcpServers": {
        "pythonTools": {
            "command": "python",
            "args": ["-m", "my_mcp_server"],
            "cwd": "./tools",
            "env": {"KEY": "$GEMINI_KEY"},
            "timeout": 15000,
            "trust": False,
            "includeTools": ["safe_tool", "other"],
            "excludeTools": ["other"],
        },
        "remote": {"httpUrl": "http://localhost:3000/mcp", "timeout": 5000},
    },
}
CODEX = """
model = "any"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
env_vars = ["LOCAL_TOKEN"]
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled_tools = ["open", "screenshot"]
disabled_tools = ["screenshot"]

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }
env_http_headers = { "X-Other" = "OTHER" }

[mcp_servers.off]
command = "x"
enabled = false
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path / "project"


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def loaded(project: Path, home: Path, file: str | None = None, **more: str) -> Configuration:
    return load_configuration(str(project), {"HOME": str(home), **more}, file=file)


def found(configuration: Configuration, name: str) -> ServerEntry:
    entry = configuration.find(name)
    assert entry is not None
    return entry


def test_the_file_of_vs_code_is_read_with_inputs_comments_and_a_file_of_variables(project: Path, home: Path) -> None:
    """client-1, client-4, client-5"""
    written(project / ".vscode" / "mcp.json", VS_CODE)
    written(project / ".env", "# tokens\nexport TOKEN='a b'\nLEVEL = debug # why\n\n")
    configuration = loaded(project, home)
    assert configuration.problems == ()
    entry = found(configuration, "Perplexity")
    assert [one.id for one in inputs_of(entry)] == ["mode", "perplexity-key"]
    launch = launch_of(entry, {"PATH": "/bin", "HOME": "/h", "SECRET": "x"}, {"perplexity-key": "pk-12345678"})
    assert isinstance(launch, LocalLaunch)
    assert launch.argv == ("npx", "-y", "server-perplexity-ask", "--mode=fast", "http://x//y")
    assert launch.environment == {
        "PATH": "/bin",
        "TOKEN": "a b",
        "LEVEL": "debug",
        "PORT": "3000",
        "PERPLEXITY_API_KEY": "pk-12345678",
    }
    assert launch.cwd == str(project)
    assert "pk-12345678" not in repr(launch)
    remote = launch_of(found(configuration, "fetch"), {"FETCH_KEY": "k"}, {})
    assert isinstance(remote, RemoteLaunch)
    assert (remote.transports, remote.headers) == (("http",), {"X-Key": "k"})


def test_the_files_of_claude_code_and_cursor_are_read(project: Path, home: Path) -> None:
    """client-1, client-4: a bare `url` may be either transport."""
    written(project / ".mcp.json", CLAUDE_CODE)
    written(home / ".cursor" / "mcp.json", CURSOR)
    configuration = loaded(project, home)
    api = launch_of(found(configuration, "api-server"), {"API_KEY": "k"}, {})
    assert isinstance(api, RemoteLaunch)
    assert (api.url, api.headers) == ("https://api.example.com/mcp", {"Authorization": "Bearer k"})
    events = launch_of(found(configuration, "events"), {}, {})
    web = launch_of(found(configuration, "web"), {}, {})
    assert isinstance(events, RemoteLaunch)
    assert isinstance(web, RemoteLaunch)
    assert (events.transports, web.transports) == (("sse",), ("http", "sse"))
    assert "value" not in repr(web)


def test_the_files_of_gemini_and_codex_are_read(project: Path, home: Path) -> None:
    """client-1, client-4: with their limits, filters, and variables by name."""
    (project / "tools").mkdir()
    written(project / ".gemini" / "settings.json", GEMINI)
    written(home / ".codex" / "config.toml", CODEX)
    configuration = loaded(project, home)
    assert configuration.problems == ()
    python = found(configuration, "pythonTools")
    launch = launch_of(python, {"GEMINI_KEY": "g"}, {})
    assert isinstance(launch, LocalLaunch)
    assert (launch.environment, launch.cwd) == ({"KEY": "g"}, f"{project}/./tools")
    assert python.settings is not None
    assert (python.settings.call_seconds, python.remarks) == (15.0, ("the key 'trust' has no effect here",))
    assert [name for name in ("safe_tool", "other", "third") if python.settings.offers(name)] == ["safe_tool"]
    context = found(configuration, "context7")
    launch = launch_of(context, {"LOCAL_TOKEN": "t", "OTHER": "o"}, {})
    assert isinstance(launch, LocalLaunch)
    assert launch.environment == {"LOCAL_TOKEN": "t", "MY_ENV_VAR": "MY_ENV_VALUE"}
    assert context.settings is not None
    assert (context.settings.connect_seconds, context.settings.call_seconds) == (20.0, 45.0)
    assert not context.settings.offers("screenshot")
    figma = launch_of(found(configuration, "figma"), {"FIGMA_OAUTH_TOKEN": "f", "OTHER": "o"}, {})
    assert isinstance(figma, RemoteLaunch)
    assert figma.headers == {"X-Figma-Region": "us-east-1", "X-Other": "o", "Authorization": "Bearer f"}
    off = found(configuration, "off").settings
    assert off is not None
    assert not off.is_enabled


def test_files_are_layered_and_each_entry_knows_its_file(project: Path, home: Path) -> None:
    """client-2: the project before the user; the entry of another file is hidden, not lost."""
    ours = written(project / ".mcp.json", {"mcpServers": {"same": {"command": "a"}}})
    theirs = written(home / ".config" / "coretools" / "mcp.json", {"servers": {"same": {"command": "b"}}})
    written(home / ".claude.json", {"projects": {str(project): {"mcpServers": {"mine": {"command": "c"}}}}, "x": 1})
    (project / "deep" / "er").mkdir(parents=True)
    configuration = loaded(project / "deep" / "er", home)
    assert configuration.problems == ()
    assert [(one.name, one.place.path, one.place.scope, one.hidden_by is None) for one in configuration.entries] == [
        ("same", str(ours), "project", True),
        ("same", str(theirs), "user", False),
        ("mine", f"{home}/.claude.json", "user", True),
    ]
    alone = loaded(project, home, file=str(theirs))
    assert [one.place.scope for one in alone.entries] == ["user"]
    assert loaded(project, home, file=".mcp.json").entries[0].place.scope == "project"
    (project / "sub" / ".git").mkdir(parents=True)  # an agent makes the project appear smaller
    assert loaded(project / "sub", home, file="../.mcp.json").entries[0].place.scope == "project"


def test_the_home_directory_is_no_project(home: Path) -> None:
    """client-2: what lies there is the user's, also with a `.git` above."""
    (home.parent / ".git").mkdir()
    written(home / ".cursor" / "mcp.json", CURSOR)
    assert {one.place.scope for one in loaded(home, home).entries} == {"user"}
    assert {one.place.scope for one in loaded(home, home, file=".cursor/mcp.json").entries} == {"user"}


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (5, "must be an object with `command` or `url`"),
        ({}, "has neither `command` nor `url`"),
        ({"command": "x", "url": "http://x"}, "has both `command` and `url`; keep one, or set `type`"),
        ({"command": 5}, "command: must be text"),
        ({"command": "x", "args": "secret-word"}, "args: must be a list"),
        ({"command": "x", "args": ["a", 3]}, "args #2: must be text"),
        ({"command": "x", "env": {"TOKEN": ["secret-word"]}}, "env.TOKEN: must be text"),
        ({"type": "http"}, "url: is missing"),
        ({"comand": "x"}, "has neither `command` nor `url`; unknown key 'comand'; did you mean command?"),
        ({"type": "stdio", "url": "http://x"}, "command: is missing"),
        ({"type": "ws", "url": "ws://x"}, "type: 'ws' is not supported; use stdio, http or sse"),
        ({"command": "a\0b"}, "text must not contain a NUL character"),
        ({"command": "x", "timeout": 0}, "timeout: must be more than 0"),
    ],
    ids=str,
)
def test_a_bad_entry_says_why_and_hides_no_other(project: Path, home: Path, raw: Any, error: str) -> None:
    """client-3"""
    written(project / ".mcp.json", {"mcpServers": {"bad": raw, "good": {"command": "x"}, "": {"command": "x"}}})
    configuration = loaded(project, home)
    assert found(configuration, "bad").error == error
    assert "secret-word" not in error
    assert found(configuration, "good").settings is not None
    assert found(configuration, "").error == "the name of a server has 1 to 128 characters"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "must be an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"mcpServers": []}', "must be an object with a key for each server"),
        ("{\x80}", "can't decode"),
        ('{"mcpServers": {"a": {"command": "x"}}, "mcpServer": {}}', "unknown key 'mcpServer'"),
        ('{"mcpServers": {"a": {"command": "x", "command": "y"}}}', "the key 'command' occurs twice"),
    ],
    ids=["cut", "list", "deep", "servers", "bytes", "key", "twice"],
)
def test_a_bad_file_is_reported_and_hides_no_other(project: Path, home: Path, content: str, problem: str) -> None:
    """client-3"""
    (project / ".mcp.json").write_bytes(content.encode("latin-1"))
    written(home / ".cursor" / "mcp.json", CURSOR)
    configuration = loaded(project, home)
    assert len(configuration.problems) == 1
    assert configuration.problems[0].startswith(f"{project}/.mcp.json: ")
    assert problem in configuration.problems[0]
    assert configuration.find("web") is not None


def test_a_fifo_or_a_missing_file_is_an_error_and_blocks_nothing(project: Path, home: Path) -> None:
    """client-3"""
    os.mkfifo(project / ".mcp.json")
    assert "not a regular file" in loaded(project, home).problems[0]
    with pytest.raises(BadSetting, match="No such file"):
        loaded(project, home, file="missing.json")
    written(project / "empty.json", {})
    with pytest.raises(BadSetting, match="names no servers"):
        loaded(project, home, file="empty.json")


def test_unknown_keys_are_reported(project: Path, home: Path) -> None:
    """client-3: with the key that was meant; keys of other clients that have no effect are named."""
    entry = {"command": "x", "agrs": [], "autoApprove": ["t"], "colour": 1}
    written(project / ".mcp.json", {"mcpServers": {"a": entry}})
    assert found(loaded(project, home), "a").remarks == (
        "unknown key 'agrs'; did you mean args?",
        "the key 'autoApprove' has no effect here",
        "unknown key 'colour'",
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "1"),
        ("${env:A}", "1"),
        ("${A:-x}${B:-x y}${B:-}", "1x y"),
        ("${EMPTY}|${EMPTY:-d}", "|d"),
        ("${env:B:-z}", "z"),
        ("$A $ {A} {A}", "$A $ {A} {A}"),
        ("${workspaceFolderBasename}${/}${userHome}", "project//h"),
        ("${LOOP}", "${LOOP}"),
        ("${input:i}", "${A}"),
        ("${input:from-variable}", "v"),
    ],
    ids=str,
)
def test_variables_are_replaced_once(project: Path, home: Path, text: str, value: str) -> None:
    """client-4: a value is not searched again, so there are no cycles."""
    environment = {"A": "1", "EMPTY": "", "LOOP": "${LOOP}", "HOME": "/h", "CORETOOLS_INPUT_FROM_VARIABLE": "v"}
    launch = launch_of(entry_with(text, project, home), environment, {"i": "${A}"})
    assert isinstance(launch, LocalLaunch)
    assert launch.argv[1] == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("${MISSING}", "args #1: the environment variable MISSING is not set; set it, or write ${MISSING:-default}"),
        (
            "${input:none}",
            "args #1: the input 'none' has no value; give --input none=VALUE or set CORETOOLS_INPUT_NONE",
        ),
        (
            "${command:x}",
            "args #1: ${command:x}: commands can't be run; write the value, or ${input:ID} with --input ID=VALUE",
        ),
        ("${unknown:x}", "args #1: ${unknown:x} is no variable that is supported here"),
        ("${A:-${B}}", "args #1: a variable within a variable, or an open ${, is not supported"),
        ("${A", "args #1: a variable within a variable, or an open ${, is not supported"),
    ],
    ids=str,
)
def test_a_variable_without_a_value_is_an_error_that_names_it(project: Path, home: Path, text: str, error: str) -> None:
    """client-4"""
    with pytest.raises(BadSetting) as caught:
        launch_of(entry_with(text, project, home), {"A": "1"}, {})
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({"command": "x", "envFile": "none"}, "cannot be read"),
        ({"command": "x", "envFile": "bad.env"}, "line 1 is not NAME=value"),
        ({"command": "x", "cwd": "none"}, "is no directory"),
        ({"command": "x", "env": {"A=B": "x"}}, "is not the name of a variable"),
        ({"url": "file:///etc/passwd"}, "url: must begin with http"),
        ({"url": "http://x", "headers": {"A": "secret-word\r\nB: c"}}, "headers.A: not a header"),
        ({"url": "http://x", "bearer_token_env_var": "NONE"}, "the environment variable NONE is not set"),
    ],
    ids=str,
)
def test_what_cannot_be_started_is_refused_without_showing_values(
    project: Path, home: Path, raw: Any, error: str
) -> None:
    """client-3, client-5, client-6"""
    written(project / "bad.env", "secret-word\n")
    written(project / ".mcp.json", {"mcpServers": {"a": raw}})
    with pytest.raises(BadSetting) as caught:
        launch_of(found(loaded(project, home), "a"), {}, {})
    assert error in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_the_digest_changes_with_all_that_decides_what_runs(project: Path, home: Path) -> None:
    """client-7: the entry, its inputs, its project, its file of variables."""
    base = {"mcpServers": {"a": {"command": "x", "args": ["${input:i}"]}}, "inputs": [{"id": "i", "default": "1"}]}
    other = home.parent / "other"
    other.mkdir()
    changed_input = {**base, "inputs": [{"id": "i", "default": "2"}]}
    changed_entry = {**base, "mcpServers": {"a": {"command": "x", "args": ["${input:i}", "y"]}}}
    digests = []
    for place, content in ((project, base), (project, changed_input), (project, changed_entry), (other, base)):
        written(place / ".mcp.json", content)
        digests.append(digest_of(found(loaded(place, home), "a")))
    assert digest_of(found(loaded(other, home), "a"), b"PATH=/evil") not in digests
    assert len(set(digests)) == 4
    written(project / ".mcp.json", base)
    assert digest_of(found(loaded(project, home), "a")) == digests[0]


def entry_with(argument: str, project: Path, home: Path) -> ServerEntry:
    written(project / ".mcp.json", {"mcpServers": {"a": {"command": "x", "args": [argument]}}})
    return found(loaded(project, home), "a")
