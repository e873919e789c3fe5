"""Attacks on the search for hidden files, made outside commands and between two of them.

Judged by effect: whether a command that prints every file prints a canary. In tier full: with directories that are
watched, with directories that are polled because changes are not reported, and with coarse timestamps.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.protocol.peer import Peer, peer

ROUNDS = 7
EXCHANGE = 2
GIT = "git -c user.name=a -c user.email=a@b"

needs_namespaces = pytest.mark.skipif(
    sys.platform != "linux" or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode != 0,
    reason="needs user namespaces",
)


class Place:
    """The directories of one attack: beneath a root, beneath another root, and outside."""

    def __init__(self, top: Path, name: str, client: Peer) -> None:
        self.name, self.canary = name, f"canary-of-{name.replace('_', '-')}"
        self.secret = f"TOKEN={self.canary}\n"
        self.top = top
        self._pid = client.process.pid
        # As the server sees them: something may be mounted there.
        self.here, self.other, self.outside = (
            Path(f"/proc/{self._pid}/root{top}/{part}/{name}") for part in ("root", "other", "outside")
        )
        for one in (self.here, self.other, self.outside):
            one.mkdir()

    def run(self, *words: str) -> None:
        """Run a program as the user, in the namespaces of the server."""
        inside = ("nsenter", "-t", str(self._pid), "-U", "-m", "--preserve-credentials")
        there = f'cd {self.top}/root/{self.name} && exec "$@"'
        subprocess.run([*inside, "sh", "-c", there, "sh", *words], check=True)


def exchange(one: Path, other: Path) -> None:
    assert ctypes.CDLL(None).renameat2(-100, bytes(one), -100, bytes(other), EXCHANGE) == 0


def within_a_tick(at: Place) -> Iterator[str]:
    """Create a secret right after a scan, in a directory whose times are set back."""
    yield ""
    times = at.here.stat()
    (at.here / ".env").write_text(at.secret)
    os.utime(at.here, ns=(times.st_atime_ns, times.st_mtime_ns))


def grown(at: Place) -> Iterator[str]:
    """Grow an empty file, and change a reference to a value of the same length; set the times back."""
    for name, before, after in (
        (".env", "", at.secret),
        ("prod.env", f"A=${'X' * (len(at.canary) - 1)}", f"A={at.canary}"),
    ):
        file = at.here / name
        file.write_text(before)
        yield ""
        times = file.stat()
        with file.open("r+") as opened:
            opened.write(after)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def renamed_and_back(at: Place) -> Iterator[str]:
    (at.here / ".env").write_text(at.secret)
    yield "mv .env notes; ln .env linked; cp -l .env copied"
    for before, after in ((".env", "notes"), ("notes", ".env"), (".env", "more"), ("more", "notes")):
        (at.here / before).rename(at.here / after)
        yield ""


def moved_in(at: Place) -> Iterator[str]:
    """Move a tree in from outside, then into the other root and back under another name."""
    (at.outside / "tree" / "deep").mkdir(parents=True)
    (at.outside / "tree" / "deep" / ".env").write_text(at.secret)
    yield ""
    for source, target in (
        (at.outside / "tree", at.here / "tree"),
        (at.here / "tree", at.other / "tree"),
        (at.other / "tree" / "deep" / ".env", at.other / "tree" / "deep" / "open"),
        (at.other / "tree", at.here / "back"),
    ):
        source.rename(target)
        yield ""


def exchanged(at: Place) -> Iterator[str]:
    """Exchange a hidden file with a harmless one, and a directory that contains one with a directory that does not."""
    for place in ("a/x", "b/x"):
        (at.here / place).mkdir(parents=True)
    (at.here / "a/x/.env").write_text(at.secret)
    (at.here / "b/x/.env").touch()
    (at.here / "notes").write_text("open")
    yield ""
    exchange(at.here / "a", at.here / "b")
    yield ""
    exchange(at.here / "b/x/.env", at.here / "notes")
    yield ""
    exchange(at.here / "a/x", at.here / "b/x")


def linked(at: Place) -> Iterator[str]:
    """Make hard links of a hidden file later, from outside and with files outside."""
    (at.here / ".env").write_text(at.secret)
    yield ""
    os.link(at.here / ".env", at.here / "notes")
    yield ""
    (at.here / ".env").unlink()
    yield ""
    (at.outside / "file").write_text(at.secret)
    os.link(at.outside / "file", at.here / "prod.env")


def mounted(at: Place) -> Iterator[str]:
    """Mount another file system, a directory and a single file."""
    (at.outside / "inner").mkdir()
    for place in (at.outside / "inner", at.here):
        (place / ".env").write_text(at.secret)
    for name in ("memory", "bound"):
        (at.here / name).mkdir()
    (at.here / "notes").touch()
    yield ""
    at.run("mount", "-t", "tmpfs", "none", "memory")
    (at.here / "memory" / ".env").write_text(at.secret)
    yield ""
    at.run("mount", "--bind", f"{at.top}/outside/{at.name}/inner", "bound")
    yield ""
    yield ""
    at.run("mount", "--bind", ".env", "notes")
    (at.here / "prod.env").write_text("TOKEN=x")  # a mount namespace has the mounts of the time when it was created


def swapped_for_a_link(at: Place) -> Iterator[str]:
    (at.here / "a").mkdir()
    (at.here / "a" / ".env").write_text(at.secret)
    yield ""
    (at.here / "a").rename(at.here / "b")
    (at.here / "a").symlink_to("b")
    yield ""
    (at.here / "a").unlink()
    (at.here / "b").rename(at.here / "a")


def made_again(at: Place) -> Iterator[str]:
    """Create directories and files that reuse the inode numbers of deleted ones."""
    for number in range(20):
        (at.here / f"{number}").mkdir()
        (at.here / f"{number}/.env").touch()
    yield ""
    for number in range(20):
        shutil.rmtree(at.here / f"{number}")
    for number in range(20):
        (at.here / f"{number}").mkdir()
        (at.here / f"{number}/.env").write_text(at.secret)


def closed_and_opened(at: Place) -> Iterator[str]:
    (at.here / "a").mkdir()
    (at.here / "a" / ".env").write_text(at.secret)
    (at.here / "a").chmod(0)
    yield "chmod 700 a"
    (at.here / "a").chmod(0o700)
    (at.here / "a" / ".env").chmod(0)
    yield "chmod 600 a/.env"
    (at.here / "a" / ".env").chmod(0o600)


def of_another_kind(at: Place) -> Iterator[str]:
    """Replace a FIFO, a directory and a link by a file."""
    os.mkfifo(at.here / ".env")
    (at.here / "prod.env").mkdir()
    (at.here / "test.env").symlink_to("nothing")
    yield ""
    (at.here / "prod.env").rmdir()
    for name in (".env", "prod.env", "test.env"):
        (at.here / "new").write_text(at.secret)
        (at.here / "new").rename(at.here / name)


def of_odd_names(at: Place) -> Iterator[str]:
    yield ""
    for name in (b"\xff\n.env", b".env\xff", b".env.\n", b".ENV", b"a b\\012.env", b"\xe2\x80\xae.env"):
        with open(bytes(at.here) + b"/" + name, "w") as file:
            file.write(at.secret)
    os.mkdir(bytes(at.here) + b"/\xfe\n")
    with open(bytes(at.here) + b"/\xfe\n/.env", "w") as file:
        file.write(at.secret)


def of_a_directory_of_another_name(at: Place) -> Iterator[str]:
    """Rename a directory for whose name a file is hidden."""
    (at.here / ".docker").mkdir()
    (at.here / ".docker" / "config.json").write_text(f'{{"auths": {{"h": {{"auth": "{at.canary}"}}}}}}')
    (at.here / ".ssh").mkdir()
    (at.here / ".ssh" / "x").write_text(at.secret)
    yield "mv .docker docker; mv .ssh ssh; true"
    for before, after in ((".docker", "one"), ("docker", "one"), (".ssh", "two")):
        if (at.here / before).exists():
            (at.here / before).rename(at.here / after)
    yield "mkdir -p z; mv one z/one; mv two z/two; mv z/one/config.json z/"


def published_and_changed(at: Place) -> Iterator[str]:
    """Files with the content of a committed one are open; a file that changed since is hidden, whatever its times."""
    file = at.here / ".env"
    file.write_text("TOKEN=" + "x" * len(at.canary) + "\n")
    for words in ("init -q .", "add -f .env", "commit -qm x"):
        at.run(*GIT.split(), *words.split())
    yield "grep -q xxx .env || echo canary-of-published-and-changed"
    times = file.stat()
    index = (at.here / ".git" / "index").stat()
    with file.open("r+") as opened:
        opened.write(at.secret)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.utime(at.here / ".git" / "index", ns=(index.st_atime_ns, index.st_mtime_ns))
    yield f"{GIT} update-index --refresh; {GIT} add -f .env; {GIT} update-index --add .env"


ATTACKS: list[Callable[[Place], Iterator[str]]] = [
    *(within_a_tick, grown, renamed_and_back, moved_in, exchanged, linked, mounted, swapped_for_a_link, made_again),
    *(closed_and_opened, of_another_kind, of_odd_names, of_a_directory_of_another_name, published_and_changed),
]


@needs_namespaces
@pytest.mark.parametrize("setting", ["true", "mount -t ramfs none {}"], ids=["watched", "polled"])
def test_a_change_between_two_commands_opens_nothing(tmp_path: Path, setting: str) -> None:
    """confinement-25, confinement-26, secret-files-5: all attacks run side by side, one step between two commands."""
    setting = f"{setting.format(tmp_path)} && cd {tmp_path} && mkdir root other outside"
    before = ("unshare", "-Urm", "sh", "-c", f'{setting} && exec "$@"', "sh")
    with peer(tmp_path / "root", tmp_path / "other", before=before) as client:
        client.start_session()
        if "commands are confined in tier: full" not in str(client.call("get_diagnostics")["content"]):
            pytest.skip("needs tier full")
        places = [Place(tmp_path, attack.__name__, client) for attack in ATTACKS]
        steps = [attack(place) for attack, place in zip(ATTACKS, places, strict=True)]
        fell: set[str] = set()
        for number in range(ROUNDS):
            texts = [(place, next(step, "")) for place, step in zip(places, steps, strict=True)]
            done = "\n".join(f"(cd {place.name} && {text})" for place, text in texts if text)
            show = f"find . {tmp_path}/other ! -type d -exec timeout 2 grep -aho 'canary-of-[a-z-]*' {{}} + | sort -u"
            line = shlex.join(["sh", "-c", f"exec 2>&-\n{done}\n{show}\necho end"])
            result = client.call("run_command", command=line, timeout_seconds=60)
            output = str(result["content"][0]["text"])
            assert "end" in output.split()[-5:], output
            fell |= {f"{place.name}, round {number}" for place in places if place.canary in output}
        assert [next(step, None) for step in steps] == [None] * len(steps)
        assert not fell
