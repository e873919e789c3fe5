"""Decide by the operator's rules whether an argv may run: the strictest verdict on anything that it starts.

Pure. The rules say what the operator wants to see run; the kernel decides what a command can reach (docs/adr/0013 says
what a policy by argv cannot do).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.command_policy.rule_tests import check_rule_tests
from coretools.command_policy.rules import ANY_REMAINING_WORDS, covers, is_exact, single_word_patterns
from coretools.command_policy.subcommand import UNKNOWN_FILE, UNKNOWN_PROGRAM, OpaqueCode, Subcommand, Words
from coretools.command_policy.unwrap import UnwrappedProgram, is_wrapper, unwrap
from coretools.command_policy.wrappers import MAX_GUESSED_WORDS, SAFE_VARIABLES
from coretools.config.operator_policy import VERDICTS, CommandPolicy, CommandRule, Verdict
from coretools.errors import POLICY_APPLIES, DeniedCommand, InvalidArguments

TOO_MANY_PROGRAMS = "it nests more programs, or starts more of them, than this policy examines"


@dataclass(frozen=True, slots=True)
class Step:
    """The verdict on one program, or on code in its words."""

    argv: Words
    chain: tuple[str, ...]
    """The programs that start it, outermost first; empty for the command itself."""
    verdict: Verdict
    reason: str
    rule: int | None = None
    """Number of the rule that decided, from 1 in the order of the file; None when a default did."""
    is_nameable: bool = True
    """Whether a rule can name it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on an argv. The strictest step decides; a rule precedes a default, and the first of several wins."""

    argv: Words
    steps: tuple[Step, ...]

    @property
    def decisive(self) -> Step:
        """The step that decided."""
        return max(self.steps, key=lambda step: (VERDICTS.index(step.verdict), step.rule is not None))

    @property
    def verdict(self) -> Verdict:
        """`allow`, `ask` or `deny`."""
        return self.decisive.verdict


class ProgramPolicy:
    """The operator's policy for commands."""

    def __init__(self, commands: CommandPolicy, *, source: str | None = None) -> None:
        """`source` is the path of the policy file, for messages that say where to change a rule.

        Raises:
            BadSetting: a rule fails a test of its own.
        """
        check_rule_tests(commands, source)
        self._commands = commands
        self._source = source or "the policy file ($XDG_CONFIG_HOME/coretools/policy.toml, or --policy FILE)"
        self._allows_everything = (
            commands.default == "allow" and not commands.rule and commands.opaque in (None, "allow")
        )

    def decide(self, argv: Sequence[str], *, known: int | None = None) -> Decision:
        """Judge an argv and everything that it starts.

        `known` words, one at least, are what the program gets; the others only stand for what a shell makes of them.

        Raises:
            InvalidArguments: there is no word, or the first is empty.
        """
        words = tuple(argv)
        if not words or not words[0]:
            raise InvalidArguments("the command is empty; name a program")
        # Without rules nothing can be refused, so the command is not unwrapped.
        if self._allows_everything:
            return Decision(words, (Step(words, (), "allow", "there are no rules for commands"),))
        if known is None or known >= len(words):
            return Decision(words, tuple(self._command_steps(Subcommand(words, ""))))
        steps = self._command_steps(Subcommand(words[:known], "", has_unseen_words=True))
        # A wrapper may take an unknown word for an option, and a later one for its command.
        starts = range(known + 1, min(len(words), known + MAX_GUESSED_WORDS)) if is_wrapper(words[0]) else ()
        guesses = [step for start in (0, *starts) for step in self.guess(words[start:])]
        return Decision(words, (*steps, *guesses))

    def guess(self, words: Words) -> tuple[Step, ...]:
        """Judge words that may be a command, or may become another one: only rules that refuse apply."""
        if self._allows_everything or not words or not words[0]:
            return ()
        return tuple(self._command_steps(Subcommand(words, "", has_unseen_words=True, is_guess=True)))

    def builtin(self, words: Words) -> Decision:
        """Judge a builtin of the shell that starts nothing: it is allowed unless a rule refuses it."""
        allowed = Step(words, (), "allow", "a builtin of the shell")
        if self._allows_everything or not words[0]:
            return Decision(words, (allowed,))
        refused = self._program_step(UnwrappedProgram(Subcommand(words, "", is_guess=True), (), ()))
        return Decision(words, (refused or allowed,))

    def opaque_text(self, text: str, reason: str) -> Step:
        """Judge a piece of a line that shows no program."""
        return Step((text,), (), *self._opaque_verdict(reason), is_nameable=False)

    def require(self, decision: Decision, *, is_confirmed: bool = False) -> None:
        """Refuse a command that the policy does not allow. `is_confirmed` says that a person confirmed it.

        Raises:
            DeniedCommand: the verdict is `deny`, or `ask` without confirmation.
        """
        if decision.verdict == "deny" or (decision.verdict == "ask" and not is_confirmed):
            raise self.refusal(decision)

    def refusal(self, decision: Decision, why: str = "") -> DeniedCommand:
        """Return the error for a decision that does not allow. `why` says why no person was asked."""
        step = decision.decisive
        what = "is denied" if decision.verdict == "deny" else "needs confirmation"
        asker = "" if decision.verdict == "deny" else "only run_command asks a person for it; "
        remedy = f"{f'{why}; ' if why else asker}{self._remedy(step)}"
        return DeniedCommand(
            f"{display_argv(step.argv)}: {what}: {step.reason}; {remedy}",
            verdict=decision.verdict,
            rule=step.rule,
            argv=[ascii(word)[1:-1] for word in step.argv[:20]],
        )

    def _remedy(self, step: Step) -> str:
        if step.verdict == "deny" and step.rule is not None:
            return f"only the operator can change that, in {self._source} and by {POLICY_APPLIES}"
        if not step.is_nameable:
            return "call a program itself, by its name or absolute path and with all its words"
        return f"the operator can allow it in {self._source}, by {POLICY_APPLIES} and\n{rule_lines(step)}"

    def _command_steps(self, first: Subcommand) -> list[Step]:
        command = unwrap(first)
        steps = [step for program in command.programs for step in self._steps(program)]
        if not command.is_complete:
            # Fail closed: what was not examined may start anything.
            steps.append(Step(first.argv, (), "deny", TOO_MANY_PROGRAMS, is_nameable=False))
        return steps

    def _steps(self, program: UnwrappedProgram) -> list[Step]:
        step = self._program_step(program)
        steps = [] if step is None else [step]
        if not program.subcommand.is_guess:
            steps += [self._code_step(program, code) for code in program.opaque_code]
        return steps

    def _program_step(self, program: UnwrappedProgram) -> Step | None:
        """Return the verdict of the rules on a program; None for a guess that no rule refuses."""
        subcommand = program.subcommand
        refusing = self._matching(subcommand, allow=False)
        allowing = [] if subcommand.is_guess else self._matching(subcommand, allow=True)
        if refusing:
            # The strictest, and of several the first.
            number, rule = max(refusing, key=lambda pair: VERDICTS.index(pair[1].verdict))
            # A rule that allows exactly this argv outweighs `ask`, never `deny`.
            if rule.verdict == "ask" and (exact := next((a for a in allowing if is_exact(a[1].arguments)), None)):
                return _step(program, "allow", f"rule {exact[0]} allows exactly this", rule=exact[0])
            return _step(program, rule.verdict, _describe_rule(number, rule), rule=number)
        if subcommand.is_guess:
            return None
        if allowing:
            number, rule = allowing[0]
            return _step(program, "allow", _describe_rule(number, rule), rule=number)
        return _step(program, self._commands.default, "no rule matches; this is the default")

    def _code_step(self, program: UnwrappedProgram, code: OpaqueCode) -> Step:
        """Return the verdict on code: `allow` if a rule names the word that brings it, else `opaque`."""
        for number, rule in self._matching(program.subcommand, allow=True):
            if _names_word(rule, code):
                return _step(program, "allow", f"{code.reason}; rule {number} names it", rule=number)
        return _step(program, *self._opaque_verdict(code.reason))

    def _opaque_verdict(self, reason: str) -> tuple[Verdict, str]:
        """Return the verdict on code that no rule names, with the reason."""
        if self._commands.opaque is not None:
            return self._commands.opaque, f'{reason}, and opaque = "{self._commands.opaque}"'
        return self._commands.default, f'{reason}, which is judged by default = "{self._commands.default}"'

    def _matching(self, subcommand: Subcommand, *, allow: bool) -> list[tuple[int, CommandRule]]:
        """Return the rules that match, with their numbers: those that allow, or those that refuse."""
        return [
            (number, rule)
            for number, rule in enumerate(self._commands.rule, 1)
            if (rule.verdict == "allow") == allow and covers(rule, subcommand)
        ]


