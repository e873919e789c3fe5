"""python -m benchmarks.services [--messages 10000] [--lease 5]

Ends with 1 when a message was lost.
"""

import argparse
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.services.killed import run
from tests.services.nats_server import NatsServer
from tests.web.replicas.redis_server import RedisServer

STORES = {
    "redis": partial(RedisServer, "--appendonly", "yes", "--appendfsync", "always"),
    "redis-everysec": partial(RedisServer, "--appendonly", "yes", "--appendfsync", "everysec"),
    "nats": NatsServer,
}
"""The first of each kind as docs/deploy/replicas.md configures it."""


def main() -> None:
    """Entry point of `python -m benchmarks.services`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.services", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    parser.add_argument("--store", choices=STORES, action="append", help="[all]")
    options = parser.parse_args()
    has_lost = False
    for name in options.store or STORES:
        with TemporaryDirectory(prefix="services-") as folder, closing(STORES[name]()) as store:
            outcome = anyio.run(
                partial(run, Path(folder), store, messages=options.messages, lease_seconds=options.lease)
            )
        has_lost |= bool(outcome.lost)
        print(
            f"{name}: {outcome.messages} messages, {len(outcome.lost)} lost, {len(outcome.duplicates)} duplicates "
            f"({len(outcome.held)} of them held when their replica was killed; {outcome.repeated_puts} puts repeated), "
            f"{outcome.left} left, {outcome.messages / outcome.seconds:.0f} a second"
        )
    sys.exit(has_lost)


if __name__ == "__main__":
    main()
