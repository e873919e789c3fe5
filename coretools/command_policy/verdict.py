"""Decide by the operator's rules whether an argv may run: the strictest verdict on anything that it starts.

Pure. The rules say what the operator wants to see run; the kernel decides what a command can reach (docs/adr/0013 says
what a policy by argv cannot do). Rules match in two ways on purpose. A rule that allows matches narrowly, so that it
lets through no more than its words say. A rule that refuses matches widely, so that no other spelling gets past it.
"""

import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from coretools.command_policy.subcommand import (
    UNKNOWN_FILE,
    UNKNOWN_PROGRAM,
    OpaqueCode,
    Subcommand,
    Words,
    program_names,
)
from coretools.command_policy.unwrap import UnwrappedProgram, unwrap
from coretools.command_policy.wrappers import SAFE_VARIABLES
from coretools.config.operator_policy import VERDICTS, CommandPolicy, CommandRule, Verdict
from coretools.errors import DeniedCommand, InvalidArguments

ANY_REMAINING_WORDS = "**"
"""The last pattern of a rule for any further words, or none."""

MAX_MATCHED_LENGTH = 4096
"""Longest word, in characters, that a wildcard pattern of an allowing rule matches."""

_USR_PREFIX = re.compile(r"^/usr/(s?bin)/")
"""/bin is a link to /usr/bin on most systems (file-hierarchy(7)), so the policy treats them as one."""


def is_allowed_program(pattern: str, program: str) -> bool:
    """Whether an allowing rule covers this program: exactly this name, or exactly this path."""
    if "/" in pattern and program != posixpath.normpath(program):
        return False
    return ("/" in pattern) == ("/" in program) and _matches_narrowly(pattern, program)


def is_allowed(patterns: Words | None, subcommand: Subcommand) -> bool:
    """Whether the words match the patterns one by one, in order, case-sensitively, with none left over."""
    words = subcommand.argv[1:]
    if patterns is None:
        return True
    named = single_word_patterns(patterns)
    is_exact_length = len(named) == len(patterns)
    fits = len(words) == len(named) and not subcommand.has_unseen_words if is_exact_length else len(words) >= len(named)
    return fits and all(_is_allowed_word(pattern, word) for pattern, word in zip(named, words, strict=False))


def single_word_patterns(patterns: Words) -> Words:
    """Return the patterns that stand for one word each."""
    return patterns[:-1] if patterns[-1:] == (ANY_REMAINING_WORDS,) else patterns


def is_exact(patterns: Words | None) -> bool:
    """Whether the patterns match one argv only."""
    return patterns is not None and not any(re.search(r"(?<!\\)(?:\\\\)*[*?]", pattern) for pattern in patterns)


def is_refused_program(pattern: str, program: str) -> bool:
    """Whether a refusing rule may cover this program: by any path, in any case, with or without a version."""
    meant = program_names(pattern)[0]
    if "/" not in pattern or "/" not in program:
        return any(_wide_pattern(meant).fullmatch(name) for name in program_names(program))
    found = _USR_PREFIX.sub(r"/\1/", _folded(posixpath.normpath(program)))
    is_relative = not program.startswith("/")  # its directory is unknown
    return _wide_pattern(_USR_PREFIX.sub(r"/\1/", pattern)).fullmatch(found) is not None or (
        is_relative and any(_wide_pattern(meant).fullmatch(name) for name in program_names(program))
    )


def is_refused(patterns: Words | None, subcommand: Subcommand) -> bool:
    """Whether each pattern matches some word, in any order, or may match an unseen one."""
    words = subcommand.argv[1:]
    # A rule that refuses has to hold for words that this policy cannot see, so unseen words match.
    if patterns is None or subcommand.has_unseen_words:
        return True
    if not patterns:
        return not words
    return all(
        any(_is_refused_word(pattern, words, index) for index in range(len(words)))
        for pattern in single_word_patterns(patterns)
    )


def _is_allowed_word(pattern: str, word: str) -> bool:
    if word.startswith("-") and not pattern.startswith("-"):  # `*.py` must not match `-c...py`
        return False
    return _matches_narrowly(pattern, word)


def _is_refused_word(pattern: str, words: Words, index: int) -> bool:
    word = words[index]
    if _wide_pattern(pattern).fullmatch(_folded(word)):
        return True
    following = words[index + 1] if index + 1 < len(words) else ""
    if pattern.startswith("--"):
        return re.match(r"--[^=]", word) is not None and _is_refused_option(pattern, word, following)
    if re.fullmatch(r"-[A-Za-z0-9]", pattern):
        return re.match(r"-[^-]", word) is not None and pattern[1] in word[1:]
    if re.match(r"-[A-Za-z0-9].", pattern) and word == pattern[:2]:
        return _wide_pattern(pattern[2:]).fullmatch(_folded(following)) is not None
    return False


def _is_refused_option(pattern: str, word: str, following: str) -> bool:
    """Whether a word is this long option, perhaps abbreviated, with its value in the word or the next one."""
    name, equals, value = pattern.partition("=")
    typed, joined, given = word.partition("=")
    # Most programs accept any unambiguous prefix of a long option (getopt_long(3)).
    if not _folded(name).startswith(_folded(typed)) and not _wide_pattern(name).fullmatch(_folded(typed)):
        return False
    return not equals or _wide_pattern(value).fullmatch(_folded(given if joined else following)) is not None


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    """Split a pattern into characters, escaped characters, `?` and stars."""
    return tuple(re.findall(r"\\.|\*+|\?|.", pattern, re.DOTALL))


