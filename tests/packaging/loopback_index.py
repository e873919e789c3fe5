"""A package index on this machine: pages of PEP 503 over a directory of distributions, by Python's own HTTP server."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import canonicalize_name


@contextmanager
def serving(files: Iterable[Path], folder: Path) -> Iterator[str]:
    """Serve these distributions; yield the address of the index."""
    (folder / "files").mkdir(parents=True)
    links: dict[str, list[str]] = {}
    for file in files:
        os.symlink(file, folder / "files" / file.name)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        name = canonicalize_name(file.name.split("-")[0])
        links.setdefault(name, []).append(f'<a href="/files/{file.name}#sha256={digest}">{file.name}</a>')
    for name, lines in links.items():
        (folder / "simple" / name).mkdir(parents=True)
        (folder / "simple" / name / "index.html").write_text("<!DOCTYPE html>\n" + "\n".join(lines))
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = re.search(r"port (\d+)", server.stdout.readline())
        assert port is not None
        yield f"http://127.0.0.1:{port[1]}/simple"
    finally:
        server.kill()
        server.communicate()
