"""The console page in headless Chromium, with a real console behind a socket (docs/specs/console.md)."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coretools.web.auth.hashed_tokens import create_token, revoke_tokens
from coretools.web.auth.verifiers import FailureLimiter, TokenFileVerifier
from coretools.web.common.config import LimitsSection, ServerSection
from coretools.web.observability.console_login import COOKIE, OperatorSessions
from coretools.web.observability.console_page import Console
from coretools.web.observability.middleware import ObservabilityMiddleware
from coretools.web.validation.request_validator import RequestValidator
from tests.clients.conftest import NODE_FOLDER, without
from tests.protocol.http_peer import listening
from tests.web.observability.operated import BIDI, MARKUP, SECRET, ObservedServer, router

SECONDS = 110
CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3."""

PICTURES = ("login", "desk", "desk-errors", "desk-dark", "phone-busy", "phone", "phone-login")

Drawn = dict[str, Any]


class StagedApp:
    """The app behind the page, and the events that the browser's script triggers in it."""

    def __init__(self, tokens: str) -> None:
        self.inside = ObservedServer()
        self._tokens = tokens
        operators = OperatorSessions(TokenFileVerifier(tokens), FailureLimiter(30))
        self._console = Console(self.inside.console_state, operators, self.inside.draining, is_secure=False)
        self._over = anyio.Event()

    async def serve(self, run: partial[Any]) -> Any:
        """Serve the app to the browser."""
        async with anyio.create_task_group() as tasks:

            async def begin(request: Request) -> Response:
                tasks.start_soon(self._calls)
                return Response()

            async def end(request: Request) -> Response:
                self.inside.gate.set()
                self._over.set()
                return Response()

            async def revoke(request: Request) -> Response:
                revoke_tokens(self._tokens, "operator")
                return Response()

            async def drain(request: Request) -> Response:
                self.inside.draining.begin()
                return Response()

            ways = [Route(f"/{way.__name__}", way, methods=["POST"]) for way in (begin, end, drain, revoke)]
            guarded = RequestValidator(
                router(*self._console.routes(), *ways),
                hosts=("127.0.0.1:*",),
                server=ServerSection(),
                limits=LimitsSection(),
            )
            app = ObservabilityMiddleware(guarded, [self.inside.metrics, self.inside.console_state])
            async with listening(app) as url:
                return await anyio.to_thread.run_sync(run, url.removesuffix("/mcp"), abandon_on_cancel=True)

    async def _calls(self) -> None:
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(self.inside.call, "wait", "alice", name="a"))
            calls.start_soon(partial(self.inside.call, "wait", "build-bot", name="b"))
            hostile = self.inside.hostile()
            for number in range(40):
                await self.inside.call("echo", text=str(number))
            await self._over.wait()
            self.inside.fail(hostile)
            await self.inside.call("lose", "alice", path="src/missing.py")
            await self.inside.call("crash")


