"""What an argv starts: the data that the readers of programs give back. Pure values."""

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

Words = tuple[str, ...]

UNKNOWN_FILE = -1
"""Carrier of code: the program is a file by a path that tools or commands may have written."""

UNKNOWN_PROGRAM = -2
"""Carrier of code: the name of the program is not among those of which it is known what they start."""

MAX_NAME_LENGTH = 256
"""Characters of a name that are looked at: one more than a file can have on Linux (NAME_MAX)."""

_VERSION = re.compile(r"(?<=.)[-.]?[0-9]+$")
_START = re.compile(r"[a-z][a-z+_-]*[a-z+](?=[0-9.])")
"""What stands before a version or a kind: `perl5.36-x86_64-linux-gnu`, `python3-dbg` and `vim.basic` (Debian)."""
_WINDOWS = re.compile(r"\.(?:exe|com|cmd|bat)$")


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A program that another one starts."""

    argv: Words
    by: str
    """What started it, for a reader: `env`, `find -exec`."""
    is_open: bool = False
    """More words follow that nobody sees here: they come from standard input or from file names."""
    is_guess: bool = False
    """It may be a command or a mere argument. Only rules that refuse are asked."""


@dataclass(frozen=True, slots=True)
class OpaqueCode:
    """Code that can't be judged: a script, a shell's text, what a project's files say."""

    why: str
    carrier: int | None = None
    """Index, in the words after the program, of the word that brings the code; `UNKNOWN_FILE` or `UNKNOWN_PROGRAM`: the
    program itself; None: no single word."""


Finding = Subcommand | OpaqueCode


def program_names(program: str) -> tuple[str, ...]:
    """The names a program goes by, the fullest first: no directory, no case, no `.exe`, less and less of a version.

    `/opt/bin/Python3.12` is `python3.12`, `python3` and `python`.
    """
    return _names(posixpath.basename(program.replace("\\", "/").strip())[:MAX_NAME_LENGTH])


@lru_cache(maxsize=4096)
def _names(name: str) -> tuple[str, ...]:
    names = [_WINDOWS.sub("", unicodedata.normalize("NFKC", name).casefold())]
    while (shorter := _VERSION.sub("", names[-1])) != names[-1]:
        names.append(shorter)
    if start := _START.match(names[0]):
        names.append(start[0])
    return tuple(dict.fromkeys(names))