def safe_variables(commands: CommandPolicy) -> Mapping[str, str]:
    """Return the environment variables without which the verdicts would not hold."""
    return {} if (commands.opaque or commands.default) == "allow" else SAFE_VARIABLES


def rule_lines(step: Step) -> str:
    """Return lines for the policy file that allow exactly the argv of a step."""
    program, *patterns = [_toml(_escaped(word)) for word in step.argv]
    return f'[[commands.rule]]\nprogram = {program}\narguments = [{", ".join(patterns)}]\nverdict = "allow"'


def display_argv(argv: Words) -> str:
    """Format an argv for a message: one line, printable, at most 200 characters."""
    text = " ".join(word if word.isascii() and word.isprintable() and " " not in word else ascii(word) for word in argv)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _names_word(rule: CommandRule, code: OpaqueCode) -> bool:
    """Whether an allowing rule names the word that brings the code. `**` and absent `arguments` name none."""
    if code.word_index == UNKNOWN_FILE:
        return "/" in rule.program
    if code.word_index == UNKNOWN_PROGRAM:
        return "/" in rule.program or is_exact((rule.program,))
    if rule.arguments is None:
        return False
    if code.word_index is None:
        return rule.arguments[-1:] != (ANY_REMAINING_WORDS,)
    return code.word_index < len(single_word_patterns(rule.arguments))


def _escaped(word: str) -> str:
    return "".join(f"\\{character}" if character in "*?\\" else character for character in word)


def _toml(text: str) -> str:
    """Format a TOML basic string in printable ASCII (TOML 1.0, String). A lone surrogate has no form there."""
    simple = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(simple.get(c, c if " " <= c <= "~" else f"\\U{ord(c):08x}") for c in text) + '"'


def _describe_rule(number: int, rule: CommandRule) -> str:
    arguments = "" if rule.arguments is None else f" {display_argv(rule.arguments)}"
    reason = f" ({rule.reason})" if rule.reason else ""
    return f"rule {number} says {rule.verdict} for {display_argv((rule.program,))}{arguments}{reason}"


def _step(program: UnwrappedProgram, verdict: Verdict, reason: str, *, rule: int | None = None) -> Step:
    subcommand = program.subcommand
    name = subcommand.argv[0]
    is_nameable = not subcommand.has_unseen_words and (name.startswith("/") or "/" not in name)
    return Step(subcommand.argv, program.chain, verdict, reason, rule, is_nameable)
