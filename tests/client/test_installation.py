"""Entries in the files of other clients, written as text (docs/specs/install.md)."""

import base64
import json
import os
import stat
import tomllib
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ruamel.yaml import YAML

from coretools.client.installation import config_file, json_text, toml_text, yaml_text
from coretools.client.installation.clients import CLIENTS, TOKEN_VARIABLE, Address, Client, Program, client_named
from coretools.client.installation.config_file import ConfigFile, delete_config, open_config, write_config
from coretools.client.installation.links import install_link
from coretools.client.installation.plan import Change, configured, plan_install, plan_undo
from coretools.errors import AlreadyExists, BadSetting, Conflict, CoreError, InputOutput, NotFound, Unsupported

PROGRAM = Program(command="/opt/coretools/bin/coretools-workstation", args=("--read-only", "/srv/project"))
ADDRESS = Address(url="https://tools.example.com/mcp")
ENVIRONMENT = {"HOME": "/home/ann"}

JSON_SAMPLES = (
    "{}",
    "{ }",
    "{\n}\n",
    '{"theme":"dark"}',
    '{"KEY":{}}',
    '{"KEY": {"a": {"command": "b"}}, "z": 1}',
    '{\n  "KEY": {\n    "a": {"command": "b", "env": {"X": "}"}}\n  }\n}\n',
    '{\n\t"KEY": {\n\t\t"a": {\n\t\t\t"command": "b"\n\t\t},\n\t},\n\t"n": [1, 2,], // end\n}',
    '{\r\n    "theme": "dark", // "KEY": {\r\n    /* no { brace */\r\n    "KEY": {}\r\n}\r\n',
    '\ufeff{\n  "KEY": {\n    // the only one\n    "a": {} // a\n    // last\n  }\n}',
    "// settings\n",
    "",
    "{\n  // nothing yet\n}\n",
    '{"KEY": {\n  "a": 1}}',
    '{"u": "\\u00e9 \\" // no comment", "f": -1.5e-3}',
)

TOML_SAMPLES = (
    "",
    'model = "x"',
    'model = "x" # why\n\n[mcp_servers.a]\ncommand = "b"\n\n\n',
    '[mcp_servers.a]\r\ncommand = "b"\r\n\r\n[[profiles]]\r\nn = 1\r\n',
    'text = """\n[mcp_servers.coretools]\ncommand = "no"\n"""\n',
    'mcp_servers.a.command = "b"\n',
)

YAML_SAMPLES = (
    "",
    "GOOSE_MODEL: x",
    "extensions: {}\nGOOSE_MODEL: x\n",
    "extensions:\nz: 1\n",
    "extensions:\n  a:\n    cmd: b # c\n    text: |\n      extensions:\n        no\n\n  # the end\nz: [1,\n  2]\n",
    "# settings\n---\nextensions:\n    a: {enabled: true}",
    "extensions:\r\n  a:\r\n    args:\r\n    - x\r\n",
    "z: &anchor {a: 1}\nextensions:\n  b: *anchor\n",
)


def samples() -> list[tuple[str, str]]:
    by_format = {"json": JSON_SAMPLES, "toml": TOML_SAMPLES, "yaml": YAML_SAMPLES}
    return [(client.name, text.replace("KEY", client.key)) for client in CLIENTS for text in by_format[client.format]]


def parsed(client: Client, text: str) -> Any:
    """The document by a parser that is not ours, where there is one."""
    if client.format == "toml":
        return tomllib.loads(text)
    if client.format == "yaml":
        return YAML(typ="safe", pure=True).load(text)
    return json.loads(text)


def apply(change: Change, name: str = "coretools") -> None:
    if change.data is None:
        delete_config(change.file)
    else:
        backup = None if change.is_restored else change.file.backup_path(name)
        write_config(change.file, change.data, backup=backup)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings"


