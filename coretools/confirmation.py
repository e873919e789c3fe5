"""The question that stands before a call of which the operator wants a person to know. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from coretools.asking import AskConfirmation

CONFIRM = "confirm"
"""Key of every such question."""

SHOWN_CHARACTERS = 4_096
"""Of one argument; a longer one is shown by its start, its end and its length. No path is longer (PATH_MAX)."""


def before_call(name: str, arguments: Mapping[str, Any]) -> AskConfirmation:
    """Whether a call with these arguments may go on."""
    lines = [f"{_name(argument)}: {_shown(value)}" for argument, value in arguments.items()]
    return AskConfirmation(key=CONFIRM, message="\n".join([f"Run {name}?", *lines]), is_for_operator=True)


def _name(argument: str) -> str:
    """A name as it is, or quoted: where a command takes any name, the caller chose it."""
    return argument if argument.isascii() and argument.isidentifier() else _shown(argument)


def _shown(value: Any) -> str:
    """A value as JSON in printable ASCII, so that no character hides another."""
    text = json.dumps(value, default=str)
    if len(value if isinstance(value, str) else text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters more] {text[-half:]}"
