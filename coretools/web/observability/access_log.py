"""The access log: a line for each call and for each refused or failed HTTP request.

Lines have names, figures and outcomes only: no arguments, contents, tokens or session ids. `coretools.config.logs`
formats them. The line of a request begins with address and status, for programs that ban addresses
(docs/deploy/fail2ban.conf).
"""

import logging
import time
from collections.abc import Callable

from opentelemetry.trace import get_current_span

from coretools.config.logs import TrustedText, log_fields
from coretools.operations.dispatch import ActiveCall, Outcome
from coretools.protocol.call_adapter import PRINCIPAL_KEY, address_in
from coretools.web.common.error_response import SERVER_FAULT
from coretools.web.common.events import Exchange, RequestWatcher, outcome_label

calls = logging.getLogger("coretools.calls")
requests = logging.getLogger("coretools.requests")

LONGEST_PATH = 200
"""Largest path in the log, in characters; our own paths are short."""

LONGEST_HOST = 255
"""Largest host in the log, in characters, as in DNS."""

NOWHERE = "unknown"
"""Logged if there is no address."""

WRONG_HOST = "unknown-host"
"""The refusal whose line has the Host header, so that an operator finds a missing name."""

MOST_REFUSALS = 50
"""Lines a second for refusals, so that refused clients can't fill the disk of the log."""

REFUSED = 400


class CallLog:
    """Logs each call at `info`: who called what, and how it ended."""

    def began(self, call: ActiveCall) -> None:
        """Do nothing yet."""

    def ended(self, call: ActiveCall, outcome: Outcome | None) -> None:
        """Log the outcome. An internal error is logged with the same call id."""
        if not calls.isEnabledFor(logging.INFO):
            return
        facts: dict[str, object] = {
            "call": TrustedText(call.id),
            "address": TrustedText(call.address or NOWHERE),
            "principal": call.principal,
            "tool": call.command,
            "outcome": outcome_label(outcome),
            "ms": round(1000 * call.seconds, 2),
        }
        calls.info("call", extra=log_fields(facts | _trace()))


class RequestLog(RequestWatcher):
    """Logs HTTP requests: answered ones at `debug`, since their call has a line, refused ones at `info`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._written = 0
        self._left_out = 0

    def request_ended(self, exchange: Exchange) -> None:
        """Log the request without its query, which may contain a token."""
        level = _level(exchange.status)
        if not requests.isEnabledFor(level) or (level == logging.INFO and not self._has_room()):
            return
        facts: dict[str, object] = {
            "address": TrustedText(address_in(exchange.scope) or NOWHERE),
            "status": exchange.status,
            **({"refused": exchange.refused} if exchange.refused else {}),
            "method": exchange.method,
            "path": exchange.path[:LONGEST_PATH],
            "bytes": exchange.bytes_out,
            "ms": round(1000 * exchange.seconds, 2),
            "era": exchange.era,
        }
        if PRINCIPAL_KEY in exchange.scope:
            facts["principal"] = exchange.scope[PRINCIPAL_KEY]
        if exchange.refused == WRONG_HOST:
            facts["host"] = exchange.host[:LONGEST_HOST]
        if self._left_out:
            facts["left_out"], self._left_out = self._left_out, 0
        requests.log(level, "request", extra=log_fields(facts | _trace()))

    def _has_room(self) -> bool:
        """Whether another refusal may be logged; the next line has the number of omitted ones."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._written = second, 0
        self._written += 1
        self._left_out += self._written > MOST_REFUSALS
        return self._written <= MOST_REFUSALS


def _level(status: int) -> int:
    if status >= SERVER_FAULT:
        return logging.WARNING
    return logging.INFO if status >= REFUSED else logging.DEBUG


def _trace() -> dict[str, object]:
    """Return the current trace id, to find the spans."""
    context = get_current_span().get_span_context()
    return {"trace": TrustedText(f"{context.trace_id:032x}")} if context.is_valid else {}
