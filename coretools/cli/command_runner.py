"""Run a typed command, from a shell or the REPL: find it by its words, then check and run it through the dispatcher.

Neither a server nor the protocol is involved; the SDK is not loaded.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from coretools.cli.common.arguments import NAMED, parse_arguments, read_source
from coretools.cli.common.call import CliCall
from coretools.cli.common.colours import colour_result
from coretools.cli.common.manual import command_page, context_page
from coretools.cli.common.routes import RouteMatch, Routes, leading_words, options_at
from coretools.cli.common.terminal import TerminalCapabilities, for_terminal, print_error, print_text
from coretools.config.settings import AskMode, Settings
from coretools.errors import CoreError, InternalFailure, InvalidArguments
from coretools.operations.argument_words import split_word
from coretools.operations.arguments import ANSWERS
from coretools.operations.catalog import Selection
from coretools.operations.command import Command
from coretools.operations.content import escape_surrogates
from coretools.operations.declare import Channel
from coretools.operations.dispatch import Dispatcher, Outcome
from coretools.operations.documentation import CommandPage, document_command
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.route import VARIABLE
from coretools.operations.session_state import SessionState
from coretools.redaction.redactor import Redactor, secret_values

if TYPE_CHECKING:
    from coretools.app.assembly import Assembly

FAILED = 1
"""Exit code when the call succeeded but what it ran failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """One typed command, without coretools' own options."""

    words: Sequence[str]
    by_tool: bool = False
    """Whether the first word is a tool name and arguments may be `name=value`, as in `coretools call`."""
    as_json: bool = False
    wants_help: bool = False
    answers: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """What typed commands run with: catalog, dispatcher, settings."""

    catalog: LiveCatalog
    dispatcher: Dispatcher
    selection: Selection
    ask: AskMode = "elicitation"
    roots: tuple[str, ...] = ()
    """The root directories, as file URIs."""
    channel: Channel = "command-line"
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Starts what the commands share, before one runs."""

    @classmethod
    def of(cls, assembly: "Assembly", settings: Settings, channel: Channel = "command-line") -> "CommandContext":
        """Return the context of the built-in tool sets."""
        roots = tuple(PurePath(root.path).as_uri() for root in assembly.roots)
        return cls(
            catalog=assembly.catalog,
            dispatcher=assembly.dispatcher,
            selection=assembly.selection,
            ask=settings.ask,
            roots=roots,
            channel=channel,
        )


class CommandRunner:
    """Runs typed commands in a context."""

    def __init__(
        self,
        context: CommandContext,
        terminal: TerminalCapabilities,
        *,
        stdin: Callable[[], str] | None = None,
        program: str = "coretools",
        traceback_hint: str | None = None,
    ) -> None:
        """`stdin` reads standard input, if it holds data; `program` precedes commands in help.

        `traceback_hint` ends the message of an internal error, which then has the text of the exception. None: that
        stays in the log.
        """
        self.context = context
        self._terminal = terminal
        self._stdin = stdin
        self._program = program
        self._traceback_hint = traceback_hint
        # A REPL is a session: its lines share what commands keep.
        self._state = SessionState() if context.channel == "repl" else None

    @property
    def routes(self) -> Routes:
        """The commands available now."""
        return Routes(self.context.catalog.registry, self.context.selection, self.context.channel)

    def option_names(self, words: Sequence[str]) -> frozenset[str]:
        """Return the options of the command at the start of the words."""
        return options_at(self.routes, words)

    async def run(self, line: CommandLine) -> int:
        """Run one line and print the result.

        Returns:
            The exit code for the kind of failure, or 0.
        """
        words = line.words[:1] if line.by_tool else leading_words(line.words)
        try:
            if line.wants_help and not line.by_tool:
                return print_text(self.help(words))
            match = RouteMatch(self._tool(words[0]), {}, 1) if line.by_tool else self.routes.get(words)
            if line.wants_help:
                return print_text(command_page(document_command(match.command), program=self._program))
            page = _page(match, words)
            arguments = self._arguments(match, page, line)
        except CoreError as error:
            return _report_error(" ".join(words), error, as_json=line.as_json)
        return await self._dispatch(match.command, page.words, arguments, as_json=line.as_json)

    def help(self, words: Sequence[str]) -> str:
        """Return the help page of a command or of a context.

        Raises:
            UnknownTool: the words name neither.
        """
        routes = self.routes
        match = routes.at(words)
        if match is None and routes.below(words):
            width = shutil.get_terminal_size((100, 24)).columns
            return context_page(routes, words, width, program=self._program)
        return command_page(document_command((match or routes.get(words)).command), program=self._program)

    def _tool(self, name: str) -> Command:
        return self.context.catalog.command(name)

    def _arguments(self, match: RouteMatch, page: CommandPage, line: CommandLine) -> dict[str, Any]:
        words = line.words[match.count :]
        if match.command.declaration.is_foreign and words and all(map(NAMED.match, words)):
            return self._foreign_arguments(match.command, words)
        arguments = parse_arguments(
            page,
            match.route_values,
            words,
            stdin=self._stdin,
            has_names=line.by_tool or match.command.declaration.is_foreign,
        )
        if line.answers and not page.asks:
            raise InvalidArguments(f"{page.words}: it asks no question; leave out --answer")
        answers = answers_of(line.answers)
        unknown = next((key for key in answers if key not in page.asks), None)
        if unknown is not None:
            raise InvalidArguments(f"{page.words}: --answer {unknown}: it asks for {', '.join(page.asks)}")
        return {**arguments, ANSWERS: answers} if answers else arguments

    def _foreign_arguments(self, command: Command, words: Sequence[str]) -> dict[str, Any]:
        """Parse `name=value` as `coretools mcp call` does: the schema need not list every argument."""
        from coretools.client.common.arguments import (
            parse_arguments as parse_named,  # imported late: only these need it
        )

        return parse_named(words, command.arguments.schema(), lambda path: read_source(command.name, path, self._stdin))

    async def _dispatch(self, command: Command, typed: str, arguments: Mapping[str, Any], *, as_json: bool) -> int:
        context = self.context
        call = CliCall(self._terminal, context.ask, context.roots, channel=context.channel, state=self._state)
        try:
            command = context.catalog.require_registered(command)
            async with context.running():
                # Under the words that were typed, which its errors and questions then name.
                outcome = await context.dispatcher.dispatch(replace(command, name=typed), arguments, call)
                call.close()
                if isinstance(outcome.error, InternalFailure) and self._traceback_hint is not None:
                    reason = Redactor(secret_values(os.environ)).text(outcome.error.reason)
                    outcome = replace(outcome, text=f"{typed}: internal error: {reason}{self._traceback_hint}")
                # Before what the commands share is closed: that may fail, or take long.
                exit_code = self._print_outcome(command, outcome, as_json=as_json)
        except CoreError as error:
            return _report_error(typed, error, as_json=as_json)
        finally:
            call.close()
        return exit_code

    def _print_outcome(self, command: Command, outcome: Outcome, *, as_json: bool) -> int:
        print_failure = 0
        if as_json:
            print_failure = print_text(outcome_json(command.name, outcome))
        elif outcome.error is not None:
            print_error(_escaped(command, outcome.text))
        else:
            print_failure = print_text(self._for_terminal(command, outcome.text))
        if outcome.error is not None:
            return outcome.error.exit_code
        return FAILED if outcome.failed else print_failure

    def _for_terminal(self, command: Command, text: str) -> str:
        text = escape_surrogates(text)
        if not self._terminal.is_stdout_terminal and not command.declaration.is_foreign:
            return text
        text = _escaped(command, text)
        return colour_result(command.name, text) if self._terminal.has_colours else text


def _page(match: RouteMatch, words: Sequence[str]) -> CommandPage:
    """Return the page of a command with the words by which it was called."""
    page = document_command(match.command)
    typed = [
        expected if VARIABLE.fullmatch(expected) else word for expected, word in zip(page.route, words, strict=False)
    ]
    return replace(page, route=(*typed[: match.count], *page.route[match.count :]))


def _escaped(command: Command, text: str) -> str:
    """Escape what would control the terminal; of another server also what reorders text, in a pipe too."""
    if command.declaration.is_foreign:
        from coretools.cli.mcp.output import visible  # imported late: loads the SDK's types

        return visible(text)
    return for_terminal(text)


def answers_of(words: Sequence[str]) -> dict[str, Any]:
    """Parse the values of `--answer`: `KEY=VALUE`, or `KEY:=JSON` for other types. A repeated key makes a list.

    Raises:
        InvalidArguments: a value has neither form.
    """
    answers: dict[str, Any] = {}
    for word in words:
        key, form, text = split_word(word)
        if text is None or not key or form == "@":
            raise InvalidArguments(f"--answer {word}: write KEY=VALUE or KEY:=JSON")
        value: Any = text
        if form == ":":
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
    """Return an outcome as JSON with the same members for every command."""
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
    """Read all of standard input."""
    return sys.stdin.read()


def _report_error(name: str, error: CoreError, *, as_json: bool) -> int:
    """Print the error of a command that could not be run; return its exit code."""
    if as_json:
        print_text(outcome_json(name, Outcome(text=str(error), facts=error.facts, error=error)))
    else:
        print_error(for_terminal(str(error)))
    return error.exit_code
