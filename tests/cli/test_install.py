"""`coretools install` (docs/specs/install.md)."""

import json
import os
import sys
from pathlib import Path

import pytest

from coretools.cli import install_listing
from coretools.cli.install import install
from coretools.cli.installed_program import is_in_uv_cache, other_programs, server_command
from coretools.cli.main import main
from coretools.errors import AlreadyExists, BadSetting, Declined, InvalidArguments, NotFound
from tests.cli.terminal import terminal

PROGRAM = os.path.join(os.path.dirname(sys.executable), "coretools-workstation")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def line(home: Path, text: str) -> int:
    return install(text.split(), {"HOME": str(home), "PATH": os.environ["PATH"]})


def cursor(home: Path, below: str = "") -> Path:
    return home / below / ".cursor" / "mcp.json"


def entry(path: Path, name: str = "coretools") -> dict[str, object]:
    found: dict[str, object] = json.loads(path.read_text())["mcpServers"][name]
    return found


def test_the_entry_starts_this_installation_with_the_flags_as_given(home: Path) -> None:
    """install-10: roots and paths are absolute, for a client starts the server in another directory."""
    (home / "docs").mkdir()
    (home / "p.toml").touch()
    assert line(home, "cursor ../docs:ro --read-only . ./ --deny *.key --policy=../p.toml --profile read --yes") == 0
    assert entry(cursor(home)) == {
        "type": "stdio",
        "command": PROGRAM,
        "args": [
            *("--read-only", "--deny", "*.key", f"--policy={home}/p.toml", "--profile", "read"),
            *(f"{home}/docs:ro", f"{home}/project"),
        ],
    }


def test_what_the_server_would_refuse_is_refused(home: Path) -> None:
    """install-10"""
    for text, error in (
        ("cursor --profile none", InvalidArguments),
        ("cursor --limit x=1", BadSetting),
        ("cursor missing", NotFound),
        ("emacs", NotFound),
        ("", InvalidArguments),
        ("cursor --name a/b", InvalidArguments),
        ("cursor --no-token", InvalidArguments),
        ("--list cursor", InvalidArguments),
        ("cursor --undo --read-only", InvalidArguments),
        ("cursor . --url https://x.example", InvalidArguments),
    ):
        with pytest.raises(error):
            line(home, f"{text} --yes")
    assert not cursor(home).exists()


def test_a_root_that_holds_the_installation_is_refused(home: Path) -> None:
    """install-10: agents could change the server that a client starts."""
    for root in (os.path.dirname(sys.prefix), "/"):
        with pytest.raises(BadSetting, match="install coretools outside"):
            line(home, f"cursor {root} --yes")
    assert not cursor(home).exists()
    assert line(home, f"cursor {os.path.dirname(sys.prefix)}:ro --yes") == 0


def test_a_path_that_is_not_utf_8_is_refused(home: Path) -> None:
    """install-10: no configuration can hold it."""
    root = os.fsdecode(os.fsencode(home) + b"/bad\xff")
    os.mkdir(root)
    for client in ("cursor", "codex", "goose"):
        with pytest.raises(BadSetting, match="not UTF-8"):
            install([client, root, "--yes"], {"HOME": str(home), "PATH": os.environ["PATH"]})
    assert not cursor(home).exists()


def test_a_new_file_of_the_user_is_private(home: Path) -> None:
    """install-5: clients keep secrets in it later; one of a project has the usual mode."""
    before = os.umask(0o022)
    try:
        assert line(home, "cursor --yes") == 0
        assert line(home, "cursor --scope project --yes") == 0
    finally:
        os.umask(before)
    assert cursor(home).stat().st_mode & 0o777 == 0o600
    assert cursor(home, "project").stat().st_mode & 0o777 == 0o644


def test_an_undo_puts_the_replaced_entry_back_though_the_client_wrote_the_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """install-7: what the client wrote meanwhile is kept."""
    assert line(home, "cursor --yes") == 0
    first = entry(cursor(home))
    assert line(home, "cursor --read-only --force --yes") == 0
    document = json.loads(cursor(home).read_text())
    cursor(home).write_text(json.dumps({**document, "numStartups": 1}))
    assert line(home, "cursor --undo --yes") == 0
    shown = capsys.readouterr().out
    assert "put the earlier entry coretools back" in shown
    assert f"the content from before is in {cursor(home)}.before-coretools" in shown
    assert entry(cursor(home)) == first
    assert json.loads(cursor(home).read_text())["numStartups"] == 1


