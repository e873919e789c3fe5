"""run_command with shell lines: bash runs them in the sandbox, and nothing of a line that is refused is started."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from coretools.command_policy.shell_lines.grammar import MAX_BYTES
from coretools.config.operator_policy import CommandPolicy, CommandRule
from coretools.errors import CannotStart, CommandSyntax, DeniedCommand, InvalidArguments, Unsupported
from coretools.tools.commands.prepare import MOST_VARIABLES
from tests.tools.commands.world import commands_in

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

LINES = (
    "cd sub && ls | sort -r; echo $?",
    'for i in 1 2 3; do echo "n $i"; done > out 2>&1; cat out | wc -l',
    "x=$(printf 'a b'); echo \"[$x]\" ${x// /_} {1..3}",
    "cat <<'END' > doc\nline 'one'\n$HOME\nEND\ncat doc; rm doc",
    "diff <(printf '1\\n2\\n') <(printf '1\\n3\\n')",
    "[[ -f file && ! -e none ]] && echo yes || echo no",
    "set -euo pipefail; false | true; echo never",
    'f() { echo "in $1"; return 4; }; f x; exit $?',
    "echo out; echo err >&2; kill -TERM $$",
    "trap 'echo bye' EXIT; (exit 3)",
    "ls *.none; echo sub/*; shopt -s nullglob; echo *.none",
    "arr=(a 'b c'); echo ${#arr[@]} \"${arr[1]}\"; echo $((2**10))",
    "sleep 0 & wait; echo done; exit 300",
    "echo $'tab\\there' \"$BASH_ENV$PROMPT_COMMAND\"; echo ~+ | grep -c sub",
    "# a comment\necho 'é \U0001f600'\n\n# the end",
    "false",
    "no-such-program; echo after",
)


def tree_of(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def project(directory: Path) -> Path:
    (directory / "sub").mkdir(parents=True)
    for name in ("file", "sub/a", "sub/b"):
        (directory / name).write_text(name)
    return directory


def in_bash(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "--noprofile", "--norc", "-c", line]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


@needs_bash
async def test_a_line_does_what_it_does_in_bash(tmp_path: Path) -> None:
    """shell-13: the same outputs, exit code or signal, and files."""
    for number, line in enumerate(LINES):
        ours, theirs = (project(tmp_path / f"{number}-{who}") for who in ("ours", "theirs"))
        async with commands_in(ours) as commands:
            result = await commands.run_command(line)
        bash = in_bash(line, theirs)
        code = -signal.SIGTERM if result.facts()["signal"] == "SIGTERM" else result.facts()["exit_code"]
        assert code == bash.returncode, line
        _, _, shown = f"\n{result.text()}".partition("]\n") if result.failed else ("", "", result.text())
        parts = [bash.stdout.rstrip("\n"), f"[stderr]\n{bash.stderr.rstrip()}" if bash.stderr else ""]
        assert shown.replace(f"{shutil.which('bash')}:", "bash:") == "\n".join(filter(None, parts)), line
        assert tree_of(ours) == tree_of(theirs), line


@needs_bash
async def test_no_profile_no_rc_file_and_no_history(tmp_path: Path) -> None:
    """shell-13: whatever the home holds."""
    home = tmp_path / "home"
    home.mkdir()
    for name in (".bashrc", ".bash_profile", ".profile", ".bash_login"):
        (home / name).write_text("echo started >> marker\nalias ls='touch marker'\n")
    before = tree_of(home)
    async with commands_in(tmp_path, variables={"PATH": os.environ["PATH"], "HOME": str(home)}) as commands:
        assert (await commands.run_command("ls home | cat; history")).text() == "[exit code 0, no output]"
    assert tree_of(home) == before
    assert not (tmp_path / "marker").exists()


async def test_variables_and_input_of_a_call(tmp_path: Path) -> None:
    """shell-14: for a line and for an argv; the shell does not read a variable as code."""
    async with commands_in(tmp_path) as commands:
        given = {"GREETING": "hello $(touch made)", "EMPTY": ""}
        result = await commands.run_command('cat; echo "$GREETING" "${EMPTY-unset}."', stdin="in\n", env=given)
        assert result.text() == "in\nhello $(touch made) ."
        assert (await commands.run_command(["printenv", "GREETING"], env=given)).text() == "hello $(touch made)"
        assert (await commands.run_command(["echo", "a;", "$HOME"])).text() == "a; $HOME"
        for wrong in (
            {"A B": ""},
            {"": "x"},
            {"A": "\0"},
            {"A=B": ""},
            {"BASH_FUNC_ls%%": "() { x; }"},
            {"CORETOOLS_X": ""},
        ):
            with pytest.raises(InvalidArguments, match=r"^env: "):
                await commands.run_command("true", env=wrong)
        with pytest.raises(InvalidArguments, match=f"at most {MOST_VARIABLES}"):
            await commands.run_command("true", env={f"N{number}": "" for number in range(MOST_VARIABLES + 1)})
    assert not (tmp_path / "made").exists()


FAULTY = (
    "touch made; echo 'open",
    "touch made\nif true; then",
    "touch made; cat <<END\nnever ends",
    "touch made; )",
    "touch made && && ls",
    "touch made; echo $(ls",
    "touch made; for; do done",
)


@needs_bash
async def test_nothing_of_a_faulty_line_is_started(tmp_path: Path) -> None:
    """shell-15: bash itself would run the part before the fault."""
    async with commands_in(tmp_path) as commands:
        for line in FAULTY:
            with pytest.raises(CommandSyntax, match="nothing was started"):
                await commands.run_command(line)
            assert not (tmp_path / "made").exists(), line


async def test_a_line_past_a_limit_is_refused_and_the_next_call_answered(tmp_path: Path) -> None:
    """shell-3: a megabyte, ten thousand parentheses, and characters that no line can hold."""
    wrong = (
        "touch made; " + "x" * 1_000_000,
        "touch made; echo " + "(" * 10_000 + ")" * 10_000,
        "touch made; echo " + "$(" * 10_000 + ")" * 10_000,
        "touch made; echo a\0b",
        "touch made; echo \udcff",
        "touch made; " + "a|" * 2_000 + "a",
    )
    async with commands_in(tmp_path) as commands:
        for line in wrong:
            with pytest.raises(CommandSyntax):
                await commands.run_command(line)
        assert (await commands.run_command("echo " + "x" * (MAX_BYTES - 20) + " | wc -c")).text() == str(MAX_BYTES - 19)
    assert not (tmp_path / "made").exists()


async def test_nothing_of_a_denied_line_is_started(tmp_path: Path) -> None:
    """shell-7, shell-8: the verdict comes before bash, and names the program or the piece."""
    policy = CommandPolicy(opaque="deny", rule=(CommandRule(program="rm", verdict="deny"),))
    (tmp_path / "kept").write_text("")
    async with commands_in(tmp_path, policy=policy) as commands:
        for line, named in {
            "touch made; rm kept": "rm kept",
            "touch made; if false; then rm -r .; fi": "rm -r .",
            "touch made; $(echo rm) kept": r"\$\(echo rm\)",
            "touch made; eval 'rm kept'": "eval",
            "touch made | xargs rm": "rm",
            "touch made; PATH=. ls": "PATH=",
        }.items():
            with pytest.raises(DeniedCommand, match=named):
                await commands.run_command(line)
            with pytest.raises(DeniedCommand, match=named):
                await commands.run_command(line, wait_seconds=1)
        with pytest.raises(DeniedCommand, match="LD_PRELOAD"):
            await commands.run_command("touch made", env={"LD_PRELOAD": "x.so"})
        assert list(tree_of(tmp_path)) == ["kept"]
        assert (await commands.run_command("echo a | cat > made; ls")).text() == "kept\nmade"


async def test_without_bash_a_posix_line_runs_and_another_names_what_sh_lacks(tmp_path: Path) -> None:
    """shell-16: and without any shell the error says so."""
    (tmp_path / "bin").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    variables = {"PATH": str(tmp_path / "bin")}
    async with commands_in(root, variables=variables) as commands:
        with pytest.raises(CannotStart, match="no bash and no sh"):
            await commands.run_command("echo a | cat")
        for name in ("sh", "cat", "touch"):
            (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
        assert (await commands.run_command('x=${Y:-a}; echo "$x" | cat && echo $((1 + 1))')).text() == "a\n2"
        for line, lacks in {
            "[[ a = a ]] && touch made": r"\[\[",
            "touch made; cat <(echo)": "process substitution",
        }.items():
            with pytest.raises(Unsupported, match=lacks):
                await commands.run_command(line)
    assert not tree_of(root)


async def test_no_editor_pager_or_prompt_waits_without_a_terminal(tmp_path: Path) -> None:
    """shell-17: the result says what was not opened; a variable of the call takes precedence."""
    identity = "git -c user.name=a -c user.email=a@b"
    async with commands_in(tmp_path) as commands:
        await commands.run_command("git init -q . && echo a > f && git add f")
        refused = await commands.run_command(f"{identity} commit")
        assert refused.failed
        assert "git opened no editor and the text stays as it is; -m or -F gives another" in refused.text()
        assert not (await commands.run_command(f"{identity} commit -q -m first")).failed
        amended = await commands.run_command(f"{identity} commit --amend", env={"GIT_EDITOR": "echo second >"})
        assert not amended.failed
        listed = await commands.run_command(
            "git log --format=%s | cat; git -p log --format=%s; python3 -c 'print(input())'"
        )
        assert listed.text().startswith("[exit code 1]\nsecond\n")
        assert "EOFError" in listed.text()


async def test_python_does_not_buffer_what_a_run_prints(tmp_path: Path) -> None:
    """shell-17: the output of a program that is stopped is there."""
    code = "import sys, os; print('before'); os.kill(os.getpid(), 9)"
    async with commands_in(tmp_path) as commands:
        assert "before" in (await commands.run_command(["python3", "-c", code])).text()
