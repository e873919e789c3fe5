"""search_text and search_files on real trees, with each engine (docs/specs/search.md)."""

import math
import os
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from coretools.config.limits import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.errors import CoreError, DeniedPath, InvalidArguments, NotFound, NotText, OutsideRoot, TooLarge
from coretools.process.environment import child_environment
from coretools.process.runner import Runner
from coretools.roots.hidden_files import DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.search.engines import WalkEngine
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.pattern import parse_pattern
from coretools.tools.search.tools import SearchTools
from tests.tools.search.world import ENGINES, LIMITS, needs_ripgrep, planted, searching

engines = pytest.mark.parametrize("engine", ENGINES)


async def lines(top: Path, engine: str, pattern: str, limits: Limits = LIMITS, **options: Any) -> list[str]:
    async with searching(top, engine=engine, limits=limits) as search:
        return (await search.search_text(pattern, **options)).text().splitlines()


@engines
async def test_matching_lines_come_sorted_by_path_with_their_numbers(tmp_path: Path, engine: str) -> None:
    """search-6."""
    planted(
        tmp_path, {"b.py": "x\nimport os\n", "a/z.py": "import re\n", "a.py": "import sys\r\nimport io", "c.py": "y"}
    )
    assert await lines(tmp_path, engine, "^import") == [
        *("a/z.py", "1:import re"),
        *("a.py", "1:import sys", "2:import io"),
        *("b.py", "2:import os"),
    ]


@engines
async def test_a_file_is_named_once_unless_none_has_a_second_line(tmp_path: Path, engine: str) -> None:
    """search-29: so no answer is longer than a line for each match with its path; a name can't pass for a match."""
    planted(tmp_path, {"2026-11-28.md": "x\n", "7:y": "x\n", "b": "x\n"})
    assert await lines(tmp_path, engine, "x") == ["2026-11-28.md:1:x", "7:y:1:x", "b:1:x"]
    planted(tmp_path, {"b": "x\nx\n"})
    grouped = [*("./2026-11-28.md", "1:x"), *("./7:y", "1:x"), *("b", "1:x", "2:x")]
    assert await lines(tmp_path, engine, "x") == grouped
    assert await lines(tmp_path, engine, "x", path="b", limit=1) == [
        "b:1:x",
        "[1 matches shown, more exist; skip=1 goes on; or narrow pattern, path or glob, or raise limit (at most 500)]",
    ]


@engines
async def test_no_match_is_reported(tmp_path: Path, engine: str) -> None:
    """search-6."""
    planted(tmp_path, {"a": "x"})
    assert await lines(tmp_path, engine, "y") == ["[no line matches]"]


@engines
async def test_a_literal_and_a_search_without_case(tmp_path: Path, engine: str) -> None:
    """search-4, search-5."""
    planted(tmp_path, {"a": "f(x)\nF(X)\nfx\n"})
    assert await lines(tmp_path, engine, "f(x)", literal=True) == ["a:1:f(x)"]
    assert await lines(tmp_path, engine, "f(x)", literal=True, ignore_case=True) == ["a", "1:f(x)", "2:F(X)"]


@engines
async def test_lines_around_a_match_are_marked_as_such(tmp_path: Path, engine: str) -> None:
    """search-7."""
    planted(tmp_path, {"a": "1\n2\n3\n4\n5\n6\n7\n8\n"})
    assert await lines(tmp_path, engine, "[27]", context=1) == [
        "a",
        *("1-1", "2:2", "3-3"),
        "--",
        *("6-6", "7:7", "8-8"),
    ]


@engines
async def test_results_stop_at_the_limit_and_report_that_more_exist(tmp_path: Path, engine: str) -> None:
    """search-8."""
    planted(tmp_path, {f"f{number}": "x\nx\n" for number in range(5)})
    found = await lines(tmp_path, engine, "x", limit=3)
    assert found[:5] == ["f0", "1:x", "2:x", "f1", "1:x"]
    assert found[5].startswith("[3 matches shown, more exist;")
    assert len(await lines(tmp_path, engine, "x", limit=10)) == 15
    found = await lines(tmp_path, engine, "x", limits=Limits(search_results=4), limit=10)
    assert found[-1].startswith("[4 matches shown, the most in one answer, more exist; skip=4 goes on;")


