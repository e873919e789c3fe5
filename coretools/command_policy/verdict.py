"""The verdict on an argv: the strictest of all that it starts, by the operator's rules, and why.

Pure. It decides what the operator wishes to see run; what a command can reach is decided by the kernel. See
docs/adr/0013 for what a policy by argv can't do.
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
from coretools.config.policy import VERDICTS, CommandPolicy, CommandRule, Verdict
from coretools.errors import DeniedCommand, InvalidArguments

# Whether a rule's patterns match an argv: narrowly for what allows, widely for what refuses.
#
# Pure. The two ways differ on purpose. A rule that allows must not let through more than its words say; a rule that
# refuses must not be got past by another spelling of the same thing.


ANY_REMAINING_WORDS = "**"
"""As the last pattern: any words, or none."""

MAX_MATCHED_LENGTH = 4096
"""Characters of a word that a pattern with `*` or `?` of a rule that allows is tried on; a longer one matches none."""

_USR_PREFIX = re.compile(r"^/usr/(s?bin)/")
"""/bin is a link to /usr/bin on most systems (the file hierarchy of systemd), so both are one here."""


def is_allowed_program(pattern: str, program: str) -> bool:
    """Whether a rule that allows means this program: the name as it stands, or the very path."""
    if "/" in pattern and program != posixpath.normpath(program):
        return False
    return ("/" in pattern) == ("/" in program) and _matches_narrowly(pattern, program)


def is_allowed(patterns: Words | None, started: Subcommand) -> bool:
    """Whether the words match one by one, in order, with case, and none is left over."""
    words = started.argv[1:]
    if patterns is None:
        return True
    named = single_word_patterns(patterns)
    is_whole = len(named) == len(patterns)
    fits = len(words) == len(named) and not started.is_open if is_whole else len(words) >= len(named)
    return fits and all(_is_allowed_word(pattern, word) for pattern, word in zip(named, words, strict=False))


def single_word_patterns(patterns: Words) -> Words:
    """The patterns that stand for one word each."""
    return patterns[:-1] if patterns[-1:] == (ANY_REMAINING_WORDS,) else patterns


def is_exact(patterns: Words | None) -> bool:
    """Whether the patterns are one argv and no other."""
    return patterns is not None and not any(re.search(r"(?<!\\)(?:\\\\)*[*?]", pattern) for pattern in patterns)


def is_refused_program(pattern: str, program: str) -> bool:
    """Whether a rule that refuses may mean this program: by any path, in any case, with or without a version."""
    meant = program_names(pattern)[0]
    if "/" not in pattern or "/" not in program:
        return any(_wide_pattern(meant).fullmatch(name) for name in program_names(program))
    found = _USR_PREFIX.sub(r"/\1/", _folded(posixpath.normpath(program)))
    is_relative = not program.startswith("/")  # whichever directory it lies in
    return _wide_pattern(_USR_PREFIX.sub(r"/\1/", pattern)).fullmatch(found) is not None or (
        is_relative and any(_wide_pattern(meant).fullmatch(name) for name in program_names(program))
    )


def is_refused(patterns: Words | None, started: Subcommand) -> bool:
    """Whether each pattern matches some word, in whatever order, or may match one that nobody sees."""
    words = started.argv[1:]
    if patterns is None or started.is_open:
        return True
    if not patterns:
        return not words
    return all(
        any(_is_refused_word(pattern, words, index) for index in range(len(words)))
        for pattern in single_word_patterns(patterns)
    )


def _is_allowed_word(pattern: str, word: str) -> bool:
    if word.startswith("-") and not pattern.startswith("-"):  # `*.py` must not take `-c...py`
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
    """Whether a long option is meant by a word, abbreviated too; its value stands in the word or is the next one."""
    name, equals, value = pattern.partition("=")
    typed, joined, given = word.partition("=")
    # Most programs take any beginning of a long option that is clear to them (getopt_long(3)).
    if not _folded(name).startswith(_folded(typed)) and not _wide_pattern(name).fullmatch(_folded(typed)):
        return False
    return not equals or _wide_pattern(value).fullmatch(_folded(given if joined else following)) is not None


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[str, ...]:
    """A pattern cut into characters, escaped characters, `?` and stars."""
    return tuple(re.findall(r"\\.|\*+|\?|.", pattern, re.DOTALL))


@lru_cache(maxsize=1024)
def _literal(pattern: str) -> str | None:
    """The one word that a pattern without wildcards means."""
    return "".join(piece[-1] for piece in _pieces(pattern)) if is_exact((pattern,)) else None


def _matches_narrowly(pattern: str, word: str) -> bool:
    """Whether the whole word matches; `*` and `?` stop at `/`, `**` does not.

    All ways are followed at once, so the time grows with the length of both and no faster.
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
    """`*` and `?` take everything; the word is to be folded before.

    What a star takes is never given back (atomic groups), which for stars that take everything changes no answer and
    keeps the time of a long word in bounds.
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


TOO_MANY_PROGRAMS = "it starts more programs behind each other, or more of them, than are looked at"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was judged: a program, or code in its words."""

    argv: Words
    chain: tuple[str, ...]
    """What starts it, outermost first; empty for the command itself."""
    verdict: Verdict
    because: str
    rule: int | None = None
    """Number of the rule that decided, from 1 in the order of the file; None: no rule did."""
    is_nameable: bool = True
    """Whether a rule could name it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an argv. The strictest step decides, a rule before a default, the first of several."""

    argv: Words
    steps: tuple[Step, ...]

    @property
    def decisive(self) -> Step:
        """The step that decides."""
        return max(self.steps, key=lambda step: (VERDICTS.index(step.verdict), step.rule is not None))

    @property
    def verdict(self) -> Verdict:
        """`allow`, `ask` or `deny`."""
        return self.decisive.verdict