@pytest.mark.parametrize(("name", "text"), samples())
@pytest.mark.parametrize("server", [PROGRAM, ADDRESS])
def test_an_entry_is_added_and_undone_byte_for_byte(
    name: str, text: str, server: Program | Address, path: Path
) -> None:
    """install-3, install-7: comments, order, indentation, line ends and byte order mark stay."""
    client = client_named(name)
    if isinstance(server, Address) and name in ("claude-desktop", "zed", "jetbrains"):
        with pytest.raises(BadSetting, match=client.title):
            client.entry(server, "coretools")
        return
    path.write_bytes(text.encode())
    apply(plan_install(open_config(str(path)), client, "coretools", server))
    written = path.read_bytes().decode()
    # Nothing is taken away but the braces of an empty mapping in YAML.
    matched = SequenceMatcher(None, text, written, autojunk=False).get_opcodes()
    assert {text[start:end].strip() for kind, start, end, _, _ in matched if kind in ("delete", "replace")} <= {"{}"}
    assert written.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("\r\n" in written) == ("\r\n" in text)
    assert "\n" not in written.replace("\r\n", "") or "\r\n" not in text
    again = plan_install(open_config(str(path)), client, "coretools", server)
    assert not again.is_needed
    change = plan_undo(open_config(str(path)), client, "coretools")
    assert change.data == text.encode()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.name)
def test_a_new_file_has_the_entry_and_is_deleted_by_the_undo(client: Client, path: Path) -> None:
    """install-2, install-7: read by another parser than ours."""
    apply(plan_install(open_config(str(path)), client, "coretools", PROGRAM))
    entry = parsed(client, path.read_text())[client.key]["coretools"]
    assert entry == client.entry(PROGRAM, "coretools")
    assert entry.get("command", entry.get("cmd")) == PROGRAM.command
    assert entry["args"] == list(PROGRAM.args)
    apply(plan_undo(open_config(str(path)), client, "coretools"))
    assert not path.exists()


@pytest.mark.parametrize(("name", "text"), samples())
def test_what_was_changed_since_is_kept_by_an_undo(name: str, text: str, path: Path) -> None:
    """install-7: only our entry goes."""
    client = client_named(name)
    path.write_bytes(text.encode())
    apply(plan_install(open_config(str(path)), client, "coretools", PROGRAM))
    apply(plan_install(open_config(str(path)), client, "other", Program(command="/x", args=())), "other")
    change = plan_undo(open_config(str(path)), client, "coretools")
    assert not change.is_restored
    apply(change)
    assert list(configured(open_config(str(path)), client))[-1] == "other"
    assert "coretools" not in configured(open_config(str(path)), client)


