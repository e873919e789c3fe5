"""Kill servers at random points of their changes: `python -m benchmarks.killed_changes [--kills N] [--trials N]`.

A process writes, edits, moves, deletes and undoes files as a server does, until SIGKILL. Then another starts, as the
next server does, and takes everything back. `--trials` are kills of whole servers, over stdio, while commands run on
trial and are kept or discarded. Counted are the kills after which

- a file was torn: neither as before nor as after a change,
- something was lost: after the undo the tree is not as it was at the start,
- something was left over: temporary files, notes of writes, directories of trials, contents that no change has.

The exit code is 1 if one of them is not 0.
"""

import argparse
import os
import random
import select
import shutil
import signal
import stat
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.failure import NotMeasured
from benchmarks.stdio_client import Era, Peer
from coretools.app.change_journal import open_recorder
from coretools.app.root_specs import open_roots
from coretools.config.limits import Limits
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.multi_file_tools import FileEdits
from coretools.tools.filesystem.tools import FilesystemTools
from coretools.tools.undo.tools import UndoTools
from coretools.undo.change import Bounds
from coretools.undo.recorder import ChangeRecorder

NAMES = ("a", "b", "c/d", "c/e")
SIZES = (1, 100, 3_000, 60_000)
"""Lines of the files."""

MOST_SECONDS = 0.15
"""A process is killed within this time, in which it makes up to 50 changes."""

TRIAL_SECONDS = 3.0

LIMITS = Limits()


@dataclass(frozen=True)
class Place:
    """A root, and the state directory of its servers."""

    top: Path

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def state(self) -> Path:
        return self.top / "state/coretools"

    @contextmanager
    def served(self, limits: Limits = LIMITS) -> Iterator["Tools"]:
        """The tools, opened as a server opens them."""
        with ExitStack() as stack:
            settings = Settings(roots=(str(self.root),), limits=limits)
            environment = {"XDG_STATE_HOME": str(self.top / "state")}
            roots = stack.enter_context(open_roots(settings, environment))
            recorder = open_recorder(settings, environment, roots, stack)
            assert recorder is not None
            yield Tools(FilesystemTools(roots, limits), UndoTools(roots, limits, recorder), recorder, self.root)


@dataclass(frozen=True)
class Tools:
    """The tools of a server, which change files."""

    files: FilesystemTools
    undo: UndoTools
    recorder: ChangeRecorder
    root: Path

    def change(self, draw: random.Random, number: int) -> None:
        """Make one change; some are refused."""
        files, (name, other) = self.files, draw.sample(NAMES, 2)
        choices: tuple[Callable[[], object], ...] = (
            lambda: files.write_file(name, text(number, draw.choice(SIZES)), create_parents=True, overwrite=True),
            lambda: files.edit_file(name, self._edits(name, number)),
            lambda: files.edit_files([FileEdits(path=one, edits=self._edits(one, number)) for one in (name, other)]),
            lambda: self.undo.undo(change=draw.randrange(max(1, number - 5), number + 1)),
            lambda: self.undo.undo(since=max(1, number - 3)),
            lambda: files.delete_file(name),
            lambda: files.delete_directory("c"),
            lambda: files.move_path(name, other, overwrite=True),
        )
        with suppress(CoreError):
            draw.choice(choices)()

    def _edits(self, name: str, number: int) -> list[Edit]:
        line = self.files.read_file(name, head=1).content.partition("\n")[0]
        return [Edit(old=line, new=text(number, int(line[8:]))[: len(line)], all=True)]

    def take_everything_back(self) -> bool:
        """Undo every change, the newest first; whether nothing was kept."""
        changes = self.recorder.journal.changes("", [str(self.root)])
        kept = [entry for one in changes for entry in self.undo.undo(change=one.id).kept]
        return not kept


def text(number: int, lines: int) -> str:
    """Return the content of a file: equal lines that say how many they are."""
    return f"{number:08d}{lines:08d}\n" * lines


def is_whole(data: bytes) -> bool:
    """Whether a content is one that was written."""
    line = data[:17]
    return line[8:16].isdigit() and data == line * int(line[8:16])


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the paths in a root, with mode and content, and of files the time."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        content = (path.read_bytes(), status.st_mtime_ns) if is_file else ()
        found[str(path.relative_to(root))] = (status.st_mode, *content)
    return found


def planted(top: Path) -> Place:
    """Make a root with files."""
    place = Place(top)
    (place.root / "c").mkdir(parents=True)
    for number, name in enumerate(NAMES[:3]):
        (place.root / name).write_text(text(number, SIZES[number]))
    return place


