"""Global options, separated from those of a command (docs/specs/cli.md)."""

import os
from pathlib import Path

import pytest

from coretools.app.assembly import open_assembly
from coretools.cli.common.global_options import LINE_OPTIONS, global_parser, option_names, split_options
from coretools.cli.common.routes import Routes, options_at
from coretools.config.settings import Settings
from coretools.operations.catalog import Selection

NAMES = option_names(global_parser())
BEHIND = frozenset(NAMES) - {"--limit"}


@pytest.mark.parametrize(
    ("line", "own", "rest"),
    [
        ("git log", "", "git log"),
        ("--root /x git log", "--root /x", "git log"),
        ("--root=/x git log", "--root=/x", "git log"),
        ("git log --root /x --limit 5", "--root /x", "git log --limit 5"),
        ("--limit runs=5 git log --limit 5", "--limit runs=5", "git log --limit 5"),
        ("git --read-only log --json", "--read-only --json", "git log"),
        ("git log --unknown --root", "--root", "git log --unknown"),
        ("git log -- --root /x", "", "git log -- --root /x"),
        ("git log --path=--root", "", "git log --path=--root"),
        ("-h", "-h", ""),
        ("", "", ""),
        ("--roo x", "", "--roo x"),
    ],
)
def test_global_options_are_taken_out_of_a_line(line: str, own: str, rest: str) -> None:
    """cli-12: before the command all of them, behind it those that hardly any command has."""
    assert split_options(line.split(), NAMES, after_command=BEHIND) == (own.split(), rest.split())


def test_behind_the_first_word_only_named_options_are_taken() -> None:
    """cli-12: an option that the command declares is the command's."""
    words = ["--network", "deny", "send", "--network", "x"]
    assert split_options(words, NAMES, after_command=BEHIND - {"--network"}) == (words[:2], words[2:])


async def test_no_command_of_ours_declares_an_option_that_is_taken_behind_it(tmp_path: Path) -> None:
    """cli-12: it could not be typed."""
    async with open_assembly(Settings(roots=(str(tmp_path),)), dict(os.environ)) as assembly:
        routes = Routes(assembly.catalog.registry, Selection(profile="all"))
        clashes = {command.name: options_at(routes, command.route) & BEHIND for command in routes.below(())}
    assert {name: options for name, options in clashes.items() if options} == {}


def test_every_option_of_a_server_is_a_global_option() -> None:
    """cli-12: roots and rights are chosen as for `coretools call`; those of one line are among them."""
    assert {"--root", "--profile", "--read-only", "--policy", "--network", "--log-level", "--ask"} <= NAMES.keys()
    assert NAMES.keys() >= LINE_OPTIONS.keys()
    assert (NAMES["--root"], NAMES["--read-only"], NAMES["--help"], NAMES["--answer"]) == (True, False, False, True)