@pytest.mark.parametrize(
    ("client", "scope", "system", "expected"),
    [
        ("claude-desktop", "user", "linux", "/home/ann/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "user", "darwin", "/home/ann/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-code", "user", "linux", "/home/ann/.claude.json"),
        ("claude-code", "project", "linux", "/p/.mcp.json"),
        ("cursor", "user", "darwin", "/home/ann/.cursor/mcp.json"),
        ("cursor", "project", "linux", "/p/.cursor/mcp.json"),
        ("vscode", "user", "linux", "/home/ann/.config/Code/User/mcp.json"),
        ("vscode", "user", "darwin", "/home/ann/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "project", "linux", "/p/.vscode/mcp.json"),
        ("gemini", "project", "linux", "/p/.gemini/settings.json"),
        ("codex", "user", "linux", "/home/ann/.codex/config.toml"),
        ("codex", "project", "linux", "/p/.codex/config.toml"),
        ("windsurf", "user", "linux", "/home/ann/.codeium/windsurf/mcp_config.json"),
        ("zed", "user", "darwin", "/home/ann/.config/zed/settings.json"),
        ("jetbrains", "project", "linux", "/p/.junie/mcp/mcp.json"),
        ("goose", "user", "linux", "/home/ann/.config/goose/config.yaml"),
    ],
)
def test_the_file_of_a_client(client: str, scope: Any, system: str, expected: str) -> None:
    """install-1"""
    assert client_named(client).path(scope, "/p", ENVIRONMENT, system) == expected


def test_directories_that_variables_name() -> None:
    """install-1: and a client without a file of a project, a system without a home."""
    environment = {**ENVIRONMENT, "XDG_CONFIG_HOME": "/c", "CODEX_HOME": "/x", "CLAUDE_CONFIG_DIR": "/cc"}
    assert client_named("goose").path("user", "", environment, "linux") == "/c/goose/config.yaml"
    assert client_named("codex").path("user", "", environment, "linux") == "/x/config.toml"
    assert client_named("claude-code").path("user", "", environment, "linux") == "/cc/.claude.json"
    with pytest.raises(NotFound, match="no configuration for one project"):
        client_named("goose").path("project", "/p", environment, "linux")
    with pytest.raises(BadSetting, match="HOME is not set"):
        client_named("cursor").path("user", "", {}, "linux")
    with pytest.raises(NotFound, match="choose one of claude-desktop"):
        client_named("emacs")


def test_a_token_is_named_and_never_written(path: Path) -> None:
    """install-2: each client takes it from its own place for secrets."""
    expected = {
        "claude-code": "Bearer ${CORETOOLS_TOKEN}",
        "cursor": "Bearer ${env:CORETOOLS_TOKEN}",
        "vscode": "Bearer ${input:coretools-token}",
        "gemini": "Bearer $CORETOOLS_TOKEN",
        "windsurf": "Bearer ${env:CORETOOLS_TOKEN}",
        "goose": "Bearer ${CORETOOLS_TOKEN}",
    }
    for name, header in expected.items():
        entry = client_named(name).entry(ADDRESS, "coretools")
        assert entry["headers"] == {"Authorization": header}
        assert "headers" not in client_named(name).entry(Address(url=ADDRESS.url, has_token=False), "coretools")
    assert client_named("codex").entry(ADDRESS, "x") == {"url": ADDRESS.url, "bearer_token_env_var": TOKEN_VARIABLE}
    assert client_named("zed").entry(Address(url="https://x", has_token=False), "x") == {"url": "https://x"}
    path.write_text('{"servers": {}, "inputs": [{"type": "promptString", "id": "mine"}]}')
    apply(plan_install(open_config(str(path)), client_named("vscode"), "coretools", ADDRESS))
    assert [one["id"] for one in json.loads(path.read_text())["inputs"]] == ["mine", "coretools-token"]
    assert json.loads(path.read_text())["inputs"][1]["password"] is True


def test_another_entry_of_the_name_is_shown_and_replaced_by_force(path: Path) -> None:
    """install-6: without what may be a secret."""
    client = client_named("cursor")
    old = (
        '{\n  "mcpServers": {"coretools": {"command": "/old/coretools-workstation", "env": {"API_KEY": "sk-123"}}}\n}\n'
    )
    path.write_text(old)
    with pytest.raises(AlreadyExists) as caught:
        plan_install(open_config(str(path)), client, "coretools", PROGRAM)
    assert "/old/coretools-workstation" in str(caught.value)
    assert PROGRAM.command in str(caught.value)
    apply(plan_install(open_config(str(path)), client, "coretools", PROGRAM, force=True))
    assert json.loads(path.read_text())["mcpServers"]["coretools"] == client.entry(PROGRAM, "")
    assert plan_undo(open_config(str(path)), client, "coretools").data == old.encode()


@pytest.mark.parametrize("server", [PROGRAM, ADDRESS])
def test_an_entry_of_another_name_for_the_same_server_is_named(server: Program | Address, path: Path) -> None:
    """install-6"""
    client = client_named("cursor")
    apply(plan_install(open_config(str(path)), client, "mine", server), "mine")
    before = path.read_bytes()
    with pytest.raises(AlreadyExists, match="'mine' is for the same server"):
        plan_install(open_config(str(path)), client, "coretools", server)
    assert path.read_bytes() == before
    assert plan_install(open_config(str(path)), client, "coretools", server, force=True).is_needed


def test_an_entry_that_starts_something_else_is_not_undone(path: Path) -> None:
    """install-7: unless --force."""
    path.write_text('{"mcpServers": {"coretools": {"command": "npx", "args": ["else"]}}}')
    with pytest.raises(AlreadyExists, match="starts something else"):
        plan_undo(open_config(str(path)), client_named("cursor"), "coretools")
    assert (
        plan_undo(open_config(str(path)), client_named("cursor"), "coretools", force=True).data == b'{"mcpServers": {}}'
    )
    path.write_text('{"mcpServers": {/* mine */ "coretools": {"command": "coretools-workstation"}}, "x": 1}')
    data = plan_undo(open_config(str(path)), client_named("cursor"), "coretools").data
    assert data == b'{"mcpServers": {/* mine */}, "x": 1}'
    with pytest.raises(NotFound, match="has no entry 'x'"):
        plan_undo(open_config(str(path)), client_named("cursor"), "x")


@pytest.mark.parametrize(
    ("client", "content", "message"),
    [
        ("cursor", b'{"a": }', "line 1, column 7: expected a value"),
        ("cursor", b'{"a": 1 "b": 2}', "expected a comma"),
        ("cursor", b"{'a': 1}", "double quotes"),
        ("cursor", b'{"a": 1}}', "expected the end"),
        ("cursor", b"[]", "must be an object"),
        ("cursor", b"[" * 5000, "nested too deeply"),
        ("cursor", b'{"mcpServers": {}, "mcpServers": {}}', "occurs twice"),
        ("cursor", b'{"mcpServers": {"a": 1, "a": 2}}', "occurs twice"),
        ("cursor", b'{"mcpServers": []}', "mcpServers: must be an object"),
        ("cursor", b'{"a": "\xff"}', "not UTF-8"),
        ("cursor", b"\xff\xfe{\x00}\x00", "not UTF-8"),
        ("codex", b"a = ", "invalid TOML"),
        ("codex", b"mcp_servers = 3\n", "must be a table"),
        ("codex", b'mcp_servers = {a = {command = "b"}}\n', "inline table"),
        ("goose", b"a: [", "invalid YAML"),
        ("goose", b"a: 1\n---\nb: 2\n", "another document"),
        ("goose", b"a: 1\na: 2\n", "occurs twice"),
        ("goose", b"extensions: 3\n", "must be a mapping"),
        ("goose", b"extensions: {a: {b: c}}\n", "written in braces"),
    ],
)
def test_a_file_that_cannot_be_edited_is_named_and_left(client: str, content: bytes, message: str, path: Path) -> None:
    """install-8"""
    path.write_bytes(content)
    with pytest.raises(CoreError, match=message) as caught:
        plan_install(open_config(str(path)), client_named(client), "coretools", PROGRAM)
    assert (str(path) in str(caught.value), caught.value.exit_code) == (True, 78)
    assert path.read_bytes() == content


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_large(path: Path) -> None:
    path.touch()
    os.truncate(path, config_file.MAX_BYTES + 1)


def make_read_only(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o444)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_fifo, "not a regular file"),
        (Path.mkdir, "not a regular file"),
        (make_large, "larger than"),
        (make_read_only, "is read-only"),
        (make_loop, "cannot be"),
    ],
)
def test_what_is_no_file_to_write_is_refused(make: Callable[[Path], None], message: str, path: Path) -> None:
    """install-8"""
    make(path)
    with pytest.raises(BadSetting, match=message):
        open_config(str(path))


