"""The process that decodes pictures and PDF: what it can reach, and what it may use (docs/specs/filesystem.md)."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from coretools.config.limits import Limits
from coretools.confinement import landlock, syscalls
from coretools.errors import CannotStart, NotText
from coretools.process.decoding.decoder import INSTALL, MODULES, Decoder, Kind, decoder_argv
from coretools.process.decoding.program import MEMORY_BYTES
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.read import open_file
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.tools import FilesystemTools
from tests.checkout import TREE

Pictures = pytest.importorskip("PIL.Image")

Figure = Callable[[str], None]

TRIES = {
    "read": "open('/etc/hostname')",
    "list": "os.listdir('/')",
    "write": "open('/tmp/coretools-decoder', 'w')",
    "memory file": "os.memfd_create('x')",
    "socket": "socket.socket()",
    "unix socket": "socket.socket(socket.AF_UNIX)",
    "pair": "socket.socketpair()",
    "fork": "os.fork()",
    "program": "os.execv('/bin/true', ['true'])",
    "signal": "os.kill(os.getppid(), 0)",
    "memory": "bytearray(2 << 30)",
}


@pytest.mark.skipif(landlock.abi() < landlock.SIGNAL_SCOPE_ABI, reason="Landlock ABI 6")
def test_the_process_can_reach_nothing() -> None:
    """filesystem-66: no file, no network, no process, not more memory; what is open stays usable."""
    tries = "".join(f"attempt({name!r}, lambda: {code})\n" for name, code in TRIES.items())
    program = f"""
import os, socket
from coretools.process.decoding.program import confine

def attempt(name, work):
    try:
        work()
    except (OSError, MemoryError):
        return
    print(name, flush=True)

confine()
{tries}
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=TREE, capture_output=True, text=True, timeout=60)
    assert done.stdout == "end\n", done


def test_processor_time_is_limited() -> None:
    """filesystem-66."""
    program = "from coretools.process.decoding.program import confine\nconfine(cpu_seconds=1)\nwhile True: pass"
    done = subprocess.run([sys.executable, "-c", program], cwd=TREE, timeout=60)
    assert -done.returncode in (signal.SIGXCPU, signal.SIGKILL)


MEASURE = """
import os, subprocess, sys
with open(sys.argv[1], "rb") as file:
    process = subprocess.Popen([*sys.argv[2:], str(file.fileno())], stdout=subprocess.PIPE, pass_fds=(file.fileno(),))
line = process.stdout.readline()
process.stdout.read()
print(os.wait4(process.pid, 0)[2].ru_maxrss, line.decode())
"""
"""A small process in between: the kernel passes the peak of the process that starts another on to it."""


def decoded(kind: Kind, path: Path, request: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], int]:
    """The line of the reply, and the peak of the process in bytes."""
    argv = decoder_argv(kind, MODULES[kind], request or {})
    done = subprocess.run([sys.executable, "-I", "-S", "-c", MEASURE, path, *argv], stdout=subprocess.PIPE, timeout=60)
    peak, _, line = done.stdout.partition(b" ")
    return json.loads(line), int(peak) * 1024


def test_memory_of_large_pictures_and_bombs_is_bounded(tmp_path: Path, figure: Figure) -> None:
    """filesystem-66: the largest picture that is decoded, and files of a few bytes that promise or expand to more."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    def png(width: int, height: int, *chunks: bytes) -> bytes:
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")

    zeros = zlib.compress(bytes(1 << 28), 9)
    bombs = {
        "promise": png(50_000, 50_000, chunk(b"IDAT", zlib.compress(b""))),
        "text": png(1, 1, chunk(b"zTXt", b"a\0\0" + zeros), chunk(b"IDAT", zlib.compress(b"\0\0"))),
        "profile": png(1, 1, chunk(b"iCCP", b"a\0\0" + zeros), chunk(b"IDAT", zlib.compress(b"\0\0"))),
        "data": png(1, 1, chunk(b"IDAT", zeros)),
    }
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
        reply, peak = decoded("picture", tmp_path / name)
        figure(f"decoder: bomb {name}, {len(data)} bytes, peak {peak / 1e6:.0f} MB")
        assert "error" in reply or reply["shown"] == [[1, 1]]
        assert peak < 200_000_000
    large = tmp_path / "large.png"
    Pictures.new("RGBA", (8_000, 8_000), "red").save(large, compress_level=1)
    reply, peak = decoded("picture", large)
    assert reply["shown"] == [[1_072, 1_072]]
    figure(f"decoder: peak of a picture of 64 megapixels with alpha {peak / 1e6:.0f} MB")
    assert peak < MEMORY_BYTES


async def test_a_decoder_that_dies_is_an_error(tmp_path: Path) -> None:
    """filesystem-66: whatever the reason; the server lives."""
    (tmp_path / "a.bin").write_bytes(b"x")
    runner = Runner(Limits(), os.environ)
    try:
        with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots, open_file(roots, "a.bin") as file:
            decoder = Decoder(runner, {**MODULES, "no such kind": ()})
            with pytest.raises(NotText, match="ended without an answer"):
                await anyio.to_thread.run_sync(decoder.decode, file, "no such kind", {})
            with pytest.raises(CannotStart, match="without a server"):
                decoder.decode(file, "picture", {})
    finally:
        await runner.close()


async def test_a_cancelled_call_ends_its_decoder(tmp_path: Path) -> None:
    """filesystem-66: cancellation reaches the process, and the call."""
    picture = io.BytesIO()
    Pictures.effect_noise((6_000, 6_000), 60).save(picture, "PNG", compress_level=1)
    (tmp_path / "slow.png").write_bytes(picture.getvalue())
    runner = Runner(Limits(), os.environ)
    try:
        with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots:
            files = FilesystemTools(roots, Limits(), decoder=Decoder(runner))
            with anyio.move_on_after(0.05) as scope:
                await anyio.to_thread.run_sync(files.read_file, "slow.png")
            assert scope.cancelled_caught
            assert runner.running == 0
    finally:
        await runner.close()


async def test_without_the_extra_the_answer_names_it(tmp_path: Path) -> None:
    """filesystem-67: with type, size and hash."""
    Pictures.new("L", (9, 9)).save(tmp_path / "a.png")
    runner = Runner(Limits(), os.environ)
    try:
        with Roots([RootSpec(str(tmp_path))], deny=DenyRules(DEFAULT_DENY)) as roots:
            decoder = Decoder(runner, {**MODULES, "picture": ("no_such_module_of_pictures",)})
            answer = FilesystemTools(roots, Limits(), decoder=decoder).read_file("a.png")
    finally:
        await runner.close()
    assert f"[to show a picture, the server {INSTALL}]" in answer.text()
    assert answer.facts()["type"] == "image/png"


def test_nothing_of_the_extra_is_loaded_by_a_server() -> None:
    """filesystem-67: neither at the start nor later."""
    program = (
        "import sys, coretools.servers.workstation, coretools.app.assembly, coretools.process.decoding.decoder\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('PIL', 'pypdfium2', 'pypdfium2_raw')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=TREE, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.skipif(not syscalls.is_supported(), reason="seccomp")
def test_the_confinement_holds_for_libraries_too(tmp_path: Path) -> None:
    """filesystem-66: what a format would load late is loaded early, so every format works confined."""
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "ICO", "AVIF"):
        Pictures.new("RGB", (16, 16), "red").save(tmp_path / kind, kind)
        reply, _ = decoded("picture", tmp_path / kind)
        assert reply["shown"] == [[16, 16]], kind
