"""Undo of what commands change: `python -m benchmarks.undo_commands [--commands N] [--kills N] [--turns N]`.

Three parts, each with figures:

- commands: random commands of real tools in a repository, each undone through a server over stdio; how many trees are
  byte for byte as before, how many differ only where the answers say so, and how many differ otherwise (0 is owed).
- kills: the same, with a SIGKILL of the server at a random moment; the next server takes the record and undoes it.
- costs: `true`, `rm -rf` of 10,000 files and `make` with 100 objects, with undo on and off in turns.

pip and npm take part where they are installed: `pip install --target` of an empty package, `npm init`.
"""

import argparse
import fcntl
import hashlib
import os
import random
import shutil
import signal
import stat
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.failure import NotMeasured
from benchmarks.stdio_client import Era, Peer

_SERVER = "coretools.servers.workstation"
_MOST_SECONDS = 2.0
"""A server is killed within this time after it got a command."""

_COMMANDS = (
    "git checkout -q other",
    "git checkout -q other && git checkout -q main",
    "git clean -fdxq",
    "git stash -q -u",
    "git reset -q --hard other",
    "git rm -rqf lib",
    "sed -i s/a/b/ Makefile data/*",
    "rm -rf src lib",
    "rm -rf data && mkdir data && echo x > data/new",
    "mv src renamed",
    "mv src/a data/ && mv data/a lib/",
    "make -s",
    "tar cf all.tar src data && rm -rf src && tar xf all.tar && rm all.tar",
    "cp -a src copy && rm -rf src && mv copy src",
    "chmod -R u-w lib; chmod 700 data",
    "ln -f lib/2 hard; echo changed >> hard",
    "truncate -s 5 src/a/2",
    "find . -name 1 -not -path './.git/*' -delete",
    (
        'mkdir -p p && cd p && printf \'[project]\\nname="p"\\nversion="1"\\n\' > pyproject.toml'
        " && pip install -q --no-deps --no-build-isolation --no-index --target ../installed . ; rm -rf build"
    ),
    "npm init -y > /dev/null && npm install --offline --silent ./lib",
    "python3 -m venv --without-pip environment && rm -rf environment/bin",
)

_ONLY_GIT = "undo can't take back: what it changed in git directories]"


