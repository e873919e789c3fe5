"""What a proxy refused: for results, the log, and the answer to the client."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coretools.egress.allow_list import suggested_entry
from coretools.egress.hosts import Address, shown
from coretools.errors import POLICY_APPLIES
from coretools.truncation import and_more

logger = logging.getLogger(__name__)

MAX_KEPT = 200
"""Distinct refusals kept by a proxy. A further one is counted in the log only."""

MAX_SHOWN = 5
"""Refusals, or hosts in one, that a result shows."""

ASK_AGAIN = "network: run exactly the same command again, and the user is asked whether to allow it"
"""Added to a result whose caller can ask a person."""

Reason = Literal["not listed", "not public", "unresolved", "unreachable", "other name", "malformed", "busy"]

_SENTENCES: dict[Reason, str] = {
    "not listed": "is not in the operator's list of hosts",
    "not public": "leads to an address that is not public (loopback, private, link-local or special)",
    "unresolved": "has no address",
    "unreachable": "does not answer",
    "other name": "was asked for in a tunnel whose TLS greeting names another host, or none",
    "malformed": "a request that the proxy does not accept",
    "busy": "too many connections at once",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused connection."""

    reason: Reason
    target: str | Address | None = None
    """None if the request names no valid host."""
    port: int = 0
    detail: str = ""
    """What is wrong with a malformed request; the address that is not public."""

    @property
    def entry(self) -> str:
        """The entry of `network` that would allow it; empty if none would."""
        if self.target is None or self.reason not in ("not listed", "not public"):
            return ""
        if self.reason == "not public":
            return self.detail if self.port in (80, 443) else f"{self.detail}:{self.port}"
        return suggested_entry(self.target, self.port)

    @property
    def sentence(self) -> str:
        """What was refused, why, and the operator's key that would allow it."""
        if self.target is None:
            return f"{_SENTENCES[self.reason]}{f': {self.detail}' if self.detail else ''}"
        said = f"{shown(self.target)}:{self.port} {_SENTENCES[self.reason]}"
        if self.reason == "not public":
            said += f": {self.detail}"
        return (
            f'{said}; the operator allows it with network = [..., "{self.entry}"] and {POLICY_APPLIES} {_OPTION}'
            if self.entry
            else said
        )


_OPTION = "(of coretools-workstation also with the option --network)"


def summary(refusals: Sequence[Refusal]) -> list[str]:
    """Return the sentences for the result of a command: hosts that are not listed in one, each other in its own."""
    unlisted = [one for one in refusals if one.reason == "not listed"]
    others = [one for one in refusals if one.reason != "not listed"]
    said = [f"network: {one.sentence}" for one in others[:MAX_SHOWN]]
    if len(others) > MAX_SHOWN:
        said.append(f"network: {len(others) - MAX_SHOWN} other refused connections are in the server's log")
    if len(unlisted) == 1:
        return [f"network: {unlisted[0].sentence}", *said]
    if unlisted:
        hosts = [f"{shown(one.target)}:{one.port}" for one in unlisted if one.target is not None]
        entries = list(dict.fromkeys(f'"{one.entry}"' for one in unlisted))
        said.insert(
            0,
            f"network: not in the operator's list of hosts: {_listed(hosts)}; the operator allows them with"
            f" network = [..., {_listed(entries)}] and {POLICY_APPLIES} {_OPTION}",
        )
    return said


def _listed(words: Sequence[str]) -> str:
    return and_more(words[:MAX_SHOWN], len(words))


class Refused(Exception):
    """A connection is refused."""

    def __init__(self, reason: Reason, target: str | Address | None = None, port: int = 0, detail: str = "") -> None:
        self.refusal = Refusal(reason, target, port, detail)
        super().__init__(self.refusal.sentence)


class RefusalLog:
    """The refusals of one proxy, numbered in order; each distinct one is kept and logged once."""

    def __init__(self) -> None:
        self.count = 0
        """Number of refusals so far."""
        self._last: dict[Refusal, int] = {}

    def add(self, refusal: Refusal) -> None:
        """Record a refusal."""
        self.count += 1
        if refusal in self._last or len(self._last) < MAX_KEPT:
            if refusal not in self._last:
                logger.info("refused: network: %s", refusal.sentence)
            self._last[refusal] = self.count

    def since(self, count: int) -> tuple[Refusal, ...]:
        """Return the distinct refusals after the first `count`, oldest first."""
        return tuple(sorted((one for one, at in self._last.items() if at > count), key=lambda one: self._last[one]))
