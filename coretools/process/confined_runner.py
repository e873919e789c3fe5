"""Run git and ripgrep for tools, each in a confined thread that limits it to the files of the call.

Where the kernel can't confine them they run all the same, protected by the checks of the tools, and `is_confined` is
False.
"""

import logging
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from coretools.confinement.confined_thread import ConfinedThread, ConfinedThreadPool
from coretools.confinement.landlock import DEVICE, EXECUTE, READ_FILE, Rule
from coretools.errors import CannotStart
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.open_beneath import HANDLE
from coretools.roots.root import Directory

LIBRARIES = (
    *("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib"),
    # NixOS and Guix keep every library under a path of its own in one of these.
    *("/nix/store", "/gnu/store"),
)
"""Directories of libraries (ld.so(8)), granted for reading only: for Landlock a library is mapped, not executed."""

_FILES = ("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/dev/urandom")
_ZONES = "/usr/share/zoneinfo"

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHH")
"""Up to the size and number of the program headers (elf(5), Elf64_Ehdr)."""
_SEGMENT = struct.Struct("<IIQQQQ")
_INTERPRETER = 3
_SIXTY_FOUR_BITS, _LOW_FIRST = 2, 1
_MOST_SEGMENTS = 64


def startup_rules(file: str) -> tuple[Rule, ...] | None:
    """The Landlock rules that a program needs to start; None if the file is no 64-bit ELF executable.

    They allow to execute the file and its loader, and to read libraries, the null device, random bytes and the local
    time. A script gets no rules: its interpreter could run anything.
    """
    try:
        status = os.stat(file)
    except OSError:
        return None
    return _rules(file, (status.st_dev, status.st_ino, status.st_mtime_ns))


@lru_cache(maxsize=16)
def _rules(file: str, _identity: tuple[int, int, int]) -> tuple[Rule, ...] | None:
    try:
        loader = _elf_interpreter(file)
    except (OSError, ValueError, struct.error):
        return None
    prefix = os.path.dirname(os.path.dirname(file))
    # A static program has none beside it; in a virtual environment those would be everybody's packages.
    own_libraries = () if loader is None else (f"{prefix}/lib", f"{prefix}/lib64")
    places = dict.fromkeys((*LIBRARIES, *own_libraries, _ZONES, *_FILES))
    started = (file,) if loader is None else (file, loader)
    return (
        *((name, EXECUTE | READ_FILE) for name in started),
        *((name, READ_FILE) for name in places if os.path.exists(name)),
        ("/dev/null", DEVICE),
    )


def _elf_interpreter(file: str) -> str | None:
    """The loader that an ELF file names (PT_INTERP); None if it needs none.

    Raises:
        ValueError: not an ELF file of this kind of system.
    """
    with open(file, "rb") as stream:
        magic, bits, byte_order, *_, offset, _, _, _, size, count, _ = _HEADER.unpack(stream.read(_HEADER.size))
        if magic != b"\x7fELF" or bits != _SIXTY_FOUR_BITS or byte_order != _LOW_FIRST or count > _MOST_SEGMENTS:
            raise ValueError(file)
        # `count` is from the file and bounded above: a hostile header must not make this loop long.
        for number in range(count):
            stream.seek(offset + number * size)
            kind, _, where, _, _, length = _SEGMENT.unpack(stream.read(_SEGMENT.size))
            if kind == _INTERPRETER:
                stream.seek(where)
                return os.fsdecode(stream.read(length).rstrip(b"\0"))
    return None


PROBE_SECONDS = 5.0
"""Deadline of the `--version` that shows whether a program starts in a confined thread at all."""

logger = logging.getLogger(__name__)


class ConfinedRunner:
    """Runs programs of a known shape, each from a confined thread made for the call."""

    def __init__(self, runner: Runner, confined_threads: ConfinedThreadPool) -> None:
        self._runner = runner
        self._confined_threads = confined_threads
        self._files: dict[str, str] = {}
        self._starts: dict[str, bool] = {}

    @property
    def is_possible(self) -> bool:
        """Whether the kernel can confine threads here.

        Raises:
            InputOutput, Busy: it cannot be tried now.
        """
        return self._confined_threads.is_possible

    def program(self, name: str) -> str | None:
        """Return the file that would be started; see `Runner.program`."""
        return self._runner.program(name)

    def confined_thread(
        self, program: str, rules: Sequence[Rule], *, forks: bool = False, unix_sockets: bool = False
    ) -> ConfinedThread | None:
        """A confined thread from which the program can start and do what the rules allow; None where there is none.

        With `forks` the program may start itself, and what the rules allow to execute; with `unix_sockets` it may use
        sockets of files. Handles in the rules may be closed afterwards.

        Raises:
            InputOutput: no descriptor left. Busy: no room for a thread. CannotStart: agents can change the program.
        """
        own = self._rules_to_start(program)
        if own is None:
            return None
        return self._confined_threads.get(rules, system=own, forks=forks, unix_sockets=unix_sockets)

    def is_confined(self, program: str) -> bool:
        """Whether runs of this program are confined, as far as is known by now."""
        return self._rules_to_start(program) is not None

    async def run(self, argv: Sequence[str], *, cwd: Directory, options: RunOptions) -> Completed:
        """Run a program in the confined thread of its options.

        One that can't even start there, say because its libraries lie in an unusual place, is run without from then on.

        Raises:
            What `Runner.run` raises.
        """
        program = argv[0]
        if options.confined_thread is None or self._starts.get(program, False):
            return await self._runner.run(argv, cwd=cwd, options=options)
        try:
            completed = await self._runner.run(argv, cwd=cwd, options=options)
        except CannotStart:
            if await self._can_start(program, cwd):
                raise
        else:
            # A failure may be the program's own or the confinement's; `--version` tells which.
            if completed.ok or await self._can_start(program, cwd):
                self._starts[program] = True
                return completed
        return await self._runner.run(argv, cwd=cwd, options=replace(options, confined_thread=None))

    async def _can_start(self, program: str, cwd: Directory) -> bool:
        """Whether it starts in a confined thread at all. Asked where nothing of a repository has a part in the answer.

        A run that ends by its deadline or a signal proves nothing and counts as started.
        """
        confined_thread = self.confined_thread(program, ())
        if confined_thread is None:
            return False
        options = RunOptions(timeout_seconds=PROBE_SECONDS, keep_bytes=4096, confined_thread=confined_thread)
        with replace(cwd, fd=os.open("/", HANDLE), display_path="/") as top, suppress(CannotStart):
            completed = await self._runner.run((program, "--version"), cwd=top, options=options)
            if completed.ok or completed.timed_out or completed.exit_code is None:
                return True
        self._starts[program] = False
        logger.warning("%s does not start when the kernel confines it; it runs unconfined", program)
        return False

    def _rules_to_start(self, program: str) -> tuple[Rule, ...] | None:
        """The rules with which a program starts in a confined thread; None if it does not."""
        if not self._confined_threads.is_possible or self._starts.get(program) is False:
            return None
        known = self._files.get(program)
        rules = None if known is None else startup_rules(known)
        if rules is None:
            file = self._runner.program(program)
            if file is None:
                return None
            self._files[program] = os.path.realpath(file)
            rules = startup_rules(self._files[program])
        return rules
