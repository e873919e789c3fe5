"""What the reading tools show: selected logs, numbered hunks, summaries, objects, blame and branches."""

import json
import os
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from coretools.config.limits import Limits
from coretools.errors import CoreError, DeniedPath, GitRefused, InvalidArguments, NotFound
from coretools.tools.git.repository.patches import PATCH, read_patch
from tests.tools.git.change_calls import function_of
from tests.tools.git.world import GitTools, World


def _history(tmp_path: Path) -> World:
    """Six commits by two authors on consecutive days, with a rename, a merge, and a hidden file."""
    world = World(tmp_path).created()
    for day, (author, name, text, message) in enumerate(
        (
            ("Ada", "a.txt", "one\n", "first"),
            ("Bob", "a.txt", "one\nneedle (x)\n", "adds a needle\n\nBecause [of] the reason."),
            ("Ada", ".env", "KEY=needle\n", "settings"),
            ("Bob", "b.txt", "b\n", "b"),
            ("Ada", "a.txt", "one\n", "removes it"),
        ),
        1,
    ):
        world.write(name, text)
        world.git("add", "-f", ".")
        date = f"2026-02-{day:02}T12:00:00+0000"
        who = f"{author} <{author.lower()}@example.org>"
        world.git("commit", "--quiet", "-m", message, "--author", who, "--date", date)
    world.git("switch", "--quiet", "-c", "side", "HEAD~1")
    world.git("mv", "b.txt", "c.txt")
    world.git("commit", "--quiet", "-m", "renames")
    world.git("switch", "--quiet", "main")
    return world


async def _summaries(tools: GitTools, **arguments: Any) -> list[str]:
    result = await tools.git_log("work", **arguments)
    return [str(commit["summary"]) for commit in result.commits]


async def test_a_log_is_selected_as_by_git(tmp_path: Path) -> None:
    """git-40: by author, message, changed text, all branches, path through renames; texts are no patterns."""
    world = _history(tmp_path)
    async with world.tools() as tools:
        assert await _summaries(tools, by="bob@") == ["b", "adds a needle"]
        assert await _summaries(tools, grep="[of] the") == ["adds a needle"]
        assert await _summaries(tools, grep=".*") == []
        assert await _summaries(tools, changed="needle (x)") == ["removes it", "adds a needle"]
        assert await _summaries(tools, changed="one", in_lines=True) == ["first"]
        assert await _summaries(tools, changed="needle (x)", in_lines=True, limit=1) == ["removes it"]
        assert await _summaries(tools, changed="n.*e") == await _summaries(tools, changed="n.*e", in_lines=True) == []
        assert "renames" in await _summaries(tools, all_branches=True)
        assert await _summaries(tools, revision="side", path="work/c.txt", follow=True) == ["renames", "b"]
        assert await _summaries(tools, revision="side", path="work/c.txt") == ["renames"]
        assert await _summaries(tools, skip=1, limit=2) == ["b", "settings"]
        first = await tools.git_log("work", limit=2)
        assert (first.next_skip, "skip=2" in first.text()) == (2, True)
        assert (await tools.git_log("work", skip=3)).next_skip == 0
        full = await tools.git_log("work", by="Bob", stat=True, body=True, grep="needle")
        assert full.commits[0]["files"] == [{"path": "work/a.txt", "added": "1", "removed": "0"}]
        assert "    Because [of] the reason." in full.text().splitlines()
        assert "    work/a.txt | +1 -0" in full.text().splitlines()
        assert full.commits[0]["body"] == "Because [of] the reason."


