"""Ask a person before a call, list what was decided, and undo it: `coretools mcp approvals`."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Protocol

import mcp_types as types

from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.mcp.line import Line, confirm
from coretools.cli.mcp.output import arguments_text, as_json, in_line, table, tool_page
from coretools.client.approval.approvals import ProposedCall
from coretools.client.approval.decisions import Kind
from coretools.client.common.errors import NotApproved
from coretools.errors import InvalidArguments, NotFound

ANSWERS = ("once", "always-tool", "always-server", "no", "never")

_LABELS: dict[Kind, str] = {
    "trusted_servers": "server trusted",
    "approved_tools": "tool approved",
    "refused_tools": "tool refused",
}

ID_LENGTH = 12
"""Characters of a decision's hash that the list shows, and that identify it."""


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
