"""Find what the words of a git command start: `-c`, aliases, `--exec-path`, `grep -O`, `rebase --exec`, `bisect run`.

Pure. What the configuration and hooks of a repository start is not visible here: tools do not write those files,
settings that start programs stay in the copy that commands have, and results name such files that a command creates
(ADR 0012). `wrappers.SAFE_VARIABLES` keeps git from opening pagers and editors.
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
"""Options before the command. True: the value is the next word unless `=` gives it."""

_HELPER_URL = re.compile(
    r"::|^(?:--\w+=)?(?!(?:https?|ssh|git|file|ftps?|git\+ssh|ssh\+git)://)[^/]+://", re.IGNORECASE
)
"""A URL for which git starts a helper program that the URL names (gitremote-helpers(7))."""

_HARMLESS_KEY = re.compile(
    r"(?:user|author|committer)\.(?:name|email)|(?:color|advice|column|log|status)\.[a-z.]+|core\.quotepath"
    r"|core\.(?:autocrlf|safecrlf|abbrev|ignorecase|precomposeunicode|filemode|commentchar|longpaths)"
    r"|init\.defaultbranch|diff\.(?:renames|algorithm|context|noprefix|mnemonicprefix|renamelimit)|merge\.ff|pull\.(?:ff|rebase)"
    r"|push\.default|rebase\.(?:autosquash|autostash)|fetch\.prune|(?:commit|tag)\.gpgsign|gc\.auto|safe\.directory"
)  # fmt: skip
"""Keys that start no program. Others may: aliases, editors, pagers, filters, helpers, hooks, includes, URLs."""


_CONTINUES = re.compile(r"--(?:co|sk|ed)")
"""`git rebase --continue`, `--skip` and `--edit-todo`, in any abbreviation that git accepts."""

_SCHEDULING_COMMANDS = (("maintenance", "start"), ("maintenance", "register"))

_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})

_COMMAND_OPTIONS = {
    "grep": "O::",
    "rebase": "x:",
    "difftool": "x:",
    "clone": "u:",
    "fetch-pack": "u:",
    "ls-remote": "u:",
}
"""Short options that start a program, by git command: `push -u`, `clean -x` and `diff -O` start none."""
_COMMAND_OPTIONS_LONG = "upload-pack= receive-pack= exec= extcmd= open-files-in-pager=?"
_CODE_OPTIONS = {"clone": "c:", "merge": "s:", "pull": "s:", "rebase": "s:"}
_CODE_OPTIONS_LONG = "config= template= strategy="
_URL_COMMANDS = (
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

_TRANSFERS = {
    "push": re.compile(r"send-pack|http-push|receive-pack|remote-.+"),
    "fetch": re.compile(r"fetch-pack|http-fetch|upload-pack|remote-.+"),
}
"""Commands that operators name in a rule, with those that implement them (git(1), "Syncing"; gitremote-helpers(7))."""


def read_git(name: str, words: Words) -> Iterator[Finding]:
    """Yield what git starts with these words."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, value, width = _global_option(words, at)
        yield from _global_option_findings(option, value, at)
        at += width
    if at >= len(words):
        return
    command, rest = words[at].lower(), words[at + 1 :]
    if rest[:1] == ("--help",):
        yield OpaqueCode(f"git {command} --help opens a manual page", at + 1)
    if words[at] not in GIT_COMMANDS:
        yield OpaqueCode(
            f"{name} {words[at]} is an alias, a program on PATH or a git command that starts other programs", at
        )
    for transfer, plumbing in _TRANSFERS.items():
        if plumbing.fullmatch(command):
            yield Subcommand((name, *words[:at], transfer, *rest), f"git {command}", is_guess=True)
    for finding in (*_option_findings(command, rest), *_command_findings(command, rest)):
        if isinstance(finding, OpaqueCode) and finding.word_index is not None:
            yield OpaqueCode(finding.reason, finding.word_index + at + 1)
        else:
            yield finding


def read_dashed_git(name: str, words: Words) -> Iterator[Finding]:
    """Yield the command that a program such as `git-push` is: rules that refuse `git push` cover it."""
    yield Subcommand(("git", name.removeprefix("git-"), *words), name, is_guess=True)


def _global_option(words: Words, at: int) -> tuple[str, str, int]:
    """Return name, value and number of words of an option before the command."""
    option, equals, value = words[at].partition("=")
    if words[at].startswith("-c") and not words[at].startswith("--") and len(words[at]) > 2:  # which git itself refuses
        return "-c", words[at][2:], 1
    if not equals and _GLOBAL.get(option):
        return option, " ".join(words[at + 1 : at + 2]), 2
    return option, value, 1


