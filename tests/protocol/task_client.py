"""The client's side of the tasks extension, on the SDK's client: a claim for its result, and raw requests."""

from collections.abc import Sequence
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.server.lowlevel import Server
from pydantic import BaseModel, ConfigDict

from coretools.protocol.tasks.extension import IDENTIFIER

SECONDS = 60
"""Upper bound for every wait."""

ENDED = ("completed", "failed", "cancelled")


class Handle(types.Result):
    """A `CreateTaskResult`."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class Anything(BaseModel):
    """Any result, as received."""

    model_config = ConfigDict(extra="allow")


class Named(types.Request[Any, str]):
    """A request that also names its task in a header, over HTTP."""

    name_param = "taskId"
    method: str
    params: Any


class TaskClient(ClientExtension):
    """Finishes a task as a client does that only wants the result."""

    identifier = IDENTIFIER

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=Handle, resolve=self._resolve),)

    async def _resolve(self, handle: Handle, context: ClaimContext) -> types.CallToolResult:
        ended = await until(context.session, handle.task_id, *ENDED)
        return types.CallToolResult.model_validate(ended["result"])


def client(server: Server[Any], *, knows_tasks: bool = True, mode: str = "auto", **callbacks: Any) -> Client:
    return Client(server, mode=mode, extensions=[TaskClient()] if knows_tasks else None, **callbacks)


async def begin(connected: Client, tool: str, **arguments: object) -> Handle:
    """Call a tool that becomes a task."""
    result = await connected.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(result, Handle), result
    return result


async def ask(session: Any, method: str, task_id: str, **params: object) -> dict[str, Any]:
    """Send one raw request of the extension."""
    request = Named(method=method, params={"taskId": task_id, **params})
    found: dict[str, Any] = (await session.send_request(request, Anything)).model_dump()
    return found


async def until(session: Any, task_id: str, *statuses: str) -> dict[str, Any]:
    """Poll the task until it has one of these statuses; the server sends no notifications (docs/specs/tasks.md)."""
    with anyio.fail_after(SECONDS):
        while True:
            found = await ask(session, "tasks/get", task_id)
            if found["status"] in statuses:
                return found
