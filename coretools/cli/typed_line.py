"""`coretools WORDS ...`: from the words of a shell to one command, on an assembly that lives as long as it."""

import argparse
import os
from collections.abc import Sequence

from coretools.app.assembly import assembled
from coretools.cli.command_line import Bench, Desk, Line, read_stdin
from coretools.cli.completion import Candidate, candidates, of_built_in
from coretools.cli.manual import WIDTH, overview
from coretools.cli.own_options import Parser, add_with, divided, option_names, own_parser
from coretools.cli.routes import Routes, options_at
from coretools.cli.terminal import Screen, complain, escaped, put
from coretools.config.flags import settings_from, working_directory
from coretools.config.logs import configure_logging
from coretools.errors import CoreError
from coretools.operations.call import LOCAL
from coretools.operations.catalog import EVERYTHING
from coretools.operations.loading import load
from coretools.operations.registry import Registry
from coretools.process.jobs.job_table import JobTable
from coretools.protocol.process_exit import Ending, until_signalled

CALL = "call"
"""First word of a line that names a tool, instead of words of its route."""

FRONT_ONLY = frozenset({"--limit", "--version", "--with"})
"""Options of coretools that stand before a command only."""


_HINT = "`coretools WORDS --help` says more; `coretools call --help` has the options for roots and rights."


async def run_typed(own: Sequence[str], rest: Sequence[str], introduction: str) -> int:
    """Run the command that `rest` is; `own` are coretools' options before it. `introduction` begins the help of all.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    options, words = read_options(own, rest)
    by_tool = words[:1] == [CALL]
    settings = settings_from(options, options.root or (), os.environ, working_directory())
    configure_logging(settings.log_level, os.environ)
    ending = Ending()
    exit_code = 0
    others = registries_in(own)
    async with assembled(settings, dict(os.environ), others) as assembly, until_signalled(ending):
        desk = Desk(Bench.of(assembly, settings), Screen.of(os.environ), stdin=read_stdin)
        if not words:
            return put(f"{introduction}\n\n{overview(desk.routes, (), WIDTH)}\n\n{_HINT}")
        line = Line(
            words=words[1:] if by_tool else words,
            by_tool=by_tool,
            as_json=options.json,
            wants_help=options.wants_help,
            answers=options.answer,
        )
        exit_code = await desk.run(line)
        _warn_of_runs(assembly.runs)
    return ending.exit_code or exit_code


def read_options(own: Sequence[str], rest: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Coretools' options, before the command and behind it, and the words of the command with its own options.

    Our own commands have no option of such a name (a test sees to it); other people's may, and then it is theirs.
    Behind `call TOOL` every option of such a name is coretools': there an argument can be `name=value`.
    """
    parser = own_parser()
    names = option_names(parser)
    if rest[:1] == [CALL]:
        more, words = divided(rest, names, behind=names)
        return parser.parse_args([*own, *more]), words
    behind = frozenset(names) - FRONT_ONLY
    words = divided(rest, names, behind=behind)[1]
    theirs = [options_at(Routes(registry, EVERYTHING), words) for registry in registries_in(own)]
    more, words = divided(rest, names, behind=behind.difference(*theirs))
    return parser.parse_args([*own, *more]), words


def registries_in(own: Sequence[str]) -> list[Registry]:
    """The registries that `--with` names among coretools' options before the command.

    Raises:
        BadSetting: there is no such registry.
    """
    parser = Parser(prog="coretools", add_help=False, allow_abbrev=False)
    add_with(parser)
    return [load(text) for text in parser.parse_known_args(own)[0].registries]


async def complete_typed(words: Sequence[str], built_in: Sequence[str]) -> int:
    """Print what the last word could be, a line each with what is said of it; nothing where that can't be told."""
    typed = list(words[1:] if words[:1] == ["--"] else words) or [""]
    own, rest = divided(typed[:-1], option_names(own_parser()), behind=())
    if rest[:1] and rest[0] in built_in:
        return put_candidates(of_built_in(rest, typed[-1]))
    try:
        options, before = read_options(own, rest)
        settings = settings_from(options, options.root or (), os.environ, working_directory())
        async with assembled(settings, dict(os.environ), registries_in(own)) as assembly:
            found = await candidates(Bench.of(assembly, settings), before, typed[-1])
    except (CoreError, SystemExit):  # half a line need not be a right one
        return 0
    own_words = [Candidate(word, "") for word in built_in if not rest and word.startswith(typed[-1])]
    return put_candidates([*found, *own_words])


def put_candidates(found: Sequence[Candidate]) -> int:
    """Print them for a shell."""
    lines = [f"{escaped(one.text)}\t{' '.join(escaped(one.said).split())}" for one in found if "\n" not in one.text]
    return put("\n".join(lines)) if lines else 0


def _warn_of_runs(runs: JobTable) -> None:
    for run in runs.of(LOCAL):
        if run.is_alive:
            complain(f"{run.id} still ran and is stopped: a run ends with the process that started it, which ends now")
