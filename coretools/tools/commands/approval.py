"""A person's yes to a command of which the operator's policy says `ask`, before anything is started."""

from collections.abc import Sequence

from coretools.asking import AskConfirmation
from coretools.call import Call, confirmed
from coretools.confirmation import CONFIRM
from coretools.errors import AnswerNeeded, CapabilityMissing, InvalidArguments
from coretools.sandbox.programs.policy import Decision, ProgramPolicy

MOST_CHARACTERS = 8_000
"""Of the whole question. What a person can't read he can't say yes to."""


async def approved(
    programs: ProgramPolicy | None, argv: Sequence[str], *, directory: str, stdin: str | None, call: Call
) -> bool:
    """Whether a person said yes. False: the policy wants none, or refuses anyhow.

    Raises:
        Declined: he said no. DeniedCommand, CapabilityMissing: nobody can be asked. InvalidArguments: too much to be
            read.
    """
    decision = programs.decide(argv) if programs is not None else None
    if programs is None or decision is None or decision.verdict != "ask":
        return False
    try:
        await confirmed(call, question(decision, directory, stdin))
    except AnswerNeeded as error:
        raise programs.refusal(decision, error.hint) from error
    except CapabilityMissing as error:
        raise CapabilityMissing(error.capability, str(programs.refusal(decision, error.hint))) from error
    return True


def question(decision: Decision, directory: str, stdin: str | None) -> AskConfirmation:
    """Shows everything that will be started, and why it is asked: no word is left out.

    Raises:
        InvalidArguments: too much to be read.
    """
    lines = [f"Run {' '.join(map(_word, decision.argv))}?", f"in: {_word(directory)}"]
    if stdin:
        lines.append(f"input: {stdin!a}")
    lines.append(f"asked because {decision.decisive.because}")
    message = "\n".join(lines)
    if len(message) > MOST_CHARACTERS:
        raise InvalidArguments(f"command: too long for a person to confirm; at most {MOST_CHARACTERS} characters")
    return AskConfirmation(key=CONFIRM, message=message, is_for_operator=True)


def _word(word: str) -> str:
    """A word as it is where it has only plain characters, else quoted and with every odd one escaped."""
    plain = word.isascii() and word.isprintable() and not set(word) & set(" '\"\\")
    return word if plain and word else ascii(word)
