"""Questions of commands that a test answers in advance (docs/specs/application.md)."""

from typing import Any, Literal

import pytest
from mcp import Client, MCPError
from pydantic import BaseModel

from coretools import (
    App,
    AskChoice,
    AskChoices,
    AskConfirmation,
    AskForm,
    Asking,
    AskModel,
    AskRoots,
    AskText,
    Call,
    Effect,
    asks,
)

pytest_plugins = ["coretools.application.pytest_plugin"]

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")


class Range(BaseModel):
    first: int
    last: int


NAME = AskText(key="name", message="Whose?")
WHERE = AskChoice(key="where", message="Where?", choices=("test", "live"))
PARTS = AskChoices(key="parts", message="Which parts?", choices=("web", "api", "jobs"))
PAGES = AskForm(key="pages", message="Which pages?", model=Range)
SURE = AskConfirmation(key="sure", message="Deploy?")
SUMMARY = AskModel(key="summary", message="Sum up")
DIRECTORIES = AskRoots(key="directories")
QUESTIONS = (NAME, WHERE, PARTS, PAGES, SURE, SUMMARY, DIRECTORIES)
GIVEN = {
    "name": "Ada",
    "where": "li",
    "parts": ("jobs", "web"),
    "pages": Range(first=1, last=2),
    "sure": "yes",
    "summary": "short",
    "directories": ["file:///work"],
}
ANSWERED = "('Ada', 'live', ('web', 'jobs'), Range(first=1, last=2), True, 'short', ('file:///work',))"

deployctl = App("deployctl", asking=Asking(mode="sampling"))
runs: list[str] = []


@deployctl.tool(Effect.READ)
@asks(*QUESTIONS)
async def everything(call: Call) -> str:
    """Ask everything, the first question before the others."""
    runs.append("begun")
    return repr((await call.ask(NAME), *await call.ask_all(*QUESTIONS[1:])))


@deployctl.tool(Effect.CHANGE)
@asks(SURE)
async def deploy(call: Call) -> str:
    """Deploy."""
    return "deployed" if await call.ask(SURE) else "not deployed"


@pytest.fixture
def app() -> App:
    return deployctl


@pytest.mark.parametrize("mcp_answers", [GIVEN, lambda question: GIVEN[question.key]], ids=["keys", "function"])
async def test_every_kind_of_question_is_answered_in_advance(mcp_client: Client, mcp_era: Era) -> None:
    """application-34: in the stateless era the command runs again from its start with each round of answers."""
    runs.clear()
    result = await mcp_client.call_tool("everything", {})
    assert result.structured_content == {"result": ANSWERED}
    assert len(runs) == (1 if mcp_era == "legacy" else 3)


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_without_a_valid_answer_fails_the_call_and_says_what_would_work(era: Era) -> None:
    """application-34"""

    def confused(_: object) -> Any:
        raise LookupError("what?")

    for answers, reason in (
        ({}, r"^the question 'name' \(Whose\?\) has no answer; pass test_client\(answers={'name': '\.\.\.'}\)$"),
        ({**GIVEN, "where": "moon"}, "^answers.where: choose one of test, live; 'moon' is not one of them$"),
        (confused, r"^answers\.name: the function for answers raised LookupError: what\?$"),
    ):
        async with deployctl.test_client(era, answers=answers) as client:
            with pytest.raises(MCPError, match=reason):
                await client.call_tool("everything", {})


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_can_be_declined_and_answers_are_given_for_each_call(era: Era) -> None:
    """application-34"""
    given: list[Any] = [None, False, True]
    async with deployctl.test_client(era, answers=lambda _: given.pop(0)) as client:
        results = [await client.call_tool("deploy", {}) for _ in range(3)]
    texts = [getattr(one.content[0], "text", "") for one in results]
    assert texts == ["Deploy?: it was declined; nothing was done", "not deployed", "deployed"]
    assert [one.is_error for one in results] == [True, False, False]


async def test_answers_that_were_never_asked_for_are_a_warning() -> None:
    """application-34"""
    with pytest.warns(UserWarning, match=r"never asked: shure$"):
        async with deployctl.test_client(answers={"shure": True}):
            pass
