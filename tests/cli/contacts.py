"""Commands of somebody else, for the tests of the command line: each shows one thing that a command may do.

Run as a program it runs each of its arguments as a line, on whatever terminal it has.
"""

import os
import sys
from datetime import date
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel

from coretools.cli.command_runner import CommandContext, CommandRunner
from coretools.cli.common.terminal import TerminalCapabilities
from coretools.cli.line_words import words_of
from coretools.cli.read_loop import parse_line
from coretools.errors import CoreError, NotFound
from coretools.operations.call import Call
from coretools.operations.catalog import Selection
from coretools.operations.completion import Completes
from coretools.operations.content import Image, Result
from coretools.operations.declare import Effect, asks, at, channels, hidden, prompt, raw_schema, resource, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.questions.kinds import AskChoice, AskChoices, AskConfirmation, AskForm, AskRoots, AskSecret, AskText

QUIET = TerminalCapabilities(is_stdout_terminal=False, has_colours=False, can_ask=False, can_show_progress=False)


class Entry(BaseModel):
    name: str
    age: int | None = None


class Shape(BaseModel):
    width: int
    colour: Literal["red", "blue"] = "red"


class Counted(Result):
    count: int

    def text(self) -> str:
        return f"{self.count} counted"

    def facts(self) -> dict[str, object]:
        return {"count": self.count}

    @property
    def failed(self) -> bool:
        return self.count == 13


def known(text: str, given: Any) -> list[str]:
    return ["ada", "alan wise", "grace", f"after-{given.get('id', 'none')}"]


@tool(Effect.READ)
@at("{id}", "show")
def show(id: int, *, verbose: bool = False) -> str:  # noqa: A002  # the name that a user would choose
    """Show one contact. All of it."""
    return f"contact {id!r}{' in full' if verbose else ''}"


@tool(Effect.ADD)
def add(
    name: Annotated[str, Completes(known)],
    tags: list[str],
    role: Literal["friend", "foe"],
    *,
    age: int | None = None,
    height: float = 1.5,
    is_new: bool = True,
    born: date | None = None,
    entries: list[Entry] = [],  # noqa: B006  # never changed
    near: Annotated[list[str], Completes(known)] = [],  # noqa: B006  # as above
    network: str = "",
    either: int | str = 0,
) -> str:
    """Add a contact."""
    output = [f"{one.name} {one.age}" for one in entries]
    return repr((name, tags, role, age, height, is_new, born and born.isoformat(), output, near, network, either))


@tool(Effect.READ, structured=True)
def count(number: int) -> Counted:
    """Count."""
    return Counted(count=number)


@tool(Effect.READ)
def fail(kind: Literal["foreseen", "bug", "surrogate"]) -> str:
    """Fail."""
    if kind == "foreseen":
        raise NotFound("nothing \x1b[31mhere", where="there")
    if kind == "bug":
        raise RuntimeError("the reason stays inside")
    return "a\udcffb \x1b]0;title\x07"


@tool(Effect.READ)
def picture() -> Image:
    """Draw."""
    return Image(b"123", "image/png")


@tool(Effect.READ)
@asks("word", "pick", "picks", "sure", "secret", "shape", "where")
async def ask(about: Literal["word", "pick", "picks", "sure", "secret", "shape", "where"], call: Call) -> str:
    """Ask one thing."""
    questions: dict[str, Any] = {
        "word": AskText(key="word", message="Which word", default="none"),
        "pick": AskChoice(key="pick", message="Which one", choices=("red", "green", "blue")),
        "picks": AskChoices(key="picks", message="Which ones", choices=("red", "green", "blue"), at_least=1),
        "sure": AskConfirmation(key="sure", message="Are you sure"),
        "secret": AskSecret(key="secret", message="Say it"),
        "shape": AskForm(key="shape", message="Which shape", model=Shape),
        "where": AskRoots(key="where"),
    }
    return f"{about}: {await call.ask(questions[about])!r}"


@tool(Effect.READ)
async def walk(steps: int, call: Call) -> str:
    """Say how far it is."""
    for step in range(steps):
        await call.progress(step + 1, steps, "walking [bold]")
        await call.log("warning" if step else "info", f"step {step}")
    return f"walked; elicitation: {call.has_capability('elicitation')}, sampling: {call.has_capability('sampling')}"


@tool(Effect.READ)
async def wait(call: Call) -> str:
    """Wait for ever."""
    await call.log("warning", "waiting")
    await anyio.sleep_forever()
    return "never"


@tool(Effect.READ)
@raw_schema({"type": "object", "properties": {"maxDepth": {"type": "integer"}, "any": {}}, "required": ["maxDepth"]})
def raw(arguments: dict[str, object]) -> str:
    """Take what a schema says."""
    return repr(arguments)


@tool(Effect.READ)
@channels("command-line", "repl")
def for_people() -> str:
    """No agent sees this."""
    return "hello, person"


@tool(Effect.READ)
@hidden
def back_door() -> str:
    """In no list."""
    return "come in"


@resource("contacts://all")
def everyone() -> str:
    """All contacts."""
    return "all"


@prompt()
def letter(to: str) -> str:
    """Write a letter."""
    return f"Write to {to}"


def registry() -> Registry:
    found = Registry()
    found.context("contact", summary="people one knows", details="Kept nowhere.")
    for function in (show, add, count, fail, picture, ask, walk, wait, raw, for_people, back_door, everyone, letter):
        found.add(function, "contacts", context=("contact",))
    return found


REGISTRY = registry()
"""For `--with`."""


def context(*, profile: str = "all", read_only: bool = False, ask: Any = "elicitation") -> CommandContext:
    selection = Selection(profile=profile, read_only=read_only)
    catalog = LiveCatalog(registry(), selection)
    return CommandContext(
        catalog=catalog, dispatcher=Dispatcher(threads=4), selection=selection, ask=ask, roots=("file:///work",)
    )


def runner(screen: TerminalCapabilities = QUIET, **given: Any) -> CommandRunner:
    return CommandRunner(context(**given), screen, stdin=lambda: "from a pipe")


async def run(line: str, screen: TerminalCapabilities = QUIET, **given: Any) -> int:
    """One line as it is typed."""
    found = runner(screen, **given)
    return await found.run(parse_line(found, words_of(line)))


async def _run_all(lines: list[str]) -> None:
    for line in lines:
        try:
            code = await run(line, TerminalCapabilities.of(os.environ))
        except CoreError as error:
            code = error.exit_code
        print(f"= {code}", flush=True)


if __name__ == "__main__":
    anyio.run(_run_all, sys.argv[1:])
