"""What clients read of a command: docstrings in three forms, and models that contain themselves (application.md)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from coretools import App, Effect

GOOGLE = """Forecast the weather.

In this order:

- by town
- by day

Args:
    place: A town,
        such as `Graz`.
    days (int): How far ahead.
    hours: Not this.

Returns:
    One line.
"""
NUMPY = """Forecast the weather.

In this order:

- by town
- by day

Parameters
----------
place : str
    A town, such as `Graz`.
days : int, optional
    How far ahead.

Returns
-------
str
    One line.
"""
REST = """Forecast the weather.

In this order:

- by town
- by day

:param place: A town,
    such as `Graz`.
:param int days: How far ahead.
:returns: One line.
"""


class Node(BaseModel):
    name: str
    children: list["Node"] = []


@dataclass
class Directory:
    name: str
    below: "list[Directory]" = field(default_factory=list)


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
async def test_a_docstring_describes_the_parameters_and_keeps_its_lists(docstring: str) -> None:
    """application-19, application-20"""
    app = App("a")

    def forecast(place: str, days: int = 1, hours: Annotated[int, "Hours in it"] = 24) -> str:
        return place * days * hours

    forecast.__doc__ = docstring
    app.tool(Effect.READ)(forecast)
    async with app.test_client() as client:
        (tool,) = (await client.list_tools()).tools
        shapes = tool.input_schema["properties"]
        described = [one["description"] for one in shapes.values()]
        assert described == ["A town, such as `Graz`.", "How far ahead.", "Hours in it"]
        order = "In this order:\n\n- by town\n- by day"
        assert tool.description == f"Forecast the weather.\n\n{order}\n\nReturns: One line."


class Release(BaseModel):
    """Not this."""

    service: str


async def test_a_model_that_contains_itself_is_an_argument_and_a_result() -> None:
    """application-21"""
    app = App("a")

    @app.tool(Effect.READ)
    def depth(node: Node) -> int:
        """Return the depth of a tree."""
        return 1 + max((depth(one) for one in node.children), default=0)

    @app.tool(Effect.READ)
    def tree() -> Node:
        """Return a tree."""
        return Node(name="a", children=[Node(name="b")])

    @app.tool(Effect.READ)
    def directories(above: Directory | None = None) -> list[Directory]:
        """Return directories."""
        return [above or Directory("a", [Directory("b")])]

    async with app.test_client() as client:
        deep = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}
        assert text_of(await client.call_tool("depth", {"node": deep})) == "3"
        refused = text_of(await client.call_tool("depth", {"node": {"name": "a", "children": [{"nam": "b"}]}}))
        assert "unknown name 'nam'; did you mean 'name'?" in refused
        # The SDK's client checks these against the output schemas.
        assert (await client.call_tool("tree", {})).structured_content == deep | {
            "children": [{"name": "b", "children": []}]
        }
        given = {"above": {"name": "x", "below": [{"name": "y"}]}}
        result = await client.call_tool("directories", given)
        assert result.structured_content == {"result": [{"name": "x", "below": [{"name": "y", "below": []}]}]}


async def test_a_parameter_that_is_a_model_keeps_its_description_and_the_model_loses_its_own() -> None:
    """application-20"""
    app = App("a")

    @app.tool(Effect.READ)
    def deploy(release: Release) -> None:
        """Deploy.

        Args:
            release: What to deploy.
        """

    async with app.test_client() as client:
        (tool,) = (await client.list_tools()).tools
    assert tool.input_schema["properties"]["release"]["description"] == "What to deploy."
    assert "Not this." not in str(tool.input_schema)
