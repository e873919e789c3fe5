"""Stored output, in memory and on disk: offsets are stable and the oldest bytes are dropped first
(docs/specs/runs.md)."""

import os
import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coretools.process.jobs.output_store import DiskQuota, OutputStore


def store(*, file_bytes: int, memory_bytes: int = 100, disk_bytes: int = 1 << 30) -> OutputStore:
    return OutputStore(DiskQuota(disk_bytes), file_bytes=file_bytes, memory_bytes=memory_bytes)


def test_stored_output_is_what_was_printed_and_offsets_never_change() -> None:
    """runs-8, runs-9: for all sizes of pieces, memory and file."""
    for seed in range(60):
        chance = random.Random(seed)
        kept = store(file_bytes=chance.choice([50, 300, 1000, 5000]), memory_bytes=chance.choice([1, 40, 500]))
        printed = b""
        for _ in range(chance.randrange(1, 40)):
            piece = chance.randbytes(chance.choice([0, 1, 30, 700]))
            printed += piece
            kept.append(piece)
            assert kept.end == len(printed), seed
            assert kept.kept_bytes >= min(len(printed), kept._memory_bytes), seed
            offset, count = chance.randrange(0, len(printed) + 5), chance.randrange(0, 2000)
            start = max(offset, kept.first)
            assert kept.read(offset, count) == printed[start : start + count], seed
            assert kept.read(0, 1 << 20) == printed[kept.first :], seed
        kept.close()


def test_lines_have_the_numbers_that_they_were_printed_with() -> None:
    """runs-26: also when the start is gone, and on a full disk."""
    for seed in range(40):
        chance = random.Random(seed)
        kept = store(
            file_bytes=chance.choice([300, 5_000, 200_000]),
            memory_bytes=chance.choice([1, 500]),
            disk_bytes=chance.choice([200, 1 << 30]),
        )
        printed = b""
        for _ in range(30):
            line = b"x" * chance.choice([0, 10, 10, 4_000]) + b"\n"
            piece = line * chance.choice([1, 20])
            kept.append(piece)
            printed += piece
            offset = chance.randrange(kept.first, kept.end)
            number = printed.count(b"\n", 0, offset) + 1
            assert kept.line_number(offset) == number, seed
            assert kept.line_start(number) == max(kept.first, printed.rfind(b"\n", 0, offset) + 1), seed
        assert kept.line_number(0) == printed.count(b"\n", 0, kept.first) + 1
        kept.close()


def test_the_file_is_bounded_and_has_no_name(tmp_path: Path) -> None:
    """runs-9: the temporary directory contains no entry for it, however the server ends."""
    kept = OutputStore(DiskQuota(1 << 20), file_bytes=10_000, memory_bytes=100, folder=str(tmp_path))
    for _ in range(1000):
        kept.append(b"x" * 100)
        assert os.listdir(tmp_path) == []
        assert kept._fd < 0 or os.fstat(kept._fd).st_size <= 10_000
    assert kept.end == 100_000
    assert 10_000 <= kept.kept_bytes <= 10_300
    kept.close()
    assert kept.read(0, 1000) == b""


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """A full disk: limit the file size of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_loses_what_is_old_and_counts_it() -> None:
    """runs-10: the newest bytes are kept in memory; the disk is used again when there is room."""
    kept = store(file_bytes=1 << 20)
    with files_at_most(1000):
        for number in range(200):
            kept.append(b"%09d\n" % number)
        assert kept.end == 2000
        assert 0 < kept.first < 2000
        assert kept.read(0, 5000) == b"".join(b"%09d\n" % number for number in range(200))[kept.first :]
    gap = kept.first
    for number in range(200, 400):
        kept.append(b"%09d\n" % number)
    assert kept.first == gap
    assert kept.read(gap, 5000).endswith(b"000000398\n000000399\n")
    assert len(kept.read(gap, 5000)) == 4000 - gap
    kept.close()


def test_no_temporary_directory_is_a_full_disk(tmp_path: Path) -> None:
    """runs-10: no run ends because of it."""
    kept = OutputStore(DiskQuota(1 << 20), file_bytes=1 << 20, memory_bytes=100, folder=str(tmp_path / "gone"))
    for _ in range(100):
        kept.append(b"y" * 10)
    assert kept.end == 1000
    assert kept.read(kept.first, 1000) == b"y" * (1000 - kept.first)


def test_all_outputs_share_one_bound_on_disk() -> None:
    """runs-10: beyond the bound they treat the disk as full; a closed output frees its share."""
    disk = DiskQuota(1000)
    one, two = (OutputStore(disk, file_bytes=800, memory_bytes=10) for _ in range(2))
    for _ in range(100):
        one.append(b"1" * 10)
        two.append(b"2" * 10)
    assert one._taken + two._taken <= 1000
    assert set(one.read(0, 2000)) == {ord("1")}
    assert set(two.read(0, 2000)) == {ord("2")}
    one.close()
    two.close()
    assert disk.take(1000)
