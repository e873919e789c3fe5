"""docs/specs/git-remotes.md: remotes by ssh, with the user's agent."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.git.git_servers import SshServer, ssh_server, sshd_path
from tests.tools.git.remote_world import RemoteWorld, error_of
from tests.tools.git.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    program = sshd_path()
    if program is None:
        pytest.skip("this machine has no sshd")
    (tmp_path / "ssh").mkdir()
    with ssh_server(tmp_path / "ssh") as found:
        tried = subprocess.run([program, "-t", "-f", str(tmp_path / "ssh" / "sshd_config")], capture_output=True)
        if tried.returncode:
            pytest.skip(f"sshd can't start here: {tried.stderr.decode()[:200]}")
        yield found


async def test_ssh_with_the_agent_of_the_user(tmp_path: Path, server: SshServer) -> None:
    """git-remotes-21: clone, push, fetch; the host must be known, and the agent is used only where a rule says so."""
    remote = RemoteWorld(World(tmp_path).filled()).created()
    world, port = remote.world, server.port
    url = f"ssh://{os.environ.get('USER', 'root')}@127.0.0.1:{port}{remote.bare}"
    environment = {"SSH_AUTH_SOCK": str(server.agent)}
    keys = {"url": f"ssh://127.0.0.1:{port}/**", "known_hosts": str(server.known_hosts), "credentials": "agent"}
    # None of these has a part in it.
    program = world.program()
    world.git("config", "core.sshCommand", str(program))
    world.git("config", "ssh.variant", "simple")
    async with remote.tools(remote.rule(**keys), environment=environment) as (tools, _):
        await tools.git_clone(url, "copy")
        await tools.git_remote("add", "origin", "work", url=url)
        assert [one["kind"] for one in (await tools.git_fetch("work")).updates] == ["new"]
        world.git("commit", "-q", "-a", "-m", "third")
        assert [one["kind"] for one in (await tools.git_push("work", branch="main")).updates] == ["fast-forward"]
        assert "merged by fast-forward" in (await tools.git_pull("copy")).text()
        missing = await error_of(tools.git_clone(f"{url}x", "other"))
        assert "does not appear to be a git repository" in str(missing)
    async with remote.tools(remote.rule(**{**keys, "known_hosts": "/dev/null"}), environment=environment) as (tools, _):
        assert "its key is not the one in /dev/null" in str(await error_of(tools.git_fetch("work")))
    async with remote.tools(remote.rule(**{**keys, "credentials": "none"}), environment=environment) as (tools, _):
        assert "Permission denied" in str(await error_of(tools.git_fetch("work")))
    async with remote.tools(remote.rule(**keys), environment={}) as (tools, _):
        assert "SSH_AUTH_SOCK" in str(await error_of(tools.git_fetch("work")))
    assert not world.marker.exists()
    assert sorted(path.name for path in world.root.iterdir()) == ["copy", "work"]
