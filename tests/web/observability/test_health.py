"""Liveness and readiness (docs/specs/observability.md)."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.routing import Router

from coretools.app.assembly import open_assembly
from coretools.config.operator_policy import ConfinementPolicy, OperatorPolicy
from coretools.config.settings import Settings
from coretools.errors import Unreachable
from coretools.protocol.draining import Draining
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.web.observability.health import Check, Health, commands_check, roots_check
from tests.protocol.http_peer import listening

SECONDS = 50


async def fine() -> bool:
    return True


async def not_fine() -> bool:
    return False


async def lost() -> bool:
    raise Unreachable("redis://secret@10.0.0.7 can't be reached")


@asynccontextmanager
async def asked(checks: Mapping[str, Check], draining: Draining | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    state = draining or Draining()
    app = Router(Health(checks, lambda: state.has_begun).routes())
    async with listening(app) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as client:
        yield client


async def test_a_server_lives_while_it_answers() -> None:
    """observability-6: whatever its parts report, and while it drains."""
    draining = Draining()
    draining.begin()
    async with asked({"stores": lost}, draining) as client:
        answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


async def test_a_server_is_ready_when_every_part_is() -> None:
    """observability-6: 200, and no header that lets a cache keep it."""
    async with asked({"roots": fine, "stores": fine}) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    assert answer.headers["cache-control"] == "no-store"


async def test_a_failing_part_is_named_by_one_word() -> None:
    """observability-6: no address, no path and no error text in the response."""
    async with asked({"roots": fine, "commands": not_fine, "stores": lost}) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unready", "failing": ["commands", "stores"]}


async def test_a_part_that_hangs_is_not_ready() -> None:
    """observability-6: the response comes all the same, and names it."""
    async with asked({"roots": fine, "stores": anyio.sleep_forever}) as client:  # type: ignore[dict-item]
        with anyio.fail_after(SECONDS):
            answer = await client.get("/readyz")
    assert answer.json()["failing"] == ["stores"]


async def test_a_server_that_drains_is_not_ready() -> None:
    """observability-6: from that moment, whatever was answered before."""
    draining = Draining()
    async with asked({"roots": fine}, draining) as client:
        assert (await client.get("/readyz")).status_code == 200
        draining.begin()
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["failing"]) == (503, ["draining"])


async def test_parts_are_checked_at_most_once_a_second() -> None:
    """observability-6: whatever the number of requests."""
    looks = []

    async def look() -> bool:
        looks.append(1)
        return True

    health = Health({"stores": look}, lambda: False)
    async with anyio.create_task_group() as many:
        for _ in range(200):
            many.start_soon(health.failing)
    assert len(looks) == 1


async def test_a_root_that_is_gone_fails(tmp_path: Path) -> None:
    """observability-6: renamed away, and not replaced by another directory of its name."""
    root = tmp_path / "root"
    root.mkdir()
    with Roots([RootSpec(str(root))], deny=DenyRules([])) as roots:
        health = Health({"roots": roots_check(lambda: [roots])}, lambda: False)
        assert await health.failing() == ()
        root.rename(tmp_path / "elsewhere")
        root.mkdir()
        assert await Health({"roots": roots_check(lambda: [roots])}, lambda: False).failing() == ("roots",)


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_confinement_must_be_as_required(tmp_path: Path, is_allowed: bool) -> None:
    """observability-6: the actual status on this machine, which has some tier; requiring `none` checks nothing."""
    confinement = ConfinementPolicy(allow_unconfined=is_allowed)
    settings = Settings(roots=(str(tmp_path),), policy=OperatorPolicy(confinement=confinement))
    async with open_assembly(settings, dict(os.environ)) as assembly:
        holding = await assembly.runner.prepare()
        failing = await Health({"commands": commands_check(lambda: [assembly, assembly])}, lambda: False).failing()
    assert (failing == ()) == holding.is_permitted
    assert holding.is_permitted or not is_allowed
