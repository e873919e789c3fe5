"""Questions to clients of both eras, with the SDK's client (docs/specs/questions.md)."""

import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.from_thread
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from pydantic import BaseModel

from coretools.config.operator_policy import ToolPolicy
from coretools.config.settings import Asking
from coretools.operations.call import Call, require_confirmation
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, asks, prompt, resource, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.live_questions import form_of, request_of
from coretools.protocol.results import ERROR_KEY
from coretools.protocol.round_trip_questions import InMemoryUsedStates, QuestionFactory
from coretools.protocol.server import ServerInfo, ServerOptions, build_server
from coretools.questions.answer_resolution import AskChannel
from coretools.questions.kinds import (
    AskChoice,
    AskChoices,
    AskConfirmation,
    AskForm,
    AskModel,
    AskRoots,
    AskSecret,
    AskText,
)
from tests.protocol.unasked import unasked

ERAS = ("legacy", "auto")
SAMPLING = Asking(mode="sampling")
COLOURS = ("red", "green", "grey")


class Person(BaseModel):
    name: str
    age: int = 30
    size: Literal["s", "m"] = "m"


@dataclass
class Asker:
    """Commands that ask; `done` records their effects, `begun` how often each was started."""

    done: list[str] = field(default_factory=list)
    begun: int = 0

    @tool(Effect.CHANGE)
    @asks("sure")
    async def drop(self, name: str, call: Call) -> str:
        """Drop it."""
        self.begun += 1
        await require_confirmation(call, AskConfirmation(key="sure", message=f"Drop {name}?", is_prefillable=True))
        self.done.append(name)
        return "dropped"

    @tool(Effect.CHANGE)
    @asks("sure", "why")
    async def drop_with_reason(self, call: Call) -> str:
        """Drop it, and say why."""
        self.begun += 1
        await require_confirmation(call, AskConfirmation(key="sure", message="Drop?", is_prefillable=True))
        why = await call.ask(AskText(key="why", message="Why?"))
        self.done.append(why)
        return f"dropped: {why}"

    @tool(Effect.READ)
    @asks("colour", "size")
    async def paint(self, call: Call) -> str:
        """Ask two questions at once."""
        self.begun += 1
        colour, size = await call.ask_all(
            AskChoice(key="colour", message="Which colour?", choices=COLOURS),
            AskText(key="size", message="Which size?", most_characters=2),
        )
        return f"{colour} {size}"

    @tool(Effect.CHANGE)
    @asks("sure", "why")
    def drop_in_a_thread(self, call: Call) -> str:
        """Ask from the thread of a plain function."""
        self.begun += 1
        anyio.from_thread.run(
            require_confirmation, call, AskConfirmation(key="sure", message="Drop?", is_prefillable=True)
        )
        self.done.append(anyio.from_thread.run(call.ask, AskText(key="why", message="Why?")))
        return "dropped"

    @tool(Effect.CHANGE)
    @asks("sure", "why")
    async def drop_in_a_group(self, call: Call) -> str:
        """Ask in tasks of its own."""
        self.begun += 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                require_confirmation, call, AskConfirmation(key="sure", message="Drop?", is_prefillable=True)
            )
        self.done.append("x")
        return "dropped"

    @tool(Effect.READ)
    @asks("some")
    async def pick(self, call: Call) -> str:
        """Several choices."""
        return " ".join(await call.ask(AskChoices(key="some", message="Which?", choices=COLOURS, at_least=1)))

    @tool(Effect.READ)
    @asks("person")
    async def greet(self, call: Call) -> str:
        """A form."""
        person = await call.ask(AskForm(key="person", message="Who?", model=Person))
        return f"{person.name} {person.age} {person.size}"

    @tool(Effect.READ)
    @asks("text")
    async def note(self, call: Call) -> str:
        """A text with a default."""
        return await call.ask(AskText(key="text", message="What?", default="nothing"))

    @tool(Effect.READ)
    @asks("token")
    async def sign_in(self, call: Call) -> str:
        """A secret."""
        return f"{len(await call.ask(AskSecret(key='token', message='Token?')))} characters"

    @tool(Effect.READ)
    @asks("model")
    async def think(self, call: Call) -> str:
        """A model is asked."""
        return await call.ask(AskModel(key="model", message="Capital of France?", system_prompt="short"))

    @tool(Effect.READ)
    @asks("where")
    async def look(self, call: Call) -> str:
        """The client's directories."""
        return " ".join(await call.ask(AskRoots(key="where")))

    @tool(Effect.READ)
    @asks("size")
    async def twice(self, call: Call) -> str:
        """One key for two questions."""
        size = AskText(key="size", message="Which size?")
        one, two = await call.ask(size), await call.ask(size)
        await call.ask_all(size, AskText(key="size", message="Which other size?"))
        return f"{one} {two}"

    @tool(Effect.READ)
    @asks("step")
    async def climb(self, call: Call) -> str:
        """Reject every answer."""
        self.begun += 1
        for step in range(100):
            await call.ask(AskText(key="step", message=f"step {step}"))
        return "on top"

    @prompt()
    @asks("sure")
    async def advise(self, call: Call) -> str:
        """A prompt that asks."""
        return await call.ask(AskText(key="sure", message="About what?"))

    @resource("test://asked")
    @asks("sure")
    async def asked(self, call: Call) -> str:
        """A resource that asks."""
        return await call.ask(AskText(key="sure", message="Which?"))


