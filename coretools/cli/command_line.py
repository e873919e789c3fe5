"""A command as it is typed, in a shell or in the REPL: found by its words, checked and run by the one dispatch.

No server and no protocol stand between: the SDK is not even loaded.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from coretools.app.assembly import Assembly
from coretools.cli.arguments import typed_arguments
from coretools.cli.call import CliCall
from coretools.cli.manual import command_page, context_page
from coretools.cli.routes import Found, Routes, leading, options_at
from coretools.cli.terminal import Screen, coloured, complain, escaped, put
from coretools.config.settings import AskMode, Settings
from coretools.errors import CoreError, InvalidArguments
from coretools.operations.arguments import ANSWERS
from coretools.operations.call import LOCAL
from coretools.operations.catalog import Selection
from coretools.operations.content import escape_surrogates
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.documentation import document_command
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Command

FAILED = 1
"""Exit code when the call worked and what it ran failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command as it was typed, without the options that are not its own."""

    words: Sequence[str]
    by_tool: bool = False
    """Whether the first word is the name of a tool and arguments may be `name=value`, as `coretools call` has it."""
    as_json: bool = False
    wants_help: bool = False
    answers: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What commands are run on."""

    catalog: LiveCatalog
    dispatcher: Dispatcher
    selection: Selection
    ask: AskMode = "elicitation"
    roots: tuple[str, ...] = ()
    """The directories worked on, as file URIs."""

    @classmethod
    def of(cls, assembly: Assembly, settings: Settings) -> "Bench":
        """That of our own tool sets."""
        roots = tuple(PurePath(root.path).as_uri() for root in assembly.roots)
        return cls(
            catalog=assembly.catalog,
            dispatcher=assembly.dispatcher,
            selection=assembly.selection,
            ask=settings.ask,
            roots=roots,
        )


class Desk:
    """Runs typed commands on a bench."""

    def __init__(
        self, bench: Bench, screen: Screen, *, stdin: Callable[[], str] | None = None, program: str = "coretools"
    ) -> None:
        """`stdin` reads standard input where that holds data; `program` stands before commands in help."""
        self.bench = bench
        self._screen = screen
        self._stdin = stdin
        self._program = program

    @property
    def routes(self) -> Routes:
        """The commands there are now."""
        return Routes(self.bench.catalog.registry, self.bench.selection)

    def option_names(self, words: Sequence[str]) -> frozenset[str]:
        """The options of the command that the words begin with."""
        return options_at(self.routes, words)

    async def run(self, line: Line) -> int:
        """Run one line and print what came of it.

        Returns:
            The exit code: by kind of failure.
        """
        words = line.words[:1] if line.by_tool else leading(line.words)
        try:
            if line.wants_help and not line.by_tool:
                return put(self.help(words))
            found = Found(self._tool(words[0]), {}, 1) if line.by_tool else self.routes.get(words)
            if line.wants_help:
                return put(command_page(document_command(found.command), program=self._program))
            arguments = self._arguments(found, line)
        except CoreError as error:
            return _refused(" ".join(words), error, as_json=line.as_json)
        return await self._dispatch(found.command, arguments, as_json=line.as_json)

    def help(self, words: Sequence[str]) -> str:
        """The page of a command or of a context.

        Raises:
            UnknownTool: the words are neither.
        """
        routes = self.routes
        found = routes.at(words)
        if found is None and routes.below(words):
            width = shutil.get_terminal_size((100, 24)).columns
            return context_page(routes, words, width, program=self._program)
        return command_page(document_command((found or routes.get(words)).command), program=self._program)

    def _tool(self, name: str) -> Command:
        return self.bench.catalog.command(LOCAL, name)

    def _arguments(self, found: Found, line: Line) -> dict[str, Any]:
        page = document_command(found.command)
        arguments = typed_arguments(
            page, found.in_route, line.words[found.count :], stdin=self._stdin, has_names=line.by_tool
        )
        if line.answers and not page.asks:
            raise InvalidArguments(f"{page.words}: it asks nothing, so --answer has no use")
        return {**arguments, ANSWERS: answers_of(line.answers)} if line.answers else arguments

    async def _dispatch(self, command: Command, arguments: Mapping[str, Any], *, as_json: bool) -> int:
        bench = self.bench
        call = CliCall(self._screen, bench.ask, bench.roots)
        try:
            command = bench.catalog.require_registered(command)
            outcome = await bench.dispatcher.dispatch(command, arguments, call)
        except CoreError as error:
            return _refused(command.name, error, as_json=as_json)
        finally:
            call.close()
        return self._shown(command, outcome, as_json=as_json)

    def _shown(self, command: Command, outcome: Outcome, *, as_json: bool) -> int:
        unprinted = 0
        if as_json:
            unprinted = put(outcome_json(command.name, outcome))
        elif outcome.error is not None:
            complain(escaped(outcome.text))
        else:
            unprinted = put(self._on_screen(command.name, outcome.text))
        if outcome.error is not None:
            return outcome.error.exit_code
        return FAILED if outcome.failed else unprinted

    def _on_screen(self, name: str, text: str) -> str:
        text = escape_surrogates(text)
        if not self._screen.shows_results:
            return text
        text = escaped(text)
        return coloured(name, text) if self._screen.has_colours else text


def answers_of(words: Sequence[str]) -> dict[str, Any]:
    """What `--answer KEY=VALUE` gives; `KEY:=JSON` for what text can't say; a key given twice is a list.

    Raises:
        InvalidArguments: a word that is neither.
    """
    answers: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise InvalidArguments(f"--answer {word}: write KEY=VALUE or KEY:=JSON")
        value: Any = text
        if key.endswith(":"):
            key = key[:-1]
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InvalidArguments(f"--answer {word[:100]}: the value must be JSON: {error}") from None
        if key in answers:
            before = answers[key]
            value = [*(before if isinstance(before, list) else [before]), value]
        answers[key] = value
    return answers


def outcome_json(name: str, outcome: Outcome) -> str:
    """A result for programs, in a fixed shape whatever the command."""
    kind = outcome.error.kind if outcome.error else None
    shape = {
        "tool": name,
        "ok": kind is None and not outcome.failed,
        "text": escape_surrogates(outcome.text),
        "data": escape_surrogates(outcome.data),
        "facts": escape_surrogates(outcome.facts),
        "error": kind,
    }
    return json.dumps(shape, ensure_ascii=False, indent=2)


def read_stdin() -> str:
    """All of standard input."""
    return sys.stdin.read()


def _refused(name: str, error: CoreError, *, as_json: bool) -> int:
    """A command that did not come to run."""
    if as_json:
        put(outcome_json(name, Outcome(text=str(error), facts=error.facts, error=error)))
    else:
        complain(escaped(str(error)))
    return error.exit_code