@engines
@pytest.mark.parametrize("apart", [0, 1, 5])
async def test_every_limit_is_filled_however_far_apart_the_matches_are(tmp_path: Path, engine: str, apart: int) -> None:
    """search-8: the limit falls into a file, between two, and behind the last match."""
    planted(tmp_path, {f"f{number}": ("x\n" + "-\n" * apart) * 4 for number in range(3)})
    for limit in range(1, 15):
        found = [line for line in await lines(tmp_path, engine, "x", limit=limit) if line.endswith(":x")]
        assert len(found) == min(limit, 12), (limit, found)


@engines
async def test_files_with_a_match_are_listed_or_counted(tmp_path: Path, engine: str) -> None:
    """search-25: each file once, in the order of the paths; the limit is one of files."""
    planted(tmp_path, {"b": "x\ny\nx x\n", "a/c": "x\n" * 3, "none": "y\n", ".gitignore": "ignored\n", "ignored": "x"})
    assert await lines(tmp_path, engine, "x", output="files") == ["a/c", "b"]
    counted = ["a/c:3", "b:2"]
    assert await lines(tmp_path, engine, "x", output="counts") == [*counted, "[5 matching lines in all]"]
    assert await lines(tmp_path, engine, "x", output="counts", path="b") == ["b:2", "[2 matching lines in all]"]
    assert await lines(tmp_path, engine, "x", output="files", limit=2) == ["a/c", "b"]
    for output, shown in (("files", "a/c"), ("counts", "a/c:3")):
        first, remark = await lines(tmp_path, engine, "x", output=output, limit=1)
        assert (first, remark.partition(";")[0]) == (shown, "[1 files shown, more exist")
    assert await lines(tmp_path, engine, "z", output="counts") == ["[no line matches]"]
    planted(tmp_path, {f"{'long' * 40}{number}": "x" for number in range(300)})
    found = await lines(tmp_path, engine, "x", output="files", limit=500)
    assert len("\n".join(found)) <= LIMITS.answer_bytes
    assert "more exist" in found[-1]


@engines
async def test_an_answer_stays_inside_its_bytes(tmp_path: Path, engine: str) -> None:
    """search-8, search-9."""
    planted(tmp_path, {"a": "x" * 10_000 + "\n" + "x\n" * 1_000})
    found = await lines(tmp_path, engine, "x", limits=Limits(answer_bytes=2_000, search_line_bytes=100), limit=500)
    assert found[:2] == ["a", f"1:{'x' * 100}[... 9900 characters ...]"]
    assert found[-1] == (
        f"[{len(found) - 2} of 500 matches shown, more exist, but the answer is full;"
        f" skip={len(found) - 2} goes on; or narrow pattern, path or glob]"
    )
    assert len("\n".join(found)) < 1_200


def matches_in(found: list[str]) -> list[str]:
    return [match[1] for line in found if (match := re.match(r"(?:f\d:)?(\d+:.*)", line))]


@engines
@pytest.mark.parametrize("context", [0, 2, 50])
@pytest.mark.parametrize("limit", [1, 5, 7, 500])
async def test_pages_together_show_every_match_once(tmp_path: Path, engine: str, context: int, limit: int) -> None:
    """search-30: whether the limit or the size ends a page; each page that is not the last shows a match."""
    width, limits = 120, Limits(answer_bytes=6_000)
    planted(
        tmp_path,
        {
            f"f{number}": "".join(f"{'x' if line % 20 == 7 else 'y'} {line}{'-' * width}\n" for line in range(100))
            for number in range(3)
        },
    )
    seen, skip = list[str](), 0
    for _ in range(20):
        found = await lines(tmp_path, engine, "x", limits=limits, limit=limit, context=context, skip=skip)
        assert len("\n".join(found)) <= limits.answer_bytes
        page = matches_in(found)
        seen += page
        skip += len(page)
        if "more exist" not in found[-1]:
            break
        assert page
        assert f"skip={skip} goes on" in found[-1]
        if len(page) < limit:
            assert f"{len(page)} of {limit} matches shown, more exist, but the answer is full" in found[-1]
            assert ("take less context" in found[-1]) is (context > 0)
    assert seen == [f"{line + 1}:x {line}{'-' * width}" for _ in range(3) for line in (7, 27, 47, 67, 87)]


