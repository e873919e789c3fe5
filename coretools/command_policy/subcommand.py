"""Values that describe what an argv starts: other programs, or code that cannot be judged."""

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

Words = tuple[str, ...]

UNKNOWN_FILE = -1
"""`OpaqueCode.word_index`: the program is named by a path, and tools or commands may have written that file."""

UNKNOWN_PROGRAM = -2
"""`OpaqueCode.word_index`: the program is not on the lists, so nobody knows what it starts."""

MAX_NAME_LENGTH = 256
"""Characters of a program name that are compared: one more than Linux allows in a file name (NAME_MAX)."""

_VERSION = re.compile(r"(?<=.)[-.]?[0-9]+$")
_START = re.compile(r"[a-z][a-z+_-]*[a-z+](?=[0-9.])")
"""The part before a version or variant: `perl5.36-x86_64-linux-gnu`, `python3-dbg` and `vim.basic` (Debian)."""
_WINDOWS = re.compile(r"\.(?:exe|com|cmd|bat)$")


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A program that another program starts."""

    argv: Words
    launcher: str
    """What starts it, for messages: `env`, `find -exec`."""
    has_unseen_words: bool = False
    """Whether more words follow that are not in the argv: they come from standard input or from file names."""
    is_guess: bool = False
    """Whether it may be a plain argument instead of a command. Only rules that refuse apply to a guess."""


@dataclass(frozen=True, slots=True)
class OpaqueCode:
    """Code that cannot be judged from the argv: a script, text for a shell, the files of a project."""

    reason: str
    word_index: int | None = None
    """Index, among the words after the program, of the word that brings the code. `UNKNOWN_FILE` or `UNKNOWN_PROGRAM`
    for the program itself, None when it is no single word."""


Finding = Subcommand | OpaqueCode


def program_names(program: str) -> tuple[str, ...]:
    """Return the names of a program, longest first: lower case, without directory, `.exe` and parts of the version.

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
