"""A Jupyter notebook (nbformat 4) as text: its cells in order, outputs shortened, small pictures apart.

Pure, and without other imports than the standard library: small notebooks are read by the server, large ones by the
decoder. Everything in a notebook may be of any type, so nothing is taken for granted.
"""

import binascii
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

OUTPUT_LINES = 20
OUTPUT_CHARACTERS = 2_000
"""Shown of one output: of a longer one its start and its end."""

OUTPUTS = 20
"""Outputs shown of one cell."""

TEXT_BYTES = 4 * 1024 * 1024
"""Most text made of a notebook; an answer shows a part of it."""

PICTURE_BYTES = 200_000
PICTURE_SIDE = 1_568
"""Largest PNG of an output that is returned as an image; it is passed on as it is, so its size is read from its header.
Other pictures are named."""

ALL_PICTURES_BYTES = 2_000_000

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER_BYTES = 24


class NoNotebook(ValueError):
    """The file is no notebook of nbformat 4."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """The text of a notebook, its number of cells, and pictures by the label with which the text names them."""

    text: str
    cells: int
    pictures: Mapping[str, bytes]


def decode(file: BinaryIO, _: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[bytes]]:
    """As the decoder answers: the text and the labels, and the pictures."""
    try:
        notebook = read_notebook(file.read())
    except NoNotebook:
        return {"error": "it is no notebook; raw=true reads it as text"}, ()
    facts = {"text": notebook.text, "cells": notebook.cells, "labels": list(notebook.pictures)}
    sizes = {"shown": [(0, 0)] * len(notebook.pictures), "types": ["image/png"] * len(notebook.pictures)}
    return {**facts, **sizes}, list(notebook.pictures.values())


def read_notebook(data: bytes) -> Notebook:
    """Read a notebook from its JSON.

    Raises:
        NoNotebook: it is none. MemoryError, RecursionError: it is too large, or nested too deeply.
    """
    try:
        document = json.loads(data)
    except ValueError as error:
        raise NoNotebook(str(error)) from error
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list) or "nbformat" not in document:
        raise NoNotebook("no cells")
    pictures = _Pictures()
    parts, room = list[str](), TEXT_BYTES
    for number, cell in enumerate(cells, 1):
        shown = "".join(f"{line}\n" for line in _cell(cell if isinstance(cell, dict) else {}, number, pictures))
        room -= len(shown.encode("utf-8", "replace"))
        if room < 0:
            parts.append(
                f"[cells {number} to {len(cells)} left out, the notebook is too large; raw=true reads its JSON]\n"
            )
            break
        parts.append(shown)
    return Notebook("".join(parts), len(cells), pictures.kept)


class _Pictures:
    """The small pictures of outputs."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._room = ALL_PICTURES_BYTES

    def describe(self, kind: str, encoded: str) -> str:
        """Describe a picture; keep it if it is small."""
        if len(encoded) > 2 * PICTURE_BYTES:
            return f"{kind}, {len(encoded) * 3 // 4} bytes, not shown"
        try:
            data = binascii.a2b_base64(encoded)
        except ValueError:
            return f"{kind}, damaged"
        size = _png_size(data) if kind == "image/png" else None
        if size is None or max(size) > PICTURE_SIDE or len(data) > min(PICTURE_BYTES, self._room):
            return f"{kind}, {len(data)} bytes, not shown"
        label = f"image {len(self.kept) + 1}"
        self.kept[label] = data
        self._room -= len(data)
        return f"{label}, {size[0]} x {size[1]} pixels"


def _cell(cell: Mapping[str, Any], number: int, pictures: _Pictures) -> Iterator[str]:
    kind = _word(cell.get("cell_type"))
    count = cell.get("execution_count")
    yield f"[cell {number}, {kind}{f', run {count}' if isinstance(count, int) else ''}]"
    yield from _lines(_text(cell.get("source")))
    outputs = cell.get("outputs")
    if not isinstance(outputs, list):
        return
    for output in outputs[:OUTPUTS]:
        yield from _output(output if isinstance(output, dict) else {}, pictures)
    if len(outputs) > OUTPUTS:
        yield f"[{len(outputs) - OUTPUTS} outputs left out]"


def _output(output: Mapping[str, Any], pictures: _Pictures) -> Iterator[str]:
    kind = output.get("output_type")
    if kind == "stream":
        yield f"[output, {_word(output.get('name'))}]"
        yield from _shortened(_text(output.get("text")))
    elif kind == "error":
        yield "[error]"
        yield from _shortened(f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}")
        traceback = output.get("traceback")
        yield from _shortened("\n".join(map(_text, traceback)) if isinstance(traceback, list) else "")
    else:
        yield from _data(output.get("data"), pictures)


def _data(data: object, pictures: _Pictures) -> Iterator[str]:
    """The forms of one result: its plain text, its pictures; others are named where there is nothing else."""
    forms = data if isinstance(data, dict) else {}
    images = [name for name in forms if isinstance(name, str) and name.startswith("image/") and name != "image/svg+xml"]
    for name in images[:OUTPUTS]:
        yield f"[output, {pictures.describe(_word(name), _text(forms[name]))}]"
    if "text/plain" in forms and not images:
        yield "[output]"
        yield from _shortened(_text(forms["text/plain"]))
    elif not images:
        for name in list(forms)[:OUTPUTS]:
            yield f"[output, {_word(name)}, {len(_text(forms[name]))} characters, not shown]"


def _shortened(text: str) -> list[str]:
    lines = _lines(_ESCAPE_SEQUENCE.sub("", text))
    if len(lines) > OUTPUT_LINES:
        head, tail = lines[: OUTPUT_LINES * 3 // 4], lines[-OUTPUT_LINES // 4 :]
        lines = [*head, f"[... {len(lines) - len(head) - len(tail)} lines left out ...]", *tail]
    most = OUTPUT_CHARACTERS // max(1, min(len(lines), 8))
    return [
        line if len(line) <= most else f"{line[:most]} [... {len(line) - most} characters left out]" for line in lines
    ]


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _text(value: object) -> str:
    """A text of nbformat: one string, or a list of lines with their line breaks."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _word(value: object) -> str:
    """A short name, without what could end a remark."""
    return re.sub(r"[^\w/+.-]", "?", value)[:60] if isinstance(value, str) else "unknown"


def _png_size(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG) or len(data) < _PNG_HEADER_BYTES:
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return int(width), int(height)
