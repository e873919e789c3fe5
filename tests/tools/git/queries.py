"""Random queries to the reading tools, each compared with what the git command line and GitPython say about the same.

`python -m tests.tools.git.queries DIRECTORY [COUNT]` clones each repository in a directory (bare or not), asks COUNT
random queries of each kind (200 by default), prints how many were asked, and ends with an error at the first
difference.
"""

import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from coretools.errors import CoreError, DeniedPath
from tests.tools.git.change_calls import function_of
from tests.tools.git.second_reader import SecondReader, compare_commit, compare_status
from tests.tools.git.world import GitTools, World

MOST_PAGES = 60
POSITION = re.compile(r"^@@ -\S+ \+\S+ @@", re.MULTILINE)


class Queries:
    """Queries about one repository."""

    def __init__(self, world: World, tools: GitTools, rng: random.Random, reader: SecondReader) -> None:
        self.world, self.tools, self.rng, self.reader = world, tools, rng, reader
        self.commits = self.git("rev-list", "--all").split()
        self.files = [name for name in self.git("ls-files", "-z").split("\0") if name and "\n" not in name]
        self.authors = sorted(set(self.git("log", "--format=%an").split("\n")))
        self.words = sorted(set(re.findall(r"[A-Za-z]{4,9}", self.git("log", "--format=%s", "--max-count=300"))))

    def git(self, *words: str) -> str:
        return self.world.git("-c", "core.quotePath=false", *words)

    def commit(self) -> str:
        return self.rng.choice(self.commits)

    async def call(self, name: str, **arguments: Any) -> Any:
        return await function_of(self.tools, name)(repository="work", **arguments)

    async def status(self) -> None:
        """Change something at random, and compare every path with its state on both sides."""
        name = self.rng.choice(self.files)
        path = self.world.repository / name
        change = self.rng.randrange(6)
        if change == 0:
            self.git("reset", "--quiet", "--hard")
        elif change == 1 and path.is_file():
            path.unlink()
        elif change == 2 and path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes() + b"more\n")
        elif change == 3:
            self.world.write(f"new {self.rng.randrange(9)}.txt", "x\n")
        elif change == 4 and path.is_file():
            path.rename(path.with_name(path.name + ".moved"))
        else:
            self.git("add", "--all", "--", name if path.exists() else ".")
        result = await self.call("git_status")
        expected = [line for line in self.git("status", "--porcelain", "-z").split("\0") if line]
        states, index = {}, 0
        while index < len(expected):
            letters, path_text = expected[index][:2], expected[index][3:]
            index += 2 if letters[0] in "RC" else 1
            states[f"work/{path_text}"] = letters
        words = {" ": "", "M": "modified", "A": "added", "D": "deleted", "R": "renamed", "T": "type changed"}
        found = {entry["path"]: (entry.get("staged", ""), entry.get("unstaged", "")) for entry in result.entries}
        wanted = {
            name: ("", "untracked") if letters == "??" else (words[letters[0]], words[letters[1]])
            for name, letters in states.items()
        }
        assert len(found) + result.omitted == len(wanted)
        assert found.items() <= wanted.items(), found.items() ^ wanted.items()
        assert result.head == self.git("rev-parse", "HEAD")
        assert result.branch == self.world.git("symbolic-ref", "--short", "-q", "HEAD", check=False)
        if not result.omitted:
            compare_status(self.reader, result)

    async def log(self) -> None:
        rng, arguments, words = self.rng, {}, []
        arguments["limit"] = rng.randrange(1, 60)
        arguments["body"] = rng.random() < 0.5
        if rng.random() < 0.3:
            arguments["skip"] = rng.randrange(50)
        arguments_of: list[Callable[[], tuple[dict[str, Any], list[str]]]] = [
            lambda: ({"by": (name := rng.choice(self.authors))}, ["-F", f"--author={name}"]),
            lambda: ({"grep": (word := rng.choice(self.words))}, ["-F", f"--grep={word}"]),
            lambda: ({"all_branches": True}, ["--branches", "--remotes", "--tags", "HEAD"]),
            lambda: ({"since": f"20{rng.randrange(10, 26)}-03-05T10:00:00Z"}, []),
            lambda: ({"until": f"20{rng.randrange(10, 26)}-03-05T10:00:00Z"}, []),
            lambda: ({"path": f"work/{(name := rng.choice(self.files))}"}, ["--", name]),
            lambda: ({"path": f"work/{(name := rng.choice(self.files))}", "follow": True}, ["--follow", "--", name]),
        ]
        for make in rng.sample(arguments_of, rng.randrange(3)):
            more, extra = make()
            if "path" in more and "path" in arguments:
                continue
            arguments |= more
            words = [*(words[: words.index("--")] if "--" in words else words), *extra, *_after(words)]
        for name in ("since", "until"):
            words[:0] = [f"--{name}={arguments[name]}"] if name in arguments else []
        if "all_branches" not in arguments and rng.random() < 0.5:
            sides = [self.commit(), self.commit()]
            arguments["revision"] = rng.choice((sides[0], f"{sides[0]}..{sides[1]}", f"{sides[0]}...{sides[1]}"))
            words.insert(0, arguments["revision"])
        counts = [f"--max-count={arguments['limit']}", f"--skip={arguments.get('skip', 0)}"]
        result = await self.call("git_log", **arguments)
        address = "%ae" if arguments["body"] else ""
        lines = self.git("log", f"--format=%H|%P|%an|{address}|%aI|%s", *counts, *words).split("\n")
        # Of a commit that is no merge the parent is not shown.
        wanted = [re.sub(r"^(\w+)\|\w*\|", r"\1||", line) for line in lines if line]
        found = [
            "|".join((
                one["commit"], " ".join(one.get("parents", ())), one["author"], one.get("email", ""), one["date"],
                one["summary"],
            ))
            for one in result.commits
        ]  # fmt: skip
        assert found == wanted[: len(found)], (arguments, words)
        assert len(found) == len(wanted) or result.next_skip == arguments.get("skip", 0) + len(found), arguments
        for one in result.commits:
            compare_commit(self.reader, one)

    async def diff(self) -> None:
        rng = self.rng
        kind = rng.randrange(5)
        if kind < 3:
            last = self.commit()
            first = self.git("rev-list", "--max-count=4", last).split()[-1]
            arguments = [{"base": first, "target": last}, {"base": f"{first}..{last}"}, {"base": f"{first}...{last}"}][
                kind
            ]
            words = [[first, last], [f"{first}..{last}"], [f"{first}...{last}"]][kind]
        else:
            await self.status()
            arguments, words = [({}, []), ({"staged": True}, ["--cached"])][kind - 3]
        arguments = dict(arguments)
        renames = "--find-renames" if words else "--no-renames"
        numbers = self.git("diff", "--numstat", "--no-renames", "-z", *words).split("\0")
        listed = await self.call("git_diff", stat=True, **arguments)
        wanted = [row.split("\t", 2) for row in numbers if row]
        found = [(one.get("added", "-"), one.get("removed", "-"), one["path"][5:]) for one in listed.files]
        assert [(str(more), str(less), name) for more, less, name in found] == [
            tuple(row) for row in wanted[: len(found)]
        ]
        assert f"{len(wanted)} files changed" in listed.text() or not wanted
        if kind == 0 and len(found) == len(wanted):
            assert {name for *_, name in found} == self.reader.changed(first, last)
        shown: list[dict[str, Any]] = []
        text, skip = "", 0
        for _ in range(MOST_PAGES):
            page = await self.call("git_diff", skip=skip, **arguments)
            assert len(page.text().encode()) <= 20_000
            for file in page.files:
                if shown and shown[-1]["path"] == file["path"] and file["hunks"] and file["hunks"][0]["number"] > 1:
                    shown[-1]["hunks"] += file["hunks"]
                else:
                    shown.append(file)
            text += page.text() + "\n"
            skip = page.next_skip
            if not skip:
                break
        positions = self._positions(renames, *words)
        for file in shown:
            name = file["path"][5:]
            if "not_shown" not in file and not skip:
                assert [hunk["position"] for hunk in file["hunks"]] == positions[name], name
        if not skip:
            rest = positions.keys() - {file["path"][5:] for file in shown}
            assert all(f"work/{name}" in text for name in rest), rest

    def _positions(self, *words: str) -> dict[str, list[str]]:
        """Return the positions of the hunks of each file."""
        found: dict[str, list[str]] = {}
        name = ""
        for line in self.git("diff", "--src-prefix=a/", "--dst-prefix=b/", "-U3", *words).split("\n"):
            if line.startswith("diff --git "):
                name = line[(len(line) + len("diff --git ")) // 2 + 3 :]
                found.setdefault(name, [])
            elif line.startswith(("rename to ", "copy to ")):
                found.pop(name, None)
                name = line.partition(" to ")[2].strip('"')
                found[name] = []
            elif line.startswith("@@ -"):
                found[name].append(POSITION.findall(line)[0])
        return found

    async def blame(self) -> None:
        name, rng = self.rng.choice(self.files), self.rng
        lines = (self.world.git("show", f"HEAD:{name}", check=False)).count("\n")
        if lines < 2 or (self.world.repository / name).is_symlink():
            return
        first, count = rng.randrange(1, lines), rng.randrange(1, 40)
        whitespace = rng.random() < 0.3
        options = ["-w"] if whitespace else []
        words = ["--line-porcelain", *options, f"-L{first},+{count}", "HEAD", "--", name]
        arguments = {"path": f"work/{name}", "start": first, "count": count, "ignore_whitespace": whitespace}
        try:
            text = (await self.call("git_blame", revision="HEAD", **arguments)).text()
        except DeniedPath:
            return
        wanted = re.findall(r"^([0-9a-f]{40}) \d+ (\d+)", self.git("blame", *words), re.MULTILINE)
        found = re.findall(r"^([0-9a-f]{10}) \S+ .*? (\d+): ", text, re.MULTILINE)
        assert found == [(commit[:10], number) for commit, number in wanted][: len(found)], arguments
        assert len(found) == len(wanted) or "start=" in text
        if not whitespace:
            commits = self.reader.blame("HEAD", name)
            assert all(commits[int(number) - 1].startswith(commit) for commit, number in found), arguments

    async def show(self) -> None:
        commit = self.commit()
        if self.rng.random() < 0.5:
            await self._show_file(commit)
            return
        text = (await self.call("git_show", revision=commit, stat=True)).text()
        parents, author, date, message = self.git("show", "-s", "--format=%P%x00%an <%ae>%x00%aI%x00%B", commit).split(
            "\0"
        )
        assert text.startswith(f"commit {commit}")
        assert f"\nauthor {author} {date}\n" in text
        for line in message.strip("\n").split("\n")[:20]:
            assert line.rstrip()[:200] in text or not line.isprintable()
        start = parents.split(" ")[0] or self.world.git("hash-object", "-t", "tree", "/dev/null")
        wanted = [
            row.split("\t", 2)
            for row in self.git("diff", "--numstat", "--no-renames", "-z", start, commit).split("\0")
            if row
        ]
        assert f"\n{len(wanted)} files changed" in text or (not wanted and "no differences" in text)
        patch = (await self.call("git_show", revision=commit)).text()
        assert len(patch.encode()) <= 20_000
        if "skip=" not in patch and "not shown" not in patch and "left out" not in patch:
            words = ("--format=", "-m", "--first-parent", "--find-renames", "--root", commit)
            assert POSITION.findall(patch) == POSITION.findall(self.git("show", *words)), commit

    async def _show_file(self, commit: str) -> None:
        names = [name for name in self.git("ls-tree", "-r", "-z", "--name-only", commit).split("\0") if name]
        name = self.rng.choice(names) if names else ""
        try:
            text, offset = "", 1
            while name:
                page = (await self.call("git_show", revision=commit, path=f"work/{name}", offset=offset)).text()
                part, _, more = page.rpartition("\n[")
                following = re.fullmatch(r"\d+ more lines; go on with offset=(\d+)\]", more)
                text += (part if following else page) + "\n"
                if following is None:
                    break
                offset = int(following[1])
        except DeniedPath:
            return
        wanted = self.git("show", f"{commit}:{name}") if name else ""
        is_special = "\0" in wanted or "\ufffd" in wanted or ": a link to " in text or "characters of this line" in text
        assert is_special or "[binary" in text or text.rstrip("\n") == wanted.rstrip("\n"), (commit, name)

    async def branches(self) -> None:
        rng, commit = self.rng, self.commit()
        arguments, words = rng.choice((
            ({}, []),
            ({"merged": commit}, [f"--merged={commit}"]),
            ({"no_merged": commit}, [f"--no-merged={commit}"]),
            ({"contains": commit}, [f"--contains={commit}"]),
        ))  # fmt: skip
        remote = rng.random() < 0.7
        spaces = ["refs/heads", "refs/remotes"] if remote else ["refs/heads"]
        form = "%(refname)|%(objectname)|%(committerdate:short)|%(upstream:short)"
        output = self.git("for-each-ref", f"--format={form}", *words, *spaces)
        wanted = {line.replace("refs/heads/", "").replace("refs/remotes/", "") for line in output.split("\n") if line}
        result = await self.call("git_branches", remote=remote, **arguments)
        found = {
            "|".join((str(one["name"]), one["commit"], one["date"], one.get("upstream", ""))) for one in result.branches
        }
        assert found <= wanted, found - wanted
        assert len(found) == len(wanted) or result.more
        heads = self.reader.branches()
        assert {one["name"]: one["commit"] for one in result.branches if one["name"] in heads}.items() <= heads.items()


def _after(words: list[str]) -> list[str]:
    return words[words.index("--") :] if "--" in words else []


KINDS = ("status", "log", "diff", "blame", "show", "branches")


async def asked(world: World, count: int, seed: int) -> Counter[str]:
    """Ask `count` queries of each kind; return how many were compared."""
    counted: Counter[str] = Counter()
    async with world.tools() as tools:
        with closing(SecondReader(world)) as reader:
            queries = Queries(world, tools, random.Random(seed), reader)
            for kind in KINDS:
                ask: Callable[[], Awaitable[None]] = getattr(queries, kind)
                for number in range(count):
                    try:
                        await ask()
                    except (AssertionError, CoreError, KeyError) as error:
                        raise AssertionError(f"{kind}, query {number} of seed {seed}: {error!r}") from error
                    counted[kind] += 1
    return counted


def cloned(source: Path, top: Path) -> World:
    """A clone of a repository, with ten local branches beside its own."""
    world = World(top)
    world.git("clone", "--quiet", str(source), str(world.repository), cwd=world.root)
    for number, commit in enumerate(world.git("rev-list", "--max-count=100", "HEAD").split()[::10]):
        world.git(
            "branch",
            "--track" if number % 2 else "--no-track",
            f"local-{number}",
            commit if number % 2 == 0 else "HEAD",
        )
    return world


def main() -> None:
    directory, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    for source in sorted(directory.iterdir()):
        with TemporaryDirectory() as top:
            world = cloned(source, Path(top))
            seed = int(os.environ.get("CORETOOLS_GIT_SEED", "17"))
            found = anyio.run(asked, world, count, seed)
            size = world.git("rev-list", "--all", "--count")
            kinds = ", ".join(f"{kind} {number}" for kind, number in found.items())
            print(f"{source.name}: {size} commits: {kinds}: equal")
            shutil.rmtree(world.top, ignore_errors=True)


if __name__ == "__main__":
    main()
