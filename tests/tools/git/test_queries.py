"""The reading tools beside the git command line, on a generated history, or on real ones (see `queries`)."""

import os
import random
from pathlib import Path

import anyio
import pytest

from tests.tools.git.queries import KINDS, asked, cloned
from tests.tools.git.world import World

COUNT = int(os.environ.get("CORETOOLS_GIT_QUERIES", "4"))
REAL = os.environ.get("CORETOOLS_GIT_REPOSITORIES", "")


def generated(top: Path) -> World:
    """A history of 300 commits with merges, renames, several authors, binary files and odd names, by fast-import."""
    rng = random.Random(17)
    world = World(top).created()
    names = ["a.txt", "dir/b c.txt", "dir/deep/é.py", "data.bin", "quo'te.txt", "package-lock.json"]
    out = bytearray()
    for mark, number in enumerate(range(300), 1):
        branch = b"refs/heads/main" if number % 7 else b"refs/heads/topic"
        who = rng.choice((b"Ada <ada@example.org>", b"Bob B <bob@example.org>", "Zoë <z@example.org>".encode()))
        message = f"{rng.choice(('adds', 'removes', 'renames'))} something {number}\n\nbody {number}\n".encode()
        out += b"commit %s\nmark :%d\nauthor %s %d +0100\n" % (branch, mark, who, 1_500_000_000 + number * 100_000)
        out += b"committer C <c@x> %d +0000\ndata %d\n%s\n" % (1_500_000_000 + number * 100_000, len(message), message)
        if number == 7:
            out += b"from :1\n"
        if number % 7 == 0 and number > 20:
            out += b"merge :%d\n" % (mark - 1)
        name = rng.choice(names)
        content = b"".join(b"line %d %d\n" % (line, rng.randrange(4)) for line in range(rng.randrange(5, 80)))
        content = b"\0" + content if name == "data.bin" else content
        quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        out += b"M 100644 inline %s\ndata %d\n%s\n" % (quoted.encode(), len(content), content)
    world.git("fast-import", "--quiet", stdin=bytes(out))
    world.git("reset", "--quiet", "--hard", "main")
    return world


@pytest.mark.parametrize("source", sorted(Path(REAL).iterdir()) if REAL else [None], ids=str)
def test_random_queries_have_the_answers_of_git(tmp_path: Path, source: Path | None) -> None:
    """git-47: the same facts in each reading tool."""
    world = generated(tmp_path) if source is None else cloned(source, tmp_path)
    counted = anyio.run(asked, world, COUNT, 17)
    assert counted == dict.fromkeys(KINDS, COUNT)
