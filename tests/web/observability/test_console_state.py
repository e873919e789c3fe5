"""The data of the console page: rates, calls, errors; bounded in every case (docs/specs/console.md)."""

import json
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from coretools.errors import InputNeeded, NotFound
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.protocol.draining import Draining
from coretools.redaction.redactor import Redactor
from coretools.web.common.events import Exchange
from coretools.web.observability.console_state import (
    LONGEST_TEXT,
    MOST_SHOWN,
    POINT_SECONDS,
    WINDOW_SECONDS,
    ConsoleState,
    RateWindow,
)
from tests.web.observability.operated import MARKUP, SECRET, ObservedServer, ServerStateSource

SECONDS = 50


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.5

    def __call__(self) -> float:
        return self.now


def console_state_at(clock: Clock) -> ConsoleState:
    return ConsoleState(ServerStateSource(Draining()), Redactor(), clock)


def test_a_rate_is_the_mean_of_the_last_full_seconds() -> None:
    """console-5: the current second does not count."""
    clock = Clock()
    rate = RateWindow(clock)
    for _ in range(20):
        rate.add()
    assert rate.per_second() == 0.0
    clock.now += 1
    assert rate.per_second() == 2.0
    clock.now += 10
    assert rate.per_second() == 0.0


def test_a_line_has_a_point_for_each_five_seconds_of_five_minutes() -> None:
    """console-5: older points are dropped; nothing grows."""
    clock = Clock()
    rate = RateWindow(clock)
    for _ in range(3 * WINDOW_SECONDS):
        rate.add()
        clock.now += 1
    assert rate.points() == [POINT_SECONDS] * (WINDOW_SECONDS // POINT_SECONDS)
    clock.now += WINDOW_SECONDS
    assert set(rate.points()) == {0}


async def test_a_call_is_shown_from_its_beginning_to_its_end() -> None:
    """console-5: principal, tool, role, and the seconds since it began."""
    inside = ObservedServer()
    async with anyio.create_task_group() as calls:
        calls.start_soon(partial(inside.call, "wait", "alice", name="x"))
        with anyio.fail_after(SECONDS):
            while inside.console_state.snapshot()["calls"]["count"] == 0:
                await anyio.lowlevel.checkpoint()
        [state] = inside.console_state.snapshot()["calls"]["shown"]
        assert (state["tool"], state["principal"], state["role"]) == ("wait", "alice", "default")
        assert state["seconds"] >= 0
        inside.gate.set()
    assert inside.console_state.snapshot()["calls"] == {"count": 0, "shown": []}


async def test_a_cancelled_call_is_removed_and_is_no_error() -> None:
    """console-5: a client that gives up has not caused an error."""
    inside = ObservedServer()
    async with anyio.create_task_group() as calls:
        calls.start_soon(partial(inside.call, "wait", "alice", name="x"))
        with anyio.fail_after(SECONDS):
            while inside.console_state.snapshot()["calls"]["count"] == 0:
                await anyio.lowlevel.checkpoint()
        calls.cancel_scope.cancel()
    state = inside.console_state.snapshot()
    assert (state["calls"]["count"], state["errors"]["count"]) == (0, 0)


async def test_errors_are_shown_newest_first_without_credentials() -> None:
    """console-7: the sentence that the caller got, redacted and cut between words."""
    inside = ObservedServer()
    inside.fail(inside.hostile())
    await inside.call("lose", "alice", path="src/x.py")
    await inside.call("crash", "bob")
    errors = inside.console_state.snapshot()["errors"]
    assert errors["count"] == 3
    assert [one["kind"] for one in errors["shown"]] == ["internal", "not-found", "not-found"]
    assert errors["shown"][1]["text"] == "src/x.py: not there"
    hostile = errors["shown"][2]["text"]
    assert hostile.startswith(MARKUP)
    assert len(hostile) < LONGEST_TEXT + 50
    whole = json.dumps(inside.console_state.snapshot())
    assert SECRET not in whole
    assert "correct-horse-battery" not in whole


def test_a_token_at_the_cut_is_removed_whole() -> None:
    """console-7: the last word is dropped as a whole."""
    console_state = console_state_at(Clock())
    call = ActiveCall(command="echo", principal="x")
    error = NotFound(f"{'word ' * 57}{'x' * 12} {SECRET}")
    console_state.calls("default").ended(call, Outcome(text=str(error), error=error))
    assert "ghp_" not in json.dumps(console_state.snapshot())


def test_a_question_is_no_error() -> None:
    """console-7: the call goes on when it is answered."""
    console_state = console_state_at(Clock())
    error = InputNeeded({"sure": "Sure?"}, "state")
    console_state.calls("default").ended(ActiveCall(command="echo", principal="x"), Outcome(text="", error=error))
    assert console_state.snapshot()["errors"]["count"] == 0


def test_everything_is_bounded() -> None:
    """console-10: any number of calls and errors, names of any length; the totals are exact."""
    console_state = console_state_at(Clock())
    watcher = console_state.calls("default")
    error = NotFound("x" * 100_000)
    for number in range(500):
        watcher.ended(ActiveCall(command="echo", principal="p" * 10_000), Outcome(text=str(error), error=error))
        watcher.began(ActiveCall(command=f"echo{number}", principal="p" * 10_000))
    state = console_state.snapshot()
    assert (state["calls"]["count"], len(state["calls"]["shown"])) == (500, MOST_SHOWN)
    assert (state["errors"]["count"], len(state["errors"]["shown"])) == (500, MOST_SHOWN)
    assert len(json.dumps(state)) < 64 * 1024


def test_sessions_are_shown_by_a_part_of_their_ids() -> None:
    """console-5: two sessions can be distinguished, and neither id can be used."""
    state = console_state_at(Clock()).snapshot()["sessions"]
    assert state["count"] == 3
    assert [one["id"] for one in state["shown"]] == ["0abcdefa", "1abcdefa", "2abcdefa"]


def test_roots_are_shown_by_name() -> None:
    """console-5: with the protections of each role."""
    default, pipeline = console_state_at(Clock()).snapshot()["tenants"]
    assert default["roots"][0] == {"name": "project", "is_writable": True}
    assert (default["tier"], default["children"], default["runs"]) == ("full", 3, 1)
    assert pipeline["missing"] == ["git-confinement", "watchdog"]


@pytest.mark.parametrize(("refused", "count"), [("host", 1), ("", 0)])
def test_refusals_are_counted(refused: str, count: int) -> None:
    """console-5: a refused request is counted as a request, an answered one as a call."""
    clock = Clock()
    console_state = console_state_at(clock)

    async def nothing(*_: object) -> None:
        return None

    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    exchange = Exchange(scope, nothing, nothing)  # type: ignore[arg-type]
    exchange.refused = refused
    console_state.request_began(exchange)
    console_state.answer_began(exchange)
    console_state.request_ended(exchange)
    clock.now += POINT_SECONDS
    assert sum(console_state.snapshot()["rates"]["refusals"]["points"]) == count