@engines
async def test_one_match_that_has_no_room_for_its_context_is_shown_with_less(tmp_path: Path, engine: str) -> None:
    """search-30."""
    planted(tmp_path, {"a": ("y" * 400 + "\n") * 60 + "x\n" + ("y" * 400 + "\n") * 60})
    found = await lines(tmp_path, engine, "x", limits=Limits(answer_bytes=6_000), context=50)
    assert (found[0], matches_in(found)) == ("a", ["61:x"])
    assert (len(found), found[-1]) == (15, "[context is 6, not 50: the answer has no room for it]")
    planted(tmp_path, {"a": ("x\n" + "y" * 400 + "\n") * 9})
    found = await lines(tmp_path, engine, "x", limits=Limits(answer_bytes=4_600), context=1)
    assert len(matches_in(found)) == 9
    assert found[-1] == "[the last lines of context are left out: the answer is full]"


@engines
async def test_files_are_paged_too(tmp_path: Path, engine: str) -> None:
    """search-30: the skip is one of files then."""
    planted(tmp_path, {f"f{number}": "x\nx\n" for number in range(5)})
    assert (await lines(tmp_path, engine, "x", output="files", limit=2, skip=2))[:2] == ["f2", "f3"]
    assert await lines(tmp_path, engine, "x", output="counts", limit=2, skip=4) == ["f4:2"]
    assert await lines(tmp_path, engine, "x", output="files", skip=5) == ["[no match after the first 5]"]
    assert await lines(tmp_path, engine, "x", skip=99) == ["[no match after the first 10]"]


@engines
async def test_a_glob_chooses_the_files_and_brings_back_none_that_is_ignored(tmp_path: Path, engine: str) -> None:
    """search-12."""
    planted(tmp_path, {".gitignore": "*.gen.py", "a.py": "x", "b/c.py": "x", "b/d.gen.py": "x", "e.js": "x"})
    assert await lines(tmp_path, engine, "x", glob="*.py") == ["a.py:1:x", "b/c.py:1:x"]
    assert await lines(tmp_path, engine, "x", glob="b/*.py") == ["b/c.py:1:x"]
    assert await lines(tmp_path, engine, "x", glob="*.{js,ts}") == ["e.js:1:x"]
    assert await lines(tmp_path, engine, "x", glob="!*.py") == ["e.js:1:x"]
    assert await lines(tmp_path, engine, "x", glob="*.gen.py", include_ignored=True) == ["b/d.gen.py:1:x"]


@engines
async def test_hidden_files_are_searched_and_git_is_not(tmp_path: Path, engine: str) -> None:
    """search-11."""
    planted(tmp_path, {".ci/run": "x", ".git/HEAD": "x", "sub/.git": "x", "sub/a": "x"})
    assert await lines(tmp_path, engine, "x") == [".ci/run:1:x", "sub/a:1:x"]
    assert await lines(tmp_path, engine, "x", include_ignored=True) == [".ci/run:1:x", "sub/a:1:x"]


@engines
async def test_ignore_files_between_the_root_and_the_directory_searched_hold(tmp_path: Path, engine: str) -> None:
    """search-10."""
    planted(
        tmp_path,
        {
            ".gitignore": "*.log\nbuild/\n",
            "a/.gitignore": "*.tmp\n",
            **{f"a/b/{name}": "x" for name in ("x.log", "x.tmp", "x.c")},
            "build/x.c": "x",
            "build/x.log": "x",
        },
    )
    assert await lines(tmp_path, engine, "x$", path="a/b") == ["a/b/x.c:1:x"]
    assert await lines(tmp_path, engine, "x$", path="build") == ["build/x.c:1:x"]
    assert await lines(tmp_path, engine, "x$") == ["a/b/x.c:1:x"]


@engines
async def test_ignore_files_above_the_root_are_not_consulted(tmp_path: Path, engine: str) -> None:
    """search-10."""
    planted(tmp_path, {".gitignore": "*", ".ignore": "*", "root/a": "x"})
    assert await lines(tmp_path / "root", engine, "x") == ["a:1:x"]


