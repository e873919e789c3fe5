"""What `read_file` returns of a binary file that it cannot show: media type, size and hash, and what can show it."""

import hashlib

from coretools.cancellation import check_cancelled
from coretools.errors import NotText
from coretools.escapes import escape_controls
from coretools.operations.content import Result
from coretools.roots.read import OpenFile

HASHED_BYTES = 1024 * 1024 * 1024
"""Largest file that is hashed, in about a second. A sparse file can be larger than any disk."""

_BLOCK_BYTES = 1024 * 1024

_PROGRAMS = {
    "application/zip": "unzip -l",
    "application/x-tar": "tar -tvf",
    "application/gzip": "zcat, or tar -tzvf",
    "application/x-bzip2": "bzcat, or tar -tjvf",
    "application/x-xz": "xzcat, or tar -tJvf",
    "application/zstd": "zstdcat",
    "application/x-7z-compressed": "7z l",
    "application/x-archive": "ar tv",
    "application/x-elf": "readelf -h, or nm",
    "application/java-vm": "javap",
    "application/wasm": "wasm-objdump",
    "application/vnd.sqlite3": "sqlite3 -readonly FILE .schema",
    "video/mp4": "ffprobe",
    "video/webm": "ffprobe",
    "audio/mpeg": "ffprobe",
    "audio/ogg": "ffprobe",
    "audio/flac": "ffprobe",
    "audio/wav": "ffprobe",
}
"""Programs that show what is in a file of a media type."""


class BinaryFile(Result):
    """A binary file, described."""

    path: str
    type: str
    size: int
    sha256: str = ""
    """Hexadecimal; empty for a file too large to hash."""
    note: str = ""
    """Why its content is not shown, and what shows it; a sentence without a full stop."""

    def text(self) -> str:
        """One line of facts, and one that says what shows the content."""
        digest = f"sha256 {self.sha256}" if self.sha256 else "too large to hash here"
        return f"[{escape_controls(self.path)}: binary, {self.type}, {self.size} bytes, {digest}]\n[{self.note}]\n"

    def facts(self) -> dict[str, object]:
        """Media type, size and hash."""
        return {"type": self.type, "bytes": self.size, **({"sha256": self.sha256} if self.sha256 else {})}


def binary_type(error: NotText) -> str:
    """The media type of a file that was refused as binary; empty if it may be text in an unknown encoding."""
    return str(error.facts.get("type", ""))


def described(file: OpenFile, media_type: str, *, note: str = "", most_hashed: int = HASHED_BYTES) -> BinaryFile:
    """Describe an open file of this media type. One of up to `most_hashed` bytes is read from start to end."""
    program = _PROGRAMS.get(media_type, "xxd, strings or file")
    note = note or f"its content is not text; a program such as {program} shows what is in it, with run_command"
    digest = _sha256(file) if file.size <= most_hashed else ""
    return BinaryFile(path=file.display_path, type=media_type, size=file.size, sha256=digest, note=note)


def _sha256(file: OpenFile) -> str:
    digest = hashlib.sha256()
    position = 0
    while position < file.size and (block := file.read_at(position, min(_BLOCK_BYTES, file.size - position))):
        digest.update(block)
        position += len(block)
        check_cancelled()
    return digest.hexdigest()
