"""The decoder: a process for one file, confined before it reads the first byte of it.

It loads its libraries, gives up files, sockets, processes and most of its memory, and then decodes what it finds on an
inherited descriptor. Standard output gets one line of JSON, followed by the images. Started by `decoder`, by path and
without the site module, so it imports nothing of coretools beyond the standard library but the confinement.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from coretools.confinement import landlock, seccomp, syscalls

Reply = tuple[dict[str, Any], Sequence[bytes]]
"""What goes into the line of JSON, and the images."""

Decode = Callable[[BinaryIO, Mapping[str, Any]], Reply]

MEMORY_BYTES = 1024 * 1024 * 1024
"""Address space of the process, with libraries. A picture of 64 megapixels takes 256 MB, twice while it is scaled."""

CPU_SECONDS = 20

_NO_MEMORY = "decoding it needs more memory than is allowed"


def main() -> None:
    """Decode the file that the arguments name: the kind, the request as JSON, and the number of the descriptor."""
    kind, request, descriptor = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    decode = _decoder(kind)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not disturb the reply
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)  # the server has the same position, and may have read
        confine()
        try:
            facts, images = decode(file, request)
        except (MemoryError, RecursionError):
            facts, images = {"error": _NO_MEMORY, "is_too_large": True}, ()
    sizes = {"images": [len(image) for image in images]}
    output.write(json.dumps({**facts, **sizes}, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    for image in images:
        output.write(image)
    output.flush()
    os._exit(0)  # libraries with much memory take long to clean up


def _decoder(kind: str) -> Decode:
    """Load what a kind of file needs; afterwards nothing can be loaded."""
    if kind == "picture":
        from coretools.process.decoding import pictures

        return pictures.decode
    if kind == "pdf":
        from coretools.process.decoding import pdf

        return pdf.decode
    if kind == "notebook":
        from coretools.process.decoding import notebook

        return notebook.decode
    raise SystemExit(f"no such kind: {kind}")


def confine(memory_bytes: int = MEMORY_BYTES, cpu_seconds: int = CPU_SECONDS) -> None:
    """Give up files, network, processes and privileges for good, as far as this system can; and bound memory and time.

    No descriptor can be opened any more, on any system. Landlock and seccomp, on Linux, refuse the rest.

    Raises:
        OSError: the kernel refused what it supports.
    """
    if syscalls.is_supported():
        syscalls.drop_privileges()
        if landlock.abi() >= landlock.ABI_REQUIRED:
            ruleset = landlock.ruleset((), tcp=False)
            landlock.restrict_thread(ruleset)
            os.close(ruleset)
        seccomp.install(seccomp.command_filter(frozenset(), forks=False))
    for limited, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limited, (most, most))


if __name__ == "__main__":
    main()