@engines
async def test_binary_files_are_passed_over_and_other_encodings_are_not(tmp_path: Path, engine: str) -> None:
    """search-13."""
    planted(
        tmp_path,
        {
            "early": b"match\n\0",
            "late": b"match\n" * 50_000 + b"\0",
            "latin": b"match caf\xe9\n",
            "mark": b"\xef\xbb\xbfmatch\n",
            "wide": b"\xff\xfe" + "match\r\né".encode("utf-16-le"),
        },
    )
    assert await lines(tmp_path, engine, "^match") == ["latin:1:match caf\ufffd", "mark:1:match", "wide:1:match"]
    assert await lines(tmp_path, engine, "^é$") == ["wide:2:é"]


@engines
async def test_a_file_over_the_limit_is_passed_over_in_a_tree_and_refused_by_name(tmp_path: Path, engine: str) -> None:
    """search-14."""
    planted(tmp_path, {"large": "match\n" * 100, "small": "match\n"})
    limits = Limits(file_bytes=100)
    assert await lines(tmp_path, engine, "match", limits) == ["small:1:match"]
    with pytest.raises(TooLarge, match="large"):
        await lines(tmp_path, engine, "match", limits, path="large")


@engines
async def test_a_file_can_be_named_even_if_it_is_ignored(tmp_path: Path, engine: str) -> None:
    """search-15."""
    planted(tmp_path, {".gitignore": "*", "a": "x\n", "binary": b"x\0"})
    assert await lines(tmp_path, engine, "x", path="a") == ["a:1:x"]
    with pytest.raises(NotText, match="binary"):
        await lines(tmp_path, engine, "x", path="binary")


@engines
async def test_what_is_hidden_is_not_searched(tmp_path: Path, engine: str) -> None:
    """search-16."""
    planted(tmp_path, {".env": "TOKEN=1", "a": "TOKEN=2", ".ssh/config": "TOKEN=3", "ca.pem": "TOKEN=4"})
    assert await lines(tmp_path, engine, "TOKEN", include_ignored=True) == ["a:1:TOKEN=2", "ca.pem:1:TOKEN=4"]
    with pytest.raises(DeniedPath):
        await lines(tmp_path, engine, "TOKEN", path=".env")


@engines
async def test_links_are_not_followed_and_nothing_outside_is_found(tmp_path: Path, engine: str) -> None:
    """search-16."""
    planted(tmp_path, {"secret": "x", "root/a": "x", "root/inner/b": "x"})
    (tmp_path / "root/file").symlink_to(tmp_path / "secret")
    (tmp_path / "root/directory").symlink_to(tmp_path)
    (tmp_path / "root/to-inner").symlink_to("inner")
    assert await lines(tmp_path / "root", engine, "x") == ["a:1:x", "inner/b:1:x"]
    assert await lines(tmp_path / "root", engine, "x", path="to-inner") == ["inner/b:1:x"]
    for path in ("..", "/etc", "directory", "file", str(tmp_path)):
        with pytest.raises(OutsideRoot):
            await lines(tmp_path / "root", engine, "x", path=path)


@engines
@pytest.mark.timeout(60)
async def test_fifos_are_passed_over_without_waiting(tmp_path: Path, engine: str) -> None:
    """search-16."""
    planted(tmp_path, {"a": "x"})
    os.mkfifo(tmp_path / "pipe")
    assert await lines(tmp_path, engine, "x") == ["a:1:x"]


@engines
@pytest.mark.parametrize("pattern", ["--files", "-e", "--pre=touch pwned", "-"])
async def test_a_pattern_is_never_an_option(tmp_path: Path, engine: str, pattern: str) -> None:
    """search-17."""
    planted(tmp_path, {"a": f"one {pattern} two\n", "--help": "x\n", "-e/b": "x\n"})
    assert await lines(tmp_path, engine, pattern, path="a") == [f"a:1:one {pattern} two"]
    found = await lines(tmp_path, engine, pattern)
    assert found[-1] == f"a:1:one {pattern} two"
    assert await lines(tmp_path, engine, "x", path="-e") == ["-e/b:1:x"]
    assert not (tmp_path / "pwned").exists()


