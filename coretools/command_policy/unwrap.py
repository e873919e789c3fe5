"""Everything an argv starts, as far as its words tell: wrappers and options are seen through, in depth and in order.

Pure and bounded: what goes deeper or wider than any real command is reported as such, and refused by the policy.
"""

import posixpath
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from coretools.command_policy.flags import FLAGS, read_find, read_flags
from coretools.command_policy.git import read_git
from coretools.command_policy.programs import (
    AMBIGUOUS_WRAPPERS,
    COMPILER,
    INTERPRETERS,
    PROJECT_CODE,
    SELF_CONTAINED,
    read_awk,
    read_interpreter,
    read_project_code,
    read_sed,
)
from coretools.command_policy.subcommand import (
    UNKNOWN_FILE,
    UNKNOWN_PROGRAM,
    Finding,
    OpaqueCode,
    Subcommand,
    Words,
    program_names,
)
from coretools.command_policy.wrappers import WRAPPERS, read_ambiguous_wrapper, read_wrapper

MAX_DEPTH = 12
"""Programs behind each other. `sudo nice timeout 5 env A=b xargs sh` are six."""

MAX_PROGRAMS = 100
"""Programs in one argv, and in the words of one program."""

MAX_WORDS = 10_000
"""Of an argv. Linux would take more (execve(2)); the time to look grows with them."""

Reader = Callable[[str, Words], Iterator[Finding]]

_TABLES: tuple[tuple[Container[str], Reader], ...] = (
    (("git",), read_git),
    (("find",), read_find),
    (("awk", "gawk", "mawk", "nawk", "original-awk"), read_awk),
    (("sed", "ssed"), read_sed),
    (WRAPPERS, read_wrapper),
    (AMBIGUOUS_WRAPPERS, read_ambiguous_wrapper),
    (FLAGS, read_flags),
    (INTERPRETERS, read_interpreter),
    (PROJECT_CODE, read_project_code),
)

_CODE_READERS = (read_ambiguous_wrapper, read_interpreter, read_project_code)
"""Readers of programs that are code by their name, so that a wide match of the name is the cautious one."""

_SYSTEM_DIRECTORIES = (
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
    "/opt/homebrew/bin/",
)
"""Where programs are the machine's own. A program by any other path may be a file that a tool has written."""


@dataclass(frozen=True, slots=True)
class UnwrappedProgram:
    """A program that is started, and the code that can't be judged in its words."""

    started: Subcommand
    codes: tuple[OpaqueCode, ...]
    chain: tuple[str, ...]
    """What started it, outermost first; empty for the argv itself."""


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    """All that an argv starts, outermost first."""

    seen: tuple[UnwrappedProgram, ...]
    is_whole: bool
    """False when it goes deeper or wider than is looked."""


def unwrap(argv: Words) -> UnwrappedCommand:
    """What `argv` starts, itself first."""
    if len(argv) > MAX_WORDS:
        return UnwrappedCommand((UnwrappedProgram(Subcommand(argv, ""), (), ()),), is_whole=False)
    seen: list[UnwrappedProgram] = []
    waiting: deque[tuple[Subcommand, tuple[str, ...]]] = deque([(Subcommand(argv, ""), ())])
    known = {waiting[0][0]}
    firm = 1
    is_whole = True
    while waiting:
        started, chain = waiting.popleft()
        codes, inner, is_read = _read_subcommand(started)
        is_whole = is_whole and is_read
        seen.append(UnwrappedProgram(started, codes, chain))
        new = [item for item in inner if item not in known]
        firm += sum(not item.is_guess for item in new)
        if len(chain) >= MAX_DEPTH or firm > MAX_PROGRAMS:
            is_whole = is_whole and not new
            continue
        known.update(new)
        waiting.extend((item, (*chain, item.by)) for item in new)
    return UnwrappedCommand(tuple(seen), is_whole)


def readers_of(program: str) -> tuple[tuple[str, Reader], ...]:
    """How the words of a program are read, and the name that it is read by; empty when it is not known to start any."""
    return _readers(program_names(program))


def is_known(program: str) -> bool:
    """Whether it is known what a program of this name starts: nothing, what its words say, or code.

    The name counts as it stands. `cat2` is not `cat`, where a rule that refuses `cat` would mean both.
    """
    name = posixpath.basename(program)
    if name in SELF_CONTAINED or COMPILER.fullmatch(name):
        return True
    return any(known == name or reader in _CODE_READERS for known, reader in readers_of(program))


@lru_cache(maxsize=1024)
def _readers(names: tuple[str, ...]) -> tuple[tuple[str, Reader], ...]:
    # GNU's programs have a g before their name where the system has others of that name (`gxargs` on macOS).
    names += tuple(name[1:] for name in names if name.startswith("g") and len(name) > 2)
    # Compilers for one machine: x86_64-linux-gnu-gcc-12.
    names += tuple(last for name in names if (last := name.rpartition("-")[2]) in FLAGS)
    for name in names:
        found = tuple((name, reader) for known, reader in _TABLES if name in known)
        if found:
            return found
    return ((names[0], read_ambiguous_wrapper),) if names[0].startswith(("ld-", "ld.so", "qemu-", "git-")) else ()


def _read_subcommand(started: Subcommand) -> tuple[tuple[OpaqueCode, ...], tuple[Subcommand, ...], bool]:
    """The code in the words of a program, the other programs that it starts, each once, and whether that is all."""
    found = tuple(_findings(started))
    is_whole = sum(isinstance(item, OpaqueCode) or not item.is_guess for item in found) <= MAX_PROGRAMS
    inner = [
        # What a guess leads to is a guess as well, and what follows an open end is open.
        replace(item, is_open=item.is_open or started.is_open, is_guess=item.is_guess or started.is_guess)
        for item in found
        if isinstance(item, Subcommand) and item.argv and item.argv[0]
    ]
    return tuple(item for item in found if isinstance(item, OpaqueCode)), tuple(dict.fromkeys(inner)), is_whole


def _findings(started: Subcommand) -> Iterator[Finding]:
    program, words = started.argv[0], started.argv[1:]
    readers = readers_of(program)
    if "/" in program and not _is_system_path(program):
        yield OpaqueCode(f"{program} is a file by its path, which may be anything", UNKNOWN_FILE)
    elif not is_known(program):
        yield OpaqueCode(f"{program} is not in the list of programs that start no others", UNKNOWN_PROGRAM)
    for name, reader in readers:
        if reader is read_wrapper:
            yield from reader(name, words)
        elif reader is not read_ambiguous_wrapper:
            yield from islice(reader(name, words), MAX_PROGRAMS + 1)
        elif not started.is_guess:  # each word of a guess is one itself
            yield from reader(name, words)
    if readers and started.is_open:
        yield OpaqueCode(f"words that come from elsewhere may make {readers[0][0]} start anything", None)


def _is_system_path(program: str) -> bool:
    return f"{posixpath.dirname(program)}/" in _SYSTEM_DIRECTORIES and program == posixpath.normpath(program)
