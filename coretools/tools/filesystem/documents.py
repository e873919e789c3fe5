"""Pictures, PDF and notebooks for a model: the requested part, and the answer as text and images.

The decoder does the work, except for small notebooks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coretools.config.limits import Limits
from coretools.errors import InvalidArguments, TooLarge
from coretools.escapes import escape_controls
from coretools.operations.content import Image, Result
from coretools.process.decoding.decoder import Decoded, DecodedImage, Decoder, PageText
from coretools.process.decoding.notebook import NoNotebook, Notebook, read_notebook
from coretools.roots.read import OpenFile
from coretools.tools.answer_budget import NOTE_BYTES, content_bytes
from coretools.tools.filesystem.binary_file import BinaryFile, described
from coretools.tools.filesystem.file_text import TextBudget, text_of_file
from coretools.tools.filesystem.line_window import LineRange

PDF = "application/pdf"
PDF_START = b"%PDF-"

NOTEBOOK = "application/x-ipynb+json"
NOTEBOOK_NAME = ".ipynb"

NOTEBOOK_BYTES = 1024 * 1024
"""Largest notebook that the server reads itself, in some 20 ms; larger ones are read by the decoder."""

MOST_NOTEBOOK_BYTES = 256 * 1024 * 1024

NOTEBOOK_PICTURES = 4
"""Most pictures of a notebook in one answer."""

PICTURES = frozenset(
    {
        *("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff", "image/x-icon"),
        "image/avif",
    }
)
"""Media types that are shown as pictures. SVG is text."""

_PAGES = re.compile(r"(?P<first>[1-9][0-9]{0,8})(?:(?P<dash>-)(?P<last>[1-9][0-9]{0,8})?)?")


class PictureFile(Result):
    """A picture, as an image for the model after a line of text."""

    path: str
    type: str
    size: int
    width: int
    height: int
    frames: int
    image: Image
    shown: tuple[int, int]

    def text(self) -> str:
        """What the picture is, and how it is shown."""
        name = escape_controls(self.path)
        frames = f", the first of {self.frames} frames" if self.frames > 1 else ""
        scale = "" if self.shown == (self.width, self.height) else f", scaled by {self.shown[0] / self.width:.3g}"
        shown = f"{self.image.mime_type} of {self.shown[0]} x {self.shown[1]} pixels{scale}{frames}"
        whole = f"{self.type}, {self.width} x {self.height} pixels, {self.size} bytes"
        return f"[{name}: {whole}; shown as {shown}]"

    def media(self) -> tuple[Image, ...]:
        """The picture."""
        return (self.image,)

    def facts(self) -> dict[str, object]:
        """Media type, bytes and size in pixels of the file."""
        return {"type": self.type, "bytes": self.size, "width": self.width, "height": self.height}


class PdfFile(Result):
    """Pages of a PDF: their text, or pictures of them."""

    path: str
    size: int
    pages: int
    body: str
    images: tuple[Image, ...] = ()

    def text(self) -> str:
        """A line about the file, then the pages."""
        return f"[{escape_controls(self.path)}: PDF of {self.pages} pages, {self.size} bytes]\n{self.body}"

    def media(self) -> tuple[Image, ...]:
        """The pictures of pages."""
        return self.images

    def facts(self) -> dict[str, object]:
        """Media type, bytes and number of pages."""
        return {"type": PDF, "bytes": self.size, "pages": self.pages}


class NotebookFile(Result):
    """The cells of a notebook, with the pictures that the shown ones name."""

    path: str
    size: int
    cells: int
    body: str
    images: tuple[Image, ...] = ()

    def text(self) -> str:
        """A line about the file, then the cells."""
        about = f"notebook of {self.cells} cells, {self.size} bytes; raw=true reads its JSON, which edit_file edits"
        return f"[{escape_controls(self.path)}: {about}]\n{self.body}"

    def media(self) -> tuple[Image, ...]:
        """Pictures of outputs."""
        return self.images

    def facts(self) -> dict[str, object]:
        """Media type, bytes and number of cells."""
        return {"type": NOTEBOOK, "bytes": self.size, "cells": self.cells}


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages of a PDF, from 1; `last` None: to the end."""

    first: int = 1
    last: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> "PageRange":
        """Parse "3", "2-5" or "7-"; None is all pages.

        Raises:
            InvalidArguments: another form.
        """
        if text is None:
            return cls()
        found = _PAGES.fullmatch(text.strip())
        if found is None or (found["last"] and int(found["last"]) < int(found["first"])):
            raise InvalidArguments(f'pages: {text!r} is no range of pages; give one as "3", "2-5" or "7-"')
        first = int(found["first"])
        return cls(first, int(found["last"]) if found["last"] else None if found["dash"] else first)