@dataclass
class ScriptedPerson:
    """The person at the client: gives these answers in turn, and records the questions."""

    answers: list[Any]
    seen: list[types.ElicitRequestFormParams] = field(default_factory=list)

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.seen.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, types.ElicitResult):
            return answer
        content = answer if isinstance(answer, dict) else {"answer": answer}
        return types.ElicitResult(action="accept", content=content)


def decline(how: Literal["decline", "cancel"]) -> types.ElicitResult:
    return types.ElicitResult(action=how)


def model(*texts: str) -> Callable[..., Awaitable[types.CreateMessageResult]]:
    left = list(texts)

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text=left.pop(0))
        return types.CreateMessageResult(role="assistant", content=content, model="test")

    return sample


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///work")])  # type: ignore[arg-type]


def server_of(asking: Asking | None = None, policy: ToolPolicy | None = None) -> tuple[Server[Any], Asker]:
    asker = Asker()
    registry = Registry(policy=policy or ToolPolicy())
    registry.add_set("sample", asker)
    catalog = LiveCatalog(registry, Selection(profile="all"))
    return build_server(
        catalog, Dispatcher(threads=2), ServerInfo(), ServerOptions(questions=QuestionFactory(asking or Asking()))
    ), asker


@asynccontextmanager
async def connected(
    era: str, asking: Asking | None = None, *, policy: ToolPolicy | None = None, **callbacks: Any
) -> Any:
    server, asker = server_of(asking, policy)
    with anyio.fail_after(60):
        async with Client(server, mode=era, **callbacks) as client:
            yield client, asker


def text(result: Any) -> str:
    return str(result.content[0].text)


def kind(result: Any) -> str | None:
    return (result.meta or {}).get(ERROR_KEY)


@pytest.mark.parametrize("era", ERAS)
async def test_a_confirmed_command_goes_on(era: str) -> None:
    """questions-10: the form has one boolean; nothing is done before the answer."""
    person = ScriptedPerson([True])
    async with connected(era, elicitation_callback=person) as (client, asker):
        assert text(await client.call_tool("drop", {"name": "x"})) == "dropped"
    assert asker.done == ["x"]
    assert asker.begun == (1 if era == "legacy" else 2)
    assert person.seen[0].message == "Drop x?"
    assert person.seen[0].requested_schema["properties"] == {"answer": {"type": "boolean"}}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(False, "the answer was no"), (decline("decline"), "declined"), (decline("cancel"), "dismissed")],
    ids=["no", "decline", "cancel"],
)
async def test_declining_is_an_answer(era: str, answer: Any, expected: str) -> None:
    """questions-11: final: no model is asked, no default used, nothing done."""
    callbacks = {"elicitation_callback": ScriptedPerson([answer]), "sampling_callback": model()}
    async with connected(era, SAMPLING, **callbacks) as (client, asker):
        result = await client.call_tool("drop", {"name": "x"})
        assert (kind(result), asker.done) == ("declined", [])
        assert expected in text(result)


