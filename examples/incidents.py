"""An incident tracker: models, dates, a resource, a prompt, progress, a question and a lifespan.

python examples/incidents.py find --severity high      as a command line
python examples/incidents.py repl                      line by line
python examples/incidents.py serve                     as an MCP server on stdio
python examples/incidents.py http 8000                 over HTTP, on this machine
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Literal

import anyio
from pydantic import Field

from coretools import App, AskConfirmation, Call, Effect, InvalidArguments, NotFound, Principal, asks

Severity = Literal["low", "high"]


@dataclass
class Incident:
    """One incident."""

    number: int
    title: str
    severity: Severity
    opened: date
    by: str
    closed: date | None = None


@dataclass
class Tracker:
    """Every incident, by number."""

    incidents: dict[int, Incident]

    def get(self, number: int) -> Incident:
        """One incident."""
        if number not in self.incidents:
            raise NotFound(f"{number}: no such incident; `find` has all", path=str(number))
        return self.incidents[number]


@asynccontextmanager
async def tracker() -> AsyncGenerator[Tracker]:
    """Open the tracker; a real one would connect to its database here, and close the connection after the yield."""
    first = Incident(1, "Disk full", "high", date(2026, 11, 1), "ops")
    yield Tracker({1: first})


def today() -> date:
    """The day, in UTC."""
    return datetime.now(UTC).date()


app = App("incidents", version="1.4", title="Track incidents", lifespan=tracker)
SURE = AskConfirmation(key="sure", message="Close every open incident?")


@app.tool(Effect.ADD)
def open_incident(
    title: Annotated[str, Field(min_length=3, description="What happened, in a few words")],
    tracker: Tracker,
    caller: Principal,
    severity: Severity = "low",
    opened: date | None = None,
) -> Incident:
    """Open an incident."""
    if opened is not None and opened > today():
        raise InvalidArguments(f"opened: {opened} is in the future; leave it out for today")
    incident = Incident(len(tracker.incidents) + 1, title, severity, opened or today(), caller)
    tracker.incidents[incident.number] = incident
    return incident


@app.tool(Effect.READ, title="Incidents")
def find(tracker: Tracker, severity: Severity | None = None) -> list[Incident]:
    """List the incidents.

    Args:
        tracker: Where they are kept.
        severity: Only those; leave it out for all.
    """
    return [one for one in tracker.incidents.values() if severity in (None, one.severity)]


@app.resource("incidents://{number}")
def incident(number: int, tracker: Tracker) -> Incident:
    """One incident."""
    return tracker.get(number)


@app.prompt(title="Write a post-mortem")
def postmortem(number: int, tracker: Tracker, style: Literal["short", "full"] = "short") -> str:
    """A prompt for the post-mortem of an incident. Clients complete the style."""
    return f"Write a {style} post-mortem of: {tracker.get(number).title}"


@app.tool(Effect.CHANGE, long_running=True)
@asks(SURE)
async def close_all(call: Call, tracker: Tracker) -> int:
    """Close every open incident, once a person has confirmed it."""
    if not await call.ask(SURE):
        return 0
    still_open = [one for one in tracker.incidents.values() if one.closed is None]
    for done, one in enumerate(still_open, 1):
        await anyio.sleep(0.001)  # the work
        one.closed = today()
        await call.progress(done, len(still_open), one.title)
    return len(still_open)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        import uvicorn

        uvicorn.run(app.http(), host="127.0.0.1", port=int(sys.argv[2]))
    else:
        sys.exit(app.cli())
