"""What a person decided about hosts that are not in the operator's list. In memory only, and of one server.

A command is refused first, and its hosts are asked about when it is started again: programs give up on a connection
long before a person has read a question. Used on the event loop.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from coretools.egress.blocked_connections import Refusal
from coretools.egress.hosts import Address, is_public

Decision = Literal["once", "this session", "never"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)

Destination = tuple[str | Address, int]
"""Host and port."""

MAX_COMMANDS = 100
"""Commands whose refused hosts are remembered; of more, those that were started last."""

MAX_HOSTS = 5
"""Hosts in one question. The others are asked about when the command was refused them again."""


class HostApprovals:
    """Decides about destinations that are not listed. What they lead to is judged all the same."""

    def __init__(self) -> None:
        self._always: set[Destination] = set()
        self._never: set[Destination] = set()
        self._wanted: OrderedDict[tuple[str, ...], dict[Destination, None]] = OrderedDict()
        """By command, for those whose caller can be asked: the hosts that it was refused or permitted once."""
        self._next: dict[tuple[str, ...], frozenset[Destination]] = {}
        """Permitted to the next start of a command."""
        self._admitted: list[frozenset[Destination]] = []
        """Permitted to commands that run."""

    async def decide(self, refusal: Refusal) -> bool:
        """Whether a destination that is not listed is admitted now."""
        if refusal.target is None:
            return False
        place = (refusal.target, refusal.port)
        return place in self._always or any(place in hosts for hosts in self._admitted)

    def expect(self, argv: Sequence[str]) -> None:
        """Remember the hosts that a command is refused from now on: its caller can be asked about them."""
        self._wanted.setdefault(tuple(argv), {})
        self._wanted.move_to_end(tuple(argv))
        while len(self._wanted) > MAX_COMMANDS:
            self._next.pop(self._wanted.popitem(last=False)[0], None)

    def open_questions(self, argv: Sequence[str]) -> tuple[Destination, ...]:
        """Return the hosts to ask about before this command is started again."""
        wanted = self._wanted.get(tuple(argv), {})
        return tuple(place for place in wanted if place not in self._always and place not in self._never)[:MAX_HOSTS]

    def record(self, argv: Sequence[str], hosts: Iterable[Destination], decision: Decision) -> None:
        """Record what a person decided about hosts that a command wants."""
        if decision == "once":
            self._next[tuple(argv)] = frozenset(hosts)
        else:
            (self._always if decision == "this session" else self._never).update(hosts)

    def started(self, argv: Sequence[str]) -> frozenset[Destination]:
        """Admit what was permitted once; `ended` takes the returned hosts back."""
        hosts = self._next.pop(tuple(argv), frozenset())
        self._admitted.append(hosts)
        return hosts

    def ended(self, hosts: frozenset[Destination]) -> None:
        """Admit no longer what was permitted to a command that ended."""
        self._admitted.remove(hosts)

    def refused(self, argv: Sequence[str], refusals: Iterable[Refusal]) -> bool:
        """Take note of what a command was refused; return whether a person can be asked before it starts again."""
        wanted = self._wanted.get(tuple(argv))
        if wanted is None:
            return False
        for one in refusals:
            if one.reason != "not listed" or one.target is None:
                continue
            # An address that is not public takes the operator's list.
            if isinstance(one.target, str) or is_public(one.target):
                wanted[one.target, one.port] = None
        return bool(self.open_questions(argv))
