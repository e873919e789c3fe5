"""Decode the bytes of a file as text and encode them again unchanged, or report what they are. Pure.

UTF-8, UTF-16 and UTF-32 are recognised with certainty; a file in none of them is read in a Western 8-bit encoding only
if nothing contradicts it, and the text carries the name of its encoding. Line endings are preserved. Binary
content is reported by its media type (`media_type`).
"""

import codecs
import re
from dataclasses import dataclass

from coretools.errors import NotText
from coretools.roots.media_type import OCTET_STREAM, SIGNATURE_BYTES, media_type

_MARKS: tuple[tuple[bytes, str, str], ...] = (
    # UTF-32 first: its byte order mark begins with that of UTF-16.
    (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le-bom"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be-bom"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le-bom"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be-bom"),
)

_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n\v\f\r\b\x1b"))
_MAX_CONTROLS = 0.02
"""Largest share of control characters in text: a log with a few still is text."""

_MAX_HIGH = 0.3
"""Largest share of bytes above 127 in Western text; more means another script, which cannot be guessed."""

_MULTIBYTE = re.compile(rb"[\xc3-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")

_SAMPLE_BYTES = 64 * 1024
"""Sample in which a share is measured."""


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text with what is needed to write it back."""

    text: str
    """Without the byte order mark."""
    encoding: str
    """`utf-8`, `utf-8-sig`, `utf-16-le` or another name of a codec; the suffix `-bom`: with a byte order mark."""
    newline: str
    """`\\n`, `\\r\\n` or `\\r` if every line ends so, `mixed`, or empty without line breaks."""
    display_path: str

    def encode(self, text: str) -> bytes:
        """Encode other text in the same encoding, with the same byte order mark.

        Raises:
            NotText: the encoding has no such character.
        """
        mark, codec = next(
            ((mark, codec) for mark, codec, name in _MARKS if name == self.encoding), (b"", self.encoding)
        )
        try:
            return mark + text.encode(codec)
        except UnicodeEncodeError as error:
            raise NotText(
                f"{self.display_path}: its encoding, {self.encoding}, has no character {text[error.start]!a}",
                path=self.display_path,
                encoding=self.encoding,
            ) from error


def decode(data: bytes, display_path: str) -> DecodedText:
    """Decode a file's bytes; `encode` of the result returns the same bytes.

    Raises:
        NotText: binary content, with its media type and size, or an encoding that cannot be determined.
    """
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            return _decode_as(data, len(mark), codec, name, display_path)
    if b"\0" in data:
        wide = _wide_codec(data)
        if wide is None:
            raise binary_error(data, display_path, size=len(data))
        return _decode_as(data, 0, wide, wide, display_path)
    if _share(data, _CONTROLS) > _MAX_CONTROLS:
        raise binary_error(data, display_path, size=len(data))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _decode_western(data, error.start, display_path)
    return DecodedText(text, "utf-8", newline_of(text), display_path)


def utf8_by_start(sample: bytes, display_path: str, *, size: int) -> tuple[str, int] | None:
    """Encoding and length of the byte order mark, if the start of a file is UTF-8.

    None if the whole file must be examined: another encoding, with or without a byte order mark.

    Raises:
        NotText: binary content, with its media type and size.
    """
    if sample.startswith(codecs.BOM_UTF8):
        return "utf-8-sig", len(codecs.BOM_UTF8)
    if any(sample.startswith(mark) for mark, _, _ in _MARKS):
        return None
    if b"\0" in sample and _wide_codec(sample) is not None:
        return None
    if b"\0" in sample or _share(sample, _CONTROLS) > _MAX_CONTROLS:
        raise binary_error(sample, display_path, size=size)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return None
    return "utf-8", 0


def _decode_as(data: bytes, skipped: int, codec: str, name: str, display_path: str) -> DecodedText:
    try:
        text = data[skipped:].decode(codec)
    except UnicodeDecodeError as error:
        raise NotText(
            f"{display_path}: begins like {name}, but is invalid at byte {skipped + error.start}; not read as text",
            path=display_path,
            encoding=name,
            size=len(data),
        ) from error
    return DecodedText(text, name, newline_of(text), display_path)


def _wide_codec(data: bytes) -> str | None:
    """UTF-16 without a byte order mark: every second byte is mostly NUL and the others never are."""
    sample = data[: _SAMPLE_BYTES & ~1]
    if len(data) % 2 or media_type(data[:SIGNATURE_BYTES]) != OCTET_STREAM:
        return None
    for codec, empty, full in (("utf-16-le", sample[1::2], sample[::2]), ("utf-16-be", sample[::2], sample[1::2])):
        if b"\0" not in full and empty.count(0) * 2 > len(empty) and _share(full, _CONTROLS) <= _MAX_CONTROLS:
            return codec
    return None


def _decode_western(data: bytes, at: int, display_path: str) -> DecodedText:
    """Text in ISO 8859-1 or Windows-1252, if nothing contradicts that."""
    if media_type(data[:SIGNATURE_BYTES]) != OCTET_STREAM:
        raise binary_error(data, display_path, size=len(data))
    sample = data[max(0, at - _SAMPLE_BYTES // 2) : at + _SAMPLE_BYTES // 2]
    high = sum(sample.count(byte) for byte in range(0x80, 0x100))
    if high <= _MAX_HIGH * len(sample) and not _MULTIBYTE.search(data):
        for codec, strange in (("iso-8859-1", range(0x80, 0xA0)), ("cp1252", b"\x81\x8d\x8f\x90\x9d")):
            if not any(byte in data for byte in strange):
                text = data.decode(codec)
                return DecodedText(text, codec, newline_of(text), display_path)
    raise NotText(
        f"{display_path}: not UTF-8 (byte {data[at]:#04x} at offset {at}), and no other encoding is certain; "
        f"{len(data)} bytes; convert it to UTF-8 to work with it",
        path=display_path,
        size=len(data),
    )


def binary_error(start: bytes, display_path: str, *, size: int) -> NotText:
    """The error for a binary file with this start."""
    kind = media_type(start[:SIGNATURE_BYTES])
    return NotText(f"{display_path}: binary ({kind}, {size} bytes), not text", path=display_path, type=kind, size=size)


def _share(data: bytes, characters: bytes) -> float:
    sample = data[:_SAMPLE_BYTES]
    return (len(sample) - len(sample.translate(None, characters))) / len(sample) if sample else 0.0


def newline_of(text: str) -> str:
    """The line ending of a text: see `DecodedText.newline`."""
    both = text.count("\r\n")
    counts = {"\r\n": both, "\n": text.count("\n") - both, "\r": text.count("\r") - both}
    endings = [ending for ending, count in counts.items() if count]
    return endings[0] if len(endings) == 1 else "mixed" if endings else ""
