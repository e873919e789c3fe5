"""A notebook: resources, a prompt that asks a question, and commands for people only.

python -m examples.notes                # over stdio
python -m examples.notes --http 8766    # over HTTP, on loopback
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import uvicorn
from pydantic import Field

from coretools import (
    App,
    AskChoice,
    AskConfirmation,
    Call,
    Effect,
    NotFound,
    asks,
    channels,
    hidden,
    prompt,
    resource,
)

app = App("notes")
notes = app.context("notes", summary="what was noted")

Title = Annotated[str, Field(description="Name of the note", pattern="^[a-z0-9-]+$")]


@dataclass(frozen=True)
class Note:
    """A note and its name."""

    title: str
    text: str


NOTEBOOK: dict[str, Note] = {}


@notes.tool(Effect.CHANGE, title="Write a note", idempotent=True)
def write(title: Title, text: str) -> Note:
    """Write a note, or replace it."""
    NOTEBOOK[title] = Note(title, text)
    app.announce(f"notes://named/{title}")
    return NOTEBOOK[title]


@notes.tool(Effect.READ)
def find(word: str) -> list[Note]:
    """Find the notes that contain a word."""
    return [note for note in NOTEBOOK.values() if word in note.text]


@notes.add
@resource("notes://titles")
def titles() -> list[str]:
    """The names of all notes."""
    return sorted(NOTEBOOK)


@notes.add
@resource("notes://named/{title}", title="A note", mime_type="text/markdown")
def named(title: str) -> str:
    """One note."""
    if title not in NOTEBOOK:
        raise NotFound(f"{title}: no such note; notes://titles names all", path=title)
    return NOTEBOOK[title].text


TONE = AskChoice(key="tone", message="In which tone?", choices=("plain", "formal"))


@notes.add
@prompt(title="Sum up the notes")
@asks(TONE)
async def summary(word: str, call: Call) -> str:
    """A prompt to summarize the notes that contain a word."""
    tone = await call.ask(TONE)
    return f"Sum up in {tone} words:\n" + "\n".join(note.text for note in find(word))


SURE = AskConfirmation(key="sure", message="Throw all notes away?")


@notes.tool(Effect.CHANGE)
@channels("command-line", "repl")
@asks(SURE)
async def burn(call: Call) -> int:
    """Delete all notes. Not offered to agents; run `coretools --with examples.notes:app notes burn`."""
    if not await call.ask(SURE):
        return 0
    count = len(NOTEBOOK)
    NOTEBOOK.clear()
    return count


@notes.tool(Effect.READ)
@hidden
def size() -> int:
    """Count the characters. Omitted from every list and from help, but it can be run by name."""
    return sum(len(note.text) for note in NOTEBOOK.values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        uvicorn.run(app.http(), host="127.0.0.1", port=int(sys.argv[2]))
    else:
        raise SystemExit(app.stdio())
