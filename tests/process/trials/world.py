"""A server's parts over one or more roots, whose commands run on trial."""

import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coretools.app.assembly import Assembly, open_assembly
from coretools.config.limits import Limits
from coretools.config.settings import Settings
from coretools.operations.call import SilentCall

TRIAL = re.compile(r"trial-[0-9a-f]+")

DEFAULT = Limits()


@dataclass(frozen=True)
class World:
    root: Path
    state: Path
    assembly: Assembly

    async def call(self, name: str, **arguments: object) -> str:
        """The text of an answer, or of an error behind its kind."""
        command = self.assembly.catalog.current.find(name)
        assert command is not None, name
        outcome = await self.assembly.dispatcher.dispatch(command, arguments, SilentCall())
        return f"{outcome.error.kind}: {outcome.error}" if outcome.error is not None else outcome.text

    async def run(self, command: str, **arguments: object) -> str:
        return await self.call("run_command", command=command, **arguments)

    async def on_trial(self, command: str, **arguments: object) -> str:
        return await self.run(command, trial=True, **arguments)

    async def tried(self, command: str, **arguments: object) -> str:
        """The id of a trial."""
        answer = await self.on_trial(command, **arguments)
        found = TRIAL.search(answer)
        assert found is not None, answer
        return found[0]

    async def keep(self, trial: str) -> str:
        return await self.call("end_trial", trial=trial, keep=True)

    async def discard(self, trial: str) -> str:
        return await self.call("end_trial", trial=trial, keep=False)

    def left(self) -> list[str]:
        """What there is of trials on the disk."""
        trials = self.state / "coretools" / "trials"
        return sorted(str(path.relative_to(trials)) for path in trials.glob("*/*"))


@asynccontextmanager
async def world_in(
    top: Path, *others: str, limits: Limits = DEFAULT, state: Path | None = None, **settings: Any
) -> AsyncIterator[World]:
    """A root in this directory, which may exist; by default the state directory of the server lies beside it."""
    root, state = top / "root", state or top / "state"
    for directory in (root, state, top / "home"):
        directory.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "HOME": str(top / "home")}
    given = Settings(roots=(str(root), *others), profile="all", limits=limits, **settings)
    async with open_assembly(given, environment) as assembly:
        yield World(root, state, assembly)


def tree(root: Path, *, times: bool = True, new_from: int = 1 << 63) -> dict[str, tuple[object, ...]]:
    """Every entry with kind, permissions, content and time; times of `new_from` (ns) and later count as one."""
    found: dict[str, tuple[object, ...]] = {}
    for above, directories, files in os.walk(root):
        for name in (".", *directories, *files) if above == str(root) else (*directories, *files):
            path = os.path.join(above, name)
            status = os.lstat(path)
            what: object = ""
            if stat.S_ISREG(status.st_mode):
                what = hashlib.sha256(Path(path).read_bytes()).hexdigest(), status.st_nlink
            elif stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            moment = min(status.st_mtime_ns, new_from) if times and not stat.S_ISLNK(status.st_mode) else 0
            found[os.path.relpath(path, root)] = (stat.S_IFMT(status.st_mode), status.st_mode & 0o7777, what, moment)
    return found
