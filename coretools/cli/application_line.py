"""The command line of an application: its own name, help, version, completion and REPL, and none of our commands.

    NAME WORDS [options]             run a command by its route
    NAME repl                        run commands line by line
    NAME serve                       serve the commands to agents, on the standard streams
    NAME completion bash|zsh|fish    print a shell's completion script

A command of the application takes precedence over the last three.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

import anyio

from coretools.cli.application_log import LineLog, configure_log
from coretools.cli.command_runner import CommandContext, CommandLine, CommandRunner, read_stdin
from coretools.cli.common.candidates import Candidate, print_candidates
from coretools.cli.common.global_options import LINE_OPTIONS, OptionParser, line_parser, split_options
from coretools.cli.common.manual import WIDTH, overview
from coretools.cli.common.routes import Routes, options_at
from coretools.cli.common.terminal import TerminalCapabilities, print_error, print_text, program_named
from coretools.cli.completion import candidates
from coretools.cli.completion_scripts import SHELLS, script
from coretools.config.settings import AskMode
from coretools.errors import BadSetting, CoreError, InputOutput, InternalFailure, InvalidArguments
from coretools.operations.catalog import EVERYTHING
from coretools.operations.completion import require_sources
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.operations.server_info import ServerInfo
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal
from coretools.standard_fds import ensure_standard_error

COMPLETE = "__complete"
"""Called by the scripts of `completion`; not shown in help."""

TRACEBACK = "--traceback"

logger = logging.getLogger(__name__)

EXIT_CODES = """Exit codes: 0 success; 1 what was run failed; 64 wrong arguments; 65 wrong data; 66 not found;
69 something required is missing; 70 internal error; 73 already exists; 74 input or output failed; 75 try again;
77 not permitted; 78 wrong configuration; 128 plus the number of the signal that ended it."""


@dataclass(frozen=True, slots=True)
class ApplicationLine:
    """An application with a command line."""

    registry: Registry
    info: ServerInfo
    serve: Callable[[], int]
    """Serves its commands on the standard streams."""
    threads: int = 32
    """Plain `def` commands that run at once."""
    ask: AskMode = "elicitation"

    def run(self, words: Sequence[str] | None = None) -> int:
        """Run one command line; None: the arguments of this process. Return the exit code."""
        with program_named(self.info.name):
            return self._run_named(list(sys.argv[1:] if words is None else words))

    def _run_named(self, words: list[str]) -> int:
        ensure_standard_error()
        log = LineLog(os.environ)
        try:
            if sys.stdout is None:
                raise InputOutput("standard output is closed; nothing was run")
            if words == ["serve"] and not self._is_taken("serve"):
                return self.serve()  # which configures the log of a server
            configure_log(log, os.environ)
            return anyio.run(self._run, words, log)
        except CoreError as error:
            print_error(str(error))
            return error.exit_code
        except SystemExit as ended:  # --version, in argparse
            return ended.code if isinstance(ended.code, int) else 1
        except KeyboardInterrupt:
            return 128 + signal.SIGINT

    def _is_taken(self, word: str) -> bool:
        """Whether the word is a command, a context or a mounted server of the application."""
        routes = Routes(self.registry, EVERYTHING)
        mounted = {context[0] for context in self.registry.mounted.values() if context}
        return routes.at([word]) is not None or bool(routes.below([word])) or word in mounted

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Run the lifespan. Of one that fails the user gets a line, and the log the traceback."""
        try:
            async with self.registry.running():
                yield
        except (BadSetting, InternalFailure):
            logger.exception("the lifespan failed")
            raise

    async def _run(self, words: list[str], log: LineLog) -> int:
        self.registry.validate()
        require_sources(self.registry)
        # Commands of another server are known once it is connected.
        early = any(one.adds_commands for one in self.registry.applications)
        async with self.registry.running() if early else nullcontext():
            return await self._run_line(words, log)

    async def _run_line(self, words: list[str], log: LineLog) -> int:
        context = CommandContext(
            catalog=LiveCatalog(self.registry, EVERYTHING),
            dispatcher=Dispatcher(threads=self.threads),
            selection=EVERYTHING,
            ask=self.ask,
            running=self._running,
        )
        if words[:1] == [COMPLETE]:
            return await self._complete(context, words[1:])
        of_lines = {**LINE_OPTIONS, TRACEBACK: False}
        after_command = of_lines.keys() - options_at(Routes(self.registry, EVERYTHING), words)
        own, rest = split_options(words, {**of_lines, "--version": False}, after_command=after_command)
        options = _parser(self.info).parse_args(own)
        log.has_tracebacks = options.traceback
        runner = CommandRunner(
            context,
            TerminalCapabilities.of(os.environ),
            stdin=read_stdin,
            program=self.info.name,
            traceback_hint=log.hint(TRACEBACK),
        )
        if rest[:1] and rest[0].startswith("-"):
            raise InvalidArguments(f"{rest[0]}: no such option; `{self.info.name} --help` shows what there is")
        is_command = bool(rest) and (runner.routes.at(rest) is not None or bool(runner.routes.below(rest[:1])))
        if not rest or (options.wants_help and not is_command):
            return print_text(self._help(runner))
        line = CommandLine(words=rest, as_json=options.json, wants_help=options.wants_help, answers=options.answer)
        process_exit = ProcessExit()
        async with cancel_on_signal(process_exit):
            try:
                code = await (runner.run(line) if is_command else self._own(runner, line, log))
            except CoreError as error:  # here: out of the task group it would be within an ExceptionGroup
                print_error(str(error))
                code = error.exit_code
        return process_exit.exit_code or code

    async def _own(self, runner: CommandRunner, line: CommandLine, log: LineLog) -> int:
        """Run a line that names no command of the application."""
        match line.words:
            case ["repl"]:
                return 0 if sys.stdin is None else await self._repl(runner.context, log)
            case ["completion", shell] if shell in SHELLS:
                return print_text(script(shell, self.info.name))
            case ["repl" | "serve" as word, *_]:
                raise InvalidArguments(f"{word}: takes no arguments")
            case ["completion", *_]:
                raise InvalidArguments(f"completion: choose one of {', '.join(SHELLS)}")
            case _:
                return await runner.run(line)  # which says what comes close

    async def _repl(self, context: CommandContext, log: LineLog) -> int:
        # Imported late: only this needs them.
        from coretools.cli.read_loop import ReadLoop
        from coretools.cli.repl_lines import PipedLines, PromptedLines

        terminal = TerminalCapabilities.of(os.environ)
        # Without the name of the program: lines begin with the command, and so does the usage in help.
        runner = CommandRunner(
            replace(context, channel="repl"),
            terminal,
            program="",
            traceback_hint=log.hint(f"`{self.info.name} {TRACEBACK} repl`"),
        )
        async with context.running():
            if not terminal.can_ask:
                return await ReadLoop(runner, PipedLines(), has_servers=False).run()
            lines = PromptedLines(runner, os.environ, history=f"history-{self.info.name}")
            await ReadLoop(runner, lines, has_servers=False).run_interrupted()
        return 0

    async def _complete(self, context: CommandContext, words: Sequence[str]) -> int:
        typed = list(words[1:] if words[:1] == ["--"] else words) or [""]
        _, before = split_options(typed[:-1], LINE_OPTIONS, after_command=LINE_OPTIONS)
        if before == ["completion"]:
            return print_candidates([Candidate(shell, "") for shell in SHELLS if shell.startswith(typed[-1])])
        try:
            async with self.registry.running():
                found = await candidates(context, before, typed[-1])
        except CoreError:  # an unfinished line may be invalid
            return 0
        own_words = ("repl", "serve", "completion")
        own = [Candidate(word, "") for word in own_words if not before and word.startswith(typed[-1])]
        return print_candidates([*found, *own])

    def _help(self, runner: CommandRunner) -> str:
        name = self.info.name
        usage = [
            f"`{name} COMMAND --help` shows one of them. `{name} repl` runs commands line by line.",
            f"`{name} completion bash|zsh|fish` prints a shell's completion script. --version prints the version,",
            f"{TRACEBACK} where an internal error comes from.",
        ]
        if any(command.declaration.for_agents for command in self.registry) and not self._is_taken("serve"):
            usage.append(f"`{name} serve` is an MCP server of these commands for agents, on standard input and output.")
        commands = overview(runner.routes, (), WIDTH)
        parts = [
            f"usage: {name} COMMAND [options]",
            self.info.title,
            commands,
            "\n".join(usage),
            EXIT_CODES,
            self.info.website,
        ]
        return "\n\n".join(filter(None, parts))


def _parser(info: ServerInfo) -> argparse.ArgumentParser:
    parser = OptionParser(
        prog=info.name, parents=[line_parser()], add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS
    )
    parser.add_argument(TRACEBACK, action="store_true")
    parser.add_argument("--version", action="version", version=f"{info.name} {info.version}")
    return parser
