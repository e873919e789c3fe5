"""What a user of an author's program sees on its command line (docs/specs/application.md)."""

import io
import logging
import re
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal

import anyio
import pytest

from coretools import App, CoreError, Effect


class Locked(CoreError):
    """An error of the author's."""

    kind = "locked"
    exit_code = 75


class Cluster:
    """What commands share."""


def application() -> App:
    @asynccontextmanager
    async def cluster() -> AsyncIterator[Cluster]:
        yield Cluster()
        if broken:
            raise LookupError("the cluster did not close")

    broken: list[bool] = []
    app = App("deployctl", version="1.2", title="Deploy services", lifespan=cluster)
    old = app.context("old_releases", summary="what was there before")

    @old.tool(Effect.CHANGE)
    async def remove_all(before: date, cluster: Cluster) -> int:
        """Remove old releases."""
        if before.year < 2000:
            raise Locked(f"{before}: is locked by ada")
        raise RuntimeError("the disk is gone.\nToken ghp_" + "a1" * 18)

    @app.tool(Effect.CHANGE)
    def leave(cluster: Cluster) -> str:
        """Leave a broken cluster behind."""
        broken.append(True)
        return "left"

    @app.tool(Effect.READ)
    def explain(word: str, help: str = "none", json: int = 0) -> str:  # noqa: A002  # what is tested
        """Explain a word."""
        return f"{word} {help} {json}"

    return app


@pytest.fixture
def bare() -> App:
    return application()


def line(app: App, text: str, capfd: pytest.CaptureFixture[str], *handlers: logging.Handler) -> tuple[int, str]:
    """The exit code and the output of a line, in a program whose logging has these handlers."""
    before, logging.root.handlers = logging.root.handlers, list(handlers)
    try:
        code = app.cli(text.split())
    finally:
        logging.root.handlers = before
    out, err = capfd.readouterr()
    assert not re.search("coretools|server", out + err, re.IGNORECASE) or "--traceback" in text, out + err
    return code, out + err


REMOVE = "old-releases remove-all 2026-01-01"


def test_an_unexpected_exception_is_one_line_and_its_traceback_is_there_for_who_asks(
    bare: App, capfd: pytest.CaptureFixture[str]
) -> None:
    """application-29: it names what was typed; secrets are redacted."""
    code, text = line(bare, REMOVE, capfd)
    assert code == 70
    said = "deployctl: old-releases remove-all: internal error: RuntimeError: the disk is gone"
    assert text == f"{said}; --traceback shows where it comes from\n"
    for asked in (f"{REMOVE} --traceback", f"--traceback {REMOVE}"):
        code, text = line(bare, asked, capfd)
        assert (code, text.splitlines()[-1]) == (70, said)
        assert "in remove_all" in text
        assert "a1a1" not in text
    code, text = line(bare, "leave", capfd)
    assert (code, text.splitlines()[0]) == (70, "left")
    assert text.splitlines()[1].endswith("cluster: failed to close: LookupError: the cluster did not close")
    assert "in cluster" in line(bare, "leave --traceback", capfd)[1]


def test_the_logging_of_the_author_is_kept_and_has_the_traceback(bare: App, capfd: pytest.CaptureFixture[str]) -> None:
    """application-29"""
    kept = io.StringIO()
    code, text = line(bare, REMOVE, capfd, logging.StreamHandler(kept))
    assert (code, text.count("\n")) == (70, 1)
    assert "in remove_all" in kept.getvalue()
    assert "a1a1" not in kept.getvalue()


def test_errors_name_what_was_typed(bare: App, capfd: pytest.CaptureFixture[str]) -> None:
    """application-30: the words, not the name that agents know."""
    assert line(bare, "old-releases remove-all soon", capfd)[1].startswith(
        "deployctl: old-releases remove-all: before: "
    )
    assert line(bare, "old_releases remove_all", capfd)[1].startswith("deployctl: old_releases remove_all: BEFORE must")
    assert line(bare, "old-releases remove-all 1999-01-01", capfd) == (75, "deployctl: 1999-01-01: is locked by ada\n")


