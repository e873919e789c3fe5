"""The entry point in this process: which words go to which parser, with our own tool sets (docs/specs/cli.md)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from coretools.cli.main import BUILT_IN, OVERVIEW, general_help, main
from tests.checkout import TREE

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "README.md").write_text("# Sample\nhello\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "README.md").write_text("# Sample\nhello there\n")
    with chdir(tmp_path):
        yield tmp_path


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["git", "status"], ["git_status"]),
        (["git", "diff", "--stat"], ["git_diff", "stat=true"]),
        (["search-text", "hello"], ["search_text", "pattern=hello"]),
        (["read_file", "README.md", "--head", "1"], ["read_file", "path=README.md", "head=1"]),
        (["read_file", "missing"], ["read_file", "path=missing"]),
    ],
    ids=" ".join,
)
def test_a_typed_command_gives_the_result_of_call(
    project: Path, capsys: Captured, words: list[str], called: list[str]
) -> None:
    """cli-3, cli-11, cli-15: the same text, byte for byte, the same JSON, the same exit code."""
    for more in ([], ["--json"]):
        code = typed(*words, *more)
        printed = capsys.readouterr()
        assert typed("call", *called, *more) == code
        assert capsys.readouterr() == printed
        assert "\x1b" not in printed.out


def test_global_options_stand_before_or_behind_a_command(project: Path, capsys: Captured) -> None:
    """cli-12: `--limit` before the command is global, behind it the command's."""
    other = project / "other"
    other.mkdir()
    for words in (["--root", str(other), "list_directory"], ["list_directory", f"--root={other}"]):
        assert typed(*words) == 0
        assert "README.md" not in capsys.readouterr().out
    assert typed("--limit", "read_bytes=4", "read_file", "README.md", "--limit", "1") == 0
    assert "[" in capsys.readouterr().out
    assert typed("--read-only", "write_file", "x", "y") == 64
    assert "write_file is not available here: the server is read-only" in capsys.readouterr().err
    assert typed("git", "status", "--root", "/does/not/exist") == 78


def test_a_tool_with_the_name_of_a_command_of_ours_is_called_by_call(project: Path, capsys: Captured) -> None:
    """cli-2: `--with` before or behind `call`; without it an error says so."""
    (project / "own.py").write_text(
        "from coretools import App, Effect\napp = App('own')\n"
        "@app.tool(Effect.READ)\ndef run() -> str:\n    'Run.'\n    return 'ran'\n"
    )
    own = ("--with", "./own.py:app")
    for words in ((*own, "call", "run"), ("call", *own, "run")):
        assert typed(*words) == 0
        assert capsys.readouterr().out == "ran\n"
    assert typed(*own, "run") == 64
    assert "`coretools --with ./own.py:app call run` runs a tool of this name" in capsys.readouterr().err


def test_an_option_that_the_command_declares_is_the_commands(project: Path, capsys: Captured) -> None:
    """cli-12: behind the command; the global one stands before it. Commands of other registries stand beside ours."""
    assert typed("search_text", "e", "--limit", "1") == 0
    assert "1 matches shown" in capsys.readouterr().out
    contacts = ("--with", f"{TREE / 'tests' / 'cli' / 'contacts.py'}:REGISTRY")
    assert typed(*contacts, "contact", "add", "ada", "t1", "friend", "--network", "no setting of ours") == 0
    assert "'no setting of ours'" in capsys.readouterr().out
    assert typed(*contacts, "--network", "deny", "contact", "42", "show") == 0
    assert capsys.readouterr().out == "contact 42\n"
    assert typed("--with", "no.such.module:registry", "git", "status") == 78
    assert "no.such.module can't be imported" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_the_general_help_lists_built_in_commands_and_contexts(
    project: Path, capsys: Captured, words: list[str]
) -> None:
    """cli-12: contexts with their summaries, then commands."""
    assert typed(*words) == 0
    page = capsys.readouterr().out
    assert all(f"coretools {word}" in page for word in BUILT_IN)
    assert "  git               the git repositories beneath the roots\n" in page
    assert "  read_file " in page
    assert "git_log" not in page


def test_the_general_help_is_that_of_the_catalog(project: Path, capsys: Captured) -> None:
    """cli-10: the stored overview agrees with the declarations."""
    empty = project / "empty.py"
    empty.write_text("from coretools.operations.registry import Registry\n\nREGISTRY = Registry()\n")
    assert typed("--with", f"{empty}:REGISTRY", "--help") == 0
    current = capsys.readouterr().out
    if os.environ.get("CORETOOLS_UPDATE_SNAPSHOTS"):
        before, after = general_help("COMMANDS").split("COMMANDS")
        OVERVIEW.write_text(current.removeprefix(before).removesuffix(after + "\n") + "\n")
    assert typed("--help") == 0
    assert capsys.readouterr().out == current, "run this test with CORETOOLS_UPDATE_SNAPSHOTS=1"


