"""git's own ways to start something: `-c`, aliases, `--exec-path`, `grep -O`, `rebase --exec`, `bisect run`, ...

Pure. What a repository's configuration and hooks start is not seen here: tools leave those files alone (ADR 0012), what
commands change of a configuration that starts something stays with them (ADR 0012), and what they make of that kind is
named by their results. Pagers and editors that git opens are `wrappers.SAFE_VARIABLES`'s part.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from coretools.command_policy.flags import command_text
from coretools.command_policy.getopt import Operand, Option, Options
from coretools.command_policy.programs import GIT_COMMANDS
from coretools.command_policy.subcommand import Finding, OpaqueCode, Subcommand, Words

_GLOBAL = {
    "-C": True, "-c": True, "--git-dir": True, "--work-tree": True, "--namespace": True, "--super-prefix": True,
    "--config-env": True, "--attr-source": True,
    "-p": False, "--paginate": False, "-P": False, "--no-pager": False, "--bare": False, "--no-replace-objects": False,
    "--literal-pathspecs": False, "--glob-pathspecs": False, "--noglob-pathspecs": False, "--icase-pathspecs": False,
    "--no-optional-locks": False, "--no-lazy-fetch": False, "--no-advice": False, "--version": False, "-v": False,
    "--help": False, "-h": False, "--exec-path": False, "--html-path": False, "--man-path": False, "--info-path": False,
}  # fmt: skip
"""Options before the command; True: the value is the next word, when no `=` gives it."""

_HELPER = re.compile(r"::|^(?:--\w+=)?(?!(?:https?|ssh|git|file|ftps?|git\+ssh|ssh\+git)://)[^/]+://", re.IGNORECASE)
"""An address that git reaches by a program named in it (gitremote-helpers(7))."""

_HARMLESS_KEY = re.compile(
    r"(?:user|author|committer)\.(?:name|email)|(?:color|advice|column|log|status)\.[a-z.]+|core\.quotepath"
    r"|core\.(?:autocrlf|safecrlf|abbrev|ignorecase|precomposeunicode|filemode|commentchar|longpaths)"
    r"|init\.defaultbranch|diff\.(?:renames|algorithm|context|noprefix|mnemonicprefix|renamelimit)|merge\.ff|pull\.(?:ff|rebase)"
    r"|push\.default|rebase\.(?:autosquash|autostash)|fetch\.prune|(?:commit|tag)\.gpgsign|gc\.auto|safe\.directory"
)  # fmt: skip
"""Keys that start nothing. Any other may: aliases, editors, pagers, filters, helpers, hooks, includes, addresses."""


_CONTINUES = re.compile(r"--(?:co|sk|ed)")
"""`git rebase --continue`, `--skip` and `--edit-todo`, abbreviated as git takes them."""

_LATER = (("maintenance", "start"), ("maintenance", "register"))

_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})

_STARTS = {"grep": "O::", "rebase": "x:", "difftool": "x:", "clone": "u:", "fetch-pack": "u:", "ls-remote": "u:"}
"""Letters that start something, by command: `push -u`, `clean -x` and `diff -O` start nothing."""
_STARTS_LONG = "upload-pack= receive-pack= exec= extcmd= open-files-in-pager=?"
_CODES = {"clone": "c:", "merge": "s:", "pull": "s:", "rebase": "s:"}
_CODES_LONG = "config= template= strategy="
_WITH_ADDRESS = (
    "archive",
    "clone",
    "fetch",
    "fetch-pack",
    "ls-remote",
    "pull",
    "push",
    "remote",
    "send-pack",
    "submodule",
)


def read_git(name: str, words: Words) -> Iterator[Finding]:
    """What git starts with these words."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, value, width = _global_option(words, at)
        yield from _of_global(option, value, at)
        at += width
    if at >= len(words):
        return
    command, rest = words[at].lower(), words[at + 1 :]
    if rest[:1] == ("--help",):
        yield OpaqueCode(f"git {command} --help opens a manual page", at + 1)
    if words[at] not in GIT_COMMANDS:
        yield OpaqueCode(f"{name} {words[at]} is an alias, a program on PATH or one that starts others", at)
    for found in (*_of_options(command, rest), *_of_subcommand(command, rest)):
        if isinstance(found, OpaqueCode) and found.carrier is not None:
            yield OpaqueCode(found.why, found.carrier + at + 1)
        else:
            yield found


