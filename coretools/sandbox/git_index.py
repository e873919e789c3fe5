"""Names and object names of a git index, from its bytes: a hostile one costs bounded time and memory. Pure.

The format: gitformat-index(5), versions 2 to 4, with SHA-1 or SHA-256. Of a split index only what stands in the file
itself is seen; entries of a sparse index that are directories name no file.
"""

from collections.abc import Iterator

MOST_BYTES = 32 * 1024 * 1024
"""A longer index, of some 300,000 files, is not looked into."""

_MOST_NAME_BYTES = 4096
_MOST_OF_ALL_NAMES = 64 * 1024 * 1024
"""Names of version 4 share their beginnings and can come to far more than the file holds."""

_HEADER_BYTES = 12
_STATUS_BYTES = 40
"""Of an entry, before the object name."""
_EXTENDED, _STAGE = 0x4000, 0x3000


class BadIndex(ValueError):
    """The bytes are no index, or one of an unknown version."""


def objects(data: bytes, *, hash_bytes: int) -> dict[bytes, bytes]:
    """Name to object name, of every file that is there once and not in conflict.

    Raises:
        BadIndex.
    """
    found: dict[bytes, bytes] = {}
    repeated = set()
    for name, object_name, stage in _entries(data, hash_bytes):
        if name in found or stage:
            repeated.add(name)  # nobody may offer several contents for one file
        else:
            found[name] = object_name
    for name in repeated:
        found.pop(name, None)
    return found


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[bytes, bytes, int]]:
    version, count = _header(data, hash_bytes)
    end = len(data) - hash_bytes
    position, name, total = _HEADER_BYTES, b"", 0
    for _ in range(count):
        flags_at = position + _STATUS_BYTES + hash_bytes
        start = flags_at + 2
        if start >= end:
            raise BadIndex("ends in an entry")
        flags = int.from_bytes(data[flags_at:start], "big")
        start += 2 if flags & _EXTENDED else 0
        kept, start = _kept(data, start, end) if version == 4 else (len(name), start)
        stop = data.find(b"\0", start, end)
        if stop < 0:
            raise BadIndex("ends in a name")
        name = name[: max(0, len(name) - kept)] + data[start:stop]
        total += len(name)
        if len(name) > _MOST_NAME_BYTES or total > _MOST_OF_ALL_NAMES:
            raise BadIndex("has names that are too long")
        yield name, data[flags_at - hash_bytes : flags_at], flags & _STAGE
        # Up to version 3 an entry is filled up with 1 to 8 NUL bytes to a multiple of eight.
        position = stop + 1 if version == 4 else position + ((stop - position + 8) & ~7)


def _header(data: bytes, hash_bytes: int) -> tuple[int, int]:
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise BadIndex("no index")
    if count > len(data) // (_STATUS_BYTES + hash_bytes):
        raise BadIndex("says more entries than it has room for")
    return version, count


def _kept(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Bytes to take off the end of the name before, a number of variable width, and where the rest of the name is."""
    number = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        if at >= end or number > _MOST_NAME_BYTES:
            raise BadIndex("a number without an end")
        number = ((number + 1) << 7) | (data[at] & 0x7F)
    return number, at + 1
