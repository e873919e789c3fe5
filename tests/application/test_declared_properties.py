"""What a command can declare besides its types (docs/specs/application.md)."""

from typing import Any

import anyio
import pytest

from coretools import App, BadSetting, Effect, Icon, Image, channels


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


async def test_a_tool_is_called_by_its_aliases_and_listed_once() -> None:
    """application-22"""
    app = App("a")
    icon = Icon(src="https://icons.example/a.png")

    @app.context("web").tool(Effect.READ, name="list", aliases=("ls", "dir"), tags=("net",), icons=(icon,))
    def find() -> str:
        """List."""
        return "listed"

    @app.resource("a://b", tags=("net",), icons=(icon,))
    def document() -> str:
        """A document."""
        return "text"

    async with app.test_client() as client:
        (tool,) = (await client.list_tools()).tools
        (resource,) = (await client.list_resources()).resources
        for one in (tool, resource):
            assert one.meta == {"coretools/tags": ["net"]}
            assert one.icons is not None
            assert one.icons[0].src == icon.src
        for name in ("web_list", "web_ls", "web_dir"):
            assert text_of(await client.call_tool(name, {})) == "listed"


def test_an_alias_is_typed_too(capsys: pytest.CaptureFixture[str]) -> None:
    """application-22"""
    app = App("a")

    @app.tool(Effect.READ, aliases=("ls",))
    def find(place: str) -> str:
        """List."""
        return f"listed {place}"

    assert app.cli(["ls", "here"]) == 0
    assert capsys.readouterr().out == "listed here\n"


async def test_an_alias_that_is_taken_ends_the_start() -> None:
    """application-22"""
    app = App("a")

    @app.tool(Effect.READ, aliases=("other",))
    def one() -> str:
        """One."""
        return ""

    @app.tool(Effect.READ)
    def other() -> str:
        """The other."""
        return ""

    with pytest.raises(BadSetting, match="two commands are named"):
        async with app.test_client():
            pass


async def test_a_command_ends_at_its_deadline_and_its_result_has_a_limit() -> None:
    """application-23"""
    app = App("a")

    @app.tool(Effect.READ, deadline_seconds=0.01)
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    @app.tool(Effect.READ, result_bytes=10)
    def text(count: int) -> str:
        """Return text."""
        return "x" * count

    @app.tool(Effect.READ, result_bytes=10)
    def picture() -> Image:
        """Return a picture."""
        return Image(b"x" * 11, "image/png")

    async with app.test_client() as client:
        late = await client.call_tool("hang", {})
        assert (late.meta or {})["coretools/error"] == "deadline-passed"
        assert text_of(await client.call_tool("text", {"count": 10})) == "x" * 10
        for name, arguments in (("text", {"count": 11}), ("picture", {})):
            long = await client.call_tool(name, arguments)
            assert (long.meta or {})["coretools/error"] == "too-large"
            assert "ran, but its result has 11 bytes" in text_of(long)


def channelled() -> App:
    app = App("a")
    admin = app.context("admin", channels=("command-line", "mcp"))

    @admin.tool(Effect.READ)
    @channels("command-line", "repl")
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    @app.tool(Effect.READ)
    @channels("mcp")
    def look() -> str:
        """Look."""
        return "looked"

    return app


async def test_a_client_sees_only_what_is_for_clients() -> None:
    """application-24"""
    async with channelled().test_client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["look"]


def test_a_command_line_has_only_what_is_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    """application-24"""
    assert channelled().cli(["admin", "wipe"]) == 0
    assert capsys.readouterr().out == "wiped\n"
    assert channelled().cli(["look"]) == 64
    assert "no command 'look'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        ({"tags": "net"}, "tags must be tuple"),
        ({"icons": ("a.png",)}, "icons has Icon values only"),
        ({"deadline_seconds": 0}, "must be above 0"),
        ({"result_bytes": -1}, "must be above 0"),
    ],
)
def test_a_wrong_property_is_refused_where_it_is_declared(hints: Any, reason: str) -> None:
    """application-22, application-23"""
    with pytest.raises(BadSetting, match=reason):
        App("a").tool(Effect.READ, **hints)
    with pytest.raises(BadSetting, match="choose from mcp, command-line, repl"):
        channels("agent")  # type: ignore[arg-type]
