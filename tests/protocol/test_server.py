"""A registry as an MCP server, with the SDK's client in both eras (docs/specs/workstation.md)."""

import itertools
from typing import Annotated

import pytest
from mcp import Client, MCPError
from pydantic import Field

from coretools.errors import NotFound
from coretools.operations.call import Call
from coretools.operations.catalog import Selection
from coretools.operations.content import Result
from coretools.operations.declare import Effect, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.listing import LONG_RUNNING_KEY
from coretools.protocol.results import ERROR_KEY, FACTS_KEY, FAILED_KEY
from coretools.protocol.server import ServerInfo, build_server

ERAS = ("legacy", "auto")


class Counted(Result):
    count: int

    def text(self) -> str:
        return f"counted to {self.count}"

    @property
    def failed(self) -> bool:
        return self.count < 0

    def facts(self) -> dict[str, object]:
        return {"count": self.count}


class Bare(Result):
    """A result without text."""

    count: int

    def text(self) -> str:
        return ""


class Sample:
    @tool(Effect.READ, structured=True)
    def count_silently(self) -> Bare:
        """Count, and say nothing."""
        return Bare(count=1)

    @tool(Effect.READ, long_running=True)
    async def count_up(self, most: int, call: Call) -> str:
        """Count, and say so at every step."""
        for done in range(1, most + 1):
            await call.progress(done, most, f"at {done}")
        return "done"

    @tool(Effect.READ)
    async def count_back(self, call: Call) -> str:
        """Say a progress that goes backwards."""
        for done in (5, 3, 4, 5, 6):
            await call.progress(done, 6)
        return "done"

    @tool(Effect.CHANGE, structured=True)
    def count_to(self, count: int) -> Counted:
        """Count."""
        return Counted(count=count)

    @tool(Effect.READ)
    def odd_names(self) -> str:
        """Name what UTF-8 can't carry."""
        return "caf\u00e9 \udcff"

    @tool(Effect.READ)
    def nothing_there(self) -> str:
        """Miss."""
        raise NotFound("x: not found", path="\udcff")


def client(mode: str) -> Client:
    registry = Registry()
    registry.add_set("sample", Sample())
    catalog = LiveCatalog(registry, Selection(profile="all"))
    return Client(build_server(catalog, Dispatcher(threads=2), ServerInfo(instructions="be kind")), mode=mode)


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_is_throttled_and_ends_at_the_end(mode: str) -> None:
    """workstation-14: a thousand steps at once are a few notifications, always with the last step."""
    seen: list[float] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    async with client(mode) as connected:
        result = await connected.call_tool("count_up", {"most": 1000}, progress_callback=note)
    assert not result.is_error
    assert seen[0] == 1
    assert seen[-1] == 1000
    assert len(seen) < 500


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_never_goes_backwards(mode: str) -> None:
    """workstation-14: the protocol requires that it increases (basic/utilities/progress)."""
    seen: list[float] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    async with client(mode) as connected:
        await connected.call_tool("count_back", {}, progress_callback=note)
    assert seen
    assert all(one < next_one for one, next_one in itertools.pairwise(seen))


@pytest.mark.parametrize("mode", ERAS)
async def test_without_a_token_no_progress_is_sent(mode: str) -> None:
    """workstation-14: a client that did not ask gets none, and the call works."""
    async with client(mode) as connected:
        result = await connected.call_tool("count_up", {"most": 10})
    assert result.content[0].text == "done"  # type: ignore[union-attr]  # a text block


@pytest.mark.parametrize("mode", ERAS)
async def test_a_structured_result_goes_out_with_its_text_and_facts(mode: str) -> None:
    """declarations-5, declarations-10: each once; the failed part is marked and is no error."""
    async with client(mode) as connected:
        listed = {one.name: one for one in (await connected.list_tools()).tools}
        good = await connected.call_tool("count_to", {"count": 3})
        bad = await connected.call_tool("count_to", {"count": -1})
    assert listed["count_to"].output_schema == {"type": "object", "properties": {"count": {"type": "integer"}}}
    assert (listed["count_up"].meta or {}).get(LONG_RUNNING_KEY) is True
    assert good.structured_content == {"count": 3}
    assert (good.meta or {})[FACTS_KEY] == {"count": 3}
    assert (bad.meta or {})[FAILED_KEY] is True
    assert not bad.is_error


@pytest.mark.parametrize("mode", ERAS)
async def test_names_that_utf_8_cannot_carry_are_escaped(mode: str) -> None:
    """workstation-7: no name in a result or an error breaks the line that carries it."""
    async with client(mode) as connected:
        named = await connected.call_tool("odd_names", {})
        missed = await connected.call_tool("nothing_there", {})
    assert named.content[0].text == "caf\u00e9 \\udcff"  # type: ignore[union-attr]  # a text block
    assert (missed.meta or {})[ERROR_KEY] == "not-found"
    assert (missed.meta or {})[FACTS_KEY] == {"path": "\\udcff"}


@pytest.mark.parametrize("mode", ERAS)
async def test_an_unknown_tool_is_an_error_of_the_request(mode: str) -> None:
    """workstation-10: it suggests the closest name."""
    async with client(mode) as connected:
        with pytest.raises(MCPError, match="did you mean count_to"):
            await connected.call_tool("count_too", {})


class Shapeless:
    """A type without a schema."""


@tool(Effect.READ)
def headed(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "") -> str:
    """Take an argument that a header repeats."""
    return region


@tool(Effect.READ)
def headless(region: str = "") -> str:
    """Take one that none repeats."""
    return region


@tool(Effect.READ)
def shapeless(what: Shapeless) -> str:
    """Take what can't be sent."""
    return str(what)


def test_headers_are_checked_against_the_schema_of_the_called_tool() -> None:
    """http-1: the SDK accepts a call unchecked without a schema, or after an error."""
    registry = Registry()
    for function in (headed, headless, shapeless):
        registry.add(function)
    catalog = LiveCatalog(registry, Selection(profile="all"))
    schema_of = build_server(catalog, Dispatcher(threads=1), ServerInfo()).get_tool_input_schema
    assert schema_of is not None
    for _ in range(2):
        found = schema_of("headed")
        assert found is not None
        assert found["properties"]["region"]["x-mcp-header"] == "Region"
        assert schema_of("headless") is None
        assert schema_of("nobody") is None


@pytest.mark.parametrize("mode", ERAS)
async def test_every_structured_result_has_text(mode: str) -> None:
    """workstation-19: that of the command, or else the data, for clients that read text only."""
    async with client(mode) as connected:
        bare = await connected.call_tool("count_silently", {})
        output = await connected.call_tool("count_to", {"count": 3})
    assert [(one.structured_content, one.content[0].text) for one in (bare, output)] == [  # type: ignore[union-attr]
        ({"count": 1}, '{"count": 1}'),
        ({"count": 3}, "counted to 3"),
    ]
