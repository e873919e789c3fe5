"""Runs and the sessions that they were started in (docs/specs/runs.md), on a real server."""

from pathlib import Path

import anyio
import pytest

from tests.protocol.peer import marker, wait_until_none, wait_until_some
from tests.web.http_server_peer import http_server
from tests.web.mcp_peer import Peer, call, session, stateless

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
    with anyio.fail_after(60):
        while (await peer.say("list_runs")).count("its session ended") != count:
            pass


async def only_calls_end_with_the_last_connection(peer: Peer) -> None:
    """http-4, confinement-20: and only if nobody comes back in time; a client with another stream is not gone."""
    seconds = marker()
    async with peer.listening() as stream:
        async with peer.asking(call("run_command", command=f"sleep {seconds}")) as answer:
            first = await answer.event()
        assert stream.response.status_code == 200
        wait_until_some(f"sleep {seconds}")
    assert wait_until_none(seconds) == []
    assert first is not None
    async with peer.listening(first.id) as late:
        assert late.response.status_code == 405


@pytest.mark.parametrize("how", ["deleted", "idle"])
async def test_a_run_ends_with_the_session_that_started_it(tmp_path: Path, how: str) -> None:
    """runs-5, http-7, http-4: no other one: neither of another session of one principal, nor one without a session."""
    root = tmp_path / "root"
    root.mkdir()
    config = tmp_path / "coretools.toml"
    limits = f"session_idle_seconds = {4 if how == 'idle' else 300}\nsessions_per_principal = 8\nresume_seconds = 1\n"
    config.write_text(f"auth.anonymous = 'user'\n[limits]\n{limits}")
    with http_server(tmp_path, "--root", root, "--config", config) as server:
        async with stateless(server.url) as third:
            without = await left_to_run(third)
            async with session(server.url, REVISION) as first, session(server.url, REVISION) as second:
                ending = await left_to_run(first)
                staying = await left_to_run(second)
                if how == "deleted":
                    await only_calls_end_with_the_last_connection(first)
                    wait_until_some(f"sleep {ending}")
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
