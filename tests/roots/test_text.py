"""Encodings are detected or refused; text that was read can be written back without a changed byte."""

import codecs
import random

import pytest

from coretools.errors import NotText
from coretools.roots.text import decode

SAMPLE = "first line\nGrüße, 日本 🎉\r\n\tthird"


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"", "utf-8", ""),
        (b"plain", "utf-8", "plain"),
        (SAMPLE.encode(), "utf-8", SAMPLE),
        (codecs.BOM_UTF8 + SAMPLE.encode(), "utf-8-sig", SAMPLE),
        (codecs.BOM_UTF16_LE + SAMPLE.encode("utf-16-le"), "utf-16-le-bom", SAMPLE),
        (codecs.BOM_UTF16_BE + SAMPLE.encode("utf-16-be"), "utf-16-be-bom", SAMPLE),
        (codecs.BOM_UTF32_LE + SAMPLE.encode("utf-32-le"), "utf-32-le-bom", SAMPLE),
        (codecs.BOM_UTF32_BE + SAMPLE.encode("utf-32-be"), "utf-32-be-bom", SAMPLE),
        ("plain words\r\n".encode("utf-16-le"), "utf-16-le", "plain words\r\n"),
        ("plain words\r\n".encode("utf-16-be"), "utf-16-be", "plain words\r\n"),
        ("Grüße aus Köln".encode("iso-8859-1"), "iso-8859-1", "Grüße aus Köln"),
        ("„quoted“ for 5 €, twenty-odd letters".encode("cp1252"), "cp1252", "„quoted“ for 5 €, twenty-odd letters"),
        (b"\x1b[1mbold\x1b[0m\n", "utf-8", "\x1b[1mbold\x1b[0m\n"),
    ],
)
def test_an_encoding_is_reported_and_kept(data: bytes, encoding: str, text: str) -> None:
    """roots-26: with its byte order mark."""
    found = decode(data, "file")
    assert (found.encoding, found.text) == (encoding, text)
    assert found.encode(found.text) == data
    assert decode(found.encode(f"{text}!") if text else b"", "file").encoding == encoding


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "application/pdf"),
        (b"PK\3\4\x14\0", "application/zip"),
        (b"\x1f\x8b\x08\0\0\0", "application/gzip"),
        (b"\x7fELF\2\1\1\0", "application/x-elf"),
        (b"SQLite format 3\0", "application/vnd.sqlite3"),
        (bytes(257) + b"ustar\0", "application/x-tar"),
        (bytes(range(256)), "application/octet-stream"),
        (b"\1\2\3\4" * 10, "application/octet-stream"),
        (b"text with a \0 in it", "application/octet-stream"),
    ],
)
def test_binary_content_is_refused_with_its_type_and_size(data: bytes, kind: str) -> None:
    """roots-27"""
    with pytest.raises(NotText) as caught:
        decode(data, "some/file")
    assert caught.value.facts == {"path": "some/file", "type": kind, "size": len(data)}
    assert str(caught.value) == f"some/file: binary ({kind}, {len(data)} bytes), not text"


@pytest.mark.parametrize(
    "data",
    [
        "日本語のテキスト".encode("shift_jis"),
        "Привет, мир".encode("cp1251"),
        "Grüße".encode() + b" and a stray \xff",
        codecs.BOM_UTF16_LE + b"odd",
        codecs.BOM_UTF8 + b"\xff",
        b"\xed\xa0\x80 half a surrogate pair in UTF-8",
    ],
    ids=["shift_jis", "cp1251", "mixed", "cut utf-16", "mark of utf-8 only", "surrogate"],
)
def test_an_encoding_that_is_not_certain_is_refused(data: bytes) -> None:
    """roots-26: the next edit would write a wrong guess back."""
    with pytest.raises(NotText) as caught:
        decode(data, "file")
    assert caught.value.facts["size"] == len(data)


@pytest.mark.parametrize(
    ("text", "newline"),
    [
        ("", ""),
        ("one", ""),
        ("a\nb\n", "\n"),
        ("a\r\nb", "\r\n"),
        ("a\rb", "\r"),
        ("a\nb\r\n", "mixed"),
        ("\r\r\n", "mixed"),
    ],
)
def test_line_endings_are_reported_and_left_alone(text: str, newline: str) -> None:
    """roots-26"""
    found = decode(text.encode(), "file")
    assert (found.text, found.newline) == (text, newline)


def test_a_character_that_the_encoding_lacks_is_an_error() -> None:
    """roots-26: it is not replaced by a question mark."""
    found = decode("Grüße aus Köln".encode("iso-8859-1"), "file")
    with pytest.raises(NotText, match="iso-8859-1"):
        found.encode("5 €")


def test_a_character_that_utf_8_lacks_is_an_error() -> None:
    """roots-26: half of a surrogate pair has no encoding."""
    with pytest.raises(NotText, match="utf-8"):
        decode(b"", "file").encode("\ud800")


def test_what_is_read_as_text_is_written_back_byte_for_byte() -> None:
    """roots-26: random bytes of several characters."""
    for seed in range(200):
        chance = random.Random(seed)
        alphabet = chance.choice(
            [bytes(range(256)), bytes(range(32, 256)), b"ab\0\r\n", b"abcdefghi\xe4\r\n", b"a\xff\xfe\0"]
        )
        start = chance.choice([b"", b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE])
        for _ in range(30):
            data = start + bytes(chance.choice(alphabet) for _ in range(chance.randint(0, 40)))
            try:
                found = decode(data, "file")
            except NotText:
                continue
            assert found.encode(found.text) == data, seed
