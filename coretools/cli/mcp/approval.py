"""Ask a person before a call, and remember the answer."""

import sys
from collections.abc import Sequence
from typing import Protocol

import mcp_types as types

from coretools.cli.mcp.line import Line, confirm
from coretools.cli.mcp.output import arguments_text, in_line, tool_page
from coretools.client.approval.approvals import ProposedCall
from coretools.client.common.errors import NotApproved

ANSWERS = ("once", "always-tool", "always-server", "no", "never")


class ToolList(Protocol):
    """The server whose tools are approved."""

    async def tools(self) -> Sequence[types.Tool]:
        """Return its tools."""
        ...


async def approve(
    line: Line, call: ProposedCall, server: ToolList, *, remedy: str = "give --yes or --policy FILE"
) -> None:
    """Ask before a call, unless it was approved; `remedy` is what to do where nobody can be asked.

    Raises:
        RefusedByPolicy: the policy refuses it. NotApproved: nobody can be asked, or the answer is no.
    """
    if line.approvals.covers(call) or line.options.yes:
        return
    if not line.terminal.can_ask:
        raise NotApproved(f"{call.name!r} is not approved, and nobody can be asked here; {remedy}")
    # Imported late: only a terminal needs them, and they take 40 ms.
    from coretools.cli.common.call import CliCall
    from coretools.questions.kinds import AskChoice

    answer = "no"
    async with line.screen.asking():
        sys.stderr.write(f"{in_line(call.name)}\n{arguments_text(call.arguments)}\n")
        answer = await CliCall(line.terminal).ask(AskChoice(key="approval", message="Call it?", choices=ANSWERS))
        if answer.startswith("always"):
            # Each tool as declared today: a new or changed one needs a new approval.
            tools = [call.tool] if answer == "always-tool" else await server.tools()
            await _remember(line, call, line.approvals.unapproved(call, tools))
    if answer == "never":
        line.approvals.remember_never(call)
    if answer in ("no", "never"):
        raise NotApproved(f"{call.name!r} was not approved")


async def _remember(line: Line, call: ProposedCall, tools: Sequence[types.Tool]) -> None:
    """Approve tools as they are declared, after showing them.

    Raises:
        NotApproved: the person, having seen them, declines.
    """
    for tool in tools:
        sys.stderr.write(f"{in_line(f'{call.server}: {tool.name}')}:\n{tool_page(tool)}\n")
    if not await confirm(line, "declared", "Approve for good what is declared above?"):
        raise NotApproved(f"{call.name!r} was not approved")
    line.approvals.remember_tools(call, tools)
