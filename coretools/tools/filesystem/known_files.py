"""What each client last read or wrote of a file, to notice that somebody else changed it since.

Kept in memory, by one server process for itself, and bounded: what was used least recently is forgotten, and a file
that is not known is changed without a check. Contents are compared, not times.
"""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

from coretools.errors import NotText
from coretools.operations.call import Call
from coretools.roots.file_version import Version
from coretools.roots.read import FileContent
from coretools.roots.root import RootedPath
from coretools.roots.text import decode
from coretools.tools.filesystem.edit_diff import foreign_diff

MAX_FILES = 4_000
"""Files remembered, of all clients together: some 40 clients with 100 files each."""

MAX_COPIES_BYTES = 16 * 1024 * 1024
"""Bytes of contents kept to show what changed. Of further files only the hash is kept, and a change shows no diff."""

MAX_COPY_BYTES = 256 * 1024
"""Largest file of which a copy is kept; source files are smaller."""

NO_DIFF = "[no diff: the file is too large, or many others were read since]\n"

_Key = tuple[str, str, str]
"""Principal, session and path."""


@dataclass(slots=True)
class KnownFile:
    """A file as a client knows it: its content, the hash of it, or of a file that was read in part its version."""

    content: bytes | None = None
    digest: bytes | None = None
    version: Version | None = None

    def is_same(self, data: bytes, version: Version) -> bool:
        """Whether the file, which has this content and version now, is as the client knows it."""
        if self.content is not None:
            return data == self.content
        return _digest(data) == self.digest if self.digest is not None else version == self.version


class KnownFiles:
    """The files that clients know. Safe to use from several threads.

    A client is a session. Where there is none, all requests of a principal count as one client.
    """

    def __init__(self, *, most_files: int = MAX_FILES, most_bytes: int = MAX_COPIES_BYTES) -> None:
        """`most_files` are remembered, and `most_bytes` of their contents."""
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, KnownFile] = OrderedDict()
        self._copies: OrderedDict[_Key, None] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the contents that are kept."""
        return self._bytes

    def find(self, call: Call, place: RootedPath) -> KnownFile | None:
        """The file as this client knows it; None if it is not known."""
        with self._lock:
            return self._known.get(_key(call, place))

    def change_since(self, call: Call, content: FileContent) -> str:
        """The diff of what changed since this client last read or wrote the file; "" if nothing, or it is unknown."""
        known = self.find(call, content.place)
        if known is None or known.is_same(content.data, content.version):
            return ""
        if known.content is None:
            return NO_DIFF
        try:
            before, after = (decode(data, content.display_path).text for data in (known.content, content.data))
        except NotText:
            return "[no diff: the file is or was binary]\n"
        return foreign_diff(before, after, display_path=content.display_path)

    def record(self, call: Call, place: RootedPath, data: bytes) -> None:
        """Record the content that this client read or wrote."""
        is_copied = len(data) <= MAX_COPY_BYTES
        known = KnownFile(content=data) if is_copied else KnownFile(digest=_digest(data))
        with self._lock:
            self._put(_key(call, place), known)

    def record_part(self, call: Call, place: RootedPath, version: Version) -> None:
        """Record the version of a file of which this client read a part."""
        with self._lock:
            self._put(_key(call, place), KnownFile(version=version))

    def forget(self, call: Call, place: RootedPath) -> None:
        """Forget a file that this client deleted, or a directory with all files in it."""
        principal, session, path = _key(call, place)
        beneath = f"{path}/"
        with self._lock:
            for key in list(self._known):
                if key[:2] == (principal, session) and f"{key[2]}/".startswith(beneath):
                    self._take(key)

    def rename(self, call: Call, old: RootedPath, new: RootedPath) -> None:
        """Rename a file that this client moved."""
        with self._lock:
            known = self._take(_key(call, old))
            self._take(_key(call, new))
            if known is not None:
                self._put(_key(call, new), known)

    def _put(self, key: _Key, known: KnownFile) -> None:
        self._take(key)
        self._known[key] = known
        if known.content is not None:
            self._copies[key] = None
            self._bytes += len(known.content)
        while len(self._known) > self._most_files:
            self._take(next(iter(self._known)))
        while self._bytes > self._most_bytes:
            oldest, _ = self._copies.popitem(last=False)
            file = self._known[oldest]
            if file.content is not None:
                self._bytes -= len(file.content)
                # A new object: one that `find` has returned must not change.
                self._known[oldest] = KnownFile(digest=_digest(file.content))

    def _take(self, key: _Key) -> KnownFile | None:
        known = self._known.pop(key, None)
        if known is not None and known.content is not None:
            del self._copies[key]
            self._bytes -= len(known.content)
        return known


def _key(call: Call, place: RootedPath) -> _Key:
    return call.principal, call.session, place.path


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
