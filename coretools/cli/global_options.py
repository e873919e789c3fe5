"""The options of `coretools` itself, told apart from those of the command that is typed.

Before the first word of the command every option is coretools' own; behind it an option is the command's where the
command has one of that name. `--limit` behind it never is coretools' own: too many commands have one.
"""

import argparse
from collections.abc import Collection, Sequence
from typing import NoReturn

from coretools import __version__
from coretools.config.options import add_options
from coretools.errors import InvalidArguments


class OptionParser(argparse.ArgumentParser):
    """Says what is wrong with a line as every other error of the command line is said, in one sentence."""

    def error(self, message: str) -> NoReturn:
        """Refuse the line.

        Raises:
            InvalidArguments: always.
        """
        where = self.prog.removeprefix("coretools").strip()
        raise InvalidArguments(f"{where + ': ' if where else ''}{message}; `{self.prog} --help` says more")


def add_global_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides about roots and rights."""
    parser.add_argument(
        "--root", action="append", metavar="DIRECTORY[:ro]", help="what the tools may touch [the current directory]"
    )
    add_options(parser, profile="all", log_level="warning")


def add_registry_option(parser: argparse.ArgumentParser) -> None:
    """Add what names other people's commands."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="registries",
        metavar="MODULE:NAME",
        help="also the commands of a registry: a module that Python finds, or FILE.py:NAME (repeatable)",
    )


def global_parser() -> argparse.ArgumentParser:
    """Parser of the options alone, without any word."""
    parser = OptionParser(prog="coretools", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"coretools {__version__}")
    add_registry_option(parser)
    _add_line_options(parser)
    add_global_options(parser)
    return parser


def line_parser() -> argparse.ArgumentParser:
    """Parser of the options that say how one command is run: those of a line in the REPL."""
    parser = OptionParser(prog="coretools", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    _add_line_options(parser)
    return parser


def _add_line_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", "--help", action="store_true", dest="wants_help", help="say what there is")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--answer", action="append", default=[], metavar="KEY=VALUE", help="answer a question beforehand (repeatable)"
    )


def option_names(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Every option of a parser, and whether it takes a value."""
    return {name: action.nargs != 0 for name, action in parser._option_string_actions.items()}  # noqa: SLF001  # argparse has no public way to ask


def split_options(
    words: Sequence[str], options: dict[str, bool], *, behind: Collection[str]
) -> tuple[list[str], list[str]]:
    """The words of coretools' own options, and the rest in its order.

    `options` says of each whether it takes a value; `behind` are those that are taken behind the first word too.
    Behind `--` nothing is taken.
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
        if name not in options or (rest and name not in behind):
            rest.append(word)
            continue
        own.append(word)
        if options[name] and not equals:
            own += words[at : at + 1]
            at += 1
    return own, rest


LINE_OPTIONS = option_names(line_parser())
"""How one command is run, by name, and whether a value follows; the others are of the whole process."""
