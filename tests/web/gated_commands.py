"""Commands that wait for the test, ask, log, or change the list. A server under test serves them with `--with`."""

from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from coretools.cancellation import check_cancelled
from coretools.errors import CapabilityMissing
from coretools.operations.call import Call
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskForm, AskModel


class Colour(BaseModel):
    colour: str


class GatedCalls:
    """Calls that wait, each under a name that the test gives it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._gates: dict[str, anyio.Event] = {}
        self._state: dict[str, str] = {}

    @tool(Effect.READ)
    async def hold(self, name: str, call: Call, aloud: bool = False) -> str:
        """Wait until the test lets it go."""
        self._state[name] = "waiting"
        if aloud:
            await call.progress(1, 2, f"{name} is waiting")
        try:
            await self._gate(name).wait()
        except anyio.get_cancelled_exc_class():
            self._state[name] = "cancelled"
            raise
        self._state[name] = "over"
        return f"{name} is over"

    @tool(Effect.READ)
    def spin(self, name: str) -> str:
        """Go on in a thread until it is cancelled."""
        self._state[name] = "waiting"
        try:
            while True:
                check_cancelled()
        finally:
            self._state[name] = "cancelled"

    @tool(Effect.READ)
    async def let_go(self, name: str) -> str:
        """Let a call end."""
        self._gate(name).set()
        return name

    @tool(Effect.READ)
    async def state(self, name: str) -> str:
        """What became of a call."""
        return self._state.get(name, "unknown")

    @tool(Effect.READ)
    async def go_away(self, name: str, call: Call) -> str:
        """Have the client come back later for what is left."""
        await call.close_stream()
        await self._gate(name).wait()
        return f"{name} came back"

    @tool(Effect.READ)
    async def tell(self, call: Call) -> str:
        """Say something before the answer."""
        await call.log("warning", "before the answer")
        return "logged"

    @asks("colour")
    @tool(Effect.READ)
    async def paint(self, call: Call) -> str:
        """Ask the person."""
        answer = await call.ask(AskForm(key="colour", message="Which?", model=Colour))
        return f"painted {answer.colour}"

    @asks("word")
    @tool(Effect.READ)
    async def think(self, call: Call) -> str:
        """Ask the model."""
        return await call.ask(AskModel(key="word", message="Say a word", most_tokens=10))

    @tool(Effect.READ)
    async def need_model(self, call: Call) -> str:
        """Work only for a client that has a model."""
        if not call.has_capability("sampling"):
            raise CapabilityMissing("sampling")
        return "it has one"

    @tool(Effect.READ)
    def place(
        self,
        region: Annotated[
            str, Field(description="Also sent as a header", json_schema_extra={"x-mcp-header": "Region"})
        ] = "",
    ) -> str:
        """Take an argument that a header repeats."""
        return f"region {region}"

    @tool(Effect.CHANGE)
    def change_list(self) -> str:
        """Add a tool, or take it away again."""
        if any(command.function is added for command in self._registry):
            self._registry.remove("added")
            return "taken away"
        self._registry.add(added)
        return "added"

    def _gate(self, name: str) -> anyio.Event:
        return self._gates.setdefault(name, anyio.Event())


@tool(Effect.READ)
def added() -> str:
    """Be there for a while."""
    return "here"


def _commands() -> Registry:
    registry = Registry()
    registry.add_set("gated", GatedCalls(registry))
    return registry


COMMANDS = _commands()
