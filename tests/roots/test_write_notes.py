"""Temporary files of killed servers are removed, and those of servers that live are not (docs/specs/roots.md)."""

import os
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.roots.write import remove_temporary
from coretools.roots.write_notes import WriteNotes


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("root", "other", "read-only", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    return tmp_path


def write_and_die(top: Path, paths: list[Path]) -> None:
    """Be a server that is killed while it writes these files."""
    child = os.fork()
    if child == 0:
        notes = WriteNotes(str(top / "notes"))
        with ExitStack() as stack:
            for path in paths:
                stack.enter_context(notes.noted(str(path)))
                path.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_what_a_killed_server_left_is_removed_by_the_next_one_with_that_root(top: Path) -> None:
    """roots-31: not what another root has, which its own server removes; and through no link."""
    names = [
        "root/.coretools-1.tmp",
        "read-only/.coretools-2.tmp",
        "other/.coretools-3.tmp",
        "root/link/.coretools-4.tmp",
    ]
    paths = [top / name for name in names]
    living = WriteNotes(str(top / "notes"))
    mine = top / "root/.coretools-5.tmp"
    with living.noted(str(mine)):
        mine.write_bytes(b"half")
        write_and_die(top, paths)
        specs = [RootSpec(str(top / "root")), RootSpec(str(top / "read-only"), writable=False)]
        with Roots(specs, deny=DenyRules(())) as roots:
            WriteNotes(str(top / "notes")).remove_leftovers(partial(remove_temporary, roots))
        assert [path.exists() for path in (*paths, mine)] == [False, True, True, True, True]
        with Roots([RootSpec(str(top))], deny=DenyRules(())) as roots:
            WriteNotes(str(top / "notes")).remove_leftovers(partial(remove_temporary, roots))
        assert [path.exists() for path in (*paths, mine)] == [False, False, False, True, True]
    living.close()
    mine.unlink()


def test_notes_end_with_their_server_and_fail_no_write(top: Path) -> None:
    """roots-31: also where they can't be kept."""
    notes = WriteNotes(str(top / "notes"))
    with notes.noted(str(top / "root/.coretools-1.tmp")), notes.noted("/" + "x" * 5_000):
        assert len(os.listdir(top / "notes")) == 1
    notes.close()
    assert os.listdir(top / "notes") == []
    (top / "file").write_bytes(b"")
    for place in (None, str(top / "file/notes")):
        with WriteNotes(place).noted("/x"):
            pass
