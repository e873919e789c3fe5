"""Agents as tools (docs/specs/api.md): typed input, a context for each call, a notification for each step."""

import dataclasses
import datetime as dt
from typing import Annotated, Any, Literal

import anyio
import pytest
from mcp import Client, MCPError
from pydantic import BaseModel, Field, model_validator

from coretools.errors import BadSetting
from coretools.hosting.serve import build
from coretools.operations.agent_tools import AgentContext, Takes, agent_tool
from coretools.operations.call import SilentCall
from coretools.operations.command import Command
from coretools.operations.content import Result
from coretools.operations.declare import Effect, asks, tool
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.registry import Registry
from coretools.protocol.results import ERROR_KEY
from coretools.questions.kinds import AskText

ERAS = ("legacy", "auto")


class Trip(BaseModel):
    """Where to."""

    to: str = Field(description="The town", min_length=2)
    days: Annotated[int, Field(gt=0)] = 1
    by: Literal["train", "boat"] = "train"
    stops: list[str] = Field(default_factory=list)
    note: str | None = None

    @model_validator(mode="after")
    def checked(self) -> "Trip":
        if self.by == "boat" and self.days == 1:
            raise ValueError("a boat takes more than a day")
        return self


@dataclasses.dataclass(frozen=True)
class Sum:
    numbers: list[int]
    scale: int = 1
    names: list[str] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.scale == 0:
            raise ValueError("scale: 0 leaves nothing")


async def plan(trip: Trip, context: AgentContext) -> str:
    """Plan a trip."""
    for stop in trip.stops:
        await context.step(f"looking at {stop}")
    return f"{trip.days} days to {trip.to} by {trip.by}, {context.steps} steps"


def command_of(function: Any) -> Command:
    registry = Registry()
    return registry.command_of(registry.add(function))


async def run(function: Any, given: dict[str, Any]) -> Outcome:
    return await Dispatcher(threads=1).dispatch(command_of(function), given, SilentCall())


def test_the_fields_of_a_model_are_the_arguments() -> None:
    """api-14: flattened, with their types, bounds, defaults and descriptions."""
    command = command_of(agent_tool(plan, Effect.READ))
    assert (command.name, command.description) == ("plan", "Plan a trip.")
    assert command.arguments.schema() == {
        "type": "object",
        "properties": {
            "to": {"type": "string", "minLength": 2, "description": "The town"},
            "days": {"type": "integer", "exclusiveMinimum": 0, "default": 1},
            "by": {"type": "string", "enum": ["train", "boat"], "default": "train"},
            "stops": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
        },
        "required": ["to"],
    }
    assert command.arguments.required == ("to",)
    declared = command.declaration
    assert (declared.read_only, declared.long_running, declared.open_world) == (True, True, True)


async def test_the_model_is_built_from_the_arguments() -> None:
    """api-14: with its defaults; a default list is a new one each time."""
    seen: list[Trip] = []

    async def keep(trip: Trip, context: AgentContext) -> str:
        """Keep."""
        trip.stops.append("x")
        seen.append(trip)
        return "kept"

    made = agent_tool(keep, Effect.READ)
    for _ in range(2):
        assert (await run(made, {"to": "Rome"})).text == "kept"
    assert [trip.stops for trip in seen] == [["x"], ["x"]]
    assert seen[0] == Trip(to="Rome", stops=["x"])


async def test_a_field_with_an_alias_uses_its_own_name() -> None:
    """api-14: as in the schema; a date is a date."""

    class Visit(BaseModel):
        on: dt.date = Field(alias="visitDate")

    async def visit(given: Visit, context: AgentContext) -> str:
        """Visit."""
        return f"{given.on.year}"

    made = agent_tool(visit, Effect.READ)
    assert command_of(made).arguments.schema()["required"] == ["on"]
    assert (await run(made, {"on": "2026-11-22"})).text == "2026"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"to": "Rome", "days": "2"}, "days: must be a whole number"),
        ({"to": "Rome", "days": 0}, "days"),
        ({"to": "R"}, "to"),
        ({}, "to: is required"),
        ({"to": "Rome", "day": 2}, "did you mean 'days'"),
        ({"to": "Rome", "by": "boat"}, "a boat takes more than a day"),
    ],
)
async def test_invalid_input_is_refused_with_the_field(given: dict[str, Any], expected: str) -> None:
    """api-14: the arguments strictly, then the model's own rules."""
    outcome = await run(agent_tool(plan, Effect.READ), given)
    assert outcome.error is not None
    assert outcome.error.kind == "invalid-arguments"
    assert expected in outcome.text


