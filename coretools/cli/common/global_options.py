"""Global options of `coretools`, and their separation from the options of the typed command.

Before the first word of the command every option is a global one. After it, an option belongs to the command if the
command has one of that name. `--limit` after it is never global: too many commands have one.
"""

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from coretools.cli.common.terminal import print_text, program_name
from coretools.config.options import add_options
from coretools.distribution import VERSION
from coretools.errors import InvalidArguments


class OptionParser(argparse.ArgumentParser):
    """Reports a wrong command line like every other error, in one sentence."""

    def error(self, message: str) -> NoReturn:
        """Reject the line.

        Raises:
            InvalidArguments: always.
        """
        where = self.prog.partition(" ")[2]
        raise InvalidArguments(f"{where + ': ' if where else ''}{message}; see `{self.prog} --help`")

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse prints all its pages here; `--help | head` is not a failure.
        if file is sys.stdout:
            print_text(message)
        else:
            super()._print_message(message, file)


def add_global_options(parser: argparse.ArgumentParser, *, profile: str = "all") -> None:
    """Add the options for roots and rights."""
    parser.add_argument(
        "--root", action="append", metavar="DIRECTORY[:ro]", help="what the tools may touch [the current directory]"
    )
    add_options(parser, profile=profile, log_level="warning")


def add_registry_option(
    parser: argparse.ArgumentParser, what: str = "also the commands of a registry: a module that Python finds"
) -> None:
    """Add the option that loads registries; `what` begins its help."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="registries",
        metavar="MODULE:NAME",
        help=f"{what}, or FILE.py:NAME (repeatable)",
    )


def registries_named(own: Sequence[str]) -> list[str]:
    """Return the values of `--with` among global options."""
    parser = OptionParser(prog="coretools", add_help=False, allow_abbrev=False)
    add_registry_option(parser)
    named: list[str] = parser.parse_known_args(own)[0].registries
    return named


def global_parser() -> argparse.ArgumentParser:
    """Return the parser of all global options, without a command."""
    parser = OptionParser(prog="coretools", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"coretools {VERSION}")
    add_registry_option(parser)
    _add_line_options(parser)
    add_global_options(parser)
    return parser


def line_parser() -> argparse.ArgumentParser:
    """Return the parser of the options for one command: those accepted on a line of the REPL."""
    parser = OptionParser(prog=program_name(), add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    _add_line_options(parser)
    return parser


def _add_line_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", "--help", action="store_true", dest="wants_help", help="show help")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--answer", action="append", default=[], metavar="KEY=VALUE", help="answer a question in advance (repeatable)"
    )


def option_names(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Return every option of a parser, and whether it takes a value."""
    return {name: action.nargs != 0 for name, action in parser._option_string_actions.items()}  # noqa: SLF001  # argparse has no public way to ask


def split_options(
    words: Sequence[str], options: dict[str, bool], *, after_command: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the words of the global options, and the rest in order.

    `options` maps each option to whether it takes a value; those in `after_command` also after the first word.
    Nothing is taken after `--`.
    """
    own: list[str] = []
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return own, [*rest, *words[at:]]
        name, equals, _ = word.partition("=")
        at += 1
        is_theirs = rest and (name not in after_command or (name == "--help" and equals))
        if name not in options or is_theirs:
            rest.append(word)
            continue
        own.append(word)
        if options[name] and not equals:
            own += words[at : at + 1]
            at += 1
    return own, rest


LINE_OPTIONS = option_names(line_parser())
"""Options for one command, and whether each takes a value; the others apply to the whole process."""
