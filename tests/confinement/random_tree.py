"""A directory tree with random changes, and a finder that must agree with a full walk. Run by test_masks.

As a program: `python -m tests.confinement.random_tree DIRECTORY SEED SCANS`, for where a test must run in namespaces.
"""

import os
import random
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

from coretools.confinement.entry_reader import GIT_CONTROL_ENTRIES
from coretools.confinement.masks import MaskFinder
from coretools.confinement.protected_paths import GIT_CONFIG_NAMES
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.open_beneath import birth_time
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots

NAMES = ("a", "b", "c", "d.txt", ".env", "key.pem", ".ssh", ".docker", "config.json", ".git")
STORES = ("objects", "refs", "logs", "lfs")
DENY = DenyRules([*DEFAULT_DENY, ".env", "*.pem", ".docker/config.json"], by_content=False)
"""Classifies by name alone: the test is about finding files, not about their content."""


class RandomTree:
    """The tree and the files hidden in it so far, kept open so that no inode number is reused."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.top, self.outside = place / "top", place / "outside"
        self.top.mkdir()
        self.outside.mkdir()
        self.hidden: dict[tuple[int, int], int] = {}
        with Roots([RootSpec(str(place))], deny=DENY) as roots:
            self.has_birth_times = birth_time("top", roots.first.fd) is not None

    def change(self) -> None:
        """Do one random file operation."""
        choices = (self.make, self.make_deep, self.write, self.write, self.move, self.move, self.swap, self.remove)
        with suppress(OSError, shutil.Error):
            self.random.choice((*choices, self.move_out, self.move_in, self.make_repository))()

    def any_directory(self) -> Path:
        here = self.top
        while self.random.random() < 0.75:
            inner = [entry for entry in here.iterdir() if entry.is_dir() and self.may_change(entry)]
            if not inner:
                break
            here = self.random.choice(inner)
        return here

    def any_entry(self) -> Path:
        return self.random.choice(list(self.any_directory().iterdir()) or [self.top / "none"])

    def any_name(self) -> Path:
        return self.any_directory() / self.random.choice(NAMES)

    def make(self) -> None:
        self.any_name().mkdir()

    def make_deep(self) -> None:
        above = self.any_directory() / self.random.choice(NAMES[:3])
        above.mkdir()
        path = above.joinpath(*self.random.choices(NAMES[:3], k=2))
        path.mkdir(parents=True)
        (path / self.random.choice(NAMES)).write_text("x")

    def write(self) -> None:
        path = self.any_name()
        if not path.exists() or self.may_change(path):
            path.write_text(str(self.random.random()))

    def may_change(self, path: Path) -> bool:
        """confinement-25 holds without birth times as long as the content of what is hidden stays, as for commands."""
        status = path.lstat()
        is_hidden = (status.st_dev, status.st_ino) in self.hidden or DENY.denying_glob(str(path.relative_to(self.top)))
        return self.has_birth_times or not is_hidden

    def move(self) -> None:
        self.any_entry().rename(self.any_name())

    def move_out(self) -> None:
        self.any_entry().rename(self.outside / str(self.random.random()))

    def move_in(self) -> None:
        self.random.choice(list(self.outside.iterdir()) or [self.top / "none"]).rename(self.any_name())

    def swap(self) -> None:
        one, other, aside = self.any_entry(), self.any_entry(), self.outside / "aside"
        one.rename(aside)
        try:
            other.rename(one)
        finally:
            with suppress(OSError):
                aside.rename(other)
            if aside.exists():
                aside.rename(self.outside / str(self.random.random()))

    def remove(self) -> None:
        entry = self.any_entry()
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()

    def make_repository(self) -> None:
        git = self.any_directory() / ".git"
        git.mkdir()
        for name in (
            "hooks",
            "modules/sub/hooks",
            "modules/sub/refs/a",
            "modules/far/away",
            "worktrees/w",
            "objects/aa",
        ):
            (git / name).mkdir(parents=True)
        for name in ("config", "HEAD", "modules/sub/HEAD", "modules/sub/config", "worktrees/w/HEAD"):
            (git / name).write_text("x")

    def expected(self) -> tuple[list[str], list[str], list[str]]:
        """Return what a full walk finds: pinned, read-only and hidden paths."""
        pinned: list[str] = []
        fixed: list[str] = []
        masked: list[str] = []
        self._walk(".", pinned, fixed, masked)
        for path in masked:
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) not in self.hidden:
                self.hidden[status.st_dev, status.st_ino] = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        return sorted({*pinned}), sorted(fixed), sorted(masked)

    def _walk(self, here: str, pinned: list[str], fixed: list[str], masked: list[str]) -> None:
        for name in os.listdir(self.top / here):
            path = name if here == "." else f"{here}/{name}"
            status = os.lstat(self.top / path)
            is_directory = stat.S_ISDIR(status.st_mode)
            in_git = ".git" in here.split("/")
            is_known = (status.st_dev, status.st_ino) in self.hidden
            if in_git and _is_control(self.top, path):
                fixed.append(f"{self.top}/{path}")
            if in_git and name in GIT_CONFIG_NAMES and _is_inner(self.top, here):
                pinned.extend(f"{self.top}/{one}" for one in _holders(here))
            if name == ".git" and not in_git:
                (pinned if is_directory else fixed).append(f"{self.top}/{path}")
            elif is_known or (not in_git and DENY.denying_glob(path)):
                masked.append(f"{self.top}/{path}")
                continue
            if is_directory:
                self._walk(path, pinned, fixed, masked)

    def close(self) -> None:
        for handle in self.hidden.values():
            os.close(handle)


def _is_control(top: Path, path: str) -> bool:
    """Whether it determines what git runs: in a `.git`, or in the git directory of a submodule or worktree."""
    above, _, name = path.rpartition("/")
    return name in GIT_CONTROL_ENTRIES and (above.split("/").index(".git") == above.count("/") or _is_inner(top, above))


def _is_inner(top: Path, path: str) -> bool:
    """Whether it may contain git directories: in `modules` or `worktrees`, but not in their storage."""
    inside = path.split("/")
    first = inside.index(".git") + 1
    if inside[first:][:1] not in (["modules"], ["worktrees"]):
        return False
    above = [top.joinpath(*inside[:index]) for index in range(first + 1, len(inside))]
    return not any(
        part in STORES and (repository / "HEAD").exists()
        for repository, part in zip(above, inside[first + 1 :], strict=True)
    )


def _holders(path: str) -> list[str]:
    """Return the parents of a directory, up to the `.git`."""
    found: list[str] = []
    while path.rpartition("/")[2] != ".git":
        found.append(path)
        path = path.rpartition("/")[0]
    return found


def wrong_scans(place: Path, seed: int, scans: int) -> tuple[int, tuple[str, ...]]:
    """Count the scans that differ from a walk; also return why directories were polled."""
    tree = RandomTree(place, seed)
    wrong = 0
    with Roots([RootSpec(str(tree.top))], deny=DENY) as roots:
        finder = MaskFinder(roots)
        for _ in range(scans):
            for _ in range(tree.random.randrange(1, 6)):
                tree.change()
            found = finder.scan()
            if ([*found.pinned], [*found.read_only], [*found.masked]) != tree.expected():
                wrong += 1
        unwatched = finder.unwatched
        finder.close()
    tree.close()
    return wrong, unwatched


def main() -> None:
    """Print the number of wrong scans, and whether anything was polled."""
    place, seed, scans = sys.argv[1:]
    wrong, unwatched = wrong_scans(Path(place), int(seed), int(scans))
    print(wrong, *unwatched, sep="\n")


if __name__ == "__main__":
    main()
