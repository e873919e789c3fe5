"""Completion of argument values (docs/specs/completion.md)."""

import threading
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from coretools.errors import BadSetting, NotFound, OutsideRoot
from coretools.operations.call import Call, SilentCall
from coretools.operations.command import Command
from coretools.operations.completion import MAX_VALUES, Completes, complete_parameter, with_prefix
from coretools.operations.declare import Effect, raw_schema, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.registry import Registry
from coretools.roots import directory_listing
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots

TOWNS = ("Basel", "Bern", "Berlin", "Bonn")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def towns(typed: str, given: Mapping[str, str]) -> list[str]:
    """Towns of the country already given."""
    return list(TOWNS[:2] if given.get("country") == "ch" else TOWNS)


async def later(typed: str, given: Mapping[str, str]) -> list[str]:
    return [f"{typed}-later"]


def generated(typed: str, given: Mapping[str, str]) -> Iterator[str]:
    yield threading.current_thread().name
    yield from TOWNS


def failing(typed: str, given: Mapping[str, str]) -> list[str]:
    raise RuntimeError("inside")


def missing(typed: str, given: Mapping[str, str]) -> list[str]:
    raise NotFound("nothing there")


class Travel:
    def __init__(self) -> None:
        self.seen = ["here", "there"]

    @tool(Effect.READ)
    def go_to(
        self,
        town: Annotated[str, Completes(towns)],
        place: Annotated[str, Completes("places")] = "",
        maybe: Annotated[str, Completes(later)] | None = None,
        thread: Annotated[str, Completes(generated)] = "",
        broken: Annotated[str, Completes(failing)] = "",
        gone: Annotated[str, Completes(missing)] = "",
        colour: Colour = Colour.RED,
        size: Literal["small", "large"] = "small",
        amount: Literal[1, 20] | None = None,
        colours: list[Colour] = [],  # noqa: B006  # never changed
        fast: bool = False,
        free: str = "",
        number: int = 0,
        call: Call = SilentCall(),  # noqa: B008  # has no state
    ) -> str:
        """Go."""
        return town

    def places(self, typed: str, given: Mapping[str, str]) -> list[str]:
        return self.seen


def command_of(function: Any) -> Command:
    registry = Registry()
    return registry.command_of(registry.add(function))


@pytest.fixture
def go_to() -> Command:
    return command_of(Travel().go_to)


@pytest.mark.parametrize(
    ("parameter", "typed", "values"),
    [
        ("town", "", list(TOWNS)),
        ("town", "be", ["Bern", "Berlin"]),
        ("town", "x", []),
        ("place", "h", ["here"]),
        ("maybe", "much", ["much-later"]),
        ("colour", "", ["red", "blue"]),
        ("colour", "B", ["blue"]),
        ("size", "l", ["large"]),
        ("amount", "2", ["20"]),
        ("colours", "r", ["red"]),
        ("fast", "", ["true", "false"]),
        ("free", "", []),
        ("number", "", []),
        ("nothing", "", []),
    ],
)
async def test_values_are_completed_by_prefix(go_to: Command, parameter: str, typed: str, values: list[str]) -> None:
    """completion-1, completion-2: from a source, or the choices of the type; ignoring case."""
    assert await complete_parameter(go_to, parameter, typed, {}) == values


async def test_a_source_gets_the_other_arguments(go_to: Command) -> None:
    """completion-1: those that are given already, as text."""
    assert await complete_parameter(go_to, "town", "", {"country": "ch"}) == ["Basel", "Bern"]


async def test_a_plain_source_runs_in_a_worker_thread(go_to: Command) -> None:
    """completion-1: the body of a generator too."""
    [name] = await complete_parameter(go_to, "thread", "anyio", {})
    assert name.casefold().startswith("anyio worker thread")


async def test_choices_of_a_raw_schema_complete_too() -> None:
    """completion-2: whatever the schema says."""

    @tool(Effect.READ)
    @raw_schema({"type": "object", "properties": {"a": {"anyOf": [{"const": "one"}, {"enum": ["two", 3]}]}}})
    def raw(given: dict[str, Any]) -> str:
        """Take it."""
        return ""

    assert await complete_parameter(command_of(raw), "a", "", {}) == ["one", "two", "3"]


async def test_a_source_that_fails_has_no_values(go_to: Command, caplog: pytest.LogCaptureFixture) -> None:
    """completion-3: expected errors are ignored, a bug is logged once."""
    dispatcher = Dispatcher(threads=1)
    assert await dispatcher.complete(go_to, "gone", "", {}) == []
    assert caplog.text == ""
    assert await dispatcher.complete(go_to, "broken", "", {}) == []
    assert "completing broken failed" in caplog.text


async def test_a_missing_source_is_reported_by_name() -> None:
    """completion-1: a method that its object does not have, and a function without an object."""

    @tool(Effect.READ)
    def alone(town: Annotated[str, Completes("towns")]) -> str:
        """Go."""
        return town

    with pytest.raises(BadSetting, match="completes with 'towns'"):
        await complete_parameter(command_of(alone), "town", "", {})


def test_values_are_bounded_and_unique() -> None:
    """completion-4: in the order of their source."""
    assert with_prefix("a", ["ab", "b", "aa", "ab"]) == ["ab", "aa"]
    assert len(with_prefix("", map(str, range(2 * MAX_VALUES)))) == MAX_VALUES


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    for name in ("sub/deep/leaf.txt", "sub/Deeper.txt", "sub/.env", "other/x", ".env", "odd\udcff"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    return Roots([RootSpec(str(tmp_path), writable=False)], deny=DenyRules([".env", "other"]))


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("", ["link", "odd\\xff", "sub/"]),
        ("s", ["sub/"]),
        ("sub", ["sub/"]),
        ("sub/", ["sub/Deeper.txt", "sub/deep/"]),
        ("sub/de", ["sub/Deeper.txt", "sub/deep/"]),
        ("./sub/deep/l", ["./sub/deep/leaf.txt"]),
        ("link/deep/", ["link/deep/leaf.txt"]),
        (".e", []),
        ("oth", []),
    ],
)
def test_paths_are_completed_below_the_root(roots: Roots, typed: str, paths: list[str]) -> None:
    """completion-5: directories with a slash; denied ones are left out."""
    assert directory_listing.complete_path(roots, typed, most=10) == paths


def test_absolute_paths_are_completed_below_a_root_only(roots: Roots, tmp_path: Path) -> None:
    """completion-5: nothing outside is listed."""
    assert directory_listing.complete_path(roots, f"{tmp_path}/su", most=10) == [f"{tmp_path}/sub/"]
    for typed in ("/etc/pas", "../", "sub/../../"):
        with pytest.raises(OutsideRoot):
            directory_listing.complete_path(roots, typed, most=10)


def test_paths_are_bounded(roots: Roots) -> None:
    """completion-5: the first names in order."""
    assert directory_listing.complete_path(roots, "", most=1) == ["link"]
