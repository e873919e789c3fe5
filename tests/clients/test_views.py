"""What the pages draw, in headless Chromium: results of real tools, in a sandboxed frame (docs/specs/apps.md)."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from coretools.app.assembly import open_assembly
from coretools.config.limits import Limits
from coretools.config.settings import Asking, Settings
from coretools.protocol.round_trip_questions import QuestionFactory
from coretools.protocol.server import ServerOptions, build_server
from tests.checkout import TREE
from tests.clients.conftest import NODE_FOLDER, git, without

IMAGE = "<img src=x onerror=alert(1)>.txt"
SCRIPT = "</script><script>alert(2)</script>"
BIDI = "if access \u202e# begin admin"

PROJECT = """import unittest

class Greeting(unittest.TestCase):
    def test_it_names_the_guest(self):
        self.assertIn("Ada", "Hello </pre><script>alert(3)</script>")

    def test_it_is_kind(self):
        pass

    @unittest.skip("later")
    def test_it_is_short(self):
        pass
"""

SHOWN = (
    "h1",
    ".path",
    ".tag",
    "tr.added",
    "tr.removed",
    "tr.hunk",
    "tr.cut",
    "mark",
    "p.note",
    ".verdict",
    ".failures .name",
    ".failures .place",
    ".failures pre",
    ".fault",
    ".plain",
)


@dataclass(frozen=True)
class Page:
    """The page after one scene."""

    text: str
    found: dict[str, list[str]]
    tags: list[str]
    background: str
    wide: int
    policy: str
    went: list[str]
    messages: list[str]
    seen: list[dict[str, Any]]


def repository(folder: Path) -> Path:
    """A repository whose names, contents and changes a page must not take for markup."""
    folder.mkdir()
    git(folder, "init")
    (folder / "old name.py").write_text('def greeting():\n    return "Hello"\n' + "# same\n" * 20)
    (folder / "gone.txt").write_text("gone\n")
    (folder / "picture.bin").write_bytes(b"\0\1\2")
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "start")
    git(folder, "mv", "old name.py", "new name.py")
    git(folder, "rm", "gone.txt")
    (folder / "new name.py").write_text('def greeting(name):\n    return f"Hello, {name}"\n' + "# same\n" * 20)
    (folder / "picture.bin").write_bytes(b"\0\1\3")
    (folder / IMAGE).write_text(f"{SCRIPT}\n{BIDI}\n-- not a header\n++ neither\n" + "long " * 100)
    (folder / "caf\u00e9.txt").write_text("coffee\n")
    git(folder, "add", "--all")
    return folder


async def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Results as a client receives them."""
    repository(folder / "repository")
    project = folder / "project"
    project.mkdir()
    (project / "test_greeting.py").write_text(PROJECT)
    (folder / "long").mkdir()
    git(folder / "long", "init")
    (folder / "long" / "numbers.txt").write_text("".join(f"{number} {'.' * 40}\n" for number in range(3000)))
    git(folder / "long", "add", "--all")
    calls = {
        "diff": ("git_diff", {"repository": "repository", "staged": True}),
        "summary": ("git_diff", {"repository": "repository", "staged": True, "stat": True}),
        "cut": ("git_diff", {"repository": "long", "staged": True}),
        "error": ("git_diff", {"repository": "nowhere"}),
        "tests": ("ci_test", {"project": "project", "command": "python3 -m unittest -v"}),
    }
    settings = Settings(roots=(str(folder),), limits=Limits(answer_bytes=4096))
    async with open_assembly(settings, dict(os.environ)) as assembly:
        extensions = assembly.extensions(QuestionFactory(Asking()))
        server = build_server(
            assembly.catalog, assembly.dispatcher, assembly.identity, ServerOptions(extensions=extensions)
        )
        async with Client(server) as connected:
            made = {name: await connected.call_tool(tool, given) for name, (tool, given) in calls.items()}
            contents = {name: (await connected.read_resource(f"ui://coretools/{name}")).contents for name in PAGES}
    rendered = {name: one.model_dump(by_alias=True, mode="json", exclude_none=True) for name, one in made.items()}
    return rendered | {f"{name} page": {"html": one[0].text} for name, one in contents.items()}  # type: ignore[union-attr]


PAGES = ("diff", "tests")
PICTURED = ("diff", "diff on a phone in the dark", "tests", "tests on a phone in the dark")


def host_messages(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"method": "ui/notifications/tool-input", "params": {"arguments": {}}},
        {"method": "ui/notifications/tool-result", "params": result},
    ]