class ProgramPolicy:
    """The operator's policy for commands, ready to be asked."""

    def __init__(self, commands: CommandPolicy, *, source: str | None = None) -> None:
        """`source` is the path of the operator's file, for the sentences that say where to change what."""
        self._commands = commands
        self._source = source or "the policy file ($XDG_CONFIG_HOME/coretools/policy.toml, or --policy FILE)"
        self._is_open = commands.default == "allow" and not commands.rule and commands.opaque in (None, "allow")

    def decide(self, argv: Sequence[str]) -> Decision:
        """Judge an argv, everything that it starts included.

        Raises:
            InvalidArguments: there is no word, or the first is empty.
        """
        words = tuple(argv)
        if not words or not words[0]:
            raise InvalidArguments("the command is empty; name a program")
        if self._is_open:
            return Decision(words, (Step(words, (), "allow", "there are no rules for commands"),))
        sight = unwrap(words)
        steps = [step for seen in sight.seen for step in self._steps(seen)]
        if not sight.is_whole:
            steps.append(Step(words, (), "deny", TOO_MANY_PROGRAMS, is_nameable=False))
        return Decision(words, tuple(steps))

    def require(self, argv: Sequence[str], *, is_confirmed: bool = False) -> None:
        """Refuse an argv that the policy does not allow; `is_confirmed`: a person said yes to it.

        Raises:
            DeniedCommand: the verdict is `deny`, or `ask` without a yes. InvalidArguments: no program.
        """
        decision = self.decide(argv)
        if decision.verdict == "deny" or (decision.verdict == "ask" and not is_confirmed):
            raise self.refusal(decision)

    def refusal(self, decision: Decision, why: str = "") -> DeniedCommand:
        """The error for a decision that does not allow; `why` says why nobody was asked."""
        step = decision.decisive
        what = "is denied" if decision.verdict == "deny" else "needs a yes"
        asker = "" if decision.verdict == "deny" else "only run_command asks a person for it; "
        way_out = f"{f'{why}; ' if why else asker}{self._way_out(step)}"
        return DeniedCommand(
            f"{display_argv(step.argv)}: {what}: {step.because}; {way_out}",
            verdict=decision.verdict,
            rule=step.rule,
            argv=[ascii(word)[1:-1] for word in step.argv[:20]],
        )

    def _way_out(self, step: Step) -> str:
        if step.verdict == "deny" and step.rule is not None:
            return f"only the operator can change that, in {self._source}"
        if not step.is_nameable:
            return "call a program itself, by its name or absolute path and with all its words"
        return f"the operator can allow it in {self._source} with\n{rule_lines(step)}"

    def _steps(self, seen: UnwrappedProgram) -> list[Step]:
        program = self._program(seen)
        steps = [] if program is None else [program]
        if not seen.started.is_guess:
            steps += [self._code(seen, code) for code in seen.codes]
        return steps

    def _program(self, seen: UnwrappedProgram) -> Step | None:
        """The verdict on a program by its rules; None for a guess that no rule refuses."""
        started = seen.started
        refusing = self._refusing(started)
        allowing = [] if started.is_guess else self._allowing(started)
        if refusing is not None:
            number, rule = refusing
            if rule.verdict == "ask" and (exact := next((a for a in allowing if is_exact(a[1].arguments)), None)):
                return _step(seen, "allow", f"rule {exact[0]} allows exactly this", rule=exact[0])
            return _step(seen, rule.verdict, _describe_rule(number, rule), rule=number)
        if started.is_guess:
            return None
        if allowing:
            number, rule = allowing[0]
            return _step(seen, "allow", _describe_rule(number, rule), rule=number)
        return _step(seen, self._commands.default, "no rule matches; this is the default")

    def _code(self, seen: UnwrappedProgram, code: OpaqueCode) -> Step:
        """The verdict on code: allowed by a rule that names the word which brings it, else as `opaque` says."""
        for number, rule in self._allowing(seen.started):
            if _names(rule, code):
                return _step(seen, "allow", f"{code.why}; rule {number} names it", rule=number)
        if self._commands.opaque is not None:
            return _step(seen, self._commands.opaque, f'{code.why}, and opaque = "{self._commands.opaque}"')
        default = self._commands.default
        return _step(seen, default, f'{code.why}, which is judged by default = "{default}"')

    def _refusing(self, started: Subcommand) -> tuple[int, CommandRule] | None:
        """The strictest rule that refuses, the first of several."""
        found = [
            (number, rule)
            for number, rule in enumerate(self._commands.rule, 1)
            if rule.verdict != "allow"
            and is_refused_program(rule.program, started.argv[0])
            and is_refused(rule.arguments, started)
        ]
        return max(found, key=lambda pair: VERDICTS.index(pair[1].verdict), default=None)

    def _allowing(self, started: Subcommand) -> list[tuple[int, CommandRule]]:
        return [
            (number, rule)
            for number, rule in enumerate(self._commands.rule, 1)
            if rule.verdict == "allow"
            and is_allowed_program(rule.program, started.argv[0])
            and is_allowed(rule.arguments, started)
        ]