async def test_dates_of_a_log_are_whole_days(tmp_path: Path) -> None:
    """git-40: since from the beginning of a day, until to its end; what is no date is refused."""
    world = World(tmp_path).created()
    for day in (1, 2, 3):
        for hour in ("00:30", "23:30"):
            date = f"2026-02-0{day}T{hour}:00+00:00"
            tree = world.git("write-tree")
            parent = world.git("rev-parse", "-q", "--verify", "HEAD", check=False)
            text = f"tree {tree}\n{f'parent {parent}' + chr(10) if parent else ''}"
            seconds = int(datetime.fromisoformat(date).timestamp())
            text += f"author A <a@x> {seconds} +0000\ncommitter A <a@x> {seconds} +0000\n\n{day} {hour}\n"
            commit = world.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
            world.git("update-ref", "refs/heads/main", commit)
    async with world.tools() as tools:
        if time.localtime().tm_gmtoff == 0:
            assert await _summaries(tools, since="2026-02-02", until="2026-02-02") == ["2 23:30", "2 00:30"]
        assert await _summaries(tools, since="2026-02-03T12:00:00Z") == ["3 23:30"]
        assert await _summaries(tools, since="2 weeks ago", until="yesterday") == []
        for wrong in ("soon", "--all", "1 fortnight ago", "2026", "x" * 500):
            with pytest.raises(InvalidArguments, match="not a date"):
                await tools.git_log("work", since=wrong)
        for name in ("grep", "by", "changed"):
            with pytest.raises(InvalidArguments, match=name):
                await tools.git_log("work", **{name: "a\nb"})  # type: ignore[arg-type]
        for arguments, text in (
            ({"follow": True}, "one file"),
            ({"all_branches": True, "revision": "main"}, "without a revision"),
            ({"in_lines": True}, "goes with changed"),
        ):
            with pytest.raises(InvalidArguments, match=text):
                await tools.git_log("work", **arguments)  # type: ignore[arg-type]


async def test_a_search_for_changed_text_is_no_oracle(tmp_path: Path) -> None:
    """git-41: a match in a hidden file alone looks like no match, in commits, in counts and in paging."""
    world = World(tmp_path).created()
    for number in range(12):
        world.write(".aws/config", f"KEY=needle-{number}\n")
        world.write("a.txt", f"needle-{number}\n" if number in (2, 9) else f"{number}\n")
        world.git("add", "-f", ".")
        world.git("commit", "--quiet", "-m", f"commit {number}")
    async with world.tools() as tools:
        for in_lines in (False, True):
            answers = []
            for text in ("KEY=needle-3", "KEY=nothing"):
                result = await tools.git_log("work", changed=text, in_lines=in_lines, limit=1)
                answers.append((result.text(), result.model_dump_json(), result.facts()))
            assert answers[0] == answers[1]
        assert await _summaries(tools, changed="needle") == ["commit 10", "commit 9", "commit 3", "commit 2"]
        paged = [await tools.git_log("work", changed="needle", limit=1, skip=skip) for skip in range(4)]
        assert [one.commits[0]["summary"] for one in paged] == ["commit 10", "commit 9", "commit 3", "commit 2"]
        assert [one.next_skip for one in paged] == [1, 2, 3, 0]
        with pytest.raises(DeniedPath):
            await tools.git_log("work", changed="needle", path="work/.aws/config")
        shown = await tools.git_log("work", changed="needle", stat=True)
    assert "KEY" not in shown.text()


def _many_hunks(tmp_path: Path) -> World:
    world = World(tmp_path).created()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"):
        world.write(name, "".join(f"line {number}\n" for number in range(200)))
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "first")
    for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt"):
        world.write(name, "".join(f"line {number}{' x' * 20 if number % 20 == 0 else ''}\n" for number in range(200)))
    return world


async def test_hunks_are_numbered_and_paged(tmp_path: Path) -> None:
    """git-42: number and id as of the patch; whole hunks, every hunk once over the pages, as text and as data."""
    world = _many_hunks(tmp_path)
    patch = world.git("diff", *PATCH).encode()
    expected = [
        (f"work/{file.name.decode()}", hunk.number, hunk.id, hunk.lines)
        for file in read_patch(patch)
        for hunk in file.hunks
    ]
    seen: list[tuple[str, int, str]] = []
    text, skip = "", 0
    async with world.tools(limits=Limits(answer_bytes=6_000, grace_seconds=0.3)) as tools:
        while True:
            page = await tools.git_diff("work", skip=skip)
            assert len(page.text().encode()) <= 6_000
            text += page.text() + "\n"
            for file in page.files:
                hunks: Any = file["hunks"]
                seen += [(str(file["path"]), hunk["number"], hunk["id"]) for hunk in hunks]
            if not page.next_skip:
                break
            assert page.next_skip > skip
            assert f"skip={page.next_skip}" in page.text()
            skip = page.next_skip
        assert (await tools.git_diff("work", skip=1_000)).text() == "no hunks after skip=1000"
    assert [one[:3] for one in expected] == seen
    for _, number, identity, lines in expected:
        assert f"[hunk {number} {identity}]" in text
        assert b"\n".join(lines).decode() in text


