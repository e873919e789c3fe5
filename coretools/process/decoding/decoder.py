"""Decode pictures and PDF for a tool, each in a process of its own (`program`) that can reach nothing but that file.

Decoders of pictures and fonts are the classic way into a program that opens files of strangers (docs/adr/0057), so none
runs in the server. The reply is data of a stranger too, and checked.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import anyio.from_thread
from anyio import NoEventLoopError
from pydantic import BaseModel, ConfigDict, ValidationError

import coretools
from coretools.cancellation import check_cancelled
from coretools.distribution import needs_extra
from coretools.errors import CannotStart, CoreError, NotText, TooLarge
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.open_beneath import HANDLE
from coretools.roots.read import OpenFile
from coretools.roots.root import Directory, RootedPath

Kind = Literal["picture", "pdf", "notebook"]

MODULES: Mapping[Kind, tuple[str, ...]] = {
    "picture": ("PIL",),
    "pdf": ("PIL", "pypdfium2", "pypdfium2_raw"),
    "notebook": (),
}
"""What the decoder loads for each kind: the extra `files`."""

SECONDS = 30.0
"""Deadline of the process, start included. Its processor time is limited to less (`program.CPU_SECONDS`)."""

REPLY_BYTES = 32 * 1024 * 1024
"""Most output that is accepted: several times what the decoder ever sends."""

INSTALL = needs_extra("files")

_PROGRAM = """
import sys
sys.path[:0] = sys.argv.pop(1).splitlines()
from coretools.process.decoding.program import main
main()
"""
_LIBRARY_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_STDERR_BYTES = 4_096


class PageText(BaseModel):
    """The text of a page, perhaps cut; `characters` is its whole length."""

    page: int
    text: str
    characters: int


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    error: str = ""
    is_too_large: bool = False
    width: int = 0
    height: int = 0
    frames: int = 1
    pages: int = 0
    texts: tuple[PageText, ...] = ()
    text: str = ""
    cells: int = 0
    labels: tuple[str, ...] = ()
    shown: tuple[tuple[int, int], ...] = ()
    types: tuple[Literal["image/png", "image/jpeg"], ...] = ()
    images: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An image for a model: encoded, with media type and size in pixels."""

    data: bytes
    mime_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """What is in a file: of a picture its original size, of a PDF its pages, of a notebook its cells as text."""

    width: int
    height: int
    frames: int
    pages: int
    texts: tuple[PageText, ...]
    text: str
    cells: int
    labels: tuple[str, ...]
    """Names of the images of a notebook, as its text has them."""
    images: tuple[DecodedImage, ...]


class Decoder:
    """Decodes files for tools that run in worker threads."""

    def __init__(self, runner: Runner, modules: Mapping[Kind, tuple[str, ...]] = MODULES) -> None:
        self._runner = runner
        self._modules = modules

    def missing(self, kind: Kind) -> str:
        """What must be installed to decode this kind; empty if it can be. Imports nothing."""
        return "" if all(map(find_spec, self._modules[kind])) else INSTALL

    def decode(self, file: OpenFile, kind: Kind, request: Mapping[str, Any]) -> Decoded:
        """Decode an open file. Blocks, for at most SECONDS; call it in a worker thread.

        Raises:
            NotText: it is damaged or encrypted, or the decoder failed. TooLarge: it needs more memory or time than it
                may. CannotStart: no process can be started. And what `Runner.run` raises.
        """
        reply = bytearray()

        def collect(piece: bytes) -> bool:
            reply.extend(piece)
            return len(reply) > REPLY_BYTES

        options = RunOptions(
            timeout_seconds=SECONDS,
            keep_bytes=_STDERR_BYTES,
            inherit=False,
            environment={name: os.environ[name] for name in _LIBRARY_VARIABLES if name in os.environ},
            passed=(file.fd,),
            on_stdout=collect,
        )
        completed = self._run((*decoder_argv(kind, self._modules[kind], request), str(file.fd)), file.place, options)
        return _decoded(bytes(reply), completed, file.display_path)

    def _run(self, argv: tuple[str, ...], place: RootedPath, options: RunOptions) -> Completed:
        with Directory(os.open("/", HANDLE), place, "/") as top:
            try:
                return anyio.from_thread.run(partial(self._runner.run, argv, cwd=top, options=options))
            except NoEventLoopError as error:
                raise CannotStart("no decoder can be started here: the tool was called without a server") from error
            except CancelledError:
                check_cancelled()
                raise


def decoder_argv(kind: Kind, modules: Sequence[str], request: Mapping[str, Any]) -> tuple[str, ...]:
    """The command line of a decoder, without the descriptor at its end."""
    # Without the site module: the decoder finds its modules by the directories that the server found them in.
    specs = [find_spec(name) for name in modules]
    packages = [Path(spec.origin).parents[1] for spec in specs if spec is not None and spec.origin]
    places = dict.fromkeys([str(Path(coretools.__file__).parents[1]), *map(str, packages)])
    return sys.executable, "-I", "-S", "-c", _PROGRAM, "\n".join(places), kind, json.dumps(request)


def _decoded(data: bytes, completed: Completed, display_path: str) -> Decoded:
    if completed.timed_out or completed.signal in ("SIGXCPU", "SIGKILL"):
        raise TooLarge(f"{display_path}: decoding it takes too long", path=display_path)
    line, _, rest = data.partition(b"\n")
    try:
        reply = _Reply.model_validate_json(line)
    except ValidationError as error:
        raise _failed(display_path, "the decoder ended without an answer; the file may be damaged") from error
    if reply.error:
        kind: type[CoreError] = TooLarge if reply.is_too_large else NotText
        raise kind(f"{display_path}: cannot be shown: {reply.error}", path=display_path)
    if not (len(reply.images) == len(reply.types) == len(reply.shown)) or sum(reply.images) != len(rest):
        raise _failed(display_path, "the decoder's answer is not complete")
    images, start = [], 0
    for size, mime_type, (width, height) in zip(reply.images, reply.types, reply.shown, strict=True):
        images.append(DecodedImage(rest[start : start + size], mime_type, width, height))
        start += size
    return Decoded(
        width=reply.width,
        height=reply.height,
        frames=reply.frames,
        pages=reply.pages,
        texts=reply.texts,
        text=reply.text,
        cells=reply.cells,
        labels=reply.labels,
        images=tuple(images),
    )


def _failed(display_path: str, why: str) -> NotText:
    return NotText(f"{display_path}: cannot be shown: {why}", path=display_path)
