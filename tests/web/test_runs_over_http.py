"""Runs and the sessions that they were started in (docs/specs/runs.md), on a real server."""

from pathlib import Path

import anyio
import pytest

from tests.protocol.peer import marker, wait_until_none, wait_until_some
from tests.web.http_server_peer import http_server
from tests.web.mcp_peer import Peer, session, stateless

REVISION = "2025-11-25"


async def left_to_run(peer: Peer) -> str:
    """Start a run that sleeps; return the number of seconds, which identifies its process."""
    seconds = marker()
    answer = await peer.say("run_command", command=f"sh -c 'setsid sleep {seconds} & wait'", wait_seconds=0)
    assert "running" in answer
    wait_until_some(f"sleep {seconds}")
    return seconds


async def ended_with_their_session(peer: Peer, count: int) -> None:
    """Wait until so many runs are listed as ended: the processes are gone before the server notices."""
    with anyio.fail_after(20):
        while (await peer.say("list_runs")).count("its session ended") != count:
            pass


@pytest.mark.parametrize("how", ["deleted", "idle"])
async def test_a_run_ends_with_the_session_that_started_it(tmp_path: Path, how: str) -> None:
    """runs-5, http-7: no other one: neither of another session of the same principal, nor one without a session."""
    root = tmp_path / "root"
    root.mkdir()
    config = tmp_path / "coretools.toml"
    limits = f"[limits]\nsession_idle_seconds = {4 if how == 'idle' else 300}\nsessions_per_principal = 8\n"
    config.write_text(f"auth.anonymous = 'user'\n{limits}")
    with http_server(tmp_path, "--root", root, "--config", config) as server:
        async with stateless(server.url) as third:
            without = await left_to_run(third)
            async with session(server.url, REVISION) as first, session(server.url, REVISION) as second:
                ending = await left_to_run(first)
                staying = await left_to_run(second)
                if how == "deleted":
                    assert (await first.delete()).status_code == 200
                    assert wait_until_none(ending) == []
                    await ended_with_their_session(second, 1)
                    wait_until_some(f"sleep {staying}")
                else:
                    assert wait_until_none(ending) == []
                    assert wait_until_none(staying) == []
                    await ended_with_their_session(third, 2)
            wait_until_some(f"sleep {without}")
        assert server.end() == 143
    assert wait_until_none(without) == []