def test_other_installations_on_path_are_named(home: Path) -> None:
    """installation-13: links to this one are none."""
    for name in ("theirs", "linked", "plain"):
        (home / name).mkdir()
    own = Path(PROGRAM)
    other = home / "theirs" / own.name
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    (home / "plain" / own.name).write_text("no program")
    (home / "linked" / own.name).symlink_to(own)
    path = map(str, (home / "linked", home / "plain", other.parent, own.parent, other.parent))
    assert other_programs({"PATH": os.pathsep.join(path)}) == [str(other)]


def test_uvx_is_written_where_this_runs_from_the_cache_of_uv(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """install-10: uv deletes such environments at any time."""
    environment = home / "uv" / "archive-v0" / "x1y2"
    environment.mkdir(parents=True)
    assert not is_in_uv_cache(str(environment))
    (home / "uv" / "CACHEDIR.TAG").touch()
    assert is_in_uv_cache(str(environment))
    monkeypatch.setattr(sys, "prefix", str(environment))
    with pytest.raises(NotFound, match="uvx is not on PATH"):
        server_command({"PATH": str(home)})
    (home / "uvx").write_text("#!/bin/sh\n")
    (home / "uvx").chmod(0o755)
    assert server_command({"PATH": str(home)}) == (f"{home}/uvx", ("coretools-workstation",))


def test_a_link_on_path_to_this_installation_is_preferred(home: Path) -> None:
    """install-10: pipx and uv keep it when they replace the environment."""
    assert server_command({"PATH": str(home)}) == (PROGRAM, ())
    (home / "coretools-workstation").symlink_to(PROGRAM)
    assert server_command({"PATH": str(home)}) == (f"{home}/coretools-workstation", ())


def test_the_change_is_shown_and_nothing_written_without_an_answer(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """install-4: no secret of a line beside it is shown."""
    cursor(home).parent.mkdir()
    before = '{\n  "mcpServers": {\n    "a": {"env": {"API_KEY": "hunter2hunter2"}}\n  }\n}\n'
    cursor(home).write_text(before)
    with pytest.raises(Declined, match="give --yes"):
        line(home, "cursor")
    assert line(home, "cursor --dry-run") == 0
    assert cursor(home).read_text() == before
    out, err = capsys.readouterr()
    assert f"+++ {cursor(home)}" in out
    assert '+    "coretools": {' in out
    assert "hunter2" not in out
    assert "nothing was written" in err


@pytest.mark.parametrize(("typed", "is_written"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_the_terminal_is_asked(home: Path, typed: str, is_written: bool) -> None:
    """install-4"""
    # From outside the root: with -m Python loads modules from where it runs, and agents could change those.
    words = ("coretools.cli.main", "install", "cursor", "project")
    with terminal("-m", *words, cwd=home, environment={"HOME": str(home)}) as person:
        person.wait_for("[y/N]")
        person.type(typed)
        assert person.end() == 0
    assert cursor(home).exists() == is_written


def test_the_same_entry_is_found_and_another_one_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-6"""
    assert line(home, "cursor --yes") == 0
    written = cursor(home).read_bytes()
    assert line(home, "cursor") == 0
    assert "has this entry already" in capsys.readouterr().out
    with pytest.raises(AlreadyExists, match="--force"):
        line(home, "cursor --read-only --yes")
    assert cursor(home).read_bytes() == written
    assert line(home, "cursor --read-only --yes --force") == 0
    assert line(home, "cursor --undo --yes") == 0
    assert cursor(home).read_bytes() == written


def test_an_undo_of_a_project_deletes_what_was_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-1, install-7: the project is the first root."""
    project = home / "project"
    assert line(home, f"cursor {project} --scope project --yes") == 0
    assert entry(cursor(home, "project"))["args"] == [str(project)]
    assert "paths of this machine" in capsys.readouterr().err
    assert not cursor(home).exists()
    assert line(home, "cursor --undo --scope project --yes") == 0
    assert not cursor(home, "project").exists()
    assert f"deleted {cursor(home, 'project')}" in capsys.readouterr().out
    with pytest.raises(NotFound, match="has no entry"):
        line(home, "cursor --undo --scope project --yes")


def test_an_undo_says_what_it_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-7: and deletes its backup only if it was restored."""
    cursor(home).parent.mkdir()
    cursor(home).write_text("{}")
    backup = Path(f"{cursor(home)}.before-coretools")
    assert line(home, "cursor --yes") == 0
    assert backup.read_text() == "{}"
    assert line(home, "cursor --undo --yes") == 0
    assert (cursor(home).read_text(), backup.exists()) == ("{}", False)
    assert line(home, "cursor --yes") == 0
    cursor(home).write_text(cursor(home).read_text().replace("{\n", '{\n  "new": 1,\n', 1))
    assert line(home, "cursor --undo --yes") == 0
    assert json.loads(cursor(home).read_text()) == {"new": 1}  # without the key that came with the entry
    assert backup.exists()
    assert "what else was changed in it since is kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x.example", "http"),
        ("https://", "name a host"),
        ("https://[x", "no URL"),
        ("https://ann:secret@x.example/mcp", "secret"),
        ("https://x.example/mcp?token=abcdef123456", "secret"),
        ("http://x.example/mcp", "unencrypted"),
    ],
)
def test_an_address_with_a_secret_or_without_encryption_is_refused(home: Path, url: str, message: str) -> None:
    """install-11"""
    with pytest.raises(BadSetting, match=message):
        line(home, f"cursor --url {url} --yes")
    assert not cursor(home).exists()


def test_the_note_says_where_the_token_goes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-2"""
    assert line(home, "cursor --url http://127.0.0.1:8000/mcp --yes") == 0
    assert "set CORETOOLS_TOKEN to the token in the environment of Cursor" in capsys.readouterr().err
    assert line(home, "vscode --url https://x.example/mcp --yes") == 0
    assert "VS Code asks for the token once" in capsys.readouterr().err
    assert line(home, "gemini --yes") == 0
    assert "in trusted folders only" in capsys.readouterr().err


def test_a_link_is_printed_and_nothing_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-12"""
    assert line(home, "cursor --link") == 0
    assert capsys.readouterr().out.startswith("cursor://anysphere.cursor-deeplink/mcp/install?name=coretools&config=")
    assert not cursor(home).exists()


def test_the_list_says_where_it_is_and_whether_it_starts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-13"""
    assert line(home, "--list") == 0
    assert "no client was found" in capsys.readouterr().out
    assert line(home, "cursor --profile read --yes") == 0
    assert line(home, "codex --yes") == 0
    (home / ".codex" / "config.toml").write_text('[mcp_servers.coretools]\ncommand = "/other/coretools-workstation"\n')
    (home / ".gemini").mkdir()
    (home / ".junie" / "mcp").mkdir(parents=True)
    (home / ".junie" / "mcp" / "mcp.json").write_text("{")
    capsys.readouterr()
    assert line(home, "--list") == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines()}
    assert "coretools: starts, " in rows["cursor"]
    assert "not started: it is another installation" in rows["codex"]
    assert "not configured" in rows["gemini"]
    assert "unusable: invalid JSON in line 1" in rows["jetbrains"]
    assert set(rows) == {"cursor", "codex", "gemini", "jetbrains"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"env": {"LD_PRELOAD": "/x.so"}}, "it has the key 'env'"),
        ({"args": ["--policy", "/x"]}, "file of a project and has options"),
        ({"command": "/tmp/coretools-workstation"}, "another installation"),
    ],
)
def test_an_entry_that_others_may_have_written_is_not_started(
    home: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], reason: str
) -> None:
    """install-13: a clone may have any entry."""
    assert line(home, "cursor --scope project --yes") == 0
    path = cursor(home, "project")
    path.write_text(json.dumps({"mcpServers": {"coretools": {**entry(path), **change}}}))
    capsys.readouterr()
    assert line(home, "--list") == 0
    assert reason in capsys.readouterr().out


def test_an_entry_that_does_not_start_is_reported(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """install-13: within bounded time, by the exit code too."""
    monkeypatch.setattr(install_listing, "ANSWER_SECONDS", 20.0)
    assert line(home, "cursor --yes") == 0
    cursor(home).write_text(cursor(home).read_text().replace(str(home / "project"), str(home / "gone")))
    assert line(home, "--list") == 69
    assert "does not start" in capsys.readouterr().out


def test_the_command_is_in_the_general_help(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """install-4: errors are one sentence, as of every command."""
    with pytest.raises(SystemExit) as caught:
        main(["install", "emacs"])
    assert caught.value.code == NotFound.exit_code
    assert "unknown client 'emacs'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "coretools install CLIENT" in capsys.readouterr().out
