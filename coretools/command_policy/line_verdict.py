"""Judge a shell line program by program: the strictest verdict on anything that it starts decides.

Reads the line with `shell_lines` and judges each simple command like an argv (`verdict`). What the text of the line
does not tell is opaque code.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from coretools.command_policy.shell_lines.line import ParsedLine, SimpleCommand
from coretools.command_policy.shell_lines.names import CODE_BUILTINS, LOOKUP, STATE_BUILTINS
from coretools.command_policy.shell_lines.parse import parse_line
from coretools.command_policy.verdict import Decision, ProgramPolicy, Step
from coretools.command_policy.wrappers import HARMLESS_VARIABLES, SAFE_VARIABLES
from coretools.config.operator_policy import Verdict

MAX_PIECE_LENGTH = 200
"""Characters of an opaque piece that messages show."""

NOTHING_STARTED = "it starts no program"


@dataclass(frozen=True, slots=True)
class LineDecision:
    """The verdict on a shell line."""

    parsed: ParsedLine
    programs: tuple[Decision, ...]
    """One for each simple command, in the order of the line."""
    opaque: tuple[Step, ...]
    """One for each piece that shows no program."""

    @property
    def decision(self) -> Decision:
        """All steps as one decision, for confirmation and refusal."""
        steps = (*(step for program in self.programs for step in program.steps), *self.opaque)
        line = (self.parsed.line,)
        return Decision(line, steps or (Step(line, (), "allow", NOTHING_STARTED),))

    @property
    def verdict(self) -> Verdict:
        """`allow`, `ask` or `deny`."""
        return self.decision.verdict


def judge_line(
    policy: ProgramPolicy,
    line: str,
    *,
    inherited: Collection[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> LineDecision:
    """Judge everything that a bash line starts.

    `inherited`: the names of variables that commands get, which programs see when the line sets them. `variables`:
    those that the caller sets for the shell.

    Raises:
        CommandSyntax: the line exceeds a limit, or holds a character that no line can hold.
    """
    parsed = parse_line(line, variables)
    source = line.encode()
    programs = tuple(_program(policy, command, source) for command in parsed.commands)
    opaque = [policy.opaque_text(_shown(piece.text), piece.reason) for piece in parsed.opaque]
    return LineDecision(parsed, programs, (*opaque, *_of_variables(policy, _seen_by_programs(parsed, inherited))))


def judge_command(
    policy: ProgramPolicy, argv: Sequence[str], *, line: str, variables: Mapping[str, str], inherited: Collection[str]
) -> Decision:
    """Judge a command as it is started: a shell line, or else an argv, with the variables that its caller sets.

    Raises:
        CommandSyntax: the line exceeds a limit. InvalidArguments: there is no word.
    """
    of_line = partial(judge_line, policy, line, inherited=inherited, variables=variables)
    decision = of_line().decision if line else policy.decide(argv)
    return Decision(decision.argv, (*decision.steps, *_of_variables(policy, variables)))


def _of_variables(policy: ProgramPolicy, names: Iterable[str]) -> list[Step]:
    """Judge variables that programs get: those that may make them start others count as code."""
    changing = [name for name in dict.fromkeys(names) if not HARMLESS_VARIABLES.match(f"{name}=")]
    return [policy.opaque_text(f"{name}=", f"{name} may change which program runs") for name in changing]


def _program(policy: ProgramPolicy, command: SimpleCommand, source: bytes) -> Decision:
    """Judge one simple command."""
    known = command.known_argv
    words = tuple(source[word.start : word.end].decode() if word.text is None else word.text for word in command.words)
    if not known or not known[0]:  # the program is a piece of its own; its words may become a command
        rest = next((words[index:] for index, word in enumerate(command.words) if word.text), ())
        unknown = policy.opaque_text(_shown(words[0]), "the program is known only when the line runs")
        return Decision(words, (unknown, *policy.guess(rest)))
    if _is_builtin(known) and not command.is_function:
        return policy.builtin(words)
    return policy.decide(words, known=len(known))


def _is_builtin(argv: tuple[str, ...]) -> bool:
    """Whether this starts nothing by itself. What `eval` and the like run is an opaque piece of the line."""
    is_lookup = argv[0] == "command" and len(argv) > 1 and LOOKUP.fullmatch(argv[1]) is not None
    return argv[0] in STATE_BUILTINS or argv[0] in CODE_BUILTINS or is_lookup


def _seen_by_programs(parsed: ParsedLine, inherited: Collection[str]) -> Iterator[str]:
    """Yield the variables that the line gives to programs."""
    exports_all = any(_exports_all(command) for command in parsed.commands)
    for assigned in parsed.assignments:
        if assigned.is_exported or exports_all or assigned.name in SAFE_VARIABLES or assigned.name in inherited:
            yield assigned.name


def _exports_all(command: SimpleCommand) -> bool:
    """Whether this is `set -a` or `set -o allexport`."""
    words = [word.text or "" for word in command.words]
    return words[0] == "set" and any(word == "allexport" or (word[:1] == "-" and "a" in word) for word in words[1:])


def _shown(text: str) -> str:
    return text if len(text) <= MAX_PIECE_LENGTH else f"{text[:MAX_PIECE_LENGTH]}..."