@engines
async def test_unusual_names_are_found(tmp_path: Path, engine: str) -> None:
    """search-6: a name that is not UTF-8 cannot be requested, so both skip it."""
    planted(tmp_path, {"a b": "x", "é\U0001f600": "x", "line\nbreak": "x", " ": "x"})
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("x")
    async with searching(tmp_path, engine=engine) as search:
        found = await search.search_text("x")
    assert [file.path for file in found.files] == [" ", "a b", "line\nbreak", "é\U0001f600"]
    assert found.text().splitlines() == [" :1:x", "a b:1:x", "line\\nbreak:1:x", "é\U0001f600:1:x"]


@engines
async def test_a_path_that_is_not_there_is_an_error(tmp_path: Path, engine: str) -> None:
    """search-15."""
    with pytest.raises(NotFound):
        await lines(tmp_path, engine, "x", path="nowhere")


@engines
@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "[z-a]", "*", r"\p{Nope}"])
async def test_an_invalid_pattern_is_the_same_error_with_both_engines(
    tmp_path: Path, engine: str, pattern: str
) -> None:
    """search-2."""
    with pytest.raises(InvalidArguments, match="pattern"):
        await lines(tmp_path, engine, pattern)


@engines
async def test_a_search_that_is_too_slow_reports_that_more_may_exist(tmp_path: Path, engine: str) -> None:
    """search-18."""
    planted(tmp_path, {"a": "x\n"})
    found = await lines(tmp_path, engine, "x", limits=Limits(search_seconds=1e-9))
    assert found == ["[stopped after 1e-09 s; there may be more]"]


async def test_a_cancelled_walk_stops_at_the_next_file(tmp_path: Path) -> None:
    """search-19."""
    planted(tmp_path, {"a": "x", "b": "x"})
    looking, cancelled = threading.Event(), threading.Event()

    def wanted(_: str) -> bool:
        looking.set()
        return cancelled.wait()

    limiter = anyio.CapacityLimiter(2)
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots:
        query = Query(
            top=roots.place("."),
            pattern=parse_pattern("x", literal=False, ignore_case=False),
            glob="*",
            wanted=wanted,
            context=0,
            limit=10,
            include_ignored=False,
            deadline=math.inf,
        )
        findings = Findings(roots, LIMITS, query)
        async with anyio.create_task_group() as group:
            group.start_soon(WalkEngine(roots, limiter).search, findings)
            await anyio.to_thread.run_sync(looking.wait, limiter=limiter)
            group.cancel_scope.cancel()
            cancelled.set()
    assert findings.files == []


@needs_ripgrep
async def test_a_cancelled_search_leaves_no_ripgrep(tmp_path: Path) -> None:
    """search-19: a FIFO as ignore file makes ripgrep wait."""
    os.mkfifo(tmp_path / ".gitignore")
    runner = Runner(LIMITS, child_environment(os.environ, passed=()))
    with Roots([RootSpec(str(tmp_path))], deny=DenyRules(())) as roots, anyio.fail_after(60):
        confined_threads = ConfinedThreadPool()
        search = SearchTools(roots, runner, LIMITS, confined_threads=confined_threads)
        async with anyio.create_task_group() as group:
            group.start_soon(search.search_text, "x")
            while not runner.running:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert runner.running == 0
        await runner.close()
        confined_threads.close()


@needs_ripgrep
@pytest.mark.timeout(60)
async def test_a_ripgrep_that_waits_is_ended_at_the_deadline(tmp_path: Path) -> None:
    """search-18."""
    os.mkfifo(tmp_path / ".gitignore")
    found = await lines(tmp_path, "ripgrep", "x", limits=Limits(search_seconds=0.3))
    assert found == ["[stopped after 0.3 s; there may be more]"]


@engines
@pytest.mark.timeout(100)
async def test_a_directory_swapped_for_a_link_while_it_is_searched_shows_nothing_outside(
    tmp_path: Path, engine: str
) -> None:
    """search-16."""
    planted(tmp_path, {"outside/file": "canary", "root/inner/file": "inside", "root/z": "inside"})
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    done = threading.Event()
    names = [tmp_path / "root" / name for name in ("inner", "kept", "link")]

    def swap() -> None:
        while not done.is_set():
            for source, target in ((0, 1), (2, 0), (0, 2), (1, 0)):
                names[source].rename(names[target])

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, swap)
        try:
            for _ in range(25):
                answer = "\n".join(await lines(tmp_path / "root", engine, "canary|inside"))
                assert "canary" not in answer
                assert "z:1:inside" in answer
        finally:
            done.set()