def safe_variables(commands: CommandPolicy) -> Mapping[str, str]:
    """What the environment of commands has to hold for the verdicts to mean something."""
    return {} if (commands.opaque or commands.default) == "allow" else SAFE_VARIABLES


def rule_lines(step: Step) -> str:
    """The lines for the operator's file that allow exactly what a step was about."""
    program, *patterns = [_toml(_escaped(word)) for word in step.argv]
    return f'[[commands.rule]]\nprogram = {program}\narguments = [{", ".join(patterns)}]\nverdict = "allow"'


def display_argv(argv: Words) -> str:
    """An argv for a sentence: one line, printable, not too long."""
    text = " ".join(word if word.isascii() and word.isprintable() and " " not in word else ascii(word) for word in argv)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _names(rule: CommandRule, code: OpaqueCode) -> bool:
    """Whether a rule that allows names the word that brings the code; `**` and absent arguments name none."""
    if code.carrier == UNKNOWN_FILE:
        return "/" in rule.program
    if code.carrier == UNKNOWN_PROGRAM:
        return "/" in rule.program or is_exact((rule.program,))
    if rule.arguments is None:
        return False
    if code.carrier is None:
        return rule.arguments[-1:] != (ANY_REMAINING_WORDS,)
    return code.carrier < len(single_word_patterns(rule.arguments))


def _escaped(word: str) -> str:
    return "".join(f"\\{character}" if character in "*?\\" else character for character in word)


def _toml(text: str) -> str:
    """A basic string of TOML in printable ASCII (TOML 1.0, String); a lone surrogate has no form there."""
    simple = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(simple.get(c, c if " " <= c <= "~" else f"\\U{ord(c):08x}") for c in text) + '"'


def _describe_rule(number: int, rule: CommandRule) -> str:
    arguments = "" if rule.arguments is None else f" {display_argv(rule.arguments)}"
    reason = f" ({rule.reason})" if rule.reason else ""
    return f"rule {number} says {rule.verdict} for {display_argv((rule.program,))}{arguments}{reason}"


def _step(seen: UnwrappedProgram, verdict: Verdict, because: str, *, rule: int | None = None) -> Step:
    program = seen.started.argv[0]
    is_nameable = not seen.started.is_open and (program.startswith("/") or "/" not in program)
    return Step(seen.started.argv, seen.chain, verdict, because, rule, is_nameable)