@pytest.mark.parametrize("era", ERAS)
async def test_a_default_does_not_replace_a_declined_question(era: str) -> None:
    """questions-11: a person who declines did not choose the default."""
    async with connected(era, elicitation_callback=ScriptedPerson([decline("decline")])) as (client, _):
        assert kind(await client.call_tool("note", {})) == "declined"


@pytest.mark.parametrize("era", ERAS)
async def test_without_the_capability_a_default_is_used_or_the_error_names_the_argument(era: str) -> None:
    """questions-2, questions-4, questions-17: a client without elicitation."""
    async with connected(era) as (client, asker):
        assert text(await client.call_tool("note", {})) == "nothing"
        expected = await unasked(era, client.call_tool("drop", {"name": "x"}))
        assert 'send answers={"sure": true}' in expected
        assert asker.done == []
        again = await client.call_tool("drop", {"name": "x", "answers": {"sure": True}})
        assert (text(again), asker.done) == ("dropped", ["x"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["prefilled", "defaults"])
async def test_a_mode_can_exclude_a_person(era: str, mode: Literal["prefilled", "defaults"]) -> None:
    """questions-2: the operator's setting precedes the client's capabilities."""
    person = ScriptedPerson([])
    async with connected(era, Asking(mode=mode), elicitation_callback=person) as (client, _):
        result = await client.call_tool("note", {})
        assert kind(result) == ("answer-needed" if mode == "prefilled" else None)
    assert person.seen == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_model_is_asked_only_in_its_mode(era: str) -> None:
    """questions-2, questions-7: a client with sampling only gets no form; a confirmation is not sent to a model."""
    async with connected(era, SAMPLING, sampling_callback=model("grey", "Paris", '```json\n{"answer": "m"}\n```')) as (
        client,
        asker,
    ):
        await unasked(era, client.call_tool("drop", {"name": "x"}))
        assert text(await client.call_tool("pick", {})) == "grey"
        assert text(await client.call_tool("think", {})) == "Paris"
        assert text(await client.call_tool("note", {})) == "m"
        assert asker.done == []
    async with connected(era, sampling_callback=model("Paris")) as (client, _):
        assert kind(await client.call_tool("think", {})) == "answer-needed"  # which no capability would change
        assert text(await client.call_tool("note", {})) == "nothing"


@pytest.mark.parametrize("era", ERAS)
async def test_roots_come_from_the_client(era: str) -> None:
    """questions-3, questions-17: requested from clients that have them; others may send them."""
    async with connected(era, list_roots_callback=roots) as (client, _):
        assert text(await client.call_tool("look", {})) == "file:///work"
    async with connected(era, elicitation_callback=ScriptedPerson([])) as (client, _):
        await unasked(era, client.call_tool("look", {}), "roots")


@pytest.mark.parametrize("era", ERAS)
async def test_a_secret_is_sent_in_no_form_and_to_no_model(era: str) -> None:
    """questions-6: only a value sent beforehand is used."""
    person = ScriptedPerson([])
    async with connected(era, SAMPLING, elicitation_callback=person, sampling_callback=model()) as (client, _):
        assert kind(await client.call_tool("sign_in", {})) == "answer-needed"
        assert text(await client.call_tool("sign_in", {"answers": {"token": "abc"}})) == "3 characters"
    assert person.seen == []


@pytest.mark.parametrize("era", ERAS)
async def test_two_questions_in_sequence(era: str) -> None:
    """questions-12: the second round trip carries the answer of the first, and nothing is asked twice."""
    person = ScriptedPerson([True, "old"])
    async with connected(era, elicitation_callback=person) as (client, asker):
        assert text(await client.call_tool("drop_with_reason", {})) == "dropped: old"
    assert asker.done == ["old"]
    assert [one.message for one in person.seen] == ["Drop?", "Why?"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_repeated_question_is_asked_once(era: str, caplog: pytest.LogCaptureFixture) -> None:
    """questions-5, questions-12: it has the same answer; two concurrent ones with one key are a bug."""
    person = ScriptedPerson(["s", "never"])
    async with connected(era, elicitation_callback=person) as (client, _):
        assert kind(await client.call_tool("twice", {})) == "internal"
    assert len(person.seen) == 1
    assert "need different keys: size, size" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_two_questions_at_once(era: str) -> None:
    """questions-12: one round trip in the stateless era; an invalid answer is asked again, with the reason."""
    person = ScriptedPerson(["gree", "toolong", "xl"])
    if era == "auto":  # the client answers both concurrently, in any order
        person = ScriptedPerson([{"answer": "red"}, {"answer": "m"}])
    async with connected(era, elicitation_callback=person) as (client, asker):
        result = await client.call_tool("paint", {})
    assert text(result) == ("green xl" if era == "legacy" else "red m")
    assert asker.begun == (1 if era == "legacy" else 2)


@pytest.mark.parametrize("era", ERAS)
async def test_an_invalid_answer_is_asked_again(era: str) -> None:
    """questions-13: with the reason in the question; it never counts."""
    person = ScriptedPerson([{"other": 1}, "pink", ["red", "grey"]])
    async with connected(era, elicitation_callback=person) as (client, _):
        assert text(await client.call_tool("pick", {})) == "red grey"
    assert [one.message.partition("\n")[0] for one in person.seen] == ["Which?"] * 3
    assert "red, green, grey" in person.seen[2].message


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_has_the_fields_of_its_model(era: str) -> None:
    """questions-10: flat, with defaults; the answer is validated by the model."""
    person = ScriptedPerson([{"name": "Ann", "age": 3, "size": "xl"}, {"name": "Ann", "age": 3}])
    async with connected(era, elicitation_callback=person) as (client, _):
        assert text(await client.call_tool("greet", {})) == "Ann 3 m"
    properties = person.seen[0].requested_schema["properties"]
    assert (properties["age"]["default"], properties["size"]["enum"]) == (30, ["s", "m"])
    assert person.seen[0].requested_schema["required"] == ["name"]


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_and_resources_ask_too(era: str) -> None:
    """questions-10: through the same dispatch."""
    async with connected(era, elicitation_callback=ScriptedPerson(["rain", "this"])) as (client, _):
        advice = await client.get_prompt("advise", {})
        assert advice.messages[0].content.text == "rain"
        read = await client.read_resource("test://asked")
        assert read.contents[0].text == "this"


@pytest.mark.parametrize("era", ERAS)
async def test_a_plain_function_asks_from_its_thread(era: str) -> None:
    """questions-10: `anyio.from_thread.run(call.ask, ...)`, in both eras; a declined question ends it."""
    async with connected(era, elicitation_callback=ScriptedPerson([True, "old", False])) as (client, asker):
        assert text(await client.call_tool("drop_in_a_thread", {})) == "dropped"
        assert (asker.done, asker.begun) == (["old"], 1 if era == "legacy" else 3)
        assert kind(await client.call_tool("drop_in_a_thread", {})) == "declined"
        assert asker.done == ["old"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_from_a_child_task_works(era: str) -> None:
    """questions-10: an exception group of a task group is a question, or a declined one, all the same."""
    async with connected(era, elicitation_callback=ScriptedPerson([False, True])) as (client, asker):
        assert kind(await client.call_tool("drop_in_a_group", {})) == "declined"
        assert asker.done == []
        assert text(await client.call_tool("drop_in_a_group", {})) == "dropped"
    async with connected(era) as (client, asker):
        await unasked(era, client.call_tool("drop_in_a_group", {}))


@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_clients_answer_for_themselves(era: str) -> None:
    """questions-12: many clients of one server, each asked while the others are."""
    server, asker = server_of()
    names = [f"n{number}" for number in range(6)]
    everybody = anyio.Event()
    waiting: list[str] = []

    async def one(name: str) -> None:
        async def answer(context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
            waiting.append(params.message)
            if len(waiting) == len(names):
                everybody.set()
            await everybody.wait()
            assert params.message == f"Drop {name}?"
            return types.ElicitResult(action="accept", content={"answer": name != "n3"})

        async with Client(server, mode=era, elicitation_callback=answer) as client:  # type: ignore[arg-type]
            result = await client.call_tool("drop", {"name": name})
            assert kind(result) == ("declined" if name == "n3" else None)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(one, name)
    assert sorted(asker.done) == [name for name in names if name != "n3"]


async def test_a_cancelled_call_cancels_its_question() -> None:
    """questions-14: nothing is done, and the client is notified."""
    is_shown, is_gone = anyio.Event(), anyio.Event()

    async def hanging(context: Any, params: Any) -> types.ElicitResult:
        is_shown.set()
        try:
            await anyio.sleep_forever()
        finally:
            is_gone.set()
        raise AssertionError

    async with connected("legacy", elicitation_callback=hanging) as (client, asker):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "drop", {"name": "x"})
            await is_shown.wait()
            tasks.cancel_scope.cancel()
        await is_gone.wait()
        assert asker.done == []
        assert text(await client.call_tool("note", {"answers": {"text": "still there"}})) == "still there"


async def test_an_unanswered_question_ends() -> None:
    """questions-14: the wait is bounded, and no answer means declined; the client is asked to close the form."""
    is_gone = anyio.Event()

    async def silent(context: Any, params: Any) -> types.ElicitResult:
        try:
            await anyio.sleep_forever()
        finally:
            is_gone.set()
        raise AssertionError

    async with connected("legacy", Asking(seconds=0.05), elicitation_callback=silent) as (client, asker):
        result = await client.call_tool("drop", {"name": "x"})
        assert (kind(result), asker.done) == ("declined", [])
        assert "no answer within 0.05 s" in text(result)
        await is_gone.wait()


async def test_after_a_failed_question_the_resolution_continues() -> None:
    """questions-14: an error is no answer. A rejection is one."""
    code = types.INTERNAL_ERROR

    async def failing(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=code, message="no window")

    async with connected("legacy", elicitation_callback=failing) as (client, asker):
        assert text(await client.call_tool("note", {})) == "nothing"
        assert kind(await client.call_tool("drop", {"name": "x"})) == "answer-needed"
        code = -1
        assert kind(await client.call_tool("note", {})) == "declined"
        assert asker.done == []


async def test_a_client_that_always_answers_wrongly_is_not_asked_for_ever() -> None:
    """questions-13: three attempts while a call waits, ten round trips otherwise."""
    person = ScriptedPerson(["pink"] * 30)
    async with connected("legacy", elicitation_callback=person) as (client, _):
        result = await client.call_tool("pick", {})
        assert (kind(result), len(person.seen)) == ("invalid-arguments", 3)
    person = ScriptedPerson(["pink"] * 30)
    async with connected("auto", elicitation_callback=person) as (client, _):
        result = await client.call_tool("pick", {})
        assert (kind(result), len(person.seen)) == ("answer-needed", 10)
        assert 'send answers={"some": ["red"]}' in text(result)


async def test_a_call_asks_at_most_ten_times() -> None:
    """questions-13: in the stateless era, whatever is asked."""
    person = ScriptedPerson(["x"] * 30)
    async with connected("auto", elicitation_callback=person) as (client, asker):
        assert kind(await client.call_tool("climb", {})) == "answer-needed"
    assert (len(person.seen), asker.begun) == (10, 11)


@asynccontextmanager
async def by_hand(asking: Asking | None = None, **declared: Any) -> Any:
    """A client of the stateless era that makes the round trips itself."""
    callbacks = declared or {"elicitation_callback": ScriptedPerson([])}
    async with connected("auto", asking, **callbacks) as (client, asker):

        async def call(name: str, arguments: dict[str, Any], **more: Any) -> Any:
            return await client.session.call_tool(name, arguments, allow_input_required=True, **more)

        yield call, asker


def yes(key: str = "sure", answer: Any = True) -> dict[str, types.InputResponse]:
    return {key: types.ElicitResult(action="accept", content={"answer": answer})}


async def test_questions_are_sent_as_a_result() -> None:
    """questions-12: with the keys of the questions, all of `ask_all` at once, and an opaque state."""
    async with by_hand() as (call, asker):
        first = await call("paint", {})
        assert isinstance(first, types.InputRequiredResult)
        assert {key: one.method for key, one in first.input_requests.items()} == {
            "colour": "elicitation/create",
            "size": "elicitation/create",
        }
        assert "colour" not in first.request_state
        half = await call("paint", {}, input_responses=yes("colour", "red"), request_state=first.request_state)
        assert list(half.input_requests) == ["size"]
        assert half.request_state != first.request_state
        whole = await call("paint", {}, input_responses=yes("size", "m"), request_state=half.request_state)
        assert text(whole) == "red m"
        assert asker.begun == 3


async def test_a_confirmation_is_valid_once() -> None:
    """questions-15: the same state with the same answer does nothing the second time."""
    async with by_hand() as (call, asker):
        asked = await call("drop", {"name": "x"})
        sent = {"input_responses": yes(), "request_state": asked.request_state}
        assert text(await call("drop", {"name": "x"}, **sent)) == "dropped"
        again = await call("drop", {"name": "x"}, **sent)
        assert (kind(again), asker.done) == ("conflict", ["x"])
        assert "already used" in text(again)


async def test_a_declined_question_cannot_be_confirmed_later() -> None:
    """questions-15: whatever the answer was, the state is used up."""
    async with by_hand() as (call, asker):
        asked = await call("drop", {"name": "x"})
        for response in (yes(answer=False), {"sure": decline("decline")}):
            asked = await call("drop", {"name": "x"})
            assert kind(await call("drop", {"name": "x"}, input_responses=response, request_state=asked.request_state))
            sent = {"input_responses": yes(), "request_state": asked.request_state}
            assert kind(await call("drop", {"name": "x"}, **sent)) == "conflict"
        assert asker.done == []


async def test_a_confirmation_of_an_earlier_round_trip_is_valid_once_too() -> None:
    """questions-15: each state is valid once, so a chain of round trips has one effect."""
    async with by_hand() as (call, asker):
        one = await call("drop_with_reason", {})
        two = await call("drop_with_reason", {}, input_responses=yes(), request_state=one.request_state)
        replay = await call("drop_with_reason", {}, input_responses=yes(), request_state=one.request_state)
        assert kind(replay) == "conflict"
        sent = {"input_responses": yes("why", "old"), "request_state": two.request_state}
        assert text(await call("drop_with_reason", {}, **sent)) == "dropped: old"
        assert kind(await call("drop_with_reason", {}, **sent)) == "conflict"
        assert asker.done == ["old"]


async def test_a_confirmation_is_for_one_call() -> None:
    """questions-15: not for other arguments, not for another tool, not if changed; an error of the request."""
    async with by_hand() as (call, asker):
        asked = await call("drop", {"name": "x"})
        state = asked.request_state
        for name, arguments, sent in (
            ("drop", {"name": "y"}, state),
            ("drop_with_reason", {}, state),
            ("drop", {"name": "x"}, state + "-TAMPERED"),
            ("drop", {"name": "x"}, state[:-2] + ("AA" if state[-2:] != "AA" else "BB")),
            ("drop", {"name": "x"}, json.dumps({"round": 1})),
        ):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await call(name, arguments, input_responses=yes(), request_state=sent)
        assert asker.done == []


@pytest.mark.parametrize(
    "responses",
    [
        yes("other"),
        {},
        None,
        {"sure": types.ElicitResult(action="accept", content={})},
        {"sure": types.ElicitResult(action="accept")},
        {"sure": types.ElicitResult(action="accept", content={"answer": "perhaps"})},
        {"sure": types.ElicitResult(action="accept", content={"answer": 1})},
        {"sure": types.ListRootsResult(roots=[])},
        {
            "sure": types.CreateMessageResult(
                role="assistant", content=types.TextContent(type="text", text="yes"), model="m"
            )
        },
    ],
    ids=["wrong-key", "none", "absent", "empty", "no-content", "no-boolean", "number", "roots", "model"],
)
async def test_what_is_no_answer_is_asked_again(responses: Any) -> None:
    """questions-13: a missing or a wrong response never completes the call."""
    async with by_hand() as (call, asker):
        asked = await call("drop", {"name": "x"})
        again = await call("drop", {"name": "x"}, input_responses=responses, request_state=asked.request_state)
        assert isinstance(again, types.InputRequiredResult)
        assert list(again.input_requests) == ["sure"]
        assert asker.done == []
        sent = {"input_responses": {**yes(), **yes("more")}, "request_state": again.request_state}
        assert text(await call("drop", {"name": "x"}, **sent)) == "dropped"


async def test_an_answer_may_be_sent_before_its_question() -> None:
    """questions-13: a client that keeps no state may send it at once; an invalid one is asked for again."""
    async with by_hand() as (call, _):
        expected = {
            key: types.ElicitResult(action="accept", content={"answer": value})
            for key, value in {"colour": "red", "size": "m", "other": "x"}.items()
        }
        assert text(await call("paint", {}, input_responses=expected)) == "red m"
        wrong = {**expected, "size": types.ElicitResult(action="accept", content={"answer": "too long"})}
        again = await call("paint", {}, input_responses=wrong)
        assert set(again.input_requests) == {"size"}
        done = await call("paint", {}, input_responses={"size": expected["size"]}, request_state=again.request_state)
        assert text(done) == "red m"


async def test_a_confirmation_without_a_question_does_not_count() -> None:
    """questions-13: responses without a state confirm nothing."""
    async with by_hand() as (call, asker):
        first = await call("drop", {"name": "x"}, input_responses=yes())
        assert isinstance(first, types.InputRequiredResult)
        assert asker.done == []


async def test_a_declined_question_stays_declined_without_the_capability() -> None:
    """questions-11: the answer of an earlier round trip precedes the default."""
    server, _ = server_of()
    async with Client(server, mode="auto", elicitation_callback=ScriptedPerson([])) as able:
        asked = await able.session.call_tool("note", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
    async with Client(server, mode="auto") as unable:
        assert text(await unable.call_tool("note", {})) == "nothing"
        sent = {"text": decline("decline")}
        result = await unable.session.call_tool("note", {}, input_responses=sent, request_state=asked.request_state)
        assert kind(result) == "declined"


def test_older_clients_get_a_line_of_text_for_several_choices() -> None:
    """questions-10: forms have arrays since 2025-11-25; the line has the choices separated by commas."""
    question = AskChoices(key="k", message="m", choices=COLOURS)
    assert form_of(question, "2025-11-25")["properties"]["answer"]["type"] == "array"
    assert form_of(question, "2025-06-18")["properties"]["answer"] == {
        "type": "string",
        "description": "Some of red, green, grey, with commas between",
    }
    usual = AskChoices(key="k", message="m", choices=COLOURS, default=("red",))
    form = form_of(usual, "2026-07-28")["properties"]["answer"]
    assert (form["default"], form["maxItems"]) == (["red"], 3)
    assert "default" not in form_of(AskText(key="k", message="m", default="d"), "2025-06-18")["properties"]["answer"]
    odd = AskChoice(key="k", message="\udcff", choices=("\udcff",))
    json.dumps(form_of(odd, "2025-06-18"), ensure_ascii=False).encode()
    assert request_of(odd, AskChannel.FORM, problem="", revision="2025-11-25").params.message == "\\udcff"


async def test_a_client_without_capabilities_is_asked_nothing() -> None:
    """questions-10: only those declared with this request count: sampling alone allows no form."""
    async with by_hand(SAMPLING, sampling_callback=model()) as (call, _):
        asked = await call("paint", {})
        assert {one.method for one in asked.input_requests.values()} == {"sampling/createMessage"}
        await unasked("auto", call("drop", {"name": "x"}))


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_of_the_policy_asks_a_person_and_not_the_agent(era: str) -> None:
    """questions-8, questions-9: a confirmation in the arguments does not count; the form shows the call."""
    policy = ToolPolicy(ask=("note",))
    person = ScriptedPerson([True])
    async with connected(era, policy=policy, elicitation_callback=person) as (client, _):
        assert text(await client.call_tool("note", {"answers": {"confirm": True, "text": "x"}})) == "x"
    assert [one.message for one in person.seen] == ["Run note?"]
    async with connected(era, policy=policy) as (client, _):
        assert "does not count" in await unasked(era, client.call_tool("note", {"answers": {"confirm": True}}))
    async with connected(era, Asking(trusts_answers=True), policy=policy) as (client, _):
        assert text(await client.call_tool("note", {"answers": {"confirm": True}})) == "nothing"


async def test_the_memory_of_used_states_is_bounded() -> None:
    """questions-15: for the ten minutes a state is valid; when there are too many, older ones are refused."""
    now = 1000.0
    once = InMemoryUsedStates(most=2, clock=lambda: now)
    assert await once.take("a", 1000.0)
    assert not await once.take("a", 1000.0)
    assert await once.take("b", 1001.0)
    assert await once.take("c", 1002.0)
    assert not await once.take("a", 1000.0)
    assert not await once.take("older", 999.0)
    assert await once.take("newer", 1003.0)
    now = 2000.0
    assert await once.take("d", 1999.0)
    assert not await once.take("d", 1999.0)
