"""Commit authors: valid names and addresses, and their scope (docs/specs/git.md)."""

import os
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from coretools.config.call_context import CallContext, caller_variables, calling
from coretools.config.commit_author import VARIABLES, Author, author_from, read_author
from coretools.errors import BadSetting

ADA = Author("Ada", "ada@example.com")


@pytest.mark.parametrize(
    ("text", "author"),
    [
        ("Ada <ada@example.com>", ADA),
        ("  Ada   <ada@example.com> ", ADA),
        ("Ada King, Countess of L. <a+b@x>", Author("Ada King, Countess of L.", "a+b@x")),
        ("Ada Lovelace (ö) <ö@example.com>", Author("Ada Lovelace (ö)", "ö@example.com")),
    ],
)
def test_an_author_is_written_in_git_s_form(text: str, author: Author) -> None:
    """git-37."""
    assert read_author(text, "--author") == author
    assert read_author(str(author), "--author") == author


@pytest.mark.parametrize(
    "text",
    [
        *("Ada", "ada@example.com", "<ada@example.com>", "Ada <>", "Ada <ada@example.com", "Ada <a@x> <b@x>"),
        *("Ada <ada@example.com> and more", "A\nda <a@x>", "Ada <a\nb@x>", "A\0da <a@x>", "Ada <a @x>", ". <a@x>"),
        *("Ada> <a@x>", "A\x1b[31m <a@x>", f"{'a' * 257} <a@x>", "Ada <,>", "", "Ada <a\u2028b>"),
    ],
)
def test_what_git_would_refuse_or_change_is_refused(text: str) -> None:
    """git-37: the error names the setting and a valid form."""
    with pytest.raises(BadSetting, match=r"^roles\.ci\.author: .*'Ada Lovelace <ada@example\.com>'"):
        read_author(text, "roles.ci.author")


@pytest.mark.parametrize("name", ["Ada", "x, y", "O'Hara", "a.b", "J. R.", "ö \\ (x)"])
def test_git_accepts_what_is_accepted_here(tmp_path: Path, name: str) -> None:
    """git-37: a commit is made under it."""
    author = author_from(name, "a@example.com")
    assert author is not None
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True, timeout=60)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **author.variables}
    words = ["git", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60, env=environment)
    words = ["git", "log", "-1", "--format=%ae %ce"]
    assert subprocess.check_output(words, cwd=tmp_path, timeout=60, text=True).split() == ["a@example.com"] * 2


async def test_the_author_applies_in_tasks_and_threads_of_the_call_only() -> None:
    """git-37: concurrent calls each have their own."""
    seen: dict[str, str | None] = {}
    both = {name: anyio.Event() for name in ("Ada", "Bob")}

    async def call(name: str, other: str) -> None:
        with calling(CallContext("1", "ada", Author(name, "x@example.com"))):
            both[name].set()
            await both[other].wait()
            found = await anyio.to_thread.run_sync(caller_variables)
            seen[name] = found.get(VARIABLES[0])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "Ada", "Bob")
            tasks.start_soon(call, "Bob", "Ada")
    assert seen == {"Ada": "Ada", "Bob": "Bob"}
    assert caller_variables() == {}
