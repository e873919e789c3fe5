"""`coretools mcp approve`: approve tools of a server as they are declared now, after showing them."""

from collections.abc import Sequence

import mcp_types as types

from coretools.cli.common.terminal import print_error
from coretools.cli.mcp.line import Line, confirm, connected
from coretools.cli.mcp.output import in_line, tool_page
from coretools.client.approval.approvals import ProposedCall
from coretools.client.approval.decisions import server_digest
from coretools.client.common.errors import NotApproved
from coretools.pipelines.runner import find_tool


async def approve(line: Line) -> int:
    """Approve the tools that are named, or all of the server."""
    server, *names = line.options.words
    entry = line.startable(server)
    async with connected(line, [entry]) as connections:
        await connections[server].wait_settled()
        tools: Sequence[types.Tool] = await connections[server].tools()
        for remark in connections[server].remarks():
            print_error(in_line(remark))
    chosen = [find_tool(tools, server, name) for name in names] or tools
    identity = server_digest(entry, line.environment)
    count = 0
    for tool in chosen:
        call = ProposedCall(server, identity, tool, {})
        if line.approvals.covers(call):
            continue
        count += 1
        print_error(f"{in_line(call.name)}:")
        print_error(tool_page(tool))
        if not line.options.yes:
            if not line.terminal.can_ask:
                raise NotApproved("nobody can be asked here; look at the tools above and give --yes")
            if not await confirm(line, "approve", f"Approve {in_line(call.name)} as declared?"):
                continue
        line.approvals.remember_tools(call, [tool])
        print_error(f"approved: {in_line(call.name)}")
    if not count:
        print_error("nothing to approve: every tool is approved as it is declared")
    return 0
