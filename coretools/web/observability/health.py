"""`/healthz`: the process lives. `/readyz`: it can serve, or which part of it can't.

Asked by orchestrators and load balancers without a token: an answer says one word for each part that fails, and
nothing of the host.
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
"""Whether a part works. False, a `CoreError` and no answer in time are all the same here: it does not."""

CHECK_SECONDS = 2.0
"""For all parts together; a root on a dead network disk answers never."""

KEEP_SECONDS = 1.0
"""How long an answer holds: whoever asks a thousand times a second has the parts looked at once."""

DRAINING = "draining"


class Health:
    """Looks at the parts of a server."""

    def __init__(self, checks: Mapping[str, Check], is_draining: Callable[[], bool]) -> None:
        """`checks` by the one word that stands for each part."""
        self._checks = dict(checks)
        self._is_draining = is_draining
        self._lock = anyio.Lock()
        self._failing: tuple[str, ...] = ()
        self._looked_at = -KEEP_SECONDS

    def routes(self) -> list[Route]:
        """For the server's router."""
        return [Route("/healthz", self._live, methods=["GET"]), Route("/readyz", self._ready, methods=["GET"])]

    async def failing(self) -> tuple[str, ...]:
        """The parts that do not work; empty when the server can serve."""
        if self._is_draining():
            return (DRAINING,)
        async with self._lock:
            if time.monotonic() - self._looked_at >= KEEP_SECONDS:
                self._failing = await self._look()
                self._looked_at = time.monotonic()
            return self._failing

    async def _look(self) -> tuple[str, ...]:
        fine: set[str] = set()

        async def look(name: str, check: Check) -> None:
            try:
                if await check():
                    fine.add(name)
            except CoreError:
                return  # its sentence may hold a path or an address

        with anyio.move_on_after(CHECK_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, check in self._checks.items():
                    tasks.start_soon(look, name, check)
        return tuple(name for name in self._checks if name not in fine)

    async def _live(self, _: Request) -> Response:
        return _answer(200, {"status": "alive"})

    async def _ready(self, _: Request) -> Response:
        failing = await self.failing()
        if failing:
            return _answer(503, {"status": "unready", "failing": list(failing)})
        return _answer(200, {"status": "ready"})


def roots_check(all_roots: Callable[[], list[Roots]]) -> Check:
    """Whether every root is still where it was."""
    limiter = anyio.CapacityLimiter(1)

    def look() -> bool:
        for roots in all_roots():
            for root in roots:
                roots.require_present(root)
        return True

    async def check() -> bool:
        # A look that hangs is left behind in its thread; the next ones wait for that place and fail as it does.
        return await to_thread.run_sync(look, limiter=limiter, abandon_on_cancel=True)

    return check


def commands_check(assemblies: Callable[[], list[Assembly]]) -> Check:
    """Whether commands can be held in each as the operator requires; these are the ones of which he requires it."""

    async def check() -> bool:
        return all([(await assembly.runner.prepare()).is_permitted for assembly in assemblies()])

    return check


def _answer(status: int, body: dict[str, object]) -> Response:
    return JSONResponse(body, status_code=status, headers={"Cache-Control": "no-store"})