async def test_a_dataclass_works_like_a_model() -> None:
    """api-14: the arguments of its constructor, and its own validation."""

    async def add(given: Sum, context: AgentContext) -> str:
        """Add."""
        return str(sum(given.numbers) * given.scale)

    made = agent_tool(add, Effect.READ)
    assert command_of(made).arguments.names == ("numbers", "scale", "names")
    assert (await run(made, {"numbers": [1, 2], "scale": 3})).text == "9"
    refused = await run(made, {"numbers": [1], "scale": 0})
    assert "scale: 0 leaves nothing" in refused.text


async def test_a_schema_may_be_given() -> None:
    """api-14: published unchanged, and validated; the agent gets the mapping."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"goal": {"type": "string", "pattern": "^[a-z]+$"}},
        "required": ["goal"],
        "additionalProperties": False,
    }

    async def pursue(given: dict[str, Any], context: AgentContext) -> str:
        """Pursue."""
        return f"pursued {given['goal']}"

    made = agent_tool(pursue, Effect.CHANGE, takes=Takes(schema=schema))
    assert command_of(made).arguments.schema() == schema
    assert (await run(made, {"goal": "rest"})).text == "pursued rest"
    refused = await run(made, {"goal": "REST"})
    assert refused.error is not None
    assert refused.error.kind == "invalid-arguments"


async def test_a_callable_object_is_an_agent_too() -> None:
    """api-13: with the name and the description that it is given; it manages its own state."""

    class Planner:
        """Plans."""

        async def __call__(self, trip: Trip, context: AgentContext) -> str:
            return f"off to {trip.to}"

        async def method(self, trip: Trip, context: AgentContext) -> str:
            """Go."""
            return f"gone to {trip.to}"

    made = agent_tool(Planner(), Effect.READ, name="planner", description="Plan any trip.")
    assert command_of(made).description == "Plan any trip."
    assert (await run(made, {"to": "Rome"})).text == "off to Rome"
    assert (await run(agent_tool(Planner().method, Effect.READ), {"to": "Rome"})).text == "gone to Rome"
    registry = Registry()
    registry.add(made)
    registry.add(agent_tool(plan, Effect.READ))
    assert [command.name for command in registry] == ["planner", "plan"]


async def untyped(*given: object) -> str:
    """Say nothing of its input."""
    return ""


async def of_text(given: str, context: AgentContext) -> str:
    """Take what has no fields."""
    return given


def plain(trip: Trip, context: AgentContext) -> str:
    """Do not wait for anything."""
    return trip.to


async def silent(trip: Trip, context: AgentContext) -> str:
    return trip.to


@pytest.mark.parametrize(
    ("agent", "expected"),
    [(untyped, "untyped: annotate"), (of_text, "of_text: annotate"), (plain, "must be async"), (silent, "description")],
)
def test_an_invalid_agent_is_refused_at_start(agent: Any, expected: str) -> None:
    """api-13: with its name, and what is missing."""
    with pytest.raises(BadSetting, match=expected):
        agent_tool(agent, Effect.READ)


async def test_a_result_and_other_decorators_work_as_for_any_command() -> None:
    """api-13: the agent's own return type is the output schema."""

    class Found(Result):
        count: int

        def text(self) -> str:
            return f"{self.count} found"

    async def find(given: Sum, context: AgentContext) -> Found:
        """Find."""
        return Found(count=len(given.numbers))

    made = tool(Effect.READ, structured=True)(agent_tool(find, Effect.READ))
    command = command_of(made)
    assert command.output_schema == {"type": "object", "properties": {"count": {"type": "integer"}}}
    assert (await run(made, {"numbers": [1, 2]})).data == {"count": 2}