def test_a_directory_that_cannot_be_written_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """install-8: nothing of ours stays beside it."""
    path.write_text("{}")
    change = plan_install(open_config(str(path)), client_named("cursor"), "coretools", PROGRAM)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(InputOutput, match="Read-only file system; it is as it was"):
        apply(change)
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_was_changed_meanwhile_is_left(path: Path) -> None:
    """install-8: compared before it is replaced or deleted."""
    path.write_text("{}")
    change = plan_install(open_config(str(path)), client_named("cursor"), "coretools", PROGRAM)
    path.write_text('{"new": 1}')
    with pytest.raises(Conflict, match="changed meanwhile"):
        apply(change)
    with pytest.raises(Conflict, match="changed meanwhile"):
        delete_config(change.file)
    assert path.read_text() == '{"new": 1}'
    assert os.listdir(path.parent) == [path.name]


def test_mode_and_earlier_bytes_are_kept(path: Path) -> None:
    """install-5: the backup is no more readable than the file."""
    path.write_text('{"token": "x"}')
    path.chmod(0o600)
    apply(plan_install(open_config(str(path)), client_named("cursor"), "coretools", PROGRAM))
    backup = Path(f"{path}.before-coretools")
    assert backup.read_text() == '{"token": "x"}'
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, backup)] == [0o600, 0o600]
    assert sorted(os.listdir(path.parent)) == [path.name, backup.name]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """install-9: as dotfiles managers make them; the link stays."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "mcp.json").write_text("{}")
    link = tmp_path / "mcp.json"
    link.symlink_to("dotfiles/mcp.json")
    apply(plan_install(open_config(str(link)), client_named("cursor"), "coretools", PROGRAM))
    assert link.is_symlink()
    assert "coretools" in (tmp_path / "dotfiles" / "mcp.json").read_text()


def test_a_link_of_a_project_does_not_lead_out_of_it(tmp_path: Path) -> None:
    """install-9: a clone may have any link."""
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "home").mkdir()
    (project / ".cursor").symlink_to(tmp_path / "home")
    with pytest.raises(BadSetting, match="a link out of the project"):
        open_config(str(project / ".cursor" / "mcp.json"), within=str(project))
    assert open_config(str(project / "mcp.json"), within=str(project)).data is None


def test_a_path_that_others_could_change_is_refused(tmp_path: Path) -> None:
    """install-9"""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared / "mcp.json")
    for path in (shared / "mcp.json", shared / "below" / "mcp.json", tmp_path / "link"):
        with pytest.raises(BadSetting, match="others may change"):
            open_config(str(path))


def test_links_decode_to_the_entry() -> None:
    """install-12"""
    cursor, vscode = client_named("cursor"), client_named("vscode")
    for server in (PROGRAM, ADDRESS):
        query = parse_qs(urlsplit(install_link(cursor, server, "c&d")).query)
        assert query["name"] == ["c&d"]
        assert json.loads(base64.b64decode(query["config"][0])) == cursor.entry(server, "")
        scheme, _, described = install_link(vscode, server, "coretools").partition("?")
        assert scheme == "vscode:mcp/install"
        decoded = json.loads(unquote(described))
        assert (decoded.pop("name"), decoded.pop("inputs", [])) == ("coretools", vscode.inputs(server))
        assert decoded == vscode.entry(server, "")
    with pytest.raises(Unsupported, match="no links"):
        install_link(client_named("zed"), PROGRAM, "coretools")


@pytest.mark.parametrize("editor", [json_text, toml_text, yaml_text])
def test_a_key_that_is_there_or_missing_is_an_error_of_the_editor(editor: Any) -> None:
    """install-3: an edit never replaces silently."""
    text = editor.insert("", ["servers"], "a", {"command": "b"})
    with pytest.raises(ValueError, match="is there already"):
        editor.insert(text, ["servers"], "a", {"command": "b"})
    assert list(editor.entries(text, ["servers"])) == ["a"]
    assert editor.entries("", ["servers"]) == {}


def test_a_table_of_several_parts_is_removed_whole() -> None:
    """install-7: with its sub-tables, and with values on several lines; a comment of the next table stays."""
    text = '[mcp_servers.a]\nargs = [\n  "x",\n  ["y"],\n]\n[mcp_servers.a.env]\nK = "v"\n\n# next\n[z]\n'
    assert toml_text.remove(text, ["mcp_servers"], "a") == "\n# next\n[z]\n"
    with pytest.raises(ValueError, match="by hand"):
        toml_text.remove('mcp_servers.a.command = "x"\n', ["mcp_servers"], "a")
    with pytest.raises(ValueError, match="by hand"):
        yaml_text.remove("extensions: {a: {b: c}}\n", ["extensions"], "a")


def test_large_files_are_edited(path: Path) -> None:
    """install-8: the history of a client may be in the file."""
    text = json.dumps({"history": [{"display": "x" * 50}] * 20_000, "mcpServers": {}}, indent=2)
    file = ConfigFile(path=str(path), target=str(path), data=text.encode())
    assert plan_install(file, client_named("claude-code"), "coretools", PROGRAM).is_needed