def _global_option_findings(option: str, value: str, at: int) -> Iterator[Finding]:
    if option == "-c":
        if not _is_harmless(value):
            yield OpaqueCode(f"git -c {value.partition('=')[0]} may start programs", at)
    elif option in ("--config-env", "--git-dir", "--help", "-h") or (option == "--exec-path" and value):
        yield OpaqueCode(f"git {option} may start programs", at)
    elif option not in _GLOBAL:
        yield OpaqueCode(f"git {option} is unknown to this policy", at)


def _option_findings(command: str, words: Words) -> Iterator[Finding]:
    """Yield what options that many git commands share start, in any form that git accepts, and what URLs start."""
    for token in Options(_COMMAND_OPTIONS.get(command, ""), _COMMAND_OPTIONS_LONG).anywhere(words):
        if token.is_known:
            yield _text_finding(command, token)
    for token in Options(_CODE_OPTIONS.get(command, ""), _CODE_OPTIONS_LONG).anywhere(words):
        if token.is_known and _brings_code(command, token):
            yield OpaqueCode(f"git {command} {token.name} may start programs", token.index)
    for index, word in enumerate(words):
        if command in _URL_COMMANDS and _HELPER_URL.search(word):
            yield OpaqueCode(f"git {command} may start a helper program to reach a repository", index)


def _text_finding(command: str, option: Option) -> Finding:
    """Return what the command text in an option starts; only rebase appends no words to it."""
    finding = command_text(option.value or "", f"git {command} {option.name}", option.index)
    if isinstance(finding, Subcommand) and command == "rebase":
        return replace(finding, has_unseen_words=False)
    return finding


def _brings_code(command: str, option: Option) -> bool:
    """Whether an option sets configuration, installs hooks, or names a merge program."""
    if option.name in ("-s", "--strategy"):
        return option.value not in _STRATEGIES
    if option.name == "--template":
        return command in ("clone", "init", "submodule")
    return not _is_harmless(option.value or "")


def _is_harmless(assignment: str) -> bool:
    """Whether a `key=value` of git's configuration starts no program."""
    return _HARMLESS_KEY.fullmatch(assignment.partition("=")[0].lower()) is not None


def _command_findings(command: str, words: Words) -> Iterator[Finding]:
    """Yield what git commands start that run their remaining words, now or later."""
    plain = [index for index, word in enumerate(words) if not word.startswith("-")] + [len(words)] * 2
    first = " ".join(words[plain[0] : plain[0] + 1])
    if (command, first) in _SCHEDULING_COMMANDS:
        yield OpaqueCode(f"git {command} {first} has the system start git later", plain[0])
    elif command == "rebase" and any(_CONTINUES.match(word) for word in words):
        yield OpaqueCode("git rebase runs its todo list, which may start programs", None)
    elif (command, first) == ("bisect", "run"):
        yield Subcommand(words[plain[0] + 1 :], "git bisect run")
    elif command == "bisect" and first.startswith("v"):
        yield OpaqueCode("git bisect opens a viewer", plain[0])
    elif (command, first) == ("submodule", "foreach"):
        yield OpaqueCode("git submodule foreach runs shell text", plain[0])
        yield Subcommand(words[plain[1] :], "git submodule foreach")
    elif command == "config" and not _only_reads(words):
        yield OpaqueCode("git config may set a program that git starts later", plain[0])


_CONFIG = Options("ef:lz", "type= default= file= blob= edit list", stops_at_operand=True)


def _only_reads(words: Words) -> bool:
    """Whether `git config` with these words changes nothing, or only a key that starts no program."""
    # Options come before the key only. What follows is a value, whatever it looks like: `core.pager '--get; x'`.
    tokens = tuple(_CONFIG.scan(words))
    options = {token.name for token in tokens if isinstance(token, Option)}
    plain = [token.word for token in tokens if isinstance(token, Operand)]
    if options & {"-e", "--edit", "-f", "--file", "--blob"}:
        return False
    if plain[:1] in (["get"], ["list"]) or any(name in ("-l", "--list") or name[:5] == "--get" for name in options):
        return True
    key = plain[plain[:1] == ["set"] :][:1]
    return len(plain) == 1 or any(map(_is_harmless, key))
