"""docs/specs/git-remotes.md: commands do not see the credentials of remotes, tried in the sandbox of a real server."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coretools.cli.main import main
from tests.docker_profile import under_profile
from tests.protocol.peer import peer

TOKEN = "token-that-no-command-sees"

LOOK = """
found = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + [sys.argv[2]]:
    try:
        if sys.argv[3].encode() in open(path, "rb").read():
            found.append(path)
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    found.append("agent")
except OSError:
    pass
found += [name for name in os.environ if name in ("ACME", "SSH_AUTH_SOCK")]
print("found:", [one for one in found if one != f"/proc/{os.getpid()}/cmdline"])
"""


@pytest.mark.parametrize("tier", ["full", "landlock"])
def test_a_command_sees_no_token_and_no_agent(tmp_path: Path, tier: str) -> None:
    """git-remotes-22, git-remotes-23: in variables, files, processes and sockets; plain Python finds them."""
    root, secret = tmp_path / "root", tmp_path / "token"
    root.mkdir()
    secret.write_text(TOKEN)
    secret.chmod(0o600)
    (root / "look.py").write_text(f"import glob, os, socket, sys\n{LOOK}")
    rules = f"""
[[remote]]
url = "https://git.example.org/a/*"
credentials = "token"
token_env = "ACME"
[[remote]]
url = "https://git.example.org/b/*"
credentials = "token"
token_file = "{secret}"
[[remote]]
url = "ssh://git.example.org/**"
credentials = "agent"
"""
    policy = tmp_path / "policy.toml"
    policy.write_text(rules)
    before = under_profile() if tier == "landlock" else ()
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        words = [str(tmp_path / "agent"), str(secret), TOKEN[:-1] + TOKEN[-1]]
        environment = {"ACME": TOKEN, "SSH_AUTH_SOCK": str(tmp_path / "agent")}
        with peer(root, "--policy", policy, environment=environment, before=before) as client:
            client.start_session()
            answer = str(client.call("run_command", command=["python3", "look.py", *words]))
            client.call("run_command", command="git init -q work && git -C work remote add o https://git.example.org/x")
            refused = str(client.call("run_command", command="git -C work push o HEAD:main; git -C work fetch o"))
        assert "found: []" in answer, answer
        assert "use git_push, git_fetch" in refused, refused
        assert "[[remote]] url" in refused
        plain = subprocess.run(
            [sys.executable, root / "look.py", *words], capture_output=True, text=True, env=environment
        ).stdout
        assert "agent" in plain
        assert "ACME" in plain


def test_a_server_does_not_start_with_a_token_that_commands_would_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """git-remotes-22: passed as a variable, or in a file beneath a root."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "token").write_text("x")
    policy = tmp_path / "policy.toml"
    for rule, sentence in (
        ('token_env = "ACME"\n[environment]\npass = ["ACME"]', "is passed to commands"),
        (f'token_file = "{root}/token"', "lies in the writable root"),
    ):
        policy.write_text(f'[[remote]]\nurl = "https://h/x"\ncredentials = "token"\n{rule}\n')
        with pytest.raises(SystemExit) as ended:
            main(["--root", str(root), "--policy", str(policy), "call", "git_status"])
        assert ended.value.code == 78
        assert sentence in capsys.readouterr().err
