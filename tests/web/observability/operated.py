"""An app with all its observability: a real dispatcher, requests, and snapshots of a server's state."""

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router

from coretools.errors import NotFound
from coretools.operations.call import SilentCall
from coretools.operations.declare import Effect
from coretools.operations.dispatch import ActiveCall, Dispatcher, Outcome
from coretools.operations.registry import Registry
from coretools.protocol.draining import Draining
from coretools.redaction.redactor import Redactor
from coretools.services.interface import QueueTotals
from coretools.web.common.error_response import error_response
from coretools.web.common.events import CallWatchers
from coretools.web.observability.console_state import ConsoleState
from coretools.web.observability.metrics import Metrics
from coretools.web.observability.snapshots import (
    ReloadStatus,
    RootSnapshot,
    ServerSnapshot,
    SessionSnapshot,
    TenantSnapshot,
)

MARKUP = "<img src=x onerror='window.canary=1'><script>window.canary=2</script>"
SECRET = "ghp_" + "A1b2" * 9
BIDI = "\u202eniam\u202c"


class ServerStateSource:
    """The state of a server, hostile where a client or a repository chooses the text."""

    def __init__(self, draining: Draining) -> None:
        self.draining = draining
        self.are_stores_fine = True

    def sessions(self) -> list[SessionSnapshot]:
        whose = (("alice", "default"), (f"mallory {MARKUP}", "default"), ("build-bot", "pipeline"))
        return [
            SessionSnapshot(
                id=f"{number}{'abcdef' * 5}{number}",
                principal=principal,
                role=role,
                age_seconds=4_000.0 / (number + 1),
                idle_seconds=3.2 * number,
            )
            for number, (principal, role) in enumerate(whose)
        ]

    def tenants(self) -> list[TenantSnapshot]:
        return [
            TenantSnapshot(
                role="default",
                roots=(
                    RootSnapshot(name="project", is_writable=True),
                    RootSnapshot(name=f"docs{MARKUP}", is_writable=False),
                ),
                resolver="openat2",
                tier="full",
                missing=(),
                children=3,
                runs=1,
            ),
            TenantSnapshot(
                role="pipeline",
                roots=(RootSnapshot(name="builds", is_writable=True),),
                resolver="walk",
                tier="landlock",
                missing=("git-confinement", "watchdog"),
                children=0,
                runs=0,
            ),
        ]

    def server(self) -> ServerSnapshot:
        return ServerSnapshot(
            replica="replica-1",
            stores="redis",
            are_stores_fine=self.are_stores_fine,
            totals=QueueTotals(waiting=1, leased=0, dead=0),
            is_draining=self.draining.has_begun,
            reload=ReloadStatus(certificate_ends=2e9),
        )


class ObservedServer:
    """A server from inside: commands that wait for a gate, and everything that observes them."""

    def __init__(self) -> None:
        self.draining = Draining()
        self.server_state = ServerStateSource(self.draining)
        self.metrics = Metrics(replica="replica-1")
        self.metrics.collect_from(self.server_state)
        self.console_state = ConsoleState(self.server_state, Redactor(["correct-horse-battery"]))
        self.gate = anyio.Event()
        self.registry = _commands(self)
        names = [command.name for command in self.registry]
        watchers = CallWatchers([self.metrics.calls("default", names), self.console_state.calls("default")])
        self.dispatcher = Dispatcher(threads=2, observer=watchers)

    async def call(self, tool: str, principal: str = "local", /, **arguments: object) -> Outcome:
        """Run a command as a request of a client would."""
        command = next(one for one in self.registry if one.name == tool)
        return await self.dispatcher.dispatch(command, arguments, SilentCall(principal))

    def hostile(self) -> ActiveCall:
        """A call whose texts are markup: our own names cannot be, those of others might."""
        call = ActiveCall(command=f"tool{MARKUP}", principal=f"mallory{MARKUP}{BIDI}")
        self.console_state.calls("default").began(call)
        return call

    def fail(self, call: ActiveCall) -> None:
        """End a call with an error that contains markup and credentials."""
        error = NotFound(f"{MARKUP}: not there, nor are {SECRET} and correct-horse-battery; {'and more ' * 99}")
        self.console_state.calls("default").ended(call, Outcome(text=str(error), error=error))


def router(*routes: BaseRoute) -> Router:
    """An app with a route that answers, one that refuses and one that fails."""

    async def endpoint(request: Request) -> Response:
        await request.body()
        return JSONResponse({"fine": True})

    async def refused(request: Request) -> Response:
        return error_response(403, "not for you", kind="host")

    async def broken(request: Request) -> Response:
        raise RuntimeError("correct-horse-battery")

    own = [
        Route("/mcp", endpoint, methods=["GET", "POST"]),
        Route("/refused", refused),
        Route("/broken", broken),
    ]
    return Router([*own, *routes])


def _commands(inside: ObservedServer) -> Registry:
    registry = Registry()

    @registry.tool(Effect.READ)
    async def wait(name: str) -> str:
        """Wait until it is let go."""
        await inside.gate.wait()
        return name

    @registry.tool(Effect.READ)
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @registry.tool(Effect.READ)
    def lose(path: str) -> str:
        """Find nothing."""
        raise NotFound(f"{path}: not there")

    @registry.tool(Effect.READ)
    def crash() -> str:
        """Have a fault."""
        raise RuntimeError("correct-horse-battery")

    return registry