def test_a_context_alone_names_what_follows_and_no_other_program(bare: App, capfd: pytest.CaptureFixture[str]) -> None:
    """application-30: `old-releases --help` would be a line of another program."""
    said = "deployctl: old-releases: continue with remove_all; --help behind it explains them\n"
    assert line(bare, "old-releases", capfd) == (64, said)


def test_a_parameter_may_have_any_name(bare: App, capfd: pytest.CaptureFixture[str]) -> None:
    """application-31, cli-12: also that of an option of every command, or of something in pydantic."""
    assert line(bare, "explain x --help=me --json 7", capfd) == (0, "x me 7\n")
    assert "--help=STRING" in line(bare, "explain x --help", capfd)[1]
    names = ("json", "dict", "validate", "schema", "copy", "construct", "model_extra", "model_fields_set")
    app = App("a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in names:
            parts: dict[str, object] = {}
            exec(f"def read_{name}({name}: int) -> int:\n    'Read.'\n    return {name}", parts)
            app.tool(Effect.READ)(parts[f"read_{name}"])  # type: ignore[type-var]
        app.registry.validate()
        for name in names:
            assert line(app, f"read_{name} 7", capfd) == (0, "7\n")


def test_help_in_the_repl_is_about_its_lines(
    bare: App, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """application-5: lines have no program name, and so has the usage; `--help` alone is `help`."""
    import os

    read, write = os.pipe()
    os.write(write, b"help\n--help\nexplain --help\nold-releases --help\n--json\n")
    os.close(write)
    with os.fdopen(read) as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        code, text = line(bare, "repl", capfd)
    one, two, rest = text.split("usage: ")
    assert one.count("`help COMMAND` shows its usage") == 2
    assert two.startswith("explain WORD [options]\n")
    assert rest.startswith(("old_releases COMMAND [options]\n", "old-releases COMMAND [options]\n"))
    assert code == 64


def test_serve_is_part_of_the_command_line_and_its_help(
    bare: App, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """application-5: unless a command has this name."""
    monkeypatch.setattr(App, "stdio", lambda _: 7)
    assert bare.cli(["serve"]) == 7
    capfd.readouterr()
    assert "`deployctl serve` is an MCP server of these commands" in capfd_help(bare, capfd)

    @bare.tool(Effect.READ)
    def serve() -> str:
        """Serve tea."""
        return "tea"

    assert line(bare, "serve", capfd) == (0, "tea\n")
    assert "MCP" not in capfd_help(bare, capfd)


def capfd_help(app: App, capfd: pytest.CaptureFixture[str]) -> str:
    app.cli(["--help"])
    return capfd.readouterr().out


def test_nothing_runs_without_a_standard_output(
    bare: App, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """application-29"""
    monkeypatch.setattr(sys, "stdout", None)
    assert line(bare, "explain x", capfd) == (74, "deployctl: standard output is closed; nothing was run\n")


@pytest.mark.parametrize("amount", ["1.50", "0.1", "12345678901234567890.12", "-3"])
def test_a_decimal_keeps_its_digits(capsys: pytest.CaptureFixture[str], amount: str) -> None:
    """application-5"""
    app = App("pay")

    @app.tool(Effect.READ)
    def pay(amount: Decimal) -> str:
        """Pay."""
        return str(amount)

    assert app.cli(["pay", f"--amount={amount}"]) == 0
    assert capsys.readouterr().out == f"{amount}\n"


def test_a_lifespan_that_fails_while_a_command_runs_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """application-6"""

    @asynccontextmanager
    async def feed() -> AsyncGenerator[Cluster]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            yield Cluster()

    async def fail() -> None:
        await called.wait()
        raise ConnectionError("the feed is gone")

    app, called = App("feed", lifespan=feed), anyio.Event()

    @app.tool(Effect.READ)
    async def follow(cluster: Cluster) -> None:
        """Follow the feed."""
        called.set()
        await anyio.sleep_forever()

    assert app.cli(["follow"]) == 70
    assert capsys.readouterr().err.endswith("feed: failed while it ran: ConnectionError: the feed is gone\n")
