"""What the last word of a line could become, and how it is printed for the scripts of `coretools completion`."""

from collections.abc import Sequence
from dataclasses import dataclass

from coretools.cli.common.terminal import for_terminal, print_text


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible completion and its description."""

    text: str
    description: str = ""


def print_candidates(candidates: Sequence[Candidate]) -> int:
    """Print candidates in the form that the completion scripts expect."""
    lines = [
        f"{for_terminal(one.text)}\t{' '.join(for_terminal(one.description).split())}"
        for one in candidates
        if "\n" not in one.text
    ]
    return print_text("\n".join(lines)) if lines else 0