def browsed(order: dict[str, str], url: str) -> Drawn:
    node = NODE_FOLDER / "node_modules" / ".bin" / "node"
    request = json.dumps({**order, "url": url})
    ended = subprocess.run(
        [node, NODE_FOLDER / "console.js"], input=request, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    found: Drawn = json.loads(ended.stdout)
    return found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for screenshots: kept if a variable names one."""
    named = os.environ.get("CONSOLE_PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Drawn:
    """What one operator saw from the first request to the last."""
    chromium = shutil.which("chromium")
    if chromium is None:
        without("Chromium: install the package chromium")
    if not (NODE_FOLDER / "node_modules" / "playwright-core").exists():
        without("npm client packages: run `npm ci` in tests/clients/node")
    folder = tmp_path_factory.mktemp("console")
    tokens = str(folder / "tokens.json")
    _, token = create_token(tokens, name="operator", role="default")
    order = {"chromium": chromium, "profile": str(folder / "profile"), "token": token, "pictures": str(pictures)}
    found: Drawn = anyio.run(StagedApp(tokens).serve, partial(browsed, order))
    return found


def step(drawn: Drawn, name: str) -> Drawn:
    found: Drawn = drawn["steps"][name]
    return found


def test_nothing_is_visible_before_the_login(drawn: Drawn) -> None:
    """console-2: a form with a label and a button, and no data of the server."""
    form = step(drawn, "form")
    assert 'textbox "Token"' in form["spoken"]
    assert 'button "Log in"' in form["spoken"]
    assert "replica" not in form["text"].lower()


def test_an_invalid_token_is_reported_and_gives_no_access(drawn: Drawn) -> None:
    """console-2: one sentence, announced to screen readers."""
    assert "does not open the console" in step(drawn, "wrong")["text"]


def test_calls_are_visible_while_they_run(drawn: Drawn) -> None:
    """console-5: they appear, their seconds count, and they disappear, without a reload."""
    assert "No call is under way." in step(drawn, "quiet")["text"]
    under_way = step(drawn, "under_way")
    assert under_way["text"].count("wait") == 2
    assert "build-bot" in under_way["text"]
    assert "No call is under way." in step(drawn, "failed")["text"]


def test_sessions_protections_and_replica_are_shown(drawn: Drawn) -> None:
    """console-5: roots by name, protections that are off, the principals of sessions."""
    text = step(drawn, "quiet")["text"]
    for text_part in ("replica-1", "redis", "project \u00b7 read and write", "Commands: landlock", "git-confinement"):
        assert text_part in text
    assert "0abcdefa\u2026" in text
    assert "abcdefabcdef" not in text


@pytest.mark.parametrize("name", ["under_way", "failed", "phone", "phone_failed", "dark"])
def test_no_text_of_others_becomes_markup(drawn: Drawn, name: str) -> None:
    """console-6: tools, principals, roots and errors are shown literally, and run nothing."""
    page = step(drawn, name)
    assert MARKUP in page["text"]
    assert page["canary"] is None
    assert page["tags"].count("img") == 1  # the mark in the header
    assert "script" not in page["tags"]


def test_bidirectional_control_characters_are_visible(drawn: Drawn) -> None:
    """console-6: no name can look like another."""
    assert BIDI not in step(drawn, "under_way")["text"]
    assert "\\u202eniam\\u202c" in step(drawn, "under_way")["text"]


def test_errors_are_shown_without_credentials(drawn: Drawn) -> None:
    """console-7: cut and redacted; internal errors by the call's id only."""
    text = step(drawn, "failed")["text"]
    assert "src/missing.py: not there" in text
    assert "crash failed inside the server; the server's log has the reason (call " in text
    assert "[redacted:github]" in text
    assert SECRET not in text
    assert "correct-horse-battery" not in text


def test_changes_are_announced_to_screen_readers(drawn: Drawn) -> None:
    """console-9: failed calls are announced; chart lines have a text."""
    assert "calls failed; the last: crash, internal" in step(drawn, "failed")["told"]
    assert step(drawn, "failed")["lines"][0].startswith("Calls, last 5 min: ")
    spoken = step(drawn, "under_way")["spoken"]
    for heading in ("Calls in flight", "Recent errors", "Sessions", "Protections by role", "Server"):
        assert f'heading "{heading}' in spoken
    for name in ("under_way", "phone"):
        assert 'columnheader "Principal"' in step(drawn, name)["spoken"]
        assert 'cell "build-bot"' in step(drawn, name)["spoken"]


@pytest.mark.parametrize("name", ["form", "quiet", "under_way", "failed", "dark", "phone", "phone_failed"])
def test_all_text_is_readable(drawn: Drawn, name: str) -> None:
    """console-9: contrast in light and dark mode."""
    assert step(drawn, name)["contrast"]["ratio"] >= CONTRAST, step(drawn, name)["contrast"]


@pytest.mark.parametrize("name", ["phone", "phone_failed", "phone_left", "quiet", "under_way"])
def test_the_page_fits_its_screen(drawn: Drawn, name: str) -> None:
    """console-9: 390 x 844 and a desktop; nothing scrolls sideways, however long a name is."""
    assert step(drawn, name)["wide"] <= 0


def test_logging_out_ends_other_windows(drawn: Drawn) -> None:
    """console-4: the same cookie on a phone shows the form within a second, and gives no access any more."""
    assert "Log in" in step(drawn, "left")["text"]
    assert "Log in" in step(drawn, "phone_left")["text"]
    assert drawn["steps"]["old_cookie"] == 401


def test_the_shutdown_of_the_server_is_shown(drawn: Drawn) -> None:
    """console-4: in one sentence, with the last data."""
    text = step(drawn, "over")["text"]
    assert "The server ends" in text
    assert "replica-1" in text


def test_a_revoked_token_ends_the_page(drawn: Drawn) -> None:
    """console-4: also a page that waits for the server to come back."""
    assert "Log in" in step(drawn, "revoked")["text"]


def test_the_cookie_is_for_this_page_only(drawn: Drawn) -> None:
    """console-3: no script can read it, no other site sends it, and it is sent to no other path."""
    cookie = step(drawn, "cookie")
    assert drawn["steps"]["script_cookie"] == ""
    assert (cookie["name"], cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == (
        COOKIE,
        "/console",
        True,
        "Strict",
    )


def test_the_page_requests_nothing_from_elsewhere(drawn: Drawn) -> None:
    """console-8: no other origin, nothing that the policy had to block, no script error."""
    paths = {address.partition("/console")[2] for address in drawn["went"] if "/console" in address}
    assert paths == {"", "/console.css", "/console.js", "/console.svg", "/events", "/login", "/logout", "/state"}
    assert len(drawn["went"]) == len(paths)
    others = [line for line in drawn["messages"] if not line.startswith("Failed to load resource")]
    assert others == []


def test_screenshots_are_taken(drawn: Drawn, pictures: Path) -> None:
    """console-9: for people to look at."""
    for name in PICTURES:
        assert (pictures / f"{name}.png").read_bytes().startswith(b"\x89PNG")