def test_built_in_commands_take_precedence_and_global_options_before_them(project: Path, capsys: Captured) -> None:
    """cli-12: `coretools --profile read tools` is `coretools tools --profile read`."""
    assert typed("--profile", "read", "tools") == 0
    assert "write_file" not in capsys.readouterr().out
    assert typed("completion", "bash") == 0
    assert "complete -o nosort -F _coretools coretools" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "coretools: a command is missing; see `coretools --help`\n"),
        (
            ("--profile", "none", "git", "log"),
            "coretools: argument --profile: unknown profile 'none'; choose read, dev, ci or all",
        ),
        (("call",), "coretools: call: the following arguments are required: TOOL"),
        (("tools", "--bogus"), "coretools: unrecognized arguments: --bogus; see `coretools --help`\n"),
        (("policy",), "coretools: policy: the following arguments are required: ACTION"),
        (("completion", "tcsh"), "coretools: completion: argument shell: invalid choice: 'tcsh'"),
        (("--with",), "coretools: argument --with: expected one argument"),
    ],
)
def test_an_invalid_line_is_refused_in_a_sentence(
    project: Path, capsys: Captured, words: tuple[str, ...], expected: str
) -> None:
    """cli-4: wrong arguments give 64, whatever is wrong."""
    assert typed(*words) == 64
    captured = capsys.readouterr()
    assert captured.err.startswith(expected)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "words",
    [
        *((word, "--help") for word in BUILT_IN),
        *(("--help",), ("--version",), ("tools",), ("docs",), ("completion", "zsh"), ("git", "log", "--help")),
        *(("policy", "check"), ("policy", "explain", "ls"), ("install", "cursor", "--dry-run"), ("mcp", "list")),
        *(("init", "--policy", "p.toml", "--root", "sub"), ("token", "list", "--file", "t")),
    ],
    ids=" ".join,
)
def test_a_reader_that_is_gone_is_no_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, words: tuple[str, ...]
) -> None:
    """cli-4: `coretools ... | head -1` says nothing and ends with 0, whatever prints."""
    (project / "sub").mkdir()
    (project / "t").write_text("")
    (project / "t").chmod(0o600)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert typed(*words) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_docs_are_printed_and_written(project: Path, capsys: Captured) -> None:
    """cli-9, cli-10: JSON, pages, the table in a page; an obsolete page is deleted, others stay."""
    assert typed("docs", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["words"] for one in found["contexts"]] == [["git"], ["ci"]]
    assert "git_log" in [one["name"] for one in found["commands"]]
    assert typed("docs") == 0
    assert capsys.readouterr().out.startswith("| set | tools |\n")
    pages = project / "pages"
    assert typed("docs", "--write", str(pages)) == 0
    (pages / "gone.md").write_text((pages / "git.md").read_text())
    (pages / "mine.md").write_text("# Mine\n")
    assert typed("docs", "--write", str(pages), "--profile", "read") == 0
    assert not (pages / "gone.md").exists()
    assert (pages / "mine.md").exists()
    assert "git_commit" not in (pages / "git.md").read_text()
    assert typed("docs", "--page", str(pages / "mine.md")) == 78
    assert "no place for the table" in capsys.readouterr().err
    assert typed("docs", "--page", str(pages / "missing.md")) == 74


def test_a_run_that_is_left_is_stopped_with_a_note(project: Path, capsys: Captured) -> None:
    """cli-11, runs-22: as with `coretools call`."""
    assert typed("run_command", "sleep 60", "--wait-seconds", "0") == 0
    assert "was still running and is stopped" in capsys.readouterr().err


def test_a_typed_command_does_not_import_the_sdk(tmp_path: Path) -> None:
    """cli-11: this saves a second of every start; modules for terminals are not loaded either."""
    code = (
        "import sys\n"
        "from coretools.cli.main import main\n"
        f"try: main(['--root', {str(tmp_path)!r}, 'file_exists', 'x'])\n"
        "except SystemExit: print([m for m in ('mcp', 'mcp_types', 'rich', 'prompt_toolkit') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "false\n[]\n"


def test_ctrl_c_ends_a_line_that_still_imports(tmp_path: Path) -> None:
    """cli-18: quietly; the SDK stands still here as its import does on a slow disk."""
    package = tmp_path / "mcp"
    package.mkdir()
    (package / "__init__.py").write_text("import os, signal\nos.write(2, b'importing\\n')\nsignal.pause()\n")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "coretools.cli.main", "mcp", "list"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(TREE)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130
