"""Find every program that an argv starts, through wrappers and options, as far as its words tell.

Pure and bounded. A command that nests deeper or starts more programs than any real one is reported as incomplete, and
the policy refuses it.
"""

import posixpath
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from coretools.command_policy.flags import FLAGS, read_find, read_flags
from coretools.command_policy.git import read_dashed_git, read_git
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
"""Programs nested in each other. `sudo nice timeout 5 env A=b xargs sh` has six."""

MAX_PROGRAMS = 100
"""Programs in one argv, and in the words of one program."""

MAX_WORDS = 10_000
"""Words of an argv. Linux accepts more (execve(2)), but the time to unwrap grows with them."""

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
"""Readers of programs that count as code by name; for these the wide match of a name is the safe one."""

_SYSTEM_DIRECTORIES = frozenset(
    ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/", "/opt/homebrew/bin/")
)
"""Directories of the system's programs. A program at any other path may be a file that a tool has written."""


@dataclass(frozen=True, slots=True)
class UnwrappedProgram:
    """A program that is started, with the code in its words that cannot be judged."""

    subcommand: Subcommand
    opaque_code: tuple[OpaqueCode, ...]
    chain: tuple[str, ...]
    """The programs that start it, outermost first; empty for the argv itself."""


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    """All programs that an argv starts, outermost first."""

    programs: tuple[UnwrappedProgram, ...]
    is_complete: bool
    """False when the argv exceeds one of the limits."""


def unwrap(first: Subcommand) -> UnwrappedCommand:
    """Return everything that a command starts, itself first."""
    if len(first.argv) > MAX_WORDS:
        return UnwrappedCommand((UnwrappedProgram(first, (), ()),), is_complete=False)
    programs: list[UnwrappedProgram] = []
    pending: deque[tuple[Subcommand, tuple[str, ...]]] = deque([(first, ())])
    known = {pending[0][0]}
    certain_programs = 1
    is_complete = True
    while pending:
        subcommand, chain = pending.popleft()
        opaque_code, inner, is_read_completely = _read_subcommand(subcommand)
        is_complete = is_complete and is_read_completely
        programs.append(UnwrappedProgram(subcommand, opaque_code, chain))
        new = [item for item in inner if item not in known]
        certain_programs += sum(not item.is_guess for item in new)
        if len(chain) >= MAX_DEPTH or certain_programs > MAX_PROGRAMS:
            is_complete = is_complete and not new
            continue
        known.update(new)
        pending.extend((item, (*chain, item.launcher)) for item in new)
    return UnwrappedCommand(tuple(programs), is_complete)


def readers_of(program: str) -> tuple[tuple[str, Reader], ...]:
    """Return the readers for a program's words, each with the known name; empty when it starts no other program."""
    return _readers(program_names(program))


def is_wrapper(program: str) -> bool:
    """Whether a program starts the command in its words."""
    return any(reader in (read_wrapper, read_ambiguous_wrapper) for _, reader in readers_of(program))


def is_known(program: str) -> bool:
    """Whether the lists say what a program of this name starts: nothing, what its words name, or code.

    The name must match exactly: `cat2` is not `cat`, although a rule that refuses `cat` covers both.
    """
    name = posixpath.basename(program)
    if name in SELF_CONTAINED or COMPILER.fullmatch(name):
        return True
    return any(known == name or reader in _CODE_READERS for known, reader in readers_of(program))


@lru_cache(maxsize=1024)
def _readers(names: tuple[str, ...]) -> tuple[tuple[str, Reader], ...]:
    # GNU programs have the prefix g where the system has its own of that name (`gxargs` on macOS).
    names += tuple(name[1:] for name in names if name.startswith("g") and len(name) > 2)
    # Cross compilers: x86_64-linux-gnu-gcc-12.
    names += tuple(last for name in names if (last := name.rpartition("-")[2]) in FLAGS)
    for name in names:
        readers = tuple((name, reader) for known, reader in _TABLES if name in known)
        if readers:
            return readers
    if names[0].startswith("git-"):
        return ((names[0], read_dashed_git), (names[0], read_ambiguous_wrapper))
    return ((names[0], read_ambiguous_wrapper),) if names[0].startswith(("ld-", "ld.so", "qemu-")) else ()


def _read_subcommand(subcommand: Subcommand) -> tuple[tuple[OpaqueCode, ...], tuple[Subcommand, ...], bool]:
    """Return the code in a program's words, the programs that it starts, each once, and whether that is complete."""
    findings = tuple(_findings(subcommand))
    is_complete = sum(isinstance(item, OpaqueCode) or not item.is_guess for item in findings) <= MAX_PROGRAMS
    inner = [
        # What a guess starts is a guess too, and unseen words may also reach the programs further in.
        replace(
            item,
            has_unseen_words=item.has_unseen_words or subcommand.has_unseen_words,
            is_guess=item.is_guess or subcommand.is_guess,
        )
        for item in findings
        if isinstance(item, Subcommand) and item.argv and item.argv[0]
    ]
    return tuple(item for item in findings if isinstance(item, OpaqueCode)), tuple(dict.fromkeys(inner)), is_complete


def _findings(subcommand: Subcommand) -> Iterator[Finding]:
    program, words = subcommand.argv[0], subcommand.argv[1:]
    readers = readers_of(program)
    if "/" in program and not _is_system_path(program):
        yield OpaqueCode(f"{program} is named by a path, so it may be any program", UNKNOWN_FILE)
    elif not is_known(program):
        yield OpaqueCode(f"{program} is not on the list of programs that start no others", UNKNOWN_PROGRAM)
    for name, reader in readers:
        if reader is read_wrapper:
            yield from reader(name, words)
        elif reader is not read_ambiguous_wrapper:
            yield from islice(reader(name, words), MAX_PROGRAMS + 1)
        elif not subcommand.is_guess:  # each word of a guess is a guess already
            yield from reader(name, words)
    if readers and subcommand.has_unseen_words:
        yield OpaqueCode(f"words from its input may make {readers[0][0]} start anything", None)


def _is_system_path(program: str) -> bool:
    return f"{posixpath.dirname(program)}/" in _SYSTEM_DIRECTORIES and program == posixpath.normpath(program)