async def test_words_names_and_merge_bases(tmp_path: Path) -> None:
    """git-42, git-7: words as git marks them; only names; `a...b` since where they parted; hunks have no id by word."""
    world = _history(tmp_path)
    world.write("a.txt", "one two [-three-] four\n")
    world.git("commit", "--quiet", "-am", "words")
    world.write("a.txt", "one 2 [-three-] four five\n")
    async with world.tools() as tools:
        words = (await tools.git_diff("work", word=True)).text()
        assert "one [-two-]{+2+} [-three-] four {+five+}" in words
        assert "[hunk" not in words
        names = await tools.git_diff("work", base="main...side", names=True)
        assert [(file["path"], file["change"]) for file in names.files] == [
            ("work/b.txt", "deleted"),
            ("work/c.txt", "added"),
        ]
        both = await tools.git_diff("work", base="main..side")
        assert {"work/a.txt", "work/c.txt"} <= {file["path"] for file in both.files}
        renamed = next(file for file in both.files if file["path"] == "work/c.txt")
        assert (renamed["change"], renamed["from"]) == ("renamed", "work/b.txt")
        for arguments in ({"base": "a..b", "target": "c"}, {"base": "a..b", "staged": True}):
            with pytest.raises(InvalidArguments, match="one base"):
                await tools.git_diff("work", **arguments)  # type: ignore[arg-type]


async def test_what_nobody_reads_is_summarised(tmp_path: Path) -> None:
    """git-43: lock files, generated, minified, large and binary ones, with the way to see them."""
    world = World(tmp_path).created()
    files = {
        "package-lock.json": "{}\n",
        "made.py": "x\n",
        "app.min.js": "f();\n",
        "wide.txt": "x" * 3_000 + "\n",
        "large.txt": "".join(f"{number}\n" for number in range(5_000)),
        "picture": "\0\1",
        "plain.txt": "x\n",
        ".gitattributes": "made.* linguist-generated=true\n",
    }
    world.write("start", "x")
    world.git("add", ".")
    world.git("commit", "--quiet", "-m", "start")
    for name, text in files.items():
        world.write(name, text)
    world.git("add", ".")
    async with world.tools() as tools:
        result = await tools.git_diff("work", staged=True)
        reasons = {str(file["path"])[5:]: file.get("not_shown", "") for file in result.files}
        assert reasons == {
            "package-lock.json": "lock file",
            "made.py": "generated",
            "app.min.js": "minified",
            "wide.txt": "minified",
            "large.txt": "large",
            "picture": "binary",
            "plain.txt": "",
            ".gitattributes": "",
        }
        assert (
            "[lock file: +1 -0 lines in 1 hunks not shown; paths=['work/package-lock.json'] shows them]"
            in result.text()
        )
        for name in ("package-lock.json", "made.py", "app.min.js"):
            assert "+" + files[name].strip() in (await tools.git_diff("work", [f"work/{name}"], staged=True)).text()
        world.git("commit", "--quiet", "-m", "all")
        shown = (await tools.git_show("HEAD", "work")).text()
    assert all(f"[{reason}: " in shown for reason in ("lock file", "generated", "minified", "large"))
    assert "Binary files" in shown


