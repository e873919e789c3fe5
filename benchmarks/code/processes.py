"""What processes cost, as the kernel counts it."""

import os
import re
from collections.abc import Iterable
from pathlib import Path


def pss(pid: int) -> int:
    """The proportional share of memory of a process, in bytes; 0 if it is gone."""
    try:
        found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def processor_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes and of their children that have ended."""
    ticks = sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def descriptors(pid: int) -> int:
    """Open descriptors of a process; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """The fields of its state behind the name (proc_pid_stat(5)); none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
