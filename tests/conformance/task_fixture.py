"""The tools of the suite's scenarios for the tasks extension, which belongs to no revision of the protocol."""

from typing import Annotated

from pydantic import BaseModel, Field

from coretools.errors import CapabilityMissing, RequestRefused, Unsupported
from coretools.operations.call import Call
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskForm
from tests.conformance.fixture import pause

TASKS = "io.modelcontextprotocol/tasks"
LEAST_SECONDS = 0.7
"""Longer than the server waits for a result before it returns a task, which the suite requires of these tools."""


class Confirmed(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


class Jobs:
    """Long-running tools, and one that is not."""

    @tool(Effect.READ)
    def greet(self, name: str = "World") -> str:
        """Greet."""
        return f"Hello, {name}!"

    @tool(Effect.READ, long_running=True)
    async def slow_compute(self, seconds: Annotated[float, Field(ge=0)], label: str = "") -> str:
        """Take some time."""
        await pause(max(seconds, LEAST_SECONDS))
        return f"computed {label} in {seconds:g} s"

    @tool(Effect.READ, long_running=True)
    async def failing_job(self, call: Call) -> str:
        """Fail after a while; only for clients with tasks."""
        if not call.has_capability(TASKS):
            raise CapabilityMissing(TASKS)
        await pause(LEAST_SECONDS)
        raise Unsupported("this job always fails")

    @tool(Effect.READ, long_running=True)
    async def protocol_error_job(self) -> str:
        """Fail as a request does."""
        await pause(LEAST_SECONDS)
        raise RequestRefused("this job ends with an error of the protocol", code=-32603)

    @asks("confirm")
    @tool(Effect.CHANGE, long_running=True)
    async def confirm_delete(self, filename: str, call: Call) -> str:
        """Ask before it deletes, which it does not."""
        await pause(LEAST_SECONDS)
        answer = await call.ask(AskForm(key="confirm", message=f"Delete {filename}?", model=Confirmed))
        return f"deleted {filename}" if answer.confirm else f"kept {filename}"

    @asks("first", "second")
    @tool(Effect.READ, long_running=True)
    async def multi_input(self, call: Call) -> str:
        """Ask twice at once."""
        await pause(LEAST_SECONDS)
        first, second = await call.ask_all(
            AskForm(key="first", message="The first name?", model=Name),
            AskForm(key="second", message="The second name?", model=Name),
        )
        return f"{first.name} and {second.name}"

    @asks("user_name")
    @tool(Effect.READ, long_running=True)
    async def test_tool_with_task(self, call: Call) -> str:
        """Ask at once, then take some time."""
        if not call.has_capability(TASKS):
            raise CapabilityMissing(TASKS)
        answer = await call.ask(AskForm(key="user_name", message="What is your name?", model=Name))
        await pause(LEAST_SECONDS)
        return f"Hello, {answer.name}!"


JOBS = Registry()
JOBS.add_set("jobs", Jobs())
