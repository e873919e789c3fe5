"""Pictures and PDF through a real client, and hostile ones (docs/specs/filesystem.md)."""

import base64
import io
import json
import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.config.limits import Limits
from coretools.errors import InvalidArguments
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.documents import PageRange
from coretools.tools.filesystem.tools import FilesystemTools
from tests.protocol.peer import Peer, peer

Pictures = pytest.importorskip("PIL.Image")
pytest.importorskip("pypdfium2")


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def client(top: Path) -> Iterator[Peer]:
    with peer(top) as served:
        served.start_session()
        yield served


def read(client: Peer, path: str, **arguments: object) -> dict[str, Any]:
    answer = client.ask("tools/call", {"name": "read_file", "arguments": {"path": path, **arguments}})
    return dict(answer["result"])


def shown(result: dict[str, Any]) -> tuple[str, list[tuple[str, tuple[int, int]]]]:
    """The text, and of each image its type and its real size."""
    text, *images = result["content"]
    assert text["type"] == "text"
    assert all(one["type"] == "image" for one in images)
    opened = [(one["mimeType"], Pictures.open(io.BytesIO(base64.b64decode(one["data"])))) for one in images]
    assert all(Pictures.MIME[picture.format] == kind for kind, picture in opened)
    return text["text"], [(kind, picture.size) for kind, picture in opened]


def pdf(*texts: str, pages: int | None = None) -> bytes:
    """A PDF with a text on each page; with `pages` one page object is used that often."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(texts)))
    if pages is not None:
        kids = "4 0 R " * pages
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages or len(texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(texts):
        drawn = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {font} /Contents {5 + 2 * number} 0 R >>")
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def png_of(width: int, height: int, pieces: list[bytes]) -> bytes:
    """A gray PNG whose header promises a size, with compressed data of one's own."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = b"".join(chunk(b"IDAT", piece) for piece in pieces)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


NOTEBOOK = json.dumps(
    {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"language_info": {"name": "python"}},
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "text"]},
            {
                "cell_type": "code",
                "execution_count": 1,
                "metadata": {},
                "source": "print(1)",
                "outputs": [
                    {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                    {
                        "output_type": "display_data",
                        "metadata": {},
                        "data": {"image/png": "iVBORw0KGgo=", "text/plain": "x"},
                    },
                    {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m"]},
                ],
            },
        ],
    }
).encode()


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif", "bmp", "tiff", "ico", "avif"])
def test_a_picture_comes_as_an_image_of_its_size(client: Peer, top: Path, kind: str) -> None:
    """filesystem-64: every format, as PNG or JPEG, with the facts in text before it."""
    Pictures.effect_noise((200, 100), 60).convert("RGB").save(top / f"small.{kind}", kind, sizes=[(200, 100)])
    result = read(client, f"small.{kind}")
    text, [(mime_type, size)] = shown(result)
    assert size == (200, 100)
    assert mime_type == ("image/jpeg" if kind == "jpeg" else "image/png")
    assert re.match(rf"\[small\.{kind}: image/[a-z-]+, 200 x 100 pixels, ", text)
    assert result["_meta"]["coretools/facts"]["width"] == 200


def test_a_large_picture_is_scaled_to_what_models_accept(client: Peer, top: Path) -> None:
    """filesystem-64: longest side 1,568 and 1.15 megapixels, turned as its camera says; the text names the scale."""
    Pictures.effect_noise((4_000, 3_000), 60).convert("RGB").save(top / "large.jpg")
    text, [(_, size)] = shown(read(client, "large.jpg"))
    assert size == (1_238, 928)
    assert re.search("4000 x 3000 pixels, .* scaled by 0.309", text)
    Pictures.new("RGBA", (4_000, 10), "red").save(top / "wide.png")
    assert shown(read(client, "wide.png"))[1] == [("image/png", (1_568, 3))]
    exif = Pictures.Exif()
    exif[0x0112] = 6
    Pictures.new("RGB", (60, 20)).save(top / "turned.jpg", exif=exif)
    assert shown(read(client, "turned.jpg"))[1] == [("image/jpeg", (20, 60))]
    frames = [Pictures.effect_noise((10, 10), 60) for _ in range(3)]
    frames[0].save(top / "moving.gif", save_all=True, append_images=frames[1:])
    assert "the first of 3 frames" in shown(read(client, "moving.gif"))[0]


