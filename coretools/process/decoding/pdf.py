"""Pages of a PDF as text and as pictures, by PDFium. Imported by the decoder alone."""

import codecs
import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import pypdfium2
import pypdfium2.raw

from coretools.process.decoding.pictures import encode, fitted

codecs.lookup("utf-16-le")
"""The encoding of PDFium's texts. The confined process can load no codec later."""

MOST_PICTURES = 6
"""Pages that are returned as pictures by one call."""

_UPSCALE = 3.0
"""Largest enlargement of a page: 72 points to 216 pixels an inch."""


def decode(file: BinaryIO, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Return the text of the pages from `first` to `last`, up to `characters` in all; with `pictures` these instead."""
    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        is_encrypted = getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD
        return {"error": "it is encrypted" if is_encrypted else "it is damaged, or no PDF"}, []
    count = len(document)
    first, last = request["first"], min(request["last"] or count, count)
    facts: dict[str, Any] = {"pages": count, "texts": [], "shown": [], "types": []}
    if first > count:
        return facts, []
    if request["pictures"]:
        return _pictures(document, range(first, last + 1)[:MOST_PICTURES], facts)
    room = request["characters"]
    for number in range(first, last + 1):
        text, length = _text(document, number, room)
        facts["texts"].append({"page": number, "text": text, "characters": length})
        room -= len(text) + len(f"[page {number}]\n")
        if room <= 0:
            break
    return facts, []


def _text(document: Any, number: int, most: int) -> tuple[str, int]:
    """The first `most` characters of the text of a page, and how many it has; no text for a page that is damaged."""
    try:
        page = document[number - 1]
        text = page.get_textpage()
        length = text.count_chars()
        return (text.get_text_range(0, min(length, most)).replace("\r\n", "\n"), length) if length > 0 else ("", 0)
    except (pypdfium2.PdfiumError, UnicodeDecodeError):
        return "[this page is damaged]", 0


def _pictures(document: Any, numbers: range, facts: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    images = []
    for number in numbers:
        try:
            page = document[number - 1]
            width, height = page.get_size()
            if not (0 < width < math.inf and 0 < height < math.inf):
                return {"error": f"page {number} has no size"}, []
            # Fit the enlarged page, then scale the page itself to that.
            shown, _ = fitted(math.ceil(width * _UPSCALE), math.ceil(height * _UPSCALE))
            picture = page.render(scale=shown / math.ceil(width)).to_pil()
        except pypdfium2.PdfiumError:
            return {"error": f"page {number} is damaged"}, []
        data, kind = encode(picture.resize(fitted(*picture.size)), is_photo=False)
        facts["shown"].append(fitted(*picture.size))
        facts["types"].append(kind)
        images.append(data)
    return facts, images
