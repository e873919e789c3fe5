"""A server of the official SDK that asks its client: a form, a model, roots. It serves both eras of the protocol."""

from typing import Annotated, Any, Literal

import mcp_types as types
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from pydantic import BaseModel, Field

server = MCPServer("asking")


class Trip(BaseModel):
    city: str
    days: int = Field(default=3, ge=1, le=30)
    by: Literal["train", "bus"] = "train"
    insured: bool = False


def ask_trip() -> Elicit[Trip]:
    return Elicit("Which trip?", Trip)


@server.tool()
def book(trip: Annotated[ElicitationResult[Trip], Resolve(ask_trip)]) -> str:
    """Book a trip."""
    return trip.data.model_dump_json() if isinstance(trip, AcceptedElicitation) else trip.action


def ask_model() -> Sample:
    text = types.TextContent(type="text", text="Which number?")
    return Sample([types.SamplingMessage(role="user", content=text)], max_tokens=10)


@server.tool()
def think(result: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
    """Ask a model."""
    return f"{result.model}: {result.content.text}"  # type: ignore[union-attr]


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
def where(found: Annotated[types.ListRootsResult, Resolve(ask_roots)]) -> str:
    """List the roots."""
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def chat(context: Context[Any]) -> str:
    """Log a message."""
    params = types.LoggingMessageNotificationParams(level="info", data="almost done")
    await context.session.send_notification(
        types.LoggingMessageNotification(params=params), related_request_id=context.request_id
    )
    return "done"


if __name__ == "__main__":
    server.run()