def test_svg_stays_text_and_raw_describes(client: Peer, top: Path) -> None:
    """filesystem-64, filesystem-68."""
    (top / "a.svg").write_text("<svg/>\n")
    assert shown(read(client, "a.svg")) == ("<svg/>\n", [])
    Pictures.new("L", (9, 9)).save(top / "raw.png")
    assert shown(read(client, "raw.png", raw=True))[0].startswith("[raw.png: binary, image/png, ")
    (top / "raw.pdf").write_bytes(pdf("page"))
    assert shown(read(client, "raw.pdf", raw=True))[0].startswith("%PDF-1.4\n1 0 obj\n")


HOSTILE = {
    "promised.png": (png_of(50_000, 50_000, [zlib.compress(b"")]), "50000 x 50000 pixels; at most 64 million"),
    "short.png": (png_of(8_000, 8_000, [zlib.compress(b"\0" * 8_001 * 100)]), "damaged"),
    "truncated.png": (png_of(100, 100, [zlib.compress(b"\1" * 50)])[:-20], "damaged"),
    "start.png": (b"\x89PNG\r\n\x1a\n" + bytes(100), "damaged"),
    "start.jpg": (b"\xff\xd8\xff" + bytes(100), "damaged"),
    "start.gif": (b"GIF89a" + b"\xff\xff\xff\xff\xf7\0\0" + bytes(900), "s"),
    "start.webp": (b"RIFF\xff\xff\xff\xffWEBPVP8 " + bytes(100), "damaged"),
    "start.tiff": (b"II*\0" + b"\x08\0\0\0\xff\xff" + b"\xff" * 200, "damaged"),
    "start.bmp": (b"BM" + bytes(100), "damaged"),
    "start.ico": (b"\0\0\1\0" + b"\xff" * 100, "damaged"),
    "start.avif": (b"\0\0\0\x1cftypavif" + bytes(100), "damaged"),
    "start.pdf": (b"%PDF-1.7\n" + bytes(1_000), "damaged, or no PDF"),
    "text_chunk.png": (b"", "x"),
}
LARGE = {"text_chunk.png": lambda: png_of(1, 1, [zlib.compress(b"\0" * (1 << 28), 9)])}
"""Those that take long to make, which is not done wherever the test is only collected."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_has_an_answer_and_the_server_lives(client: Peer, top: Path, name: str) -> None:
    """filesystem-66: the error says what is wrong; the next call works."""
    data, said = HOSTILE[name]
    (top / name).write_bytes(LARGE[name]() if name in LARGE else data)
    result = read(client, name)
    if result.get("isError"):
        assert result["_meta"]["coretools/error"] in ("not-text", "too-large")
        assert said in result["content"][0]["text"]
    else:
        assert name in ("start.gif", "short.png", "text_chunk.png")  # what is there is shown
    (top / "after.txt").write_text("after\n")
    assert shown(read(client, "after.txt"))[0] == "after\n"


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Change bytes, numbers, or the order of parts of a file; or cut it."""
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 8)):
        at = dice.randrange(len(changed))
        match dice.randrange(5):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                changed[at : at + 4] = dice.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"9999"))
            case 2:
                changed[at:at] = changed[dice.randrange(len(changed)) :][: dice.randrange(1, 200)]
            case 3:
                del changed[at : at + dice.randrange(1, 50)]
            case _:
                changed = changed[: max(16, at)]
    return bytes(changed)


@pytest.mark.parametrize("seed", [1])
def test_damaged_files_have_an_answer_and_the_server_lives(client: Peer, top: Path, seed: int) -> None:
    """filesystem-66: whatever a picture, a PDF or a notebook became, it is shown, described or refused."""
    dice = random.Random(seed)
    sound = {"a.pdf": pdf("first", "second"), "a.ipynb": NOTEBOOK}
    for kind in ("png", "jpeg", "webp", "gif", "bmp", "tiff", "ico", "avif"):
        buffer = io.BytesIO()
        Pictures.effect_noise((60, 40), 60).convert("RGB").save(buffer, kind, sizes=[(60, 40)])
        sound[f"a.{kind}"] = buffer.getvalue()
    for name, data in sound.items():
        (top / name).write_bytes(damaged(data, dice))
        result = read(client, name, **({"as_pictures": True} if dice.random() < 0.3 and name == "a.pdf" else {}))
        assert result["content"][0]["text"]
        assert result["_meta"].get("coretools/error") in (None, "not-text", "too-large", "invalid-arguments"), result
    (top / "after.txt").write_text("after\n")
    assert shown(read(client, "after.txt"))[0] == "after\n"