def main() -> None:
    """Run the parts and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("commands", 20), ("kills", 5), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with _place() as top:
        _commands(top, options.commands, chance)
    with _place() as top:
        _kills(top, options.kills, chance)
    if options.turns:
        with _place() as top:
            _costs(top, options.turns)


@contextmanager
def _place() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="undo-commands-"))
    os.environ["XDG_STATE_HOME"] = str(top / "state")
    (top / "root").mkdir()
    try:
        yield top
    finally:
        subprocess.run(["chmod", "-R", "u+w", top], check=False)
        shutil.rmtree(top)


@contextmanager
def _served(root: Path, *words: str) -> Iterator[Peer]:
    server = Peer([_SERVER, str(root), *words], Era.HANDSHAKE, bytecode="")
    try:
        server.open()
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        server.close()


def _call(server: Peer, tool: str, **arguments: object) -> dict[str, Any]:
    return server.ask("tools/call", {"name": tool, "arguments": arguments})


def _text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def _fill(root: Path, chance: random.Random) -> None:
    subprocess.run(["chmod", "-R", "u+w", root], check=True)
    for path in root.iterdir():  # not the root itself, which is open
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name in ("src/a", "lib", "data"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            (root / name / f"{number}").write_bytes(chance.randbytes(chance.choice([0, 20, 90_000])))
    (root / "Makefile").write_text("all: out/x\nout/x: src/a/0\n\tmkdir -p out; cp src/a/0 out/x; date > log\n")
    (root / "lib/package.json").write_text('{"name": "lib", "version": "1.0.0"}\n')
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for line in ("init -q -b main", "add .", "commit -qm one", "checkout -q -b other", "rm -q lib/1", "commit -qm two"):
        subprocess.run([*git, *line.split()], cwd=root, check=True)
    subprocess.run([*git, "checkout", "-q", "main"], cwd=root, check=True)
    (root / "untracked").write_bytes(chance.randbytes(100))
    (root / "link").symlink_to("src")
    (root / "data/0").chmod(0o600)


def _state(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for above, directories, files in os.walk(root):
        directories[:] = [name for name in directories if name != ".git"]
        for name in directories + files:
            path = os.path.join(above, name)
            status = os.lstat(path)
            what: object = b""
            if stat.S_ISREG(status.st_mode):
                what = hashlib.sha256(Path(path).read_bytes()).digest(), status.st_mtime_ns
            elif stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            found[os.path.relpath(path, root)] = (status.st_mode, what)
    return found


def _commands(top: Path, count: int, chance: random.Random) -> None:
    root, same, listed, done, wrong = top / "root", 0, 0, 0, list[str]()
    with _served(root) as server:
        for _ in range(count):
            _fill(root, chance)
            before = _state(root)
            line = "; ".join(chance.sample(_COMMANDS, chance.choice([1, 1, 2, 3])))
            result = _call(server, "run_command", command=line, timeout_seconds=120)
            done += result["_meta"]["coretools/facts"]["exit_code"] == 0
            answers = _text(result)
            for change in result["_meta"]["coretools/facts"].get("changes", ()):
                answers += _text(_call(server, "undo", change=change))
            if _state(root) == before:
                same += 1
            elif "left as they are" in answers or "undo can't take back" in answers.replace(_ONLY_GIT, ""):
                listed += 1
                print("listed:", line, answers[-600:], sep="\n  ")
            else:
                wrong.append(line)
    print(
        f"commands: {count}, {done} with exit code 0; trees as before: {same}; others, listed: {listed};"
        f" wrong: {len(wrong)}",
        *wrong,
        sep="\n  ",
    )


def _kills(top: Path, count: int, chance: random.Random) -> None:
    root, same, wrong = top / "root", 0, list[str]()
    for _ in range(count):
        _fill(root, chance)
        before = _state(root)
        line = "; ".join(chance.sample(_COMMANDS[:18], 3))
        with _served(root) as server:
            known = {row.split("\t")[0] for row in _text(_call(server, "list_changes")).splitlines()}
            _call(server, "run_command", command="true")
            killer = threading.Timer(chance.random() * _MOST_SECONDS, os.kill, (server.pid, signal.SIGKILL))
            killer.start()
            with suppress(NotMeasured, OSError, ValueError, EOFError):
                _call(server, "run_command", command=f"{line}; sleep {_MOST_SECONDS}")
            killer.join()
        _wait_for_supervisors(top / "state/coretools/changes/spool")
        with _served(root) as server:
            listed = _text(_call(server, "list_changes"))
            for change in [row.split("\t")[0] for row in listed.splitlines() if "\tcommand\t" in row]:
                if change not in known:
                    _call(server, "undo", change=int(change))
            if _state(root) == before:
                same += 1
            else:
                wrong.append(line)
    print(f"kills: {count}; trees as before: {same}; wrong: {len(wrong)}", *wrong, sep="\n  ")


def _wait_for_supervisors(spool: Path) -> None:
    time.sleep(0.2)
    for log in spool.glob("*/log"):
        with suppress(FileNotFoundError), open(log, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def _costs(top: Path, turns: int) -> None:
    root = top / "root"
    (root / "c").mkdir()
    for number in range(100):
        (root / "c" / f"{number}.c").write_text(f"int f{number}(void) {{ return {number}; }}\n")
    (root / "c/Makefile").write_text("all: $(patsubst %.c,%.o,$(wildcard *.c))\n")
    rows = {"true": "true", "rm -rf of 10,000 files": "rm -rf many", "make, 100 objects": "make -s -C c"}
    seconds: dict[tuple[str, bool], list[float]] = {(row, is_on): [] for row in rows for is_on in (True, False)}
    with _served(root) as recording, _served(root, "--no-undo") as plain:
        for turn in range(turns + 1):
            for row, line in rows.items():
                for is_on, server in ((True, recording), (False, plain)):
                    for _ in range(20 if row == "true" else 1):
                        _prepare(root)
                        taken = server.time_call("run_command", {"command": line})
                        if turn:
                            seconds[row, is_on].append(taken)
    for row in rows:
        on, off = seconds[row, True], seconds[row, False]
        medians = statistics.median(on), statistics.median(off)
        print(
            f"{row}: {1000 * medians[0]:.1f} ms with undo, {1000 * medians[1]:.1f} without,"
            f" {medians[0] / medians[1]:.2f}x; least {1000 * min(on):.1f} and {1000 * min(off):.1f}"
        )


def _prepare(root: Path) -> None:
    for path in (root / "c").glob("*.o"):
        path.unlink()
    if not (root / "many").exists():
        for directory in range(100):
            (root / f"many/{directory}").mkdir(parents=True)
            for number in range(100):
                (root / f"many/{directory}/{number}").write_bytes(b"x" * 100)


if __name__ == "__main__":
    main()
