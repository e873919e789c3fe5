"""The words by which a person gives arguments: `name=value`, `name:=JSON`, `name@=FILE`. Pure."""

from typing import Literal, NamedTuple

Form = Literal["", ":", "@"]
"""How the value is given: as text, as JSON, or in a file."""


class ArgumentWord(NamedTuple):
    """One word, taken apart."""

    name: str
    form: Form
    text: str | None
    """What is behind the first `=`; None if there is none."""


def split_word(word: str) -> ArgumentWord:
    """Take a word apart at its first `=`."""
    given, equals, text = word.partition("=")
    form: Form = ":" if given.endswith(":") else "@" if given.endswith("@") else ""
    return ArgumentWord(given.removesuffix(form), form, text if equals else None)
