"""The object names in a git index (gitformat-index(5), versions 2 to 4, with SHA-1 or SHA-256).

Pure; a hostile index costs bounded time and memory. Of a split index only the entries in the file itself are read;
directory entries of a sparse index name no file.
"""

from collections.abc import Iterator

MAX_INDEX_BYTES = 32 * 1024 * 1024
"""Largest index that is read, of about 300,000 files."""

_MAX_NAME_BYTES = 4096

_MAX_NAMES_BYTES = 64 * 1024 * 1024
"""Names in version 4 share prefixes, so their total length can far exceed the file's."""

_HEADER_BYTES = 12

_STATUS_BYTES = 40
"""Bytes of an entry before the object name."""

_EXTENDED, _STAGE = 0x4000, 0x3000


class BadIndex(ValueError):
    """The bytes are not an index, or one of an unknown version."""


def index_objects(data: bytes, *, hash_bytes: int) -> dict[bytes, bytes]:
    """Map the name to the object name of every file that occurs once and is not in conflict.

    Raises:
        BadIndex.
    """
    objects: dict[bytes, bytes] = {}
    repeated = set()
    for name, object_name, stage in _entries(data, hash_bytes):
        if name in objects or stage:
            repeated.add(name)  # no file may have several candidate contents
        else:
            objects[name] = object_name
    for name in repeated:
        objects.pop(name, None)
    return objects


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
        kept, start = _name_prefix(data, start, end) if version == 4 else (len(name), start)
        stop = data.find(b"\0", start, end)
        if stop < 0:
            raise BadIndex("ends in a name")
        name = name[: max(0, len(name) - kept)] + data[start:stop]
        total += len(name)
        if len(name) > _MAX_NAME_BYTES or total > _MAX_NAMES_BYTES:
            raise BadIndex("has names that are too long")
        yield name, data[flags_at - hash_bytes : flags_at], flags & _STAGE
        # Up to version 3 an entry is padded with 1 to 8 NUL bytes to a multiple of eight.
        position = stop + 1 if version == 4 else position + ((stop - position + 8) & ~7)


def _header(data: bytes, hash_bytes: int) -> tuple[int, int]:
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise BadIndex("no index")
    if count > len(data) // (_STATUS_BYTES + hash_bytes):
        raise BadIndex("claims more entries than it has room for")
    return version, count


def _name_prefix(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Bytes to cut from the end of the previous name, a variable-width integer, and where the new rest begins."""
    number = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        if at >= end or number > _MAX_NAME_BYTES:
            raise BadIndex("a number without an end")
        number = ((number + 1) << 7) | (data[at] & 0x7F)
    return number, at + 1
