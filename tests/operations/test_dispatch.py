"""How one call runs (docs/specs/declarations.md)."""

import logging
import sys
import threading

import anyio
import pytest

from coretools.cancellation import check_cancelled
from coretools.errors import BadSetting, InputNeeded, NotFound
from coretools.operations.call import SilentCall, require_thread
from coretools.operations.catalog import Selection, build_catalog
from coretools.operations.content import Result
from coretools.operations.declare import Effect, nonblocking, tool
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.registry import Registry


class Sum(Result):
    total: int

    def text(self) -> str:
        return f"total {self.total}"

    @property
    def failed(self) -> bool:
        return self.total < 0

    def facts(self) -> dict[str, object]:
        return {"sign": -1 if self.total < 0 else 1}


class Sample:
    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()

    @tool(Effect.READ, structured=True)
    def add_up(self, first: int, second: int = 0) -> Sum:
        """Add."""
        return Sum(total=first + second)

    @tool(Effect.READ)
    async def say_text(self) -> str:
        """Say."""
        return "spoken"

    @tool(Effect.READ)
    def not_there(self) -> str:
        """Miss."""
        raise NotFound("x: not found; list_directory shows what is there", path="x")

    @tool(Effect.READ)
    async def in_a_group(self, *, is_bug: bool) -> str:
        """Miss in a task group, beside a question or a bug."""
        errors = [InputNeeded({"k": None}, "state"), NotFound("x: not found", path="x")]
        raise ExceptionGroup("tasks", [ExceptionGroup("more", errors), *([ZeroDivisionError()] if is_bug else [])])

    @tool(Effect.READ)
    def broken(self) -> str:
        """Break."""
        raise ZeroDivisionError("the password is hunter2")

    @tool(Effect.READ)
    def leave(self) -> str:
        """Leave, as argparse does."""
        sys.exit(2)

    @tool(Effect.READ)
    async def leave_the_loop(self) -> str:
        """Leave."""
        sys.exit(2)

    @tool(Effect.READ)
    def wrong_return(self) -> str:
        """Return a number."""
        return 5  # type: ignore[return-value]  # what is tested

    @tool(Effect.READ)
    def loop_for_ever(self) -> str:
        """Loop."""
        self.started.set()
        try:
            while True:
                check_cancelled()
        finally:
            self.cancelled.set()


async def run(name: str, **arguments: object) -> Outcome:
    registry = Registry()
    registry.add_set("sample", Sample())
    catalog = build_catalog(registry, Selection(profile="all"))
    return await Dispatcher(threads=2).dispatch(catalog.get(name), arguments, SilentCall())


async def test_a_result_has_text_data_and_facts() -> None:
    """declarations-5: text for a reader, data where the tool is structured, small facts for programs."""
    outcome = await run("add_up", first=2, second=3)
    assert outcome == Outcome(text="total 5", data={"total": 5}, facts={"sign": 1})


async def test_a_failed_command_can_be_a_result_and_no_error() -> None:
    """declarations-10: the call worked."""
    outcome = await run("add_up", first=-2)
    assert outcome.failed
    assert outcome.error is None


async def test_text_is_a_result_too() -> None:
    """declarations-5: a tool may return plain text."""
    assert await run("say_text") == Outcome(text="spoken", data={"result": "spoken"})


async def test_an_expected_error_keeps_its_kind_message_and_facts() -> None:
    """declarations-10: the message says what would work."""
    outcome = await run("not_there")
    assert outcome.error is not None
    assert outcome.error.kind == "not-found"
    assert outcome.facts == {"path": "x"}
    assert "list_directory" in outcome.text


async def test_an_expected_error_in_a_task_group_is_one() -> None:
    """declarations-10: unless an exception of the group is a bug."""
    outcome = await run("in_a_group", is_bug=False)
    assert (outcome.error.kind if outcome.error else None, outcome.text) == ("not-found", "x: not found")
    outcome = await run("in_a_group", is_bug=True)
    assert (outcome.error.kind if outcome.error else None) == "internal"


