"""The question whether a command may reach hosts that are not in the operator's list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coretools.command_policy.verdict import display_argv
from coretools.errors import AnswerNeeded, CapabilityMissing
from coretools.operations.call import LOCAL, Call
from coretools.questions.kinds import AskChoice

if TYPE_CHECKING:
    from coretools.egress.approvals import HostApprovals

HOSTS = "hosts"
"""The key of the question."""


async def ask_about_hosts(approvals: "HostApprovals", argv: Sequence[str], call: Call, *, line: str = "") -> None:
    """Ask about the hosts that this command was refused before, if anybody can be asked; `line` is shown for its argv.

    Only the user who started the server is asked: principals of an HTTP server share a network namespace, so that a
    permission of one would be one of all.

    Raises:
        Declined: the question was declined; nothing is started.
    """
    if call.principal != LOCAL or not call.has_capability("elicitation"):
        return
    approvals.expect(argv)
    if hosts := approvals.open_questions(argv):
        from coretools.egress.approvals import DECISIONS  # imported here: only where there is a list of hosts
        from coretools.egress.hosts import shown

        names = ", ".join(f"{shown(host)}:{port}" for host, port in hosts)
        command = display_argv((line,) if line else tuple(argv))
        message = (
            f"Let commands connect to {names}? Not in the operator's list of hosts.\n"
            f"once: while this command runs; this session: until the server ends\ncommand: {command}"
        )
        question = AskChoice(key=HOSTS, message=message, choices=DECISIONS, is_for_operator=True)
        try:
            answer = await call.ask(question)
        except (AnswerNeeded, CapabilityMissing):  # it is refused again, and the result names the operator's key
            return
        approvals.record(argv, hosts, next(decision for decision in DECISIONS if decision == answer))
