"""Commands that are added and removed while served: one replacement for many changes (docs/specs/catalog.md)."""

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from coretools.errors import BadSetting, UnknownTool
from coretools.operations.catalog import Selection
from coretools.operations.declare import Effect, Surface, at, prompt, resource, tool
from coretools.operations.live_catalog import DEBOUNCE_SECONDS, MAX_DEBOUNCES, LiveCatalog
from coretools.operations.registry import Registry

BOUND_SECONDS = 60


@tool(Effect.READ)
def first() -> str:
    """Be there from the start."""
    return ""


@tool(Effect.READ)
def second() -> str:
    """Come later."""
    return ""


@resource("x://notes")
def notes() -> str:
    """Be read."""
    return ""


@prompt()
def plan() -> str:
    """Be asked."""
    return ""


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._waiting, self._wake = anyio.Event(), anyio.Event()

    async def wait(self, seconds: float) -> None:
        self.asked.append(seconds)
        wake = self._wake
        self._waiting.set()
        await wake.wait()

    async def until_waiting(self) -> None:
        with anyio.fail_after(BOUND_SECONDS):
            await self._waiting.wait()

    def pass_time(self) -> None:
        self._waiting = anyio.Event()
        wake, self._wake = self._wake, anyio.Event()
        wake.set()


class Recorder:
    """A listener that records the notifications."""

    def __init__(self) -> None:
        self.kinds: list[frozenset[Surface]] = []
        self._news = anyio.Event()

    async def __call__(self, kinds: frozenset[Surface]) -> None:
        self.kinds.append(kinds)
        self._news.set()

    async def next(self) -> frozenset[Surface]:
        with anyio.fail_after(BOUND_SECONDS):
            await self._news.wait()
        self._news = anyio.Event()
        return self.kinds[-1]


class Served:
    def __init__(self, registry: Registry, **given: Any) -> None:
        self.registry, self.clock, self.changes = registry, Clock(), Recorder()
        self.catalog = LiveCatalog(registry, Selection(profile="all"), sleep=self.clock.wait, **given)
        self.stop = self.catalog.on_change(self.changes)

    @property
    def tools(self) -> list[str]:
        return list(self.catalog.current.tools)


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    registry = Registry()
    registry.add(first)
    one = Served(registry)
    assert one.tools == ["first"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.catalog.follow)
        await anyio.lowlevel.checkpoint()
        yield one
        tasks.cancel_scope.cancel()


async def test_changes_in_quick_succession_are_notified_once() -> None:
    """catalog-9: each within 100 ms of the last; until then the old catalog is served, then the new one as a whole."""
    async with served() as one:
        one.registry.add(second)
        await one.clock.until_waiting()
        one.registry.add(notes)
        one.registry.add(plan)
        assert one.tools == ["first"]
        one.clock.pass_time()
        await one.clock.until_waiting()
        assert one.changes.kinds == []
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL, Surface.RESOURCE, Surface.PROMPT}
        assert one.tools == ["first", "second"]
        assert len(one.changes.kinds) == 1
        assert one.clock.asked == [DEBOUNCE_SECONDS] * 2


@pytest.mark.parametrize(
    ("function", "kind"), [(second, Surface.TOOL), (notes, Surface.RESOURCE), (plan, Surface.PROMPT)]
)
async def test_only_lists_that_differ_are_notified(function: Any, kind: Surface) -> None:
    """catalog-9: each kind separately."""
    async with served() as one:
        one.registry.add(function)
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {kind}


async def test_continuous_changes_are_notified_too() -> None:
    """catalog-9: after at most ten debounce periods."""
    async with served() as one:
        for _ in range(MAX_DEBOUNCES // 2):
            for change in (lambda: one.registry.add(second), lambda: one.registry.remove("second")):
                change()
                await one.clock.until_waiting()
                one.registry.add(notes)
                one.registry.remove("notes")
                one.clock.pass_time()
        one.registry.add(second)
        one.clock.pass_time()
        await one.clock.until_waiting()
        assert len(one.clock.asked) == MAX_DEBOUNCES + 1


async def test_a_removed_command_is_refused_at_once() -> None:
    """catalog-9: before any replacement; a command found before is checked again when it is run."""
    async with served() as one:
        command = one.catalog.command("first")
        one.registry.remove("first")
        with pytest.raises(UnknownTool, match="no longer available"):
            one.catalog.command("first")
        with pytest.raises(UnknownTool):
            one.catalog.require_registered(command)
        assert one.tools == ["first"]
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL}
        assert one.tools == []
        with pytest.raises(UnknownTool, match="unknown tool"):
            one.catalog.command("first")


async def test_a_command_that_was_removed_and_added_again_can_be_called_and_is_not_notified() -> None:
    """catalog-9: the list is the same; the command behind it is the new one."""
    async with served() as one:
        one.registry.remove("first")
        one.registry.add(first)
        again = one.registry.command_of(first)
        await one.clock.until_waiting()
        one.clock.pass_time()
        one.registry.add(notes)
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.RESOURCE}
        assert one.catalog.command("first") is again


