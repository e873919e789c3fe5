"""Find processes by their group or by a marker in their environment, and kill them; also the watchdog's program.

Imports the standard library only: the watchdog runs this file itself (`python -I -S reaper.py ...`), without the
coretools package. Without /proc only process groups can be found.
"""

import os
import signal
import sys
import time
from collections.abc import Collection

# The bounds of every way to stop processes. They stand in this module because every party can import it: the policy in
# `termination`, the fork server and its supervisors, and the watchdog, which knows no other module.

DYING_SECONDS = 0.05
"""For the rest of a tree to exit by itself once the program has. A process closes its pipes before it leaves the group,
so that after `a | b` an `a` that has written everything may still be exiting."""

KILL_SECONDS = 3.0
"""From SIGKILL until a tree is given up. What outlasts SIGKILL that long is stuck in the kernel."""

KILL_ROUND_SECONDS = 1.0
"""For one round of freezing and killing a tree, or of killing a control group. It takes a few milliseconds unless the
tree multiplies meanwhile; then a supervisor takes its last resort and begins another round."""

FORCE_SECONDS = 10.0
"""After the last resort, the end of a whole fork server. A supervisor on a busy machine may need it."""

ORPHAN_GRACE_SECONDS = 3.0
"""Longest grace period that the watchdog gives to what a dead server left: nobody waits for an answer any more."""

EXIT_SECONDS = 2.0
"""For a fork server to exit once its socket is closed; then it is killed."""

FIRST_PAUSE_SECONDS = 0.001
LAST_PAUSE_SECONDS = 0.1
"""Between two polls: short at first because most processes exit at once, then longer, because listing /proc costs about
10 µs for each process of the machine."""

GIT_SUFFIX = "-git"
"""What follows the path of the scratch directory in that of the files for git."""

CONTROL_GROUPS_FILE = "groups"
"""File in the scratch directory that names the control groups of commands, a line each."""
RMDIR_ATTEMPTS = 20
"""Attempts, LAST_PAUSE_SECONDS apart, to remove a control group whose members are exiting."""

_SLOT_BYTES = 4
_GROUP, _FLAGS, _THREADS = 2, 6, 17
"""Indices of fields in proc(5)'s `stat`, counted from the state: pgrp, flags, num_threads."""
_EXITING = 0x4
"""PF_EXITING of the kernel's include/linux/sched.h, in the flags."""


def can_list_processes() -> bool:
    """Whether /proc lists the processes of this machine with their groups and environments."""
    return os.path.exists("/proc/self/environ")


def group_exists(group: int) -> bool:
    """Whether the process group has a member, a zombie included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # on macOS a group of zombies; elsewhere one that changed its user
        return sys.platform != "darwin"
    return True


def signal_group(group: int, number: int) -> None:
    """Signal every member of the process group that we may signal. An empty group is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def find_processes(groups: Collection[int], marker: bytes) -> set[int]:
    """Live processes that belong to one of the groups or have the marker (see `has_marker`)."""
    if not can_list_processes():
        return set()
    mine = os.getpid()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid for pid in pids if pid != mine and (_in_groups(pid, groups) or has_marker(pid, marker))}


def has_ended(pid: int) -> bool:
    """Whether a process is gone or a zombie.

    A process whose first thread has ended while others run is shown as a zombie too (proc(5), state and num_threads).
    """
    fields = _stat(pid)
    return len(fields) <= _THREADS or (fields[0] in (b"Z", b"X") and int(fields[_THREADS]) <= 1)


def has_marker(pid: int, marker: bytes) -> bool:
    """Whether an entry of the initial environment of the process starts with `marker`."""
    if not marker:
        return False
    environment = _environment(pid)
    return environment.startswith(marker) or b"\0" + marker in environment


def signal_marked(marker: bytes, number: int) -> set[int]:
    """Signal every process that has the marker; return those found."""
    marked = find_processes((), marker)
    for pid in marked:
        _signal_if_marked(pid, marker, number)
    return marked


def kill_marked(marker: bytes) -> set[int]:
    """Kill every process that has the marker until a scan finds none; return those killed. Bounded."""
    ended: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while marked := signal_marked(marker, signal.SIGKILL) | set(filter(is_exiting, ended)):
        ended |= marked
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_SECONDS)
    return ended


def terminate_all(groups: Collection[int], marker: bytes, grace_seconds: float) -> None:
    """Terminate the groups and all marked processes: TERM, grace, then KILL until a scan finds none. Bounded."""
    for group in groups:
        signal_group(group, signal.SIGTERM)
    signal_marked(marker, signal.SIGTERM)
    if not _wait_until_gone(groups, marker, grace_seconds, number=0):
        _wait_until_gone(groups, marker, KILL_SECONDS, number=signal.SIGKILL)


