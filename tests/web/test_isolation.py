"""Principals of one server never see anything of each other, whatever they try (docs/specs/http.md).

`CORETOOLS_ISOLATION_SECONDS=60` sets the duration; the test then prints what was done.
"""

import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.web.plans import at_work
from tests.web.tenants import STEALING, Tenant, TenantActivity, plan_for_tenants, tenants_of

ROUNDS = 2
HANDS = 2
"""Of each tenant: they do different things at once."""


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[list[Tenant]]:
    plan, tokens, roots = plan_for_tenants(tmp_path)
    async with at_work(plan) as url, tenants_of(url, tokens, roots) as found:
        yield found


async def test_concurrent_tenants_see_nothing_of_each_other(
    tenants: list[Tenant], capsys: pytest.CaptureFixture[str]
) -> None:
    """http-5, http-8, http-11: roots, files, runs, progress, events, sessions, tasks, completions, lists; by name, by
    chance and by stolen ids, in two roles and within one, in both eras."""
    seconds = float(os.environ.get("CORETOOLS_ISOLATION_SECONDS", "0"))
    until = time.monotonic() + seconds

    async def live(life: TenantActivity) -> None:
        rounds = 0
        while rounds < ROUNDS or time.monotonic() < until:
            await life.round()
            rounds += 1

    async with anyio.create_task_group() as tasks:
        for tenant in tenants:
            others = [other for other in tenants if other is not tenant]
            for number in range(HANDS):
                tasks.start_soon(live, TenantActivity(tenant, others, random.Random(f"{tenant.name} {number}")))

    done = sum((tenant.done for tenant in tenants), Counter[str]())
    assert sum(done[f"stole {kind}"] for kind in STEALING) > 0, done
    if seconds:
        seen = sum(tenant.bytes_seen for tenant in tenants)
        with capsys.disabled():
            print(f"\n{seconds:.0f} s, {done.total()} things, {seen} bytes looked through: {dict(done)}")


@pytest.mark.parametrize("thief", ["bob", "cat"], ids=["of another role", "of the same role"])
async def test_a_stolen_id_is_unknown(tenants: list[Tenant], thief: str) -> None:
    """http-5, http-8, http-11: exactly the response to an id that does not exist; the owner can still use it."""
    ann, other = tenants[0], next(tenant for tenant in tenants if tenant.name == thief)
    for kind, steal in sorted(STEALING.items()):
        life = TenantActivity(ann, [], random.Random(0))
        for thing in (life.runs, life.tells, life.asks, life.has_tasks):
            await thing()
        await steal(other, ann.ids[kind], ann)
        still = await ann.in_session(ann.ids["session"], "tools/call", name="read_file", arguments={"path": "red.txt"})
        assert ann.root in still.text, kind


async def test_the_canaries_would_be_detected(tenants: list[Tenant]) -> None:
    """A search that finds nothing proves nothing: here it has something to find."""
    ann, bob = tenants[0], tenants[1]
    with pytest.raises(AssertionError, match="sees what is another's"):
        await ann.call("tell", word=bob.canary)