async def test_a_catalog_that_cannot_be_built_leaves_the_old_one_in_force(caplog: pytest.LogCaptureFixture) -> None:
    """catalog-9: nobody is notified; the log has the reason; the next change that can be built is notified."""
    async with served() as one:
        one.registry.add(second)
        with caplog.at_level(logging.WARNING, logger="coretools.operations.live_catalog"):
            one.registry.add(tool(Effect.READ)(at("{word}", "first")(lambda_named("collides", word=True))))
            await one.clock.until_waiting()
            one.clock.pass_time()
            await anyio.wait_all_tasks_blocked()
        assert "two commands are named first" in caplog.text
        assert one.tools == ["first"]
        assert one.changes.kinds == []
        one.registry.remove("{word}", "first")
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL}
        assert one.tools == ["first", "second"]


async def test_a_command_without_a_schema_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """catalog-9: it would break the list of all tools."""

    class Odd:
        pass

    def odd(value: Any) -> str:
        """Take what has no schema."""
        return str(value)

    odd.__annotations__["value"] = Odd
    async with served() as one:
        with caplog.at_level(logging.WARNING, logger="coretools.operations.live_catalog"):
            one.registry.add(tool(Effect.READ)(odd))
            await one.clock.until_waiting()
            one.clock.pass_time()
            one.registry.add(notes)
            await one.clock.until_waiting()
            one.clock.pass_time()
            await anyio.wait_all_tasks_blocked()
        assert one.tools == ["first"]
        assert one.changes.kinds == []
        assert "has no JSON Schema" in caplog.text


async def test_a_type_that_raises_does_not_end_the_updates(caplog: pytest.LogCaptureFixture) -> None:
    """catalog-9: the old catalog stays in force, the log has the reason, and later changes are notified."""

    class Broken:
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: object) -> Any:
            raise ZeroDivisionError("of somebody else")

    def broken(value: Any) -> str:
        """Take what fails while its schema is built."""
        return str(value)

    broken.__annotations__["value"] = Broken
    async with served() as one:
        with caplog.at_level(logging.WARNING, logger="coretools.operations.live_catalog"):
            one.registry.add(tool(Effect.READ)(broken))
            await one.clock.until_waiting()
            one.clock.pass_time()
            await anyio.wait_all_tasks_blocked()
        assert one.tools == ["first"]
        assert "of somebody else" in caplog.text
        one.registry.remove("broken")
        one.registry.add(second)
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL}
        assert one.tools == ["first", "second"]


async def test_a_registry_may_change_in_another_thread() -> None:
    """catalog-9: the catalog is replaced on the event loop."""
    async with served() as one:
        thread = threading.Thread(target=one.registry.add, args=(second,))
        thread.start()
        await one.clock.until_waiting()
        thread.join()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL}
        assert one.tools == ["first", "second"]


async def test_changes_before_the_updates_begin_are_found() -> None:
    """catalog-9: the first `follow` replaces an outdated catalog."""
    registry = Registry()
    registry.add(first)
    one = Served(registry)
    assert one.tools == ["first"]
    registry.add(second)
    assert one.tools == ["first"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.catalog.follow)
        await one.clock.until_waiting()
        one.clock.pass_time()
        assert await one.changes.next() == {Surface.TOOL}
        tasks.cancel_scope.cancel()
    assert one.tools == ["first", "second"]


async def test_an_unsubscribed_listener_is_not_notified() -> None:
    """catalog-9: after `follow` has ended nothing is watched."""
    async with served() as one:
        one.stop()
        one.registry.add(second)
        await one.clock.until_waiting()
        one.clock.pass_time()
        await anyio.wait_all_tasks_blocked()
        assert one.tools == ["first", "second"]
        assert one.changes.kinds == []
    one.registry.remove("second")
    assert len(one.clock.asked) == 1


def test_catalogs_of_one_registry_have_their_own_selections() -> None:
    """catalog-7: as the roles of a server do."""
    registry = Registry()
    registry.add(first)
    registry.add(tool(Effect.CHANGE)(lambda_named("change")))
    guest, owner = (LiveCatalog(registry, Selection(profile=profile)) for profile in ("read", "all"))
    assert list(guest.current.tools) == ["first"]
    assert list(owner.current.tools) == ["first", "change"]
    with pytest.raises(UnknownTool, match="profile read"):
        guest.command("change")


def test_invalid_commands_end_the_start() -> None:
    """catalog-6: they are found when the catalog is built."""
    registry = Registry()
    registry.add(first)
    registry.add(tool(Effect.READ)(at("first", "{word}")(lambda_named("collides", word=True))))
    with pytest.raises(BadSetting, match="two commands are named first"):
        LiveCatalog(registry, Selection(profile="all"))


def lambda_named(name: str, *, word: bool = False) -> Any:
    def without() -> str:
        """Do it."""
        return ""

    def with_word(word: str = "") -> str:
        """Do it."""
        return word

    function = with_word if word else without
    function.__name__ = function.__qualname__ = name
    return function