@lru_cache(maxsize=1024)
def _literal(pattern: str) -> str | None:
    """Return the only word that matches, for a pattern without wildcards."""
    return "".join(piece[-1] for piece in _pieces(pattern)) if is_exact((pattern,)) else None


def _matches_narrowly(pattern: str, word: str) -> bool:
    """Whether the whole word matches; `*` and `?` stop at `/`, `**` does not.

    All matches are followed at once, so the time is bounded by the product of both lengths.
    """
    literal = _literal(pattern)
    if literal is not None or len(word) > MAX_MATCHED_LENGTH:
        return literal == word
    pieces = _pieces(pattern)
    states = _after_stars(pieces, {0})
    for character in word:
        passed = {state for state in states - {len(pieces)} if _matches_character(pieces[state], character)}
        states = _after_stars(pieces, {state + (pieces[state][0] != "*") for state in passed})
    return len(pieces) in states


def _matches_character(piece: str, character: str) -> bool:
    if piece in ("*", "?"):
        return character != "/"
    return piece[0] == "*" or piece[-1] == character


def _after_stars(pieces: tuple[str, ...], states: set[int]) -> set[int]:
    reached = set()
    for start in states:
        state = start
        reached.add(state)
        while state < len(pieces) and pieces[state][0] == "*":
            state += 1
            reached.add(state)
    return reached


@lru_cache(maxsize=1024)
def _wide_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` and `?` match every character. The word must be case-folded.

    Atomic groups keep a star from backtracking. With stars that match everything this changes no answer, and it bounds
    the time for a long word.
    """
    fixed = [""]
    for piece in _pieces(_folded(pattern)):
        if piece[0] == "*":
            fixed.append("")
        else:
            fixed[-1] += "." if piece == "?" else re.escape(piece[-1])
    first, *rest = fixed
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    groups = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{groups}.*{last}", re.DOTALL)


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
        """`source` is the path of the policy file, for messages that say where to change a rule."""
        self._commands = commands
        self._source = source or "the policy file ($XDG_CONFIG_HOME/coretools/policy.toml, or --policy FILE)"
        self._allows_everything = (
            commands.default == "allow" and not commands.rule and commands.opaque in (None, "allow")
        )

    def decide(self, argv: Sequence[str]) -> Decision:
        """Judge an argv and everything that it starts.

        Raises:
            InvalidArguments: there is no word, or the first is empty.
        """
        words = tuple(argv)
        if not words or not words[0]:
            raise InvalidArguments("the command is empty; name a program")
        # Without rules nothing can be refused, so the command is not unwrapped.
        if self._allows_everything:
            return Decision(words, (Step(words, (), "allow", "there are no rules for commands"),))
        command = unwrap(words)
        steps = [step for program in command.programs for step in self._steps(program)]
        if not command.is_complete:
            # Fail closed: what was not examined may start anything.
            steps.append(Step(words, (), "deny", TOO_MANY_PROGRAMS, is_nameable=False))
        return Decision(words, tuple(steps))

    def require(self, argv: Sequence[str], *, is_confirmed: bool = False) -> None:
        """Refuse an argv that the policy does not allow. `is_confirmed` says that a person confirmed it.

        Raises:
            DeniedCommand: the verdict is `deny`, or `ask` without confirmation. InvalidArguments: there is no program.
        """
        decision = self.decide(argv)
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
            return f"only the operator can change that, in {self._source}"
        if not step.is_nameable:
            return "call a program itself, by its name or absolute path and with all its words"
        return f"the operator can allow it in {self._source} with\n{rule_lines(step)}"

    def _steps(self, program: UnwrappedProgram) -> list[Step]:
        step = self._program_step(program)
        steps = [] if step is None else [step]
        if not program.subcommand.is_guess:
            steps += [self._code_step(program, code) for code in program.opaque_code]
        return steps

    def _program_step(self, program: UnwrappedProgram) -> Step | None:
        """Return the verdict of the rules on a program; None for a guess that no rule refuses."""
        subcommand = program.subcommand
        refusing = self._refusing(subcommand)
        allowing = [] if subcommand.is_guess else self._allowing(subcommand)
        if refusing is not None:
            number, rule = refusing
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
        for number, rule in self._allowing(program.subcommand):
            if _names_word(rule, code):
                return _step(program, "allow", f"{code.reason}; rule {number} names it", rule=number)
        if self._commands.opaque is not None:
            return _step(program, self._commands.opaque, f'{code.reason}, and opaque = "{self._commands.opaque}"')
        default = self._commands.default
        return _step(program, default, f'{code.reason}, which is judged by default = "{default}"')

    def _refusing(self, subcommand: Subcommand) -> tuple[int, CommandRule] | None:
        """Return the strictest rule that refuses, the first of several."""
        found = [
            (number, rule)
            for number, rule in enumerate(self._commands.rule, 1)
            if rule.verdict != "allow"
            and is_refused_program(rule.program, subcommand.argv[0])
            and is_refused(rule.arguments, subcommand)
        ]
        return max(found, key=lambda pair: VERDICTS.index(pair[1].verdict), default=None)

    def _allowing(self, subcommand: Subcommand) -> list[tuple[int, CommandRule]]:
        return [
            (number, rule)
            for number, rule in enumerate(self._commands.rule, 1)
            if rule.verdict == "allow"
            and is_allowed_program(rule.program, subcommand.argv[0])
            and is_allowed(rule.arguments, subcommand)
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
