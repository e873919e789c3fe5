"""The confirmation that the operator's policy requires before a call."""

import json
from collections.abc import Mapping
from typing import Any

from coretools.questions.kinds import AskConfirmation

CONFIRM = "confirm"
"""The key of every such question."""

SHOWN_CHARACTERS = 4_096
"""Characters shown of one argument; of a longer one its start, end and length. No path is longer (PATH_MAX)."""


def call_confirmation(name: str, arguments: Mapping[str, Any]) -> AskConfirmation:
    """The question whether a call with these arguments may run."""
    lines = [f"{_name(argument)}: {_displayed_value(value)}" for argument, value in arguments.items()]
    return AskConfirmation(key=CONFIRM, message="\n".join([f"Run {name}?", *lines]), is_for_operator=True)


def _name(argument: str) -> str:
    """A name, quoted unless it is an identifier: a command that accepts any name lets the caller choose it."""
    return argument if argument.isascii() and argument.isidentifier() else _displayed_value(argument)


def _displayed_value(value: Any) -> str:
    """A value as JSON in printable ASCII, so that no character can hide another."""
    text = json.dumps(value, default=str)
    if len(value if isinstance(value, str) else text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters more] {text[-half:]}"
