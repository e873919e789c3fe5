"""A week of changes on one root by two servers at once, and large changes: `python -m benchmarks.week_of_changes`.

For each day two processes change files of all sizes; then the journal becomes a day older, and is looked at:

- bounds: changes, days and bytes by the journal's own count, and the bytes of the contents on the disk,
- needed: each entry that should have a content has it, intact; no content is without an entry.

At the end everything that is still known is taken back, newest first, and a directory of `--paths` files is deleted,
listed and brought back, with the times it took. The exit code is 1 if a bound was passed or a content is missing.
"""

import argparse
import os
import random
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

from benchmarks.killed_changes import Place, Tools
from coretools.config.limits import Limits
from coretools.errors import CoreError, NotFound

LIMITS = Limits(undo_bytes=20_000_000, undo_days=3, undo_changes=700)
LARGEST = 4_000_000
NAMES = [f"{directory}/{number}" for directory in "abcd" for number in range(10)]


def change(tools: Tools, draw: random.Random) -> None:
    """Make one change, which may be refused."""
    name, other = draw.sample(NAMES, 2)
    size = int(LARGEST ** draw.random())
    choice = draw.random()
    with suppress(CoreError):
        if choice < 0.6:
            content = f"{draw.random()}\n" * (size // 20 + 1)
            tools.files.write_file(name, content, create_parents=True, overwrite=True)
        elif choice < 0.7:
            tools.files.move_path(name, other, overwrite=True)
        elif choice < 0.8:
            tools.files.delete_file(name)
        elif choice < 0.85:
            tools.files.delete_directory(name[0])
        else:
            listed = tools.undo.list_changes(limit=20).text().split("\n")
            tools.undo.undo(change=int(draw.choice(listed).split("\t")[0] or 1))


def work(place: Place, seed: int, changes: int) -> int:
    """Make changes in a process of its own; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        with place.served(LIMITS) as tools:
            draw = random.Random(seed)
            for _ in range(changes):
                with suppress(ValueError):  # a line of the list that is a remark
                    change(tools, draw)
    finally:
        os._exit(0)


def look(place: Place) -> list[str]:
    """Return what is wrong in the journal."""
    contents = place.state / "changes/contents"
    on_disk = {path.name: path.stat().st_size for path in contents.iterdir()}
    with closing(sqlite3.connect(place.state / "changes/journal.sqlite")) as database:
        count, size, oldest = database.execute("SELECT count(*), sum(bytes), min(at) FROM changes").fetchone()
        known = {name for (name,) in database.execute("SELECT content FROM entries WHERE content != ''")}
        database.execute("UPDATE changes SET at = at - 86400")
        database.commit()
    wrong = [f"{name} is missing" for name in known - set(on_disk)]
    wrong += [f"{name} is of no entry" for name in set(on_disk) - known]
    passed = {
        "changes": count - LIMITS.undo_changes,
        "bytes": size - LIMITS.undo_bytes,
        "bytes on the disk": sum(on_disk.values()) - LIMITS.undo_bytes,
        "days": (time.time() - oldest) / 86_400 - LIMITS.undo_days - 0.1,
    }
    print(f"{count} changes, {size} bytes, {sum(on_disk.values())} on the disk, {len(on_disk)} contents")
    return wrong + [f"{what}: passed by {by}" for what, by in passed.items() if by > 0]


def main() -> int:
    """Simulate, look and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--changes", type=int, default=500, help="changes of each server on a day [500]")
    parser.add_argument("--paths", type=int, default=20_000, help="files of the large change [20000]")
    options = parser.parse_args()
    place = Place(Path(tempfile.mkdtemp(prefix="week-")))
    place.root.mkdir()
    wrong: list[str] = []
    for day in range(7):
        for child in [work(place, 2 * day + one, options.changes) for one in range(2)]:
            os.waitpid(child, 0)
        wrong += look(place)
    with place.served(LIMITS) as tools:
        changes = tools.recorder.journal.changes("", [str(place.root)])
        for one in changes:
            with suppress(NotFound):  # forgotten, since the undo of newer ones needed its room
                wrong += [kept for kept in tools.undo.undo(change=one.id).kept if "in the journal" in kept]
    _large(place, options.paths)
    shutil.rmtree(place.top)
    print("wrong:", *(wrong or ["nothing"]), sep="\n  ")
    return 1 if wrong else 0


def _large(place: Place, paths: int) -> None:
    for number in range(paths):
        path = place.root / f"many/{number // 100}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    with place.served(Limits()) as tools:
        for name, call in (
            ("delete_directory", lambda: tools.files.delete_directory("many")),
            ("list_changes", tools.undo.list_changes),
            ("list_changes change=", lambda: tools.undo.list_changes(change=_newest(place))),
            ("undo dry_run", lambda: tools.undo.undo(change=_newest(place), dry_run=True)),
            ("undo", lambda: tools.undo.undo(change=_newest(place))),
            ("undo of the undo", lambda: tools.undo.undo(change=_newest(place))),
        ):
            started = time.perf_counter()
            text = call().text()
            print(f"{name}, {paths} files: {time.perf_counter() - started:.2f} s, {len(text)} characters")


def _newest(place: Place) -> int:
    with closing(sqlite3.connect(place.state / "changes/journal.sqlite")) as database:
        (newest,) = database.execute("SELECT max(id) FROM changes").fetchone()
        return int(newest)


if __name__ == "__main__":
    raise SystemExit(main())