@needs_ripgrep
async def test_ripgrep_is_used_where_it_is_and_our_own_walk_where_not(tmp_path: Path) -> None:
    """search-1."""
    planted(tmp_path, {"a": "x"})
    async with searching(tmp_path) as search:
        assert (await search.search_text("x")).facts()["engine"] == "ripgrep"
    (tmp_path / "empty").mkdir()
    async with searching(tmp_path, environment={"PATH": str(tmp_path / "empty")}) as search:
        found = await search.search_text("x")
    assert found.facts()["engine"] == "walk"
    assert found.text() == "a:1:x"


async def test_a_ripgrep_that_fails_is_replaced_by_our_own_walk(tmp_path: Path) -> None:
    """search-1."""
    planted(tmp_path, {"bin/rg": "#!/bin/sh\nprintf './a\\0'\nkill -9 $$\n", "root/a": "x", "root/b": "x"})
    (tmp_path / "bin/rg").chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    async with searching(tmp_path / "root", environment=environment) as search:
        found = await search.search_text("x")
    assert found.text() == "a:1:x\nb:1:x"
    assert found.facts()["engine"] == "walk"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link"])
async def test_what_ripgrep_names_is_only_read_beneath_the_root(tmp_path: Path, name: str) -> None:
    """search-16: a ripgrep that a race led out, or another program in its place, leaks nothing."""
    escaped = name.replace("/", "\\/")
    planted(
        tmp_path, {"bin/rg": f"#!/bin/sh\nprintf '{escaped}\\0./a\\0'\n", "root/a": "root x", "secret": "root secret"}
    )
    (tmp_path / "bin/rg").chmod(0o755)
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    async with searching(tmp_path / "root", environment=environment) as search:
        assert (await search.search_text("root")).text() == "a:1:root x"


@pytest.mark.parametrize(
    ("glob", "paths"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("src/**", ["src/b.py", "src/c/", "src/c/d.js"]),
        ("**/*.{js,ts}", ["src/c/d.js"]),
        ("c/", ["src/c/"]),
        ("c", ["src/c/"]),
        ("*.o", ["[no path matches]"]),
    ],
)
async def test_names_are_found_by_a_glob(tmp_path: Path, glob: str, paths: list[str]) -> None:
    """search-20."""
    planted(tmp_path, {".gitignore": "*.o", "a.py": "", "src/b.py": "", "src/c/d.js": "", "e.o": "", ".git/HEAD": ""})
    async with searching(tmp_path) as search:
        assert search.search_files(glob).text().splitlines() == paths
        assert search.search_files("*.o", include_ignored=True).text() == "e.o"


async def test_names_beneath_a_directory_are_relative_to_the_root(tmp_path: Path) -> None:
    """search-20."""
    planted(tmp_path, {".gitignore": "x.o", "src/a.py": "", "src/x.o": ""})
    async with searching(tmp_path) as search:
        assert search.search_files("*", path="src").text() == "src/a.py"
        assert search.search_files("/a.py", path="src").text() == "src/a.py"


async def test_too_many_names_are_cut_and_counted(tmp_path: Path) -> None:
    """search-20."""
    planted(tmp_path, {f"f{number}": "" for number in range(9)})
    async with searching(tmp_path) as search:
        found = search.search_files("*", limit=2)
    assert found.text() == "f0\nf1\n[2 of 9 paths; skip=2 goes on, or narrow glob or path]"
    assert found.facts() == {"paths": 2, "total": 9}


