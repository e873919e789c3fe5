"""Long-running commands: progress, messages, questions before the first effect, and cancellation.

python -m examples.survey
"""

import hashlib
import logging
from dataclasses import dataclass
from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from coretools import App, AskForm, AskText, Call, Effect, asks, check_cancelled

app = App("survey")
logger = logging.getLogger(__name__)


class Scope(BaseModel):
    """Scope of a survey: a form for the user."""

    first: Annotated[int, Field(ge=1, description="First page")]
    last: Annotated[int, Field(ge=1, le=500, description="Last page")]


@dataclass(frozen=True)
class Survey:
    """Result of a survey."""

    author: str
    pages: list[int]


AUTHOR = AskText(key="author", message="In whose name?", default="nobody")
SCOPE = AskForm(key="scope", message="Which pages?", model=Scope)


@app.tool(Effect.ADD, title="Survey a book", long_running=True)
@asks(AUTHOR, SCOPE)
async def survey(call: Call) -> Survey:
    """Look at the pages of a book, one after the other."""
    author, scope = await call.ask_all(AUTHOR, SCOPE)  # before any effect: a call may restart with the answers
    pages = list(range(scope.first, scope.last + 1))
    for done, page in enumerate(pages, 1):
        await anyio.sleep(0.001)  # the work; a cancelled call ends where it waits
        await call.progress(done, len(pages), f"page {page}")
    await call.log("info", f"{author} surveyed {len(pages)} pages")
    return Survey(author, pages)


@app.tool(Effect.READ, long_running=True)
def fingerprint(text: str, rounds: Annotated[int, Field(ge=1)] = 1000) -> str:
    """Hash a text repeatedly. A plain function runs in a thread, and checks whether its call was cancelled."""
    digest = text.encode()
    for _ in range(rounds):
        check_cancelled()
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


@app.tool(Effect.READ)
@asks(AUTHOR)
async def sign(call: Call) -> str:
    """Sign with the name of the author."""
    logger.info("signed by %s", await call.ask(AUTHOR))
    return f"(signed) {await call.ask(AUTHOR)}"


if __name__ == "__main__":
    raise SystemExit(app.stdio())
