"""Whether a call may be made: by the operator's policy, and by what a person decided before.

Nothing that a server declares of itself (its annotations) is a ground.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from coretools.client.approval.call_policy import CallPolicy
from coretools.client.approval.decisions import Decisions, refusal_digest, tool_digest
from coretools.client.common.errors import NotApproved, RefusedByPolicy


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call that is about to be made."""

    server: str
    identity: str
    """Digest of the server's entry (`server_digest`)."""
    tool: types.Tool
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Server and tool, as messages and decisions show them."""
        return f"{self.server}: {self.tool.name}"


@dataclass(frozen=True, slots=True)
class Approvals:
    """The policy of the operator and the decisions of the user."""

    decisions: Decisions
    policy: CallPolicy | None = None

    def covers(self, call: ProposedCall) -> bool:
        """Whether the call is approved already; False if somebody has to be asked.

        Raises:
            RefusedByPolicy: the policy refuses it. NotApproved: somebody answered `never`.
        """
        if self.decisions.has("refused_tools", refusal_digest(call.server, call.tool.name)):
            raise NotApproved(
                f"{call.name!r} was refused for good; `coretools mcp approvals revoke '{call.name}'` undoes that"
            )
        if self.policy is not None:
            decision = self.policy.verdict(call.server, call.tool.name, call.arguments)
            if decision.verdict == "deny":
                raise RefusedByPolicy(f"{call.name!r} is refused by policy: {decision.because}")
            if decision.verdict == "allow":
                return True
        return not self.unapproved(call, [call.tool])

    def unapproved(self, call: ProposedCall, tools: Iterable[types.Tool]) -> list[types.Tool]:
        """Return the tools of the call's server that were not approved as they are declared now."""
        return [tool for tool in tools if not self.decisions.has("approved_tools", _digest(call.identity, tool))]

    def remember_tools(self, call: ProposedCall, tools: Iterable[types.Tool]) -> None:
        """Approve tools of the call's server as they are declared now; a changed declaration asks again."""
        self.decisions.add(
            "approved_tools", {_digest(call.identity, tool): f"{call.server}: {tool.name}" for tool in tools}
        )

    def remember_never(self, call: ProposedCall) -> None:
        """Refuse the tool from now on, however it is declared."""
        self.decisions.add("refused_tools", {refusal_digest(call.server, call.tool.name): call.name})


def _digest(identity: str, tool: types.Tool) -> str:
    return tool_digest(identity, tool.model_dump(mode="json", by_alias=True, exclude_none=True))
