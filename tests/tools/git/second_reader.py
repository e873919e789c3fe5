"""GitPython as a second reader of repositories: what our reading tools answer must be what it reads.

Objects, references and the index are read by its own code (`gitdb`), not by git; untracked files and blame are git's
answers read by another parser.
"""

import stat
import warnings
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from typing import Any

import git
from git.objects import Commit, Tree

from tests.tools.git.world import GitTools, World


class SecondReader:
    """One repository; every answer is read anew."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.repository = self._opened()

    def _opened(self) -> git.Repo:
        with warnings.catch_warnings():
            # GitPython warns of it for hostile repositories; its default reads objects with `git cat-file`.
            warnings.simplefilter("ignore", DeprecationWarning)
            repository = git.Repo(self.world.repository, odbt=git.GitDB)
        repository.git.update_environment(HOME=str(self.world.home), GIT_CONFIG_NOSYSTEM="1")
        return repository

    def close(self) -> None:
        self.repository.close()

    def commit(self, revision: str) -> dict[str, Any]:
        """The facts of a commit as `git_log` shows them."""
        one: Commit = self.repository.commit(revision)
        return {
            "commit": one.hexsha,
            "parents": [parent.hexsha for parent in one.parents],
            "author": one.author.name,
            "date": one.authored_datetime.isoformat().replace("+00:00", "Z"),
        }

    def branches(self) -> dict[str, str]:
        """Local branches and their commits."""
        return {head.name: head.commit.hexsha for head in self.repository.heads}

    def changed(self, base: str, target: str) -> set[str]:
        """Files that differ between two commits, renames as two."""
        return set(_differences(self.repository.commit(base).tree, self.repository.commit(target).tree))

    def status(self) -> dict[str, set[str]]:
        """Files staged, changed but not staged, in conflict, and untracked."""
        index = git.IndexFile(self.repository)
        entries = {str(path): entry for (path, stage), entry in index.entries.items() if stage == 0}
        conflicts = {str(path) for path, stage in index.entries if stage}
        head = dict(_files(self.repository.head.commit.tree))
        staged = {
            path
            for path in (head.keys() | entries.keys()) - conflicts
            if path not in head or path not in entries or head[path] != (entries[path].mode, entries[path].hexsha)
        }
        unstaged = {
            path
            for path, entry in entries.items()
            if _on_disk(self.world.repository / path) != (entry.mode, entry.hexsha)
        }
        untracked = {path.replace("\\ ", " ") for path in self.repository.untracked_files}
        return {"staged": staged, "unstaged": unstaged, "conflicts": conflicts, "untracked": untracked}

    def blame(self, revision: str, name: str) -> list[str]:
        """The commit of each line."""
        return [commit.hexsha for commit, lines in self.repository.blame(revision, name) or [] for _ in lines]


async def compare(world: World, tools: GitTools) -> None:
    """Compare status, branches, the newest commits, their changes and a blame with what a second reader reads."""
    with closing(SecondReader(world)) as reader:
        compare_status(reader, await tools.git_status("work"))
        listed = await tools.git_branches("work")
        assert {str(one["name"]): one["commit"] for one in listed.branches if one["name"]} == reader.branches()
        log = await tools.git_log("work", limit=20)
        for one in log.commits:
            compare_commit(reader, one)
        newest = str(log.commits[0]["commit"])
        parents = reader.commit(newest)["parents"]
        if parents:
            shown = await tools.git_diff("work", base=parents[0], target=newest, stat=True)
            assert {file["path"].removeprefix("work/") for file in shown.files} == reader.changed(parents[0], newest)


def compare_status(reader: SecondReader, answer: Any) -> None:
    found: dict[str, set[str]] = {"staged": set(), "unstaged": set(), "conflicts": set(), "untracked": set()}
    for entry in answer.entries:
        name, unstaged = entry["path"].removeprefix("work/"), entry.get("unstaged", "")
        if unstaged == "untracked":
            found["untracked"].add(name)
        elif "conflict" in unstaged or "conflict" in entry.get("staged", ""):
            found["conflicts"].add(name)
        else:
            found["unstaged"] |= {name} if unstaged else set()
            found["staged"] |= {name} if entry.get("staged") else set()
            found["staged"] |= {entry["from"].removeprefix("work/")} if entry.get("staged") == "renamed" else set()
    assert found == reader.status()


def compare_commit(reader: SecondReader, shown: dict[str, Any]) -> None:
    wanted = reader.commit(shown["commit"])
    if len(wanted["parents"]) < 2:  # the parent of a commit that is no merge is not shown
        del wanted["parents"]
    got = {name: shown.get(name) for name in wanted}
    got["date"] = str(got["date"]).replace("+00:00", "Z")
    assert got == wanted


def _files(tree: Tree) -> Iterator[tuple[str, tuple[int, str]]]:
    for item in tree:
        if isinstance(item, Tree):
            yield from _files(item)
        else:
            yield str(item.path), (item.mode, item.hexsha)


def _differences(one: Tree, other: Tree) -> Iterator[str]:
    sides = [{str(item.path): item for item in tree} for tree in (one, other)]
    for path in sides[0].keys() | sides[1].keys():
        pair = [side.get(path) for side in sides]
        if len({(item.mode, item.hexsha) for item in pair if item is not None}) == 1 and all(pair):
            continue
        trees = [item for item in pair if isinstance(item, Tree)]
        if len(trees) == 2:
            yield from _differences(*trees)
        else:
            yield from (name for item in trees for name, _ in _files(item))
        if any(item is not None and not isinstance(item, Tree) for item in pair):
            yield path


def _on_disk(path: Path) -> tuple[int, str]:
    """Mode and name of the blob that a file would be; nothing of a file that is not there."""
    try:
        kept = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, ""
    if stat.S_ISLNK(kept.st_mode):
        mode, data = 0o120000, str(path.readlink()).encode()
    elif stat.S_ISREG(kept.st_mode):
        mode, data = 0o100755 if kept.st_mode & 0o100 else 0o100644, path.read_bytes()
    else:
        return 0, ""
    return mode, sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
