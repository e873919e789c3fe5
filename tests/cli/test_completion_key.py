"""The Tab key of the REPL (docs/specs/cli.md), with keys from a pipe."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from coretools.cli.completion_key import completion_keys


class Words(Completer):
    """Completes the first word, in another task; `hang` for ever."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        return []

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        if text == "hang":
            await asyncio.Event().wait()
        for word in ("many", "deploy_all", "deploy_one", "some/"):
            await asyncio.create_task(asyncio.sleep(0))
            if word.startswith(text):
                yield Completion(word, -len(text))


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("man\t7\r", "many 7"),
        ("many\t7\r", "many 7"),
        ("dep\tone x\r", "deploy_one x"),
        ("so\tx\r", "some/x"),
        ("nothing\tx\r", "nothingx"),
        ("man\t\x1b[D\x1b[Dx\r", "manxy "),
        ("hang\tlost\x03er\r", "hanger"),
    ],
)
async def test_what_is_typed_behind_tab_follows_the_completion(typed: str, line: str) -> None:
    """cli-17: however fast, arrow keys too; Ctrl-C ends a completion that hangs, with what waited for it."""
    words = Words()
    with create_pipe_input() as keys:
        session: PromptSession[str] = PromptSession(
            completer=words, key_bindings=completion_keys(words), input=keys, output=DummyOutput()
        )
        keys.send_text(typed)
        assert await session.prompt_async("") == line
