"""Replicas of `coretools-http` and their store, killed while messages are queued (docs/specs/services.md)."""

from pathlib import Path

from benchmarks.services.killed import run
from tests.web.replicas.redis_server import RedisServer


async def test_no_message_is_lost_when_a_replica_and_the_store_are_killed(
    durable_redis: RedisServer, tmp_path: Path
) -> None:
    """services-3, services-6: what the killed replica held is done again by the other; nothing is left over."""
    outcome = await run(tmp_path, durable_redis, messages=200, lease_seconds=0.5)
    assert outcome.lost == []
    assert outcome.held <= set(outcome.duplicates)
    assert outcome.left == 0
