"""`coretools WORDS ...`: run one command given by the words of a shell, with an assembly of its own."""

import argparse
import os
from collections.abc import Callable, Sequence

from coretools.app.assembly import open_assembly
from coretools.cli.command_runner import CommandContext, CommandLine, CommandRunner, read_stdin
from coretools.cli.common.candidates import Candidate, print_candidates
from coretools.cli.common.global_options import global_parser, option_names, registries_named, split_options
from coretools.cli.common.manual import WIDTH, overview
from coretools.cli.common.routes import Routes, options_at
from coretools.cli.common.terminal import TerminalCapabilities, print_error, print_text
from coretools.cli.completion import built_in_candidates, candidates
from coretools.config.logs import configure_logging
from coretools.config.options import settings_from, working_directory
from coretools.errors import CoreError
from coretools.operations.call import LOCAL
from coretools.operations.catalog import EVERYTHING
from coretools.operations.loading import load
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal

CALL_BY_TOOL = "call"
"""First word of a line that gives a tool name instead of the words of a route."""

BEFORE_COMMAND_ONLY = frozenset({"--limit", "--version", "--with"})
"""coretools' own options that are accepted only before the command."""


async def run_command_line(own: Sequence[str], rest: Sequence[str], general_help: Callable[[str], str]) -> int:
    """Run the command in `rest`; `own` holds coretools' options before it. `general_help` makes the page without one.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    options, words = read_options(own, rest)
    by_tool = words[:1] == [CALL_BY_TOOL]
    settings = settings_from(options, options.root or (), os.environ, working_directory())
    configure_logging(settings.log_level, os.environ)
    process_exit = ProcessExit()
    exit_code = 0
    registries = [load(text) for text in options.registries]  # after `call` too, where every option has its meaning
    async with open_assembly(settings, dict(os.environ), registries) as assembly, cancel_on_signal(process_exit):
        runner = CommandRunner(
            CommandContext.of(assembly, settings), TerminalCapabilities.of(os.environ), stdin=read_stdin
        )
        if not words:
            return print_text(general_help(overview(runner.routes, (), WIDTH)))
        line = CommandLine(
            words=words[1:] if by_tool else words,
            by_tool=by_tool,
            as_json=options.json,
            wants_help=options.wants_help,
            answers=options.answer,
        )
        exit_code = await runner.run(line)
        for run in assembly.runs.of(LOCAL):
            if run.is_alive:
                print_error(f"{run.id} was still running and is stopped: a run ends with the process that started it")
    return process_exit.exit_code or exit_code


def read_options(own: Sequence[str], rest: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return coretools' own options, before and after the command, and the words of the command with its options.

    Built-in commands have no option with such a name (a test checks it). Commands of other registries may, and then it
    is theirs. After `call TOOL` such an option is always coretools': arguments can be given as `name=value` there.
    """
    parser = global_parser()
    names = option_names(parser)
    if rest[:1] == [CALL_BY_TOOL]:
        more, words = split_options(rest, names, after_command=names)
        return parser.parse_args([*own, *more]), words
    after_command = frozenset(names) - BEFORE_COMMAND_ONLY
    words = split_options(rest, names, after_command=after_command)[1]
    theirs = [options_at(Routes(registry, EVERYTHING), words) for registry in registries_in(own)]
    more, words = split_options(rest, names, after_command=after_command.difference(*theirs))
    return parser.parse_args([*own, *more]), words


def registries_in(own: Sequence[str]) -> list[Registry]:
    """Load the registries that `--with` names before the command.

    Raises:
        BadSetting: there is no such registry.
    """
    return [load(text) for text in registries_named(own)]


async def complete_command_line(words: Sequence[str], built_in: Sequence[str]) -> int:
    """Print completions of the last word, one per line with a description; nothing if the line can't be parsed."""
    typed = list(words[1:] if words[:1] == ["--"] else words) or [""]
    own, rest = split_options(typed[:-1], option_names(global_parser()), after_command=())
    if rest[:1] and rest[0] in built_in:
        return print_candidates(built_in_candidates(rest, typed[-1]))
    try:
        options, before = read_options(own, rest)
        settings = settings_from(options, options.root or (), os.environ, working_directory())
        async with open_assembly(settings, dict(os.environ), [load(text) for text in options.registries]) as assembly:
            following = await candidates(CommandContext.of(assembly, settings), before, typed[-1])
    except (CoreError, SystemExit):  # an unfinished line may be invalid
        return 0
    own_words = [Candidate(word, "") for word in built_in if not rest and word.startswith(typed[-1])]
    return print_candidates([*following, *own_words])
