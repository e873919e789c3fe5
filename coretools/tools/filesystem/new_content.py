"""The content that `write_file` gives a file, where that depends on what the file has: appending, and hashes."""

from dataclasses import dataclass

from coretools.config.limits import Limits
from coretools.errors import CoreError, InvalidArguments, NotFound, TooLarge
from coretools.roots.file_version import Version
from coretools.roots.read import read_bytes
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.filesystem.tool_set import require_hash


@dataclass(frozen=True, slots=True)
class NewContent:
    """The new content of a file, and the version that it replaces."""

    data: bytes
    text: str
    before: str | None
    """The text that is replaced; None if there is no file."""
    version: Version | None


def encoded(content: str, path: str, limits: Limits) -> bytes:
    """Encode the content of a call.

    Raises:
        InvalidArguments: no valid Unicode. TooLarge: over `write_bytes`.
    """
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise InvalidArguments("content: must be valid Unicode text (no lone surrogates)") from None
    if len(data) > limits.write_bytes:
        raise TooLarge(f"{path}: content has {len(data)} bytes; the most is {limits.write_bytes}")
    return data


def appended(roots: Roots, limits: Limits, path: str, content: str, *, expected_hash: str | None) -> NewContent:
    """Add text to the end of a file, in its encoding, and with its line endings if they are CRLF.

    Raises:
        NotText: the file is binary, or its encoding lacks a character. TooLarge. Conflict: it has another hash. And
            what `open_file` raises.
    """
    try:
        old = read_bytes(roots, path, limit_bytes=limits.file_bytes)
    except NotFound:
        if expected_hash is not None:
            raise
        return NewContent(content.encode(), content, None, None)
    require_hash(old.data, expected_hash, old.display_path)
    before = decode(old.data, old.display_path)
    if before.newline == "\r\n" and "\r" not in content:
        content = content.replace("\n", "\r\n")
    text = before.text + content
    data = before.encode(text)
    if len(data) > limits.file_bytes:
        raise TooLarge(f"{old.display_path}: would have {len(data)} bytes; the most is {limits.file_bytes}")
    return NewContent(data, text, before.text, old.version)


def expected_version(roots: Roots, limits: Limits, path: str, expected_hash: str) -> Version:
    """The version of a file that has this hash.

    Raises:
        Conflict: it has another. And what `open_file` raises.
    """
    old = read_bytes(roots, path, limit_bytes=limits.file_bytes)
    require_hash(old.data, expected_hash, old.display_path)
    return old.version


def old_text(roots: Roots, limits: Limits, path: str) -> str | None:
    """The text of a file before it is replaced; None if there is none, or it is not text."""
    try:
        old = read_bytes(roots, path, limit_bytes=limits.file_bytes)
        return decode(old.data, old.display_path).text
    except CoreError:
        return None
