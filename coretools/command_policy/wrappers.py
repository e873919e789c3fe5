"""Programs whose remaining words are another command: `env`, `nice`, `timeout`, `sudo`, `xargs`, `strace`, ...

Pure. Options are those of GNU coreutils 9.1, findutils 4.9, util-linux 2.38, sudo 1.9 and the BSDs' additions. Of a
wrapper that is not described here in full, every word may be where the command starts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.command_policy.getopt import Operand, Option, Options
from coretools.command_policy.subcommand import Finding, OpaqueCode, Subcommand, Words

HARMLESS_VARIABLES = re.compile(
    r"(?:LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|CI|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|COLORTERM"
    r"|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|SOURCE_DATE_EPOCH|GIT_(?:AUTHOR|COMMITTER)_[A-Z]+)="
)
"""Assignments that start nothing. Any other may: PATH, LD_PRELOAD, GIT_SSH_COMMAND, NODE_OPTIONS, BASH_ENV, PAGER."""

SAFE_VARIABLES = {"GIT_PAGER": "cat", "GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "LESSSECURE": "1"}
"""Variables by which git opens no pager and no editor, whatever its configuration says, and `less` starts nothing: for
commands where code that can't be judged is not simply allowed. To take one away counts as code."""

PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./:@%+,= -]*")
"""Text that `env -S`, a shell and everybody else split at its blanks, alike."""

MAX_GUESSED_WORDS = 32
"""Words of a guess that are looked at; what follows counts as unknown. A guess for each of many words costs time."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Where a wrapper's own words end and the command begins."""

    options: Options
    operands: int = 0
    """Words of its own before the command, as the seconds of `timeout`."""
    shells: tuple[str, ...] = ()
    """Options that make it start a shell or an editor, or look for the command elsewhere."""


def _wrapper(short: str, long: str = "", *, operands: int = 0, shells: tuple[str, ...] = ()) -> Wrapper:
    return Wrapper(Options(short, f"{long} help version", stops=True), operands, shells)


WRAPPERS = {
    "nohup": _wrapper(""),
    "command": _wrapper("pvV"),
    "exec": _wrapper("cla:"),
    "builtin": _wrapper(""),
    "nice": _wrapper("n:", "adjustment="),
    "setsid": _wrapper("cfwhV", "ctty fork wait"),
    "timeout": _wrapper("fk:ps:v", "foreground kill-after= preserve-status signal= verbose", operands=1),
    "stdbuf": _wrapper("i:o:e:", "input= output= error="),
    "time": _wrapper("af:ho:pqvlV", "append format= output= portability quiet verbose"),
    "ionice": _wrapper("c:n:tp:P:u:hV", "class= classdata= ignore pid= pgid= uid="),
    "taskset": _wrapper("apchV", "all-tasks cpu-list pid", operands=1),
    "flock": _wrapper("sexnuoFw:E:hV", "shared exclusive unlock nonblock nb timeout= wait= close", operands=1),
    "env": _wrapper(
        "0iu:C:S:va:P:L:U:",
        "null ignore-environment unset= chdir= split-string= debug argv0= block-signal=? default-signal=?"
        " ignore-signal=? list-signal-handling",
        shells=("-P",),  # of BSD: another PATH
    ),
    "sudo": _wrapper(
        "ABbC:D:Eeg:HiKklNnPp:R:r:ST:t:U:u:Vvs",
        "askpass background bell close-from= chdir= preserve-env=? edit group= set-home host= login remove-timestamp"
        " reset-timestamp list non-interactive no-update preserve-groups prompt= chroot= role= stdin shell type="
        " command-timeout= other-user= user= validate",
        shells=("-s", "-i", "-e", "-R", "--shell", "--login", "--edit", "--chroot"),
    ),
    "doas": _wrapper("a:C:Lnsu:", shells=("-s",)),
    "busybox": _wrapper("", "list list-full install"),
    "toybox": _wrapper("", "long"),
    "xargs": _wrapper(
        "0a:d:E:e::I:i::J:L:l::n:oP:pR:rS:s:tx",
        "null arg-file= delimiter= eof=? replace=? max-lines=? max-args= open-tty max-procs= interactive"
        " process-slot-var= no-run-if-empty max-chars= show-limits verbose exit",
    ),
}

