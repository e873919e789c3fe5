"""Programs whose remaining words are another command: `env`, `nice`, `timeout`, `sudo`, `xargs`, `strace`, ...

Pure. The options are those of GNU coreutils 9.1, findutils 4.9, util-linux 2.38, sudo 1.9 and the additions of the
BSDs. For a wrapper that is not described here in full, every word may be the start of the command.
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
"""Assignments that start no program. Others may: PATH, LD_PRELOAD, GIT_SSH_COMMAND, NODE_OPTIONS, BASH_ENV, PAGER."""

SAFE_VARIABLES = {"GIT_PAGER": "cat", "GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "LESSSECURE": "1"}
"""Variables that keep git from opening a pager or an editor, whatever its configuration says, and `less` from starting
programs. Commands get them unless opaque code is allowed; removing one counts as code."""

PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./:@%+,= -]*")
"""Text that `env -S`, a shell and all other programs split alike, at blanks."""

MAX_GUESSED_WORDS = 32
"""Words of a guess that are read; the rest counts as unseen. This bounds the time for many guesses."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Where the own words of a wrapper end and its command begins."""

    options: Options
    operands: int = 0
    """Own operands before the command, such as the seconds of `timeout`."""
    opaque_options: tuple[str, ...] = ()
    """Options with which it starts a shell or an editor, or searches for the command elsewhere."""


def _wrapper(short: str, long: str = "", *, operands: int = 0, opaque_options: tuple[str, ...] = ()) -> Wrapper:
    return Wrapper(Options(short, f"{long} help version", stops_at_operand=True), operands, opaque_options)


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
        opaque_options=("-P",),  # on BSD: another PATH
    ),
    "sudo": _wrapper(
        "ABbC:D:Eeg:HiKklNnPp:R:r:ST:t:U:u:Vvs",
        "askpass background bell close-from= chdir= preserve-env=? edit group= set-home host= login remove-timestamp"
        " reset-timestamp list non-interactive no-update preserve-groups prompt= chroot= role= stdin shell type="
        " command-timeout= other-user= user= validate",
        opaque_options=("-s", "-i", "-e", "-R", "--shell", "--login", "--edit", "--chroot"),
    ),
    "doas": _wrapper("a:C:Lnsu:", opaque_options=("-s",)),
    "busybox": _wrapper("", "list list-full install"),
    "toybox": _wrapper("", "long"),
    "xargs": _wrapper(
        "0a:d:E:e::I:i::J:L:l::n:oP:pR:rS:s:tx",
        "null arg-file= delimiter= eof=? replace=? max-lines=? max-args= open-tty max-procs= interactive"
        " process-slot-var= no-run-if-empty max-chars= show-limits verbose exit",
    ),
}

WITH_ASSIGNMENTS = ("env", "sudo", "doas")
"""Wrappers that accept NAME=VALUE words before their command."""


def read_wrapper(name: str, words: Words) -> Iterator[Finding]:
    """Yield what the wrapper `name`, one of `WRAPPERS`, starts with these words."""
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
    """Yield the code that an option of a wrapper brings."""
    if option.name in WRAPPERS[name].opaque_options:
        yield OpaqueCode(f"{name} {option.name} starts something that its words do not name", option.index)
    removes = option.name in ("-u", "--unset") and option.value in (None, *SAFE_VARIABLES)
    if name == "env" and (removes or option.name in ("-i", "--ignore-environment")):
        yield OpaqueCode(
            f"env {option.name} removes the variables that keep git from opening pagers and editors", option.index
        )


def read_ambiguous_wrapper(name: str, words: Words) -> Iterator[Finding]:
    """Yield a guess for each word: for `programs.AMBIGUOUS_WRAPPERS`, and where the start of a command is uncertain."""
    # A first word that is no option names the script, target or subcommand.
    names_code = bool(words) and not words[0].startswith("-")
    yield OpaqueCode(
        f"{name} starts a command or code that cannot be told apart from its other words", 0 if names_code else None
    )
    for index, word in enumerate(words):
        if not word.startswith("-"):
            is_cut = len(words) > index + MAX_GUESSED_WORDS
            yield Subcommand(words[index : index + MAX_GUESSED_WORDS], name, has_unseen_words=is_cut, is_guess=True)


def _command(name: str, rest: Words, *, skipped: int, replaced: str | None) -> Iterator[Finding]:
    """Yield the command in the operands of a wrapper; `skipped` words precede them."""
    operands = WRAPPERS[name].operands
    assigned = _assigned(rest[operands:]) if name in WITH_ASSIGNMENTS else 0
    for index, word in enumerate(rest[operands : operands + assigned], skipped + operands):
        if not HARMLESS_VARIABLES.match(word):  # a single dash too, which means `env -i`
            yield OpaqueCode(f"{word.partition('=')[0]} may change which program runs", index)
    rest = rest[operands + assigned :]
    if not rest:
        return
    if rest[0].startswith("-"):  # flock FILE -c TEXT, or an option after an operand
        yield from read_ambiguous_wrapper(name, rest)
    elif replaced is not None and replaced in rest[0]:
        yield OpaqueCode(f"{name} runs a program that its input names", None)
    else:
        has_unseen_words = name == "xargs" and (replaced is None or any(replaced in word for word in rest))
        yield Subcommand(rest, name, has_unseen_words=has_unseen_words)


def _assigned(words: Words) -> int:
    """Count the leading NAME=VALUE words; a single dash, which means `env -i`, counts too."""
    others = (index for index, word in enumerate(words) if word != "-" and not _ASSIGNMENT.match(word))
    return next(others, len(words))


def _split_string(words: Words, option: Option) -> Iterator[Finding]:
    """Yield what `env -S TEXT` starts: the words of the text replace the option."""
    following = words[option.index + (2 if option.takes_next else 1) :]
    text = option.value or ""
    if not PLAIN_TEXT.fullmatch(text):
        yield OpaqueCode("env -S splits its text by its own rules", option.index)
        yield from read_ambiguous_wrapper("env", (*re.findall(r"[A-Za-z0-9_./:@%+,=-]+", text), *following))
    else:
        yield Subcommand(("env", *text.split(), *following), "env -S")