async def test_a_bug_is_logged_once_and_its_text_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """declarations-11: the caller gets a call id that is in the log."""
    with caplog.at_level(logging.ERROR):
        outcome = await run("broken")
    assert outcome.error is not None
    assert outcome.error.kind == "internal"
    assert "hunter2" not in outcome.text
    assert len(caplog.records) == 1
    assert "hunter2" in caplog.text
    call_id = outcome.text.split("call ")[1].rstrip(")")
    assert call_id in caplog.text


@pytest.mark.parametrize("name", ["leave", "leave_the_loop"])
async def test_a_command_that_exits_ends_its_call_and_not_the_server(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """declarations-11: SystemExit would end the event loop, and with it the calls of everybody."""
    outcome = await run(name)
    assert outcome.error is not None
    assert outcome.error.kind == "internal"
    assert "SystemExit: 2" in caplog.text


async def test_a_tool_that_returns_another_type_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    """declarations-11: only a Result or text is sent."""
    outcome = await run("wrong_return")
    assert outcome.error is not None
    assert outcome.error.kind == "internal"
    assert "returned int, not str" in caplog.text


async def test_wrong_arguments_are_an_error_of_the_call() -> None:
    """declarations-3: the model reads the sentence and tries again."""
    outcome = await run("add_up", first="2")
    assert outcome.error is not None
    assert outcome.error.kind == "invalid-arguments"


async def test_a_plain_tool_in_its_thread_stops_on_cancellation() -> None:
    """declarations-12: the loops of file tools call check_cancelled()."""
    sample = Sample()
    registry = Registry()
    registry.add_set("sample", sample)
    catalog = build_catalog(registry, Selection(profile="all"))
    dispatcher = Dispatcher(threads=2)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(dispatcher.dispatch, catalog.get("loop_for_ever"), {}, SilentCall())
            await anyio.to_thread.run_sync(sample.started.wait)
            group.cancel_scope.cancel()
    assert sample.cancelled.is_set()


def test_check_cancelled_is_silent_outside_a_worker_thread() -> None:
    """declarations-12: a tool called directly runs to its end."""
    assert check_cancelled() is None  # type: ignore[func-returns-value]  # returning is what is tested


class Nonblocking:
    """A tool that has some results without blocking, and records where it ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, bool]] = []

    @nonblocking
    @tool(Effect.READ, structured=False)
    def double(self, number: int) -> str:
        """Double."""
        self._note("began")
        if number < 0:
            raise NotFound("x: not found", path="x")
        if number > 1:
            require_thread()
            self._note("waited")
        return str(2 * number)

    def _note(self, name: str) -> None:
        self.ran.append((name, threading.current_thread() is threading.main_thread()))


async def test_nonblocking_results_run_on_the_event_loop_and_others_in_a_thread() -> None:
    """declarations-13: one function; arguments are validated before, and errors are reported as usual."""
    sample, registry = Nonblocking(), Registry()
    registry.add_set("sample", sample)
    double, dispatcher = build_catalog(registry, Selection(profile="all")).get("double"), Dispatcher(threads=2)
    assert await dispatcher.dispatch(double, {"number": 1}, SilentCall()) == Outcome(text="2")
    assert sample.ran == [("began", True)]
    assert await dispatcher.dispatch(double, {"number": 2}, SilentCall()) == Outcome(text="4")
    assert sample.ran == [("began", True), ("began", True), ("began", False), ("waited", False)]
    refused = await dispatcher.dispatch(double, {"number": -1}, SilentCall())
    assert refused.facts == {"path": "x"}
    assert (await dispatcher.dispatch(double, {"number": "1"}, SilentCall())).error is not None
    assert len(sample.ran) == 5
    assert sample.double(2) == "4"  # called directly it may block anywhere


def test_a_coroutine_runs_on_the_event_loop() -> None:
    """declarations-13: it needs no thread."""

    async def double(number: int) -> str:
        """Double."""
        return str(2 * number)

    with pytest.raises(BadSetting, match="plain function"):
        Registry().add(nonblocking(tool(Effect.READ)(double)))