def scenes(made: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Pages, the messages of their host, and how they are displayed."""
    diff, tests = (made[f"{name} page"]["html"] for name in PAGES)
    report = made["tests"]["structuredContent"]
    passed = {**report, "exit_code": 0, "failures": [], "seconds": 75.0}
    passed["counts"] = {"passed": 3, "failed": 0, "skipped": 0, "errors": 0, "total": 3}
    late = {**passed, "timed_out": True, "exit_code": -1}
    none = {**passed, "counts": {}}
    cancelled = [{"method": "ui/notifications/tool-cancelled", "params": {"reason": SCRIPT}}]
    asked = [{"id": 7, "method": "ping"}, {"id": 8, "method": "ui/resource-teardown"}, {"id": 9, "method": "x"}]
    dark = {"theme": "dark", "styles": {"variables": {"--color-text-primary": "rgb(1, 2, 3)", "color": "red"}}}
    light = {"method": "ui/notifications/host-context-changed", "params": {"theme": "light"}}

    def text(content: str, **more: object) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": content}], **more}

    all_scenes: dict[str, dict[str, Any]] = {
        "diff": {"html": diff, "messages": host_messages(made["diff"])},
        "diff on a phone in the dark": {
            "html": diff,
            "messages": host_messages(made["diff"]),
            "width": 390,
            "scheme": "dark",
        },
        "summary": {"html": diff, "messages": host_messages(made["summary"])},
        "cut": {"html": diff, "messages": host_messages(made["cut"])},
        "error": {"html": diff, "messages": host_messages(made["error"]), "state": "failed"},
        "tests": {"html": tests, "messages": host_messages(made["tests"])},
        "tests on a phone in the dark": {
            "html": tests,
            "messages": host_messages(made["tests"]),
            "width": 390,
            "scheme": "dark",
        },
        "passed": {"html": tests, "messages": host_messages(text("3 passed", structuredContent=passed))},
        "late": {"html": tests, "messages": host_messages(text("late", structuredContent=late))},
        "no counts": {
            "html": tests,
            "messages": host_messages(text("none\n[output]\nnothing here", structuredContent=none)),
        },
        "something else": {"html": tests, "messages": host_messages(text(SCRIPT, structuredContent={"counts": None}))},
        "broken": {
            "html": tests,
            "messages": host_messages(text("broken", structuredContent={"counts": {}, "failures": [None]})),
            "state": "plain",
        },
        "cancelled": {"html": diff, "messages": cancelled, "state": "cancelled"},
        "dark by its host": {"html": tests, "context": dark, "messages": [*asked, *host_messages(text("x"))]},
        "light again": {"html": tests, "context": dark, "messages": [light, *host_messages(text("x"))]},
    }
    for name, scene in all_scenes.items():
        scene |= {"context": scene.get("context", {}), "ask": SHOWN}
        if name in PICTURED:
            scene["screenshot"] = str(folder / f"{name.replace(' ', '-')}.png")
    return all_scenes


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for screenshots: kept if a variable names one."""
    named = os.environ.get("VIEW_PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> dict[str, Page]:
    """Every scene, drawn by one browser."""
    chromium = shutil.which("chromium")
    node = NODE_FOLDER / "node_modules" / ".bin" / "node"
    if chromium is None:
        without("Chromium: install the package chromium")
    if not (node.exists() and (NODE_FOLDER / "node_modules" / "playwright-core").exists()):
        without("npm client packages: run `npm ci` in tests/clients/node")
    folder = tmp_path_factory.mktemp("views")
    work, profile = folder / "work", folder / "profile"
    work.mkdir()
    drawn_scenes = scenes(anyio.run(results, work), pictures)
    order = {"chromium": chromium, "profile": str(profile), "scenes": list(drawn_scenes.values())}
    ended = subprocess.run(
        [node, NODE_FOLDER / "views.js"], input=json.dumps(order), capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    return dict(zip(drawn_scenes, (Page(**page) for page in json.loads(ended.stdout)), strict=True))


def test_a_diff_is_drawn_by_file_and_line(drawn: dict[str, Page]) -> None:
    """apps-5: names, the change of each file, counts, line numbers, and the changed parts of a line."""
    page = drawn["diff"]
    assert page.found["h1"] == ["5 files changed\n+8\n\u22123"]
    assert page.found[".path"] == [
        f"repository/{IMAGE}",
        "repository/caf\u00e9.txt",
        "repository/gone.txt",
        "repository/old name.py \u2192 repository/new name.py",
        "repository/picture.bin",
    ]
    assert page.found[".tag"] == ["new", "new", "deleted", "renamed", "binary"]
    assert page.found["tr.removed"][1:] == ["1\t\t\u2212\tdef greeting():", '2\t\t\u2212\t    return "Hello"']
    assert page.found["tr.added"][-2:] == ["\t1\t+\tdef greeting(name):", '\t2\t+\t    return f"Hello, {name}"']
    assert page.found["mark"] == ['"Hello', "name", 'f"Hello, {name}']
    assert page.found["tr.hunk"][0].startswith("@@ -0,0 +1,5 @@ [hunk 1 ")


@pytest.mark.parametrize("name", ["diff", "tests", "cancelled", "something else"])
def test_no_result_becomes_markup(drawn: dict[str, Page], name: str) -> None:
    """apps-4: names and contents that are HTML are shown literally; nothing is run or requested."""
    page = drawn[name]
    assert SCRIPT in page.text or "</pre><script>alert(3)</script>" in page.text
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.messages == []
    assert page.went == []


def test_lines_that_look_like_headers_stay_in_their_file(drawn: dict[str, Page]) -> None:
    """apps-5: a hunk states the number of its lines."""
    added = drawn["diff"].found["tr.added"]
    assert "\t3\t+\t-- not a header" in added
    assert "\t4\t+\t++ neither" in added


def test_bidirectional_control_characters_are_visible(drawn: dict[str, Page]) -> None:
    """apps-4: no line can look like another."""
    assert "\t2\t+\tif access \\u202e# begin admin" in drawn["diff"].found["tr.added"]


def test_a_truncated_diff_is_marked(drawn: dict[str, Page]) -> None:
    """apps-5: where and how much; what follows has no line numbers, and the last lines are there."""
    page = drawn["cut"]
    [cut] = page.found["tr.cut"]
    assert cut.endswith("lines of this hunk left out")
    assert page.found["tr.added"][0] == f"\t1\t+\t0 {'.' * 40}"
    assert page.found["tr.added"][-1] == f"\t\t+\t2999 {'.' * 40}"
    assert page.found["p.note"] == ["[for the rest use run_command with git diff, then read_run]"]


def test_what_is_not_a_patch_is_shown_as_text(drawn: dict[str, Page]) -> None:
    """apps-7: a summary by file, an unknown result, and one that breaks the page."""
    assert "repository/gone.txt | +0 -1" in drawn["summary"].found[".plain"][0]
    assert drawn["something else"].found[".plain"] == [SCRIPT]
    assert drawn["broken"].found[".plain"] == ["broken"]


def test_an_error_is_shown_with_its_message(drawn: dict[str, Page]) -> None:
    """apps-7: a cancelled call with its reason."""
    assert "nowhere" in drawn["error"].found[".fault"][0]
    assert drawn["cancelled"].found["p.note"] == [f"cancelled: {SCRIPT}"]


def test_a_test_run_is_drawn_with_its_failures(drawn: dict[str, Page]) -> None:
    """apps-6: counts, and each failure with its place and message; the output can be opened."""
    page = drawn["tests"]
    assert page.found[".verdict"] == ["Failed"]
    assert page.found[".tag"] == ["1 failed", "1 skipped", "1 passed"]
    assert "test_it_names_the_guest" in page.found[".failures .name"][0]
    assert page.found[".failures .place"] == ["project/test_greeting.py:5"]
    assert "</pre><script>alert(3)</script>" in page.found[".failures pre"][0]
    assert "details" in page.tags


@pytest.mark.parametrize(
    ("name", "verdict"), [("passed", "Passed"), ("late", "Timed out"), ("no counts", "No test counts found")]
)
def test_the_verdict_is_that_of_the_run(drawn: dict[str, Page], name: str, verdict: str) -> None:
    """apps-6: counts do not override a timeout, and no tests are no success."""
    page = drawn[name]
    assert page.found[".verdict"] == [verdict]
    assert page.found["h1"][0].endswith("1 min 15 s")
    assert ("nothing here" in page.text) == (name == "no counts")


def test_pages_fit_a_phone(drawn: dict[str, Page]) -> None:
    """apps-8: long lines wrap, nothing is wider than the screen."""
    assert {name: page.wide for name, page in drawn.items() if page.wide > 0} == {}
    assert "long long" in drawn["diff on a phone in the dark"].text


def test_pages_follow_the_light_or_dark_mode_of_the_host_or_system(drawn: dict[str, Page]) -> None:
    """apps-8: the host's setting precedes the system's."""
    light, dark = drawn["diff"].background, drawn["diff on a phone in the dark"].background
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert drawn["dark by its host"].background == dark
    assert drawn["light again"].background == light


def test_a_page_speaks_the_protocol_of_the_extension(drawn: dict[str, Page]) -> None:
    """apps-4: a handshake, its size, responses to requests, and nothing else."""
    seen = drawn["dark by its host"].seen
    assert [one.get("method") for one in seen[:2]] == ["ui/initialize", "ui/notifications/initialized"]
    assert seen[0]["params"]["protocolVersion"] == "2026-01-26"
    assert seen[0]["params"]["appCapabilities"] == {"availableDisplayModes": ["inline", "fullscreen"]}
    answers = {one["id"]: one for one in seen[1:] if "id" in one}
    assert answers[7]["result"] == answers[8]["result"] == {}
    assert answers[9]["error"]["code"] == -32601
    others = {one["method"] for one in seen[2:] if "method" in one}
    assert others == {"ui/notifications/size-changed"}


def test_screenshots_are_taken(drawn: dict[str, Page], pictures: Path) -> None:
    """apps-8: of each page on a desktop in light mode and on a phone in dark mode, for people to look at."""
    taken = [pictures / f"{name.replace(' ', '-')}.png" for name in PICTURED]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in taken)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_long_new_file_is_drawn_in_linear_time() -> None:
    """apps-5: changed parts of a line are searched behind removed lines only; quadratic time would take minutes."""
    script = TREE / "coretools" / "protocol" / "html" / "diff.js"
    rows = "markChanges(new Array(600000).fill({ kind: 'added', code: 'x' }))"
    program = f"{script.read_text().partition('function codeCell')[0]}\n{rows}; console.log('drawn')"
    done = subprocess.run(["node", "-"], input=program, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "drawn\n"
