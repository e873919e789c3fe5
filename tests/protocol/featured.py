"""Each feature of the protocol as a command, for the matrix. `python -m tests.protocol.featured` serves it."""

import sys
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel

from coretools.config.settings import Asking
from coretools.hosting.serve import ServeOptions, serve_stdio
from coretools.operations.call import Call
from coretools.operations.completion import Completes
from coretools.operations.content import Message, Result, Text
from coretools.operations.declare import Effect, asks, prompt, resource, tool
from coretools.operations.registry import Registry
from coretools.operations.server_info import ServerInfo
from coretools.questions.kinds import AskChoice, AskConfirmation, AskForm, AskModel, AskRoots, AskText

OPTIONS = ServeOptions(info=ServerInfo(name="featured"), asking=Asking(mode="sampling"))

MANY = 250
"""More prompts than fit on one page."""

STEPS = 3
SECONDS = 60


class Person(BaseModel):
    name: str
    age: int


class Measured(Result):
    length: int

    def text(self) -> str:
        return f"{self.length} long"


def guests(typed: str, given: object) -> list[str]:
    return ["Ada", "Alan", "Grace"]


class Features:
    """One command for each feature."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._begun = anyio.Event()
        self._cancelled = anyio.Event()
        self._state = "before"

    @tool(Effect.READ)
    def say(self, text: str) -> str:
        """Say it."""
        return text

    @tool(Effect.READ, structured=True)
    def measure(self, text: str) -> Measured:
        """Measure it."""
        return Measured(length=len(text))

    @resource("featured://fixed")
    def fixed(self) -> str:
        """A resource with one address."""
        return "fixed"

    @resource("featured://guests/{name}")
    def guest(self, name: Annotated[str, Completes(guests)]) -> str:
        """A resource of many addresses."""
        return f"guest {name}"

    @prompt()
    def greet(self, name: Annotated[str, Completes(guests)], manner: Literal["formal", "short"]) -> list[Message]:
        """A prompt."""
        return [Message(Text(f"Greet {name}, {manner}"))]

    @tool(Effect.READ)
    async def advance(self, call: Call) -> str:
        """Take some steps."""
        for done in range(1, STEPS + 1):
            await call.progress(done, STEPS, f"step {done}")
        return "there"

    @tool(Effect.READ)
    async def tell(self, call: Call) -> str:
        """Log a line."""
        await call.log("warning", "logged")
        return "done"

    @asks("text")
    @tool(Effect.READ)
    async def ask_text(self, call: Call) -> str:
        """Ask for a line."""
        return await call.ask(AskText(key="text", message="Which word?"))

    @asks("choice")
    @tool(Effect.READ)
    async def ask_choice(self, call: Call) -> str:
        """Ask for one of two."""
        return await call.ask(AskChoice(key="choice", message="Which colour?", choices=("red", "green")))

    @asks("yes")
    @tool(Effect.READ)
    async def ask_yes(self, call: Call) -> str:
        """Ask for a yes."""
        agreed = await call.ask(AskConfirmation(key="yes", message="Go on?", is_prefillable=True))
        return str(agreed)

    @asks("person")
    @tool(Effect.READ)
    async def ask_form(self, call: Call) -> str:
        """Ask for several values."""
        person = await call.ask(AskForm(key="person", message="Who?", model=Person))
        return f"{person.name} is {person.age}"

    @asks("thought")
    @tool(Effect.READ)
    async def ask_model(self, call: Call) -> str:
        """Ask the client's model."""
        return await call.ask(AskModel(key="thought", message="What is a cat?"))

    @asks("roots")
    @tool(Effect.READ)
    async def ask_roots(self, call: Call) -> str:
        """Ask which directories are worked on."""
        roots = await call.ask(AskRoots(key="roots"))
        return " ".join(roots)

    @tool(Effect.CHANGE)
    def toggle(self) -> str:
        """Add a tool, or take it away again."""
        if any(command.function is added for command in self._registry):
            self._registry.remove("added")
            return "taken away"
        self._registry.add(added)
        return "added"

    @resource("featured://state")
    def state(self) -> str:
        """A resource that changes."""
        return self._state

    @tool(Effect.CHANGE)
    def change(self, to: str) -> str:
        """Change the resource."""
        self._state = to
        self._registry.announce("featured://state")
        return to

    @tool(Effect.READ)
    async def hang(self) -> str:
        """Never end by itself."""
        self._begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled.set()
        return "never"

    @tool(Effect.READ)
    async def hanging(self) -> str:
        """Wait until `hang` runs."""
        with anyio.fail_after(SECONDS):
            await self._begun.wait()
        return "hangs"

    @tool(Effect.READ)
    async def cancelled(self) -> str:
        """Wait until `hang` was cancelled."""
        with anyio.fail_after(SECONDS):
            await self._cancelled.wait()
        self._begun, self._cancelled = anyio.Event(), anyio.Event()
        return "cancelled"


@tool(Effect.READ)
def added() -> str:
    """Be there for a while."""
    return "here"


def numbered(number: int) -> object:
    @prompt()
    def one() -> str:
        """One of many."""
        return str(number)

    one.__name__ = one.__qualname__ = f"one_{number}"
    return one


def registry() -> Registry:
    """Every feature."""
    commands = Registry()
    commands.add_set("features", Features(commands))
    for number in range(MANY):
        commands.add(numbered(number))  # type: ignore[arg-type]  # a function
    return commands


if __name__ == "__main__":
    sys.exit(serve_stdio(registry(), options=OPTIONS))