WITH_ASSIGNMENTS = ("env", "sudo", "doas")
"""NAME=VALUE words may stand before their command."""


def read_wrapper(name: str, words: Words) -> Iterator[Finding]:
    """What `name` starts with these words, for a name in `WRAPPERS`."""
    wrapper = WRAPPERS[name]
    rest: Words = ()
    replaced: str | None = None
    for token in wrapper.options.scan(words):
        if isinstance(token, Operand):
            rest = words[token.index :]
            break
        if not token.is_known:
            yield from read_ambiguous_wrapper(name, words)
            return
        yield from _of_option(name, token)
        if name == "env" and token.name in ("-S", "--split-string"):
            yield from _split_string(words, token)
            return
        if name == "xargs" and token.name in ("-I", "-i", "-J", "--replace"):
            replaced = token.value or "{}"
    yield from _command(name, rest, skipped=len(words) - len(rest), replaced=replaced)


def _of_option(name: str, option: Option) -> Iterator[OpaqueCode]:
    """What an option of a wrapper itself starts, or opens the way for."""
    if option.name in WRAPPERS[name].shells:
        yield OpaqueCode(f"{name} {option.name} starts something else than its words say", option.index)
    removes = option.name in ("-u", "--unset") and option.value in (None, *SAFE_VARIABLES)
    if name == "env" and (removes or option.name in ("-i", "--ignore-environment")):
        yield OpaqueCode(f"env {option.name} takes away what keeps git from opening pagers and editors", option.index)


def read_ambiguous_wrapper(name: str, words: Words) -> Iterator[Finding]:
    """Every word may be where a command starts, for a name in `LOOSE` and whenever the words are in doubt."""
    yield OpaqueCode(
        f"{name} starts a command or code that can't be told from its other words", first_operand_index(words)
    )
    for index, word in enumerate(words):
        if not word.startswith("-"):
            is_cut = len(words) > index + MAX_GUESSED_WORDS
            yield Subcommand(words[index : index + MAX_GUESSED_WORDS], name, is_open=is_cut, is_guess=True)


def first_operand_index(words: Words) -> int | None:
    """Index of the first word, when that is no option: the script, target or subcommand that stands for code."""
    return 0 if words and not words[0].startswith("-") else None


def _command(name: str, rest: Words, *, skipped: int, replaced: str | None) -> Iterator[Finding]:
    """The command in the operands of a wrapper; `skipped` words stood before them."""
    operands = WRAPPERS[name].operands
    assigned = _assigned(rest[operands:]) if name in WITH_ASSIGNMENTS else 0
    yield from _of_assignments(rest[operands : operands + assigned], skipped + operands)
    rest = rest[operands + assigned :]
    if not rest:
        return
    if rest[0].startswith("-"):  # flock FILE -c TEXT, or an option after an operand
        yield from read_ambiguous_wrapper(name, rest)
    elif replaced is not None and replaced in rest[0]:
        yield OpaqueCode(f"{name} runs what its input says", None)
    else:
        is_open = name == "xargs" and (replaced is None or any(replaced in word for word in rest))
        yield Subcommand(rest, name, is_open=is_open)


def _of_assignments(words: Words, at: int) -> Iterator[Finding]:
    for index, word in enumerate(words, at):
        if not HARMLESS_VARIABLES.match(word):  # a single dash too, which is `env -i`
            yield OpaqueCode(f"{word.partition('=')[0]} may change what is run", index)


def _assigned(words: Words) -> int:
    """How many NAME=VALUE words stand first; a single dash, which is `env -i`, among them."""
    others = (index for index, word in enumerate(words) if word != "-" and not _ASSIGNMENT.match(word))
    return next(others, len(words))


def _split_string(words: Words, option: Option) -> Iterator[Finding]:
    """`env -S TEXT`: the words of the text stand in the place of the option."""
    following = words[option.index + (2 if option.takes_next else 1) :]
    text = option.value or ""
    if not PLAIN_TEXT.fullmatch(text):
        yield OpaqueCode("env -S splits its text by rules of its own", option.index)
        yield from read_ambiguous_wrapper("env", (*re.findall(r"[A-Za-z0-9_./:@%+,=-]+", text), *following))
    else:
        yield Subcommand(("env", *text.split(), *following), "env -S")