@pytest.mark.parametrize("mode", ERAS)
async def test_each_step_is_one_notification(mode: str) -> None:
    """api-15: every one arrives, in order, however fast they come."""
    registry = Registry()
    registry.add(agent_tool(plan, Effect.READ))
    seen: list[tuple[float, str | None]] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message))

    stops = [f"stop {number}" for number in range(8)]
    with anyio.fail_after(60):
        async with Client(build(registry), mode=mode) as client:
            result = await client.call_tool("plan", {"to": "Rome", "stops": stops}, progress_callback=note)
    assert result.content[0].text == "1 days to Rome by train, 8 steps"  # type: ignore[union-attr]  # a text block
    assert seen == [(number + 1, f"looking at {stop}") for number, stop in enumerate(stops)]


@pytest.mark.parametrize("mode", ERAS)
async def test_concurrent_calls_have_a_context_each(mode: str) -> None:
    """api-13: its own id, its own count of steps; shared services."""
    together = anyio.Event()
    contexts: list[AgentContext] = []

    async def meet(given: Sum, context: AgentContext) -> str:
        """Meet."""
        contexts.append(context)
        if len(contexts) == 3:
            together.set()
        await together.wait()
        for _ in given.numbers:
            await context.step("on")
        return f"{context.call_id} {context.steps} {context.principal}"

    registry = Registry()
    registry.add(agent_tool(meet, Effect.READ))
    texts: list[str] = []

    async def call(client: Client, count: int) -> None:
        result = await client.call_tool("meet", {"numbers": [1] * count})
        texts.append(result.content[0].text)  # type: ignore[union-attr]  # a text block

    with anyio.fail_after(60):
        async with Client(build(registry), mode=mode) as client, anyio.create_task_group() as tasks:
            for count in range(3):
                tasks.start_soon(call, client, count)
    assert len({line.split()[0] for line in texts}) == 3
    assert sorted(line.split()[1] for line in texts) == ["0", "1", "2"]
    assert len({id(context.services) for context in contexts}) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_a_cancelled_call_cancels_the_agent(mode: str) -> None:
    """api-16: at its await, so that it can clean up."""
    waiting, cleaned = anyio.Event(), anyio.Event()

    async def wait(given: Sum, context: AgentContext) -> str:
        """Wait for ever."""
        try:
            waiting.set()
            await anyio.sleep_forever()
        finally:
            cleaned.set()
        return "never"

    registry = Registry()
    registry.add(agent_tool(wait, Effect.READ))
    with anyio.fail_after(60):
        async with Client(build(registry), mode=mode) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "wait", {"numbers": []})
            await waiting.wait()
            tasks.cancel_scope.cancel()
        await cleaned.wait()


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_asks_like_any_command(mode: str) -> None:
    """api-17: answers may be sent beforehand; its own error text is not sent."""

    async def curious(given: Sum, context: AgentContext) -> str:
        """Ask."""
        if given.scale == 2:
            raise RuntimeError("a secret of the server")
        return await context.ask(AskText(key="why", message="Why?"))

    registry = Registry()
    registry.add(asks("why")(agent_tool(curious, Effect.READ)))
    with anyio.fail_after(60):
        async with Client(build(registry), mode=mode) as client:
            answered = await client.call_tool("curious", {"numbers": [], "answers": {"why": "because"}})
            if mode == "auto":  # the missing capability is named (questions-17)
                with pytest.raises(MCPError, match="send answers"):
                    await client.call_tool("curious", {"numbers": []})
            else:
                unanswered = await client.call_tool("curious", {"numbers": []})
                assert (unanswered.meta or {})[ERROR_KEY] == "answer-needed"
            failed = await client.call_tool("curious", {"numbers": [], "scale": 2})
    assert answered.content[0].text == "because"  # type: ignore[union-attr]  # a text block
    assert (failed.meta or {})[ERROR_KEY] == "internal"
    assert "secret" not in str(failed)
