"""Health endpoints: `/healthz` tells that the process lives, `/readyz` that it can serve or which part fails.

Orchestrators and load balancers ask without a token, so a response has one word for each failing part and nothing about
the host.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coretools.app.assembly import Assembly
from coretools.errors import CoreError
from coretools.roots.root_set import Roots

Check = Callable[[], Awaitable[bool]]
"""Whether a part works. False, a `CoreError` and a timeout all mean that it does not."""

CHECK_SECONDS = 2.0
"""Timeout of all checks together; a root on a dead network disk never answers."""

KEEP_SECONDS = 1.0
"""How long a result is reused, however often it is requested."""

DRAINING = "draining"


class Health:
    """Checks the parts of a server."""

    def __init__(self, checks: Mapping[str, Check], is_draining: Callable[[], bool]) -> None:
        """`checks` by the word that names each part."""
        self._checks = dict(checks)
        self._is_draining = is_draining
        self._lock = anyio.Lock()
        self._failing: tuple[str, ...] = ()
        self._checked_at = -KEEP_SECONDS

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/healthz", self._live, methods=["GET"]), Route("/readyz", self._ready, methods=["GET"])]

    async def failing(self) -> tuple[str, ...]:
        """Return the failing parts; empty if the server can serve."""
        if self._is_draining():
            return (DRAINING,)
        async with self._lock:
            if time.monotonic() - self._checked_at >= KEEP_SECONDS:
                self._failing = await self._check_all()
                self._checked_at = time.monotonic()
            return self._failing

    async def _check_all(self) -> tuple[str, ...]:
        fine: set[str] = set()

        async def run_check(name: str, check: Check) -> None:
            try:
                if await check():
                    fine.add(name)
            except CoreError:
                return  # its text may contain a path or an address

        with anyio.move_on_after(CHECK_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, check in self._checks.items():
                    tasks.start_soon(run_check, name, check)
        return tuple(name for name in self._checks if name not in fine)

    async def _live(self, _: Request) -> Response:
        return _answer(200, {"status": "alive"})

    async def _ready(self, _: Request) -> Response:
        failing = await self.failing()
        if failing:
            return _answer(503, {"status": "unready", "failing": list(failing)})
        return _answer(200, {"status": "ready"})


def roots_check(all_roots: Callable[[], list[Roots]]) -> Check:
    """Create the check that every root is still where it was opened."""
    limiter = anyio.CapacityLimiter(1)

    def run_check() -> bool:
        for roots in all_roots():
            for root in roots:
                roots.require_present(root)
        return True

    async def check() -> bool:
        # A hanging check is abandoned in its thread; later ones wait for that thread and time out.
        return await to_thread.run_sync(run_check, limiter=limiter, abandon_on_cancel=True)

    return check


def commands_check(assemblies: Callable[[], list[Assembly]]) -> Check:
    """Create the check that commands can be confined as the operator requires, for roles where that is required."""

    async def check() -> bool:
        return all([(await assembly.runner.prepare()).is_permitted for assembly in assemblies()])

    return check


def _answer(status: int, body: dict[str, object]) -> Response:
    return JSONResponse(body, status_code=status, headers={"Cache-Control": "no-store"})