async def test_show_is_one_process_and_shows_only_commits(tmp_path: Path) -> None:
    """git-38, git-8: a tag with its message; no blob, no tree, and nothing that a tag points to but a commit."""
    world = World(tmp_path).created()
    world.write(".aws/config", "KEY=hidden-value\n")
    world.write("a.txt", "one\n")
    world.git("add", "-f", ".")
    world.git("commit", "--quiet", "-m", "first")
    blob = world.git("rev-parse", "HEAD:.aws/config")
    world.git("tag", "-a", "-m", "on a blob", "on-blob", blob)
    world.git("tag", "-a", "-m", "tag message", "v1")
    world.git("tag", "light", blob)
    async with world.tools() as tools:
        for revision in (blob, "on-blob", "light", "HEAD:.aws/config", "HEAD^{tree}", "HEAD^@", ":.env", "HEAD^-"):
            with pytest.raises(CoreError) as error:
                await tools.git_show(revision, "work")
            assert "hidden-value" not in str(error.value)
        with pytest.raises(InvalidArguments, match="paths in place of path"):
            await tools.git_show("HEAD", "work", "a.txt", stat=True)
        text = (await tools.git_show("v1", "work")).text()
        assert text.startswith("tag v1\nTagger: Ada Lovelace <ada@example.org>\n")
        assert ("tag message" in text, "+one" in text, "hidden-value" in text) == (True, True, False)
        with pytest.raises(DeniedPath):
            await tools.git_show("HEAD", "work", paths=["work/.aws/config"])
        with pytest.raises(NotFound, match="matches nothing"):
            await tools.git_show("HEAD", "work", paths=["work/nowhere"])


async def test_files_of_a_revision_have_any_name_and_kind(tmp_path: Path) -> None:
    """git-changes-2: names with newlines, quotes and colons; links, submodules, pointers of git-lfs."""
    world = World(tmp_path).created()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    for name, text in (('q"\nx', "odd\n"), ("a:b", "colon\n"), ("big.bin", pointer), ("d/e/f.txt", "deep\n")):
        world.write(name, text)
    (world.repository / "link").symlink_to("target")
    world.git("add", ".")
    commit = world.git("commit-tree", world.git("write-tree"), "-m", "x")
    world.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    world.git("commit", "--quiet", "-m", "first")
    async with world.tools() as tools:

        async def shown(path: str, revision: str = "HEAD") -> str:
            return (await tools.git_show(revision, "work", path=path)).text()

        assert await shown('work/q"\nx') == "odd"
        assert await shown("work/a:b") == await shown("work/a:b", "HEAD^{/first}") == "colon"
        assert (await shown("work/big.bin")).endswith("[a pointer of git-lfs; its content is not in git]")
        assert await shown("work/d") == "work/d/e/"
        assert await shown("work/link") == "work/link: a link to target"
        assert await shown("work/sub") == f"work/sub: a submodule at {commit}"
        assert "work/d/" in (await shown(".")).splitlines()
        world.write("later", "x")
        with pytest.raises(NotFound, match="git_log path="):
            await shown("work/later")


async def test_blame_passes_over_ignored_commits(tmp_path: Path) -> None:
    """git-44: named ones, and those of a file, which is read as `read_file` does; never by a setting."""
    world = World(tmp_path).created()
    for number, text in enumerate(("a\nb\n", " a\n b\n", " a\n  b\n")):
        world.write("a.txt", text)
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", f"{number}")
    first, second, third = world.git("log", "--reverse", "--format=%H").split()
    world.write("ignored", f"# formatting\n{second}\n\n{'0' * 40}\n")
    world.write("wrong", "not a commit\n")
    world.write(".env", "KEY=hidden-value\n")
    world.git("config", "blame.ignoreRevsFile", "ignored")
    async with world.tools() as tools:

        async def blamed(**arguments: Any) -> list[str]:
            text = (await function_of(tools, "git_blame")("work/a.txt", "work", **arguments)).text()
            return re.findall(r"^[0-9a-f]{10}", text, re.MULTILINE)

        assert await blamed() == [second[:10], third[:10]]
        assert await blamed(ignore_file="work/ignored") == [first[:10], third[:10]]
        assert await blamed(ignore=[second, "HEAD"]) == [first[:10], first[:10]]
        assert await blamed(ignore_file="work/ignored", ignore=["HEAD"], revision="HEAD") == [first[:10], first[:10]]
        with pytest.raises(InvalidArguments, match="line 1 is not a full commit name"):
            await blamed(ignore_file="work/wrong")
        with pytest.raises(DeniedPath):
            await blamed(ignore_file="work/.env")
        with pytest.raises(NotFound):
            await blamed(ignore=["nowhere"])