async def test_pages_of_names_together_are_all_of_them(tmp_path: Path) -> None:
    """search-20: whether the limit or the size ends a page, in every order."""
    names = [f"{folder}{'n' * 90}{number}" for folder in ("", "a/", "b/c/") for number in range(12)]
    planted(tmp_path, dict.fromkeys(names, ""))
    for number, name in enumerate(names):
        os.utime(tmp_path / name, (number, number))
    expected = {"path": sorted(names, key=lambda name: name.split("/")), "newest": names[::-1]}
    async with searching(tmp_path, limits=Limits(answer_bytes=2_000)) as search:
        for order, limit in (("path", 5), ("path", 500), ("newest", 5), ("newest", 500)):
            seen, last = list[str](), ""
            while not seen or "goes on" in last:
                found = search.search_files("n*", sort=order, limit=limit, skip=len(seen))  # type: ignore[arg-type]
                assert found.total == len(names)
                assert len(found.text()) <= 2_000
                last = found.text().splitlines()[-1]
                assert ("the answer is full" in last) is (limit == 500 and "goes on" in last)
                seen += found.paths
            assert seen == expected[order]
        found = search.search_files("n*", skip=99)
    assert found.text() == "[no path matches after the first 36]"


async def test_the_newest_files_come_first(tmp_path: Path) -> None:
    """search-32: by the time of their last change, without directories unless they alone are asked for."""
    planted(tmp_path, dict.fromkeys(("old.py", "a/new.py", "a/b/middle.py", "newest.txt", "ignored.o"), ""))
    planted(tmp_path, {".gitignore": "*.o\n"})
    for at, name in enumerate(("old.py", ".gitignore", "a/b/middle.py", "a/b", "a", "a/new.py", "newest.txt")):
        os.utime(tmp_path / name, (at, at))
    async with searching(tmp_path) as search:
        assert search.search_files("*", sort="newest").paths == [
            *("newest.txt", "a/new.py", "a/b/middle.py", ".gitignore", "old.py")
        ]
        assert search.search_files("*.py", sort="newest", limit=2).paths == ["a/new.py", "a/b/middle.py"]
        assert search.search_files("*/", sort="newest").paths == ["a/", "a/b/"]
        assert search.search_files("*.py", path="a", sort="newest").paths == ["a/new.py", "a/b/middle.py"]
        assert search.search_files("*", query="mid", sort="newest").paths == ["a/b/middle.py"]


async def test_names_are_found_by_their_letters(tmp_path: Path) -> None:
    """search-31: with a glob too; hidden and ignored files as without; twenty by default."""
    planted(tmp_path, dict.fromkeys(("src/user_controller.py", "src/user_controller.js", "usr/ctl.py", "x.o"), ""))
    planted(tmp_path, {".gitignore": "*.o\n", ".ci/run": ""})
    async with searching(tmp_path) as search:
        assert search.search_files("*", query="usrctl").paths == [
            *("src/user_controller.js", "src/user_controller.py", "usr/ctl.py")
        ]
        assert search.search_files("*.py", query="usrctl").paths == ["src/user_controller.py", "usr/ctl.py"]
        assert search.search_files("*", query="USR controller", path="src").paths == [
            *("src/user_controller.js", "src/user_controller.py")
        ]
        assert search.search_files("*", query="src").paths[0] == "src/"
        assert search.search_files("*", query="ci run").paths == [".ci/run"]
        assert search.search_files("*", query="xo").text() == "[no path matches]"
        planted(tmp_path, {f"many/file{number}": "" for number in range(30)})
        found = search.search_files("*", query="file")
        assert (len(found.paths), found.total) == (20, 30)
        with pytest.raises(InvalidArguments, match="query: has 101 characters"):
            search.search_files("*", query="x" * 101)


async def test_names_outside_the_roots_or_reached_by_links_are_not_found(tmp_path: Path) -> None:
    """search-16, search-20."""
    planted(tmp_path, {"secret": "", "root/a": ""})
    (tmp_path / "root/link").symlink_to(tmp_path)
    async with searching(tmp_path / "root") as search:
        assert search.search_files("*").text() == "a\nlink"
        for path in ("..", "link", "/"):
            with pytest.raises(CoreError):
                search.search_files("*", path=path)


async def test_several_roots_are_searched_by_their_absolute_paths(tmp_path: Path) -> None:
    """search-16."""
    planted(tmp_path, {"one/a": "x", "two/b": "x"})
    async with searching(tmp_path / "one", tmp_path / "two") as search:
        assert (await search.search_text("x")).text() == "a:1:x"
        assert (await search.search_text("x", path=str(tmp_path / "two"))).text() == f"{tmp_path}/two/b:1:x"
        assert search.search_files("*", path=str(tmp_path / "two")).text() == f"{tmp_path}/two/b"