def _global_option(words: Words, at: int) -> tuple[str, str, int]:
    """Name, value and number of words of the option before the command."""
    option, equals, value = words[at].partition("=")
    if words[at].startswith("-c") and not words[at].startswith("--") and len(words[at]) > 2:  # git itself refuses it
        return "-c", words[at][2:], 1
    if not equals and _GLOBAL.get(option):
        return option, " ".join(words[at + 1 : at + 2]), 2
    return option, value, 1


def _of_global(option: str, value: str, at: int) -> Iterator[Finding]:
    if option == "-c":
        if not _is_harmless(value):
            yield OpaqueCode(f"git -c {value.partition('=')[0]} may start programs", at)
    elif option in ("--config-env", "--git-dir", "--help", "-h") or (option == "--exec-path" and value):
        yield OpaqueCode(f"git {option} may start programs", at)
    elif option not in _GLOBAL:
        yield OpaqueCode(f"git {option} is not known here", at)


def _of_options(command: str, words: Words) -> Iterator[Finding]:
    """Options that many commands share, abbreviated or joined as git takes them."""
    for token in Options(_STARTS.get(command, ""), _STARTS_LONG).anywhere(words):
        if token.is_known:
            yield _of_text(command, token)
    for token in Options(_CODES.get(command, ""), _CODES_LONG).anywhere(words):
        if token.is_known and _brings_code(command, token):
            yield OpaqueCode(f"git {command} {token.name} may start programs", token.index)
    yield from _of_addresses(command, words)


def _of_text(command: str, option: Option) -> Finding:
    """What the text of a command in an option starts; rebase alone adds no word of its own to it."""
    found = command_text(option.value or "", f"git {command} {option.name}", option.index)
    return replace(found, is_open=False) if isinstance(found, Subcommand) and command == "rebase" else found


def _of_addresses(command: str, words: Words) -> Iterator[Finding]:
    for index, word in enumerate(words):
        if command in _WITH_ADDRESS and _HELPER.search(word):
            yield OpaqueCode(f"git {command} may reach a repository by a helper program", index)


def _brings_code(command: str, option: Option) -> bool:
    """Whether an option sets configuration, brings hooks, or names a program that merges."""
    if option.name in ("-s", "--strategy"):
        return option.value not in _STRATEGIES
    if option.name == "--template":
        return command in ("clone", "init", "submodule")
    return not _is_harmless(option.value or "")


def _is_harmless(assignment: str) -> bool:
    """Whether a `key=value` of git's configuration starts nothing."""
    return _HARMLESS_KEY.fullmatch(assignment.partition("=")[0].lower()) is not None


def _of_subcommand(command: str, words: Words) -> Iterator[Finding]:
    """Commands of which a word says that the rest is run, or that it is run later."""
    plain = [index for index, word in enumerate(words) if not word.startswith("-")] + [len(words)] * 2
    first = " ".join(words[plain[0] : plain[0] + 1])
    if (command, first) in _LATER:
        yield OpaqueCode(f"git {command} {first} makes the system start git later", plain[0])
    elif command == "rebase" and any(_CONTINUES.match(word) for word in words):
        yield OpaqueCode("git rebase runs its list of things to do, which may start programs", None)
    elif command == "bisect":
        yield from _of_bisect(first, words, plain[0])
    elif (command, first) == ("submodule", "foreach"):
        yield OpaqueCode("git submodule foreach runs a shell's text", plain[0])
        yield Subcommand(words[plain[1] :], "git submodule foreach")
    elif command == "config" and not _only_reads(words):
        yield OpaqueCode("git config may set what git starts later", plain[0])


def _of_bisect(first: str, words: Words, at: int) -> Iterator[Finding]:
    if first == "run":
        yield Subcommand(words[at + 1 :], "git bisect run")
    elif first.startswith("v"):
        yield OpaqueCode("git bisect opens a viewer", at)


_CONFIG = Options("ef:lz", "type= default= file= blob= edit list", stops=True)


def _only_reads(words: Words) -> bool:
    """Whether `git config` with these words changes nothing, or a key that starts nothing."""
    # Options stand before the name only. What follows it is a value, whatever it looks like: `core.pager '--get; x'`.
    tokens = tuple(_CONFIG.scan(words))
    options = {token.name for token in tokens if isinstance(token, Option)}
    plain = [token.word for token in tokens if isinstance(token, Operand)]
    if options & {"-e", "--edit", "-f", "--file", "--blob"}:
        return False
    if plain[:1] in (["get"], ["list"]) or any(name in ("-l", "--list") or name[:5] == "--get" for name in options):
        return True
    key = plain[plain[:1] == ["set"] :][:1]
    return len(plain) == 1 or any(map(_is_harmless, key))