def test_a_pdf_comes_as_text_by_page(client: Peer, top: Path) -> None:
    """filesystem-65."""
    (top / "a.pdf").write_bytes(pdf("first", "second", "third"))
    text, images = shown(read(client, "a.pdf"))
    size = (top / "a.pdf").stat().st_size
    pages = "[page 1]\nfirst\n[page 2]\nsecond\n[page 3]\nthird\n"
    assert (text, images) == (f"[a.pdf: PDF of 3 pages, {size} bytes]\n{pages}", [])
    assert shown(read(client, "a.pdf", pages="2-3"))[0].endswith("pages, " + f"{size} bytes]\n" + pages[15:])
    text, images = shown(read(client, "a.pdf", pages="2", as_pictures=True))
    assert text.endswith("[shown as pictures: page 2, 942 x 1220 pixels]\n")
    assert images == [("image/png", (942, 1220))]
    missing = read(client, "a.pdf", pages="4-")
    assert missing["isError"]
    assert "has 3 pages" in missing["content"][0]["text"]
    assert read(client, "after.txt", pages="1")["isError"]


def test_a_pdf_of_100000_pages_is_read_in_parts(client: Peer, top: Path) -> None:
    """filesystem-65: the answer is bounded, and names the pages that follow."""
    (top / "many.pdf").write_bytes(pdf("the same page again and again", pages=100_000))
    text, _ = shown(read(client, "many.pdf"))
    assert "PDF of 100000 pages" in text
    assert len(text.encode()) <= 20_000
    following = text.splitlines()[-1]
    assert re.fullmatch(r'\[pages \d+ to 100000 are left out; pages="\d+-100000" reads on\]', following)
    assert "[page 99999]" in shown(read(client, "many.pdf", pages="99999-"))[0]
    assert len(shown(read(client, "many.pdf", as_pictures=True))[1]) == 6


def test_an_encrypted_pdf_says_so(client: Peer, top: Path) -> None:
    """filesystem-65: one that needs a password."""
    plain = pdf("secret")
    trailer = (
        b"trailer << /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"41" * 32 + b"> /U <" + b"42" * 32 + b"> >>"
    )
    data = plain.replace(b"trailer <<", trailer[:-3] + b" >> /ID [<41> <41>]", 1)
    (top / "locked.pdf").write_bytes(data)
    result = read(client, "locked.pdf")
    assert result["isError"]
    assert "it is encrypted" in result["content"][0]["text"]


def test_hidden_pictures_stay_hidden(client: Peer, top: Path) -> None:
    """filesystem-29: deny rules hold before a picture is decoded."""
    (top / ".ssh").mkdir()
    Pictures.new("L", (9, 9)).save(top / ".ssh" / "id_rsa", "PNG")
    assert read(client, ".ssh/id_rsa")["_meta"]["coretools/error"] == "denied-path"


def test_ranges_of_pages() -> None:
    """filesystem-65."""
    assert PageRange.parse(None) == PageRange(1, None)
    assert PageRange.parse("3") == PageRange(3, 3)
    assert PageRange.parse("2-5") == PageRange(2, 5)
    assert PageRange.parse("7-") == PageRange(7, None)
    for wrong in ("0", "5-2", "a", "-3", "1,2", ""):
        with pytest.raises(InvalidArguments, match="range of pages"):
            PageRange.parse(wrong)


def test_without_a_decoder_a_picture_is_described(top: Path) -> None:
    """filesystem-64: tools that are called without a server, and servers without the extra."""
    Pictures.new("L", (9, 9)).save(top / "plain.png")
    with Roots([RootSpec(str(top))], deny=DenyRules(DEFAULT_DENY)) as roots:
        answer = FilesystemTools(roots, Limits()).read_file("plain.png")
    assert answer.facts()["type"] == "image/png"
    assert "sha256" in answer.text()