async def test_branches_are_selected(tmp_path: Path) -> None:
    """git-21: by pattern, merged, not merged, containing; with the last commit as data."""
    world = _history(tmp_path)
    world.git("branch", "feature/x")
    world.git("update-ref", "refs/remotes/origin/feature/x", "HEAD")
    async with world.tools() as tools:

        async def names(**arguments: Any) -> set[str]:
            return {str(branch["name"]) for branch in (await tools.git_branches("work", **arguments)).branches}

        assert await names() == {"main", "side", "feature/x"}
        assert await names(pattern="feature/*") == await names(pattern="feature") == {"feature/x"}
        assert await names(pattern="feature/*", remote=True) == {"feature/x", "origin/feature/x"}
        assert await names(merged="main") == {"main", "feature/x"}
        assert await names(no_merged="main") == await names(contains="side") == {"side"}
        assert await names(pattern="nothing*") == set()
        for arguments, kind in (
            ({"merged": "nowhere"}, NotFound),
            ({"contains": "--all"}, InvalidArguments),
            ({"pattern": "*a*b*c*d"}, InvalidArguments),
        ):
            with pytest.raises(kind):
                await names(**arguments)
        [current] = [one for one in (await tools.git_branches("work")).branches if one.get("current")]
        assert (current["name"], current["summary"], current["author"]) == ("main", "removes it", "Ada")


async def test_a_lock_of_the_index_is_explained(tmp_path: Path) -> None:
    """git-45: its age, the process that holds it, and what to do; also where a change meets it."""
    world = World(tmp_path).filled()
    lock = world.git_dir / "index.lock"
    async with world.tools() as tools:
        assert (await tools.git_status("work")).lock == ""
        script = f"f = open({str(lock)!r}, 'w'); print('open', flush=True); input()"
        async with await anyio.open_process([sys.executable, "-c", script]) as holder:
            assert holder.stdout is not None
            assert (await holder.stdout.receive()).startswith(b"open")
            held = await tools.git_status("work")
            assert f"process {holder.pid} (python" in held.lock
            assert "wait until it has ended" in held.lock
            holder.kill()
        os.utime(lock)
        assert "another git has just taken it" in (await tools.git_status("work")).lock
        os.utime(lock, (1, 1))
        hostile = World(tmp_path / "hostile").filled()
        hostile.repository.rename(hostile.root / "a; touch planted")
        os.close(os.open(hostile.root / "a; touch planted" / ".git" / "index.lock", os.O_CREAT))
        os.utime(hostile.root / "a; touch planted" / ".git" / "index.lock", (1, 1))
        async with hostile.tools() as others:
            assert (
                "run_command rm 'a; touch planted/.git/index.lock'"
                in (await others.git_status("a; touch planted")).lock
            )
        left = await tools.git_status("work")
        assert "no process of this machine that can be seen holds it" in left.lock
        assert "run_command rm work/.git/index.lock" in left.text()
        with pytest.raises(GitRefused, match=r"work/\.git/index\.lock: \d+ s old, no process"):
            await tools.git_add(["work/new.txt"], "work")
    assert lock.exists()


async def test_an_unfinished_operation_names_the_call_that_ends_it(tmp_path: Path) -> None:
    """git-22: and stashes are counted."""
    world = World(tmp_path).filled()
    world.git("stash", "push", "--quiet")
    async with world.tools() as tools:
        assert ((await tools.git_status("work")).stashes, "1 stashed" in (await tools.git_status("work")).text()) == (
            1,
            True,
        )
        for name, word in (
            ("BISECT_LOG", "git_bisect action='good', 'bad' or 'skip'; action='reset' ends it"),
            ("CHERRY_PICK_HEAD", "git_continue action='continue', 'skip'"),
        ):
            (world.git_dir / name).write_text(world.git("rev-parse", "HEAD") + "\n")
            status = await tools.git_status("work")
            assert word in status.end_with
            assert word in status.text()
            (world.git_dir / name).unlink()
        (world.git_dir / "rebase-apply").mkdir()
        assert "git am --abort" in (await tools.git_status("work")).end_with


async def test_structured_content_repeats_no_text(tmp_path: Path) -> None:
    """git-46: counts, names and ids; the patch itself is only in the text."""
    world = _many_hunks(tmp_path)
    async with world.tools() as tools:
        result = await tools.git_diff("work")
    assert "line 20 x" not in json.dumps(result.model_dump())
