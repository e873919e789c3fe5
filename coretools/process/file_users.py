"""Find the processes that use a file: those that have it open or locked, and those of one program in a directory.

Reads /proc. Processes of other users, and of other machines that share the file system, are not seen.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

MAX_PROCESSES = 20_000
"""Most processes looked at."""


@dataclass(frozen=True, slots=True)
class FileUser:
    """A process."""

    pid: int
    name: str
    has_it_open: bool


def file_users(identity: tuple[int, int], *, program: str, directory: str) -> list[FileUser]:
    """Return the processes that have the file of this device and inode open, and those of `program` in `directory`."""
    users = []
    for pid in _pids():
        name = _name(pid)
        has_it_open = any(one == identity for _, one in _open_files(pid))
        if has_it_open or (name.startswith(program) and _runs_in(pid, directory)):
            users.append(FileUser(pid, name, has_it_open))
    return users


def lock_holder(identity: tuple[int, int]) -> FileUser | None:
    """Return the process that has locked the file of this device and inode by flock(2)."""
    for pid in _pids():
        for entry, one in _open_files(pid):
            with suppress(OSError):
                if one == identity and " FLOCK " in _text(pid, f"fdinfo/{entry}"):  # proc(5): `lock:`
                    return FileUser(pid, _name(pid), has_it_open=True)
    return None


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()][:MAX_PROCESSES]


def _name(pid: int) -> str:
    try:
        return _text(pid, "comm").strip()
    except OSError:
        return ""


def _text(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


def _open_files(pid: int) -> Iterator[tuple[str, tuple[int, int]]]:
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{entry}")
                yield entry, (status.st_dev, status.st_ino)


def _runs_in(pid: int, directory: str) -> bool:
    try:
        return f"{os.readlink(f'/proc/{pid}/cwd')}/".startswith(f"{directory}/")
    except OSError:
        return False