def kill_changes(place: Place, draw: random.Random) -> set[str]:
    """Kill a process that changes files, and return what was wrong afterwards."""
    before, seed, moment = tree(place.root), draw.random(), draw.random() * MOST_SECONDS
    ready, is_ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _change_until_killed(place, random.Random(seed), is_ready)
        except Exception:  # noqa: BLE001 - it must not return into the loop of its parent
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(is_ready)
    os.read(ready, 1)
    select.select([], [], [], moment)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(ready)
    if not os.WIFSIGNALED(status):
        raise NotMeasured("the process ended before it was killed")
    return _wrong(place, before)


def _change_until_killed(place: Place, draw: random.Random, is_ready: int) -> None:
    with place.served() as tools:
        os.write(is_ready, b".")
        number = 0
        while True:
            number += 1
            tools.change(draw, number)


def _wrong(place: Place, before: Mapping[str, tuple[object, ...]]) -> set[str]:
    """Start as the next server does, look, and take everything back."""
    wrong = set[str]()
    with place.served() as tools:
        if list(place.root.rglob(".coretools-*")):
            wrong.add("left over: temporary file")
        if (place.state / "writes").is_dir() and os.listdir(place.state / "writes"):
            wrong.add("left over: notes")
        if not all(is_whole(path.read_bytes()) for path in place.root.rglob("*") if path.is_file()):
            wrong.add("torn")
        is_undone = tools.take_everything_back()
        if not is_undone or tree(place.root) != before:
            wrong.add("lost")
        journal = tools.recorder.journal
        journal.forget_unknown(older_than=0)  # as forget_changes does with what is older than an hour
        journal.trim(Bounds(size=0, days=0, changes=0))
        if os.listdir(place.state / "changes/contents"):
            wrong.add("left over: content")
    return wrong


def kill_trial(place: Place, draw: random.Random) -> set[str]:
    """Kill a server while a command runs on trial, is kept or discarded, and return what was wrong afterwards."""
    before = tree(place.root)
    with _server(place) as server:
        _first_trial(server)
        pid = os.fork()
        if pid == 0:
            select.select([], [], [], draw.random() * TRIAL_SECONDS)
            os.kill(server.pid, signal.SIGKILL)
            os._exit(0)
        number = 1
        with suppress(OSError, ValueError, NotMeasured):
            while True:
                number += 1
                lines = draw.choice(SIZES)
                line = (
                    f"yes {text(number, lines)[:16]} | head -n {lines} > a; rm -f b; mkdir -p n; cp c/d n/f; cp a c/d"
                )
                shown = _call(server, "run_command", command=line, trial=True)
                _call(server, "end_trial", trial=shown["trial"], keep=draw.random() < 0.7)
        os.waitpid(pid, 0)
    wrong = set[str]()
    with _server(place) as server:
        _first_trial(server)
        if len(os.listdir(place.state / "trials")) > 1:  # that of this server
            wrong.add("left over: trial")
    return wrong | _wrong(place, before)


@contextmanager
def _server(place: Place) -> Iterator[Peer]:
    os.environ["XDG_STATE_HOME"] = str(place.top / "state")
    server = Peer(
        ["coretools.servers.workstation", str(place.root), "--log-level", "error"], Era.HANDSHAKE, bytecode=""
    )
    try:
        server.open()
        yield server
    finally:
        server.close()


def _first_trial(server: Peer) -> None:
    for trial in (False, True):  # the first command finds out what the kernel can do
        _call(server, "run_command", command="true", trial=trial)


def _call(server: Peer, tool: str, **arguments: object) -> dict[str, Any]:
    """Return the facts of an answer."""
    result = server.ask("tools/call", {"name": tool, "arguments": arguments})
    if result.get("isError"):
        raise AssertionError(f"{tool}: {result}")
    facts: dict[str, Any] = result["_meta"]["coretools/facts"]
    return facts


def main() -> int:
    """Kill, count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=400, help="kills of a process that changes files [400]")
    parser.add_argument("--trials", type=int, default=100, help="kills of a server during a trial [100]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, found = random.Random(options.seed), Counter[str]()
    for kill, count in ((kill_changes, options.kills), (kill_trial, options.trials)):
        for _ in range(count):
            top = Path(tempfile.mkdtemp(prefix="killed-"))
            wrong = kill(planted(top), draw)
            found.update(wrong)
            print("".join(sorted(wrong)) or ".", end="", flush=True)
            shutil.rmtree(top)
    print(f"\nkills: {options.kills} of changes, {options.trials} of trials; wrong: {dict(found) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