def _wait_until_gone(groups: Collection[int], marker: bytes, seconds: float, *, number: int) -> bool:
    """Poll until nothing is left, sending signal `number` (0: none) each time; False after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    known: set[int] = set()
    while _remaining(groups, marker, known) if can_list_processes() else any(map(group_exists, groups)):
        if time.monotonic() > deadline:
            return False
        if number:
            for group in groups:
                signal_group(group, number)
            signal_marked(marker, number)
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_SECONDS)
    return True


def _remaining(groups: Collection[int], marker: bytes, known: set[int]) -> set[int]:
    """Processes that are left, including known ones that are exiting; adds them to `known`."""
    left = find_processes(groups, marker) | set(filter(is_exiting, known))
    known |= left
    return left


def is_exiting(pid: int) -> bool:
    """Whether the process is exiting: its environment is gone, but it is no zombie yet."""
    fields = _stat(pid)
    return len(fields) > _FLAGS and fields[0] not in (b"Z", b"X") and bool(int(fields[_FLAGS]) & _EXITING)


def _in_groups(pid: int, groups: Collection[int]) -> bool:
    """Whether the process is a member, those that have ended left out."""
    if not groups:
        return False
    fields = _stat(pid)
    return len(fields) > _GROUP and int(fields[_GROUP]) in groups and not has_ended(pid)


def _stat(pid: int) -> list[bytes]:
    """What proc(5) has in `stat` behind "pid (comm) "; comm may hold blanks and parentheses. Empty when it is gone."""
    return _proc_file(pid, "stat").rpartition(b")")[2].split()


def _environment(pid: int) -> bytes:
    """The initial environment of a process; if its first thread has ended, as another one shows it."""
    environment = _proc_file(pid, "environ")
    if environment or _stat(pid)[:1] != [b"Z"]:
        return environment
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return b""
    return b"\0".join(_proc_file(pid, f"task/{thread}/environ") for thread in threads)


def _signal_if_marked(pid: int, marker: bytes, number: int) -> None:
    """Signal a process by handle, after another look: the number may be another process's by now."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # gone, or a kernel before 5.3: then by number, right after the look
        if has_marker(pid, marker):
            signal_process(pid, number)
        return
    try:
        if has_marker(pid, marker):
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(handle)


def signal_process(pid: int, number: int) -> None:
    """Signal one process; one that is gone is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _proc_file(pid: int, name: str) -> bytes:
    """Content of a /proc file; empty when the process is gone or belongs to another user."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def registered_groups(table: int, slots: int) -> list[int]:
    """The process groups in the shared table (see `watchdog`)."""
    data = os.pread(table, slots * _SLOT_BYTES, 0)
    numbers = (int.from_bytes(data[at : at + _SLOT_BYTES], sys.byteorder) for at in range(0, len(data), _SLOT_BYTES))
    return [number for number in numbers if number]


def _remove_control_groups(names: str) -> None:
    """Remove the control groups of the dead server, which it listed in a file; their members are exiting."""
    try:
        with open(names, encoding="utf-8") as file:
            paths = file.read().splitlines()
    except OSError:
        return
    for path in paths:
        for _ in range(RMDIR_ATTEMPTS):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(LAST_PAUSE_SECONDS)
            else:
                break


def main(arguments: list[str]) -> None:
    """Run the watchdog: block on standard input until the server is gone, then terminate what it left.

    The arguments are the descriptor of the table, the number of its slots, the marker, the grace period, and a
    directory to remove, or an empty string.
    """
    table, slots, marker, grace_seconds, scratch = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The read returns when the last writing end closes, however the server ends; an orderly shutdown writes a byte
    # first.
    is_orderly = bool(os.read(0, 1)) and not os.read(0, 1)
    grace = min(float(grace_seconds), ORPHAN_GRACE_SECONDS)
    terminate_all(registered_groups(int(table), int(slots)), marker.encode(), grace)
    if not is_orderly:
        # A child between fork and exec still has the environment of its parent. It held the pipe until exec closed it,
        # so a second scan, a moment later, finds it by its marker.
        time.sleep(LAST_PAUSE_SECONDS)
        terminate_all((), marker.encode(), 0.0)
    for directory in (scratch, f"{scratch}{GIT_SUFFIX}") if scratch else ():
        if os.path.isdir(directory):
            _remove_control_groups(os.path.join(directory, CONTROL_GROUPS_FILE))
            import shutil  # imported late: nearly always there is nothing to remove

            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