class Documents:
    """Reads pictures, PDF and large notebooks with the decoder."""

    def __init__(self, decoder: Decoder | None, limits: Limits) -> None:
        """Without a decoder pictures and PDF are described."""
        self._decoder = decoder
        self._limits = limits

    def picture(self, file: OpenFile, media_type: str) -> PictureFile | BinaryFile:
        """Read a picture.

        Raises:
            What `Decoder.decode` raises.
        """
        if self._decoder is None or (missing := self._decoder.missing("picture")):
            return described(file, media_type, note=_note("a picture", "" if self._decoder is None else missing))
        decoded = self._decoder.decode(file, "picture", {})
        image = decoded.images[0]
        return PictureFile(
            path=file.display_path,
            type=media_type,
            size=file.size,
            width=decoded.width,
            height=decoded.height,
            frames=decoded.frames,
            image=_image(image),
            shown=(image.width, image.height),
        )

    def pdf(self, file: OpenFile, pages: str | None, *, as_pictures: bool) -> PdfFile | BinaryFile:
        """Read pages of a PDF.

        Raises:
            InvalidArguments: the file has no such page. And what `Decoder.decode` raises.
        """
        wanted = PageRange.parse(pages)
        if self._decoder is None or (missing := self._decoder.missing("pdf")):
            return described(file, PDF, note=_note("a PDF", "" if self._decoder is None else missing))
        budget = content_bytes(self._limits)
        request = {"first": wanted.first, "last": wanted.last, "pictures": as_pictures, "characters": budget}
        decoded = self._decoder.decode(file, "pdf", request)
        if wanted.first > decoded.pages:
            raise InvalidArguments(f"{file.display_path}: has {decoded.pages} pages", pages=decoded.pages)
        last = min(wanted.last or decoded.pages, decoded.pages)
        shown = _pictures_text if as_pictures else _pages_text
        return PdfFile(
            path=file.display_path,
            size=file.size,
            pages=decoded.pages,
            body=shown(decoded, PageRange(wanted.first, last), budget),
            images=tuple(map(_image, decoded.images)),
        )

    def notebook(self, file: OpenFile, lines: LineRange) -> NotebookFile | None:
        """Read a notebook; `lines` are those of its text. None: the file is none.

        Raises:
            TooLarge: it is. And what `Decoder.decode` raises.
        """
        try:
            notebook = self._read_notebook(file)
        except (NoNotebook, RecursionError):
            return None
        data = notebook.text.encode("utf-8", "replace")
        answer = TextBudget.of(self._limits)
        budget = TextBudget(answer.content, answer.whole - NOTE_BYTES // 2)
        body = text_of_file(data, file.display_path, lines, budget).content
        named = [picture for label, picture in notebook.pictures.items() if f"[output, {label}," in body]
        return NotebookFile(
            path=file.display_path,
            size=file.size,
            cells=notebook.cells,
            body=body,
            images=tuple(Image(picture, "image/png") for picture in named[:NOTEBOOK_PICTURES]),
        )

    def _read_notebook(self, file: OpenFile) -> Notebook:
        if file.size <= NOTEBOOK_BYTES:
            return read_notebook(file.read_at(0, file.size))  # not `read`, which may follow
        if file.size > MOST_NOTEBOOK_BYTES:
            limit = f"at most {MOST_NOTEBOOK_BYTES} are read as cells; raw=true reads parts of its JSON"
            raise TooLarge(f"{file.display_path}: {file.size} bytes; {limit}", path=file.display_path, size=file.size)
        if self._decoder is None:
            raise NoNotebook("no decoder")
        decoded = self._decoder.decode(file, "notebook", {})
        pictures = zip(decoded.labels, decoded.images, strict=False)
        return Notebook(decoded.text, decoded.cells, {label: image.data for label, image in pictures})


def _note(what: str, missing: str) -> str:
    return f"to show {what}, the server {missing}" if missing else f"{what} is shown by a server only"


def _image(image: DecodedImage) -> Image:
    return Image(image.data, image.mime_type)


def _pages_text(decoded: Decoded, wanted: PageRange, budget: int) -> str:
    parts, last = list[str](), wanted.first - 1
    for page in decoded.texts:
        text, size = _page_text(page, budget)
        if size > budget and parts:
            break
        parts.append(text)
        budget -= size
        last = page.page
    notes = []
    if not any(page.characters for page in decoded.texts):
        notes.append("no text on these pages, perhaps they are scanned; as_pictures=true shows them")
    return "".join(parts) + _notes([*notes, *_rest(last, wanted)])


def _page_text(page: PageText, budget: int) -> tuple[str, int]:
    """A page with its headline, cut to the budget; and the bytes that it takes, over the budget if it was cut."""
    headline = f"[page {page.page}]\n"
    data = page.text.encode("utf-8", "replace")
    room = budget - len(headline) - 1
    if len(data) <= room and len(page.text) == page.characters:
        ending = "" if not page.text or page.text.endswith("\n") else "\n"
        return f"{headline}{page.text}{ending}", len(headline) + len(data) + 1
    shown = data[: max(0, room)].decode("utf-8", "ignore")
    remark = f"[{page.characters - len(shown)} characters of this page left out; as_pictures=true shows the page]\n"
    return f"{headline}{shown}\n{remark}", budget + 1


def _pictures_text(decoded: Decoded, wanted: PageRange, _: int) -> str:
    sizes = [
        f"page {number}, {image.width} x {image.height} pixels"
        for number, image in enumerate(decoded.images, wanted.first)
    ]
    last = wanted.first + len(decoded.images) - 1
    return _notes([f"shown as pictures: {'; '.join(sizes)}", *_rest(last, wanted)])


def _rest(last: int, wanted: PageRange) -> list[str]:
    if wanted.last is None or last >= wanted.last:
        return []
    return [f'pages {last + 1} to {wanted.last} are left out; pages="{last + 1}-{wanted.last}" reads on']


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"[{note}]\n" for note in notes)
