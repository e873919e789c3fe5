"""`coretools mcp approve`: approve tools as declared now; `approvals`: what was decided, and how to undo it."""

from collections.abc import Sequence
from difflib import get_close_matches

import mcp_types as types

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, confirm, connected
from coretools.cli.mcp.output import as_json, in_line, table, tool_page
from coretools.client.approval.approvals import ProposedCall
from coretools.client.approval.decisions import Kind, server_digest
from coretools.client.common.errors import NotApproved
from coretools.errors import InvalidArguments, NotFound
from coretools.pipelines.runner import find_tool

_LABELS: dict[Kind, str] = {
    "trusted_servers": "server trusted",
    "approved_tools": "tool approved",
    "refused_tools": "tool refused",
}

ID_LENGTH = 12
"""Characters of a decision's hash that the list shows, and that identify it."""


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


async def approvals(line: Line) -> int:
    """List the remembered decisions, or revoke some."""
    action, *words = line.options.words or ["list"]
    if action == "revoke" and words:
        return _revoke(line, words)
    if action != "list" or words:
        raise InvalidArguments("mcp approvals: write `list`, or `revoke` with IDs or names (`server: tool`)")
    return _list(line)


def _list(line: Line) -> int:
    decisions = line.decisions.all()
    rows = [
        (digest[:ID_LENGTH], label, str(text))
        for kind, label in _LABELS.items()
        for digest, text in decisions[kind].items()
    ]
    if line.options.as_json:
        return print_text(as_json([{"id": one, "decision": what, "about": about} for one, what, about in rows]))
    if not rows:
        print_error("nothing is remembered")
        return 0
    return print_text(table([("ID", "DECISION", "ABOUT"), *rows], line.width))


def _revoke(line: Line, words: Sequence[str]) -> int:
    """Forget the decisions with these IDs, or about these tools or servers."""
    decisions = [(digest, str(text)) for decided in line.decisions.all().values() for digest, text in decided.items()]
    chosen: dict[str, str] = {}
    for word in words:
        matching = {digest: text for digest, text in decisions if _is_meant(word, digest, text)}
        if not matching:
            near = get_close_matches(word, [text for _, text in decisions], n=1)
            meant = f"; did you mean '{in_line(near[0])}'?" if near else "; `coretools mcp approvals` lists them"
            raise NotFound(f"{word!r}: no such decision{meant}")
        chosen |= matching
    line.decisions.remove(chosen)
    for text in chosen.values():
        print_error(f"revoked: {in_line(text)}")
    return 0


def _is_meant(word: str, digest: str, text: str) -> bool:
    """Whether a word is the ID of a decision, the whole of what it is about, or its server."""
    is_id = len(word) >= ID_LENGTH and digest.startswith(word)
    return is_id or word == text or text.startswith((f"{word}: ", f"{word} in "))
