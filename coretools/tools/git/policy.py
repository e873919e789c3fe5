"""What git may not take from a repository: settings that start programs or lead elsewhere, and their neutral values.

Pure. Two lists: FIXED is passed on every call whatever the repository says; the keys whose middle part is free
(`filter.NAME.clean`) can't be listed, so they are found in the repository's own configuration and each is overridden by
its exact name. A word of git's command line (`-c key=value`) wins over every file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coretools.errors import GitRefused
from coretools.roots.git_config import Setting

FIXED_SETTINGS: Mapping[str, str] = {
    # Programs that git would start.
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.editor": ":",
    "sequence.editor": ":",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "core.askPass": "",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "false",
    "diff.external": "",
    "interactive.diffFilter": "",
    "credential.helper": "",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.x509.program": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "protocol.allow": "never",
    # Other repositories: a submodule brings a configuration of its own.
    "diff.ignoreSubmodules": "all",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "safe.bareRepository": "explicit",
    # Files that git would read from wherever they point.
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "commit.template": "",
    "mailmap.file": "/dev/null",
    "mailmap.blob": "",
    "blame.ignoreRevsFile": "",
    "diff.orderFile": "/dev/null",
    # Names that mean `.git` to another file system.
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    # One shape of answer, whatever the repository prefers.
    "core.quotePath": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "color.ui": "false",
    # A commit without a name and an address is an error, not a guess from the host's name.
    "user.useConfigOnly": "true",
}
"""Passed on every call."""

NEUTRAL_VALUES: Mapping[str, str] = {
    # filter.*
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
    # diff.*, tar.*, trailer.*, difftool.*, mergetool.*
    "textconv": "",
    "command": "",
    "cmd": "",
    # merge.*, gpg.*, credential.*, submodule.*
    "driver": "",
    "program": "false",
    "helper": "",
    "update": "none",
    # remote.*
    "uploadpack": "false",
    "receivepack": "false",
    "vcs": "",
    "proxy": "",
}
"""By the last part of the key, whatever the section: a section that a later git invents is covered when it keeps to
git's own words for "run this"."""

_REPORTED = frozenset({"core.fsmonitor", "core.hookspath", "core.editor", "sequence.editor", "core.pager"}) | frozenset(
    {"core.sshcommand", "core.askpass", "core.gitproxy", "core.alternaterefscommand", "core.worktree"}
    | {"diff.external", "interactive.difffilter", "commit.gpgsign", "tag.gpgsign", "log.showsignature"}
    | {"core.attributesfile", "commit.template", "mailmap.file", "blame.ignorerevsfile", "diff.orderfile"}
)
"""Fixed keys that are worth a word when a repository sets them: it wanted a program run or a file read."""

_HARMLESS = frozenset({"required", "update", "proxy"})
"""Free keys that start nothing by themselves."""

UNUSED_SECTIONS = frozenset(
    {"http", "credential", "url", "protocol", "ssh", "safe", "lfs"}  # other machines, and who may use what here
    | {"fetch", "pull", "push", "transfer", "clone", "sendemail", "imap", "init", "alias"}  # other commands
)
"""Sections that no command of ours takes anything from, wherever they stand."""

MAX_LISTED_KEYS = 50
"""Most settings of a repository that an answer names as not used."""

KEY_CHARACTERS = 120
"""Most of the name of one."""

MAX_OVERRIDES = 1_000
"""Most keys of files outside the roots that are overridden; each is two words of every command."""

_FIXED_NAMES = frozenset(key.lower() for key in FIXED_SETTINGS) | {"core.worktree"}


@dataclass(frozen=True, slots=True)
class GitPolicy:
    """What follows from one repository's configuration."""

    overrides: tuple[str, ...] = ()
    """`-c` words for the keys with free names."""
    not_used: tuple[str, ...] = ()
    """Keys that wanted a program run or a file read and don't get it, sorted."""
    included: tuple[tuple[str, str], ...] = ()
    """Files beneath the roots that are included, as directory and name; those of the git directories left out."""
    external_includes: tuple[str, ...] = ()
    """Files outside the roots that are included, absolute. git may run only when `repository_outer` has settled them,
    and its words may quote them."""
    included_by: str = ""
    """What includes the first of them, in words."""


def git_policy(settings: Iterable[Setting], shown: str) -> GitPolicy:
    """What to override for a repository with these settings, and what to tell about it.

    Raises:
        GitRefused: a key that must be overridden has a name that can't be passed exactly.
    """
    overrides: dict[str, str] = {}
    not_used: set[str] = set()
    for setting in settings:
        if setting.section == "alias":
            continue  # can't stand for a command of git's own, and no other is ever called
        override = _override(setting)
        if override is not None:
            overrides[_exact(override[0], shown)] = override[1]
        if _is_reported(setting):
            not_used.add(setting.key)
    words = tuple(word for key, value in sorted(overrides.items()) for word in ("-c", f"{key}={value}"))
    return GitPolicy(words, tuple(_shortened(key) for key in sorted(not_used)[:MAX_LISTED_KEYS]))


def external_overrides(names: Iterable[str]) -> tuple[str, ...] | None:
    """`-c` words after which keys of these names, whatever their values, mean nothing to the commands we run.

    None when there are no such words: one name says something else to git, or leads further, or can't be said exactly.
    """
    overrides: dict[str, str] = {}
    for setting in (Setting(name, None) for name in names):
        override = None if setting.section == "alias" else _override(setting)
        if not (_is_unused(setting) if override is None else _is_exact(override[0])):
            return None
        if override is not None:
            overrides[override[0]] = override[1]
    if len(overrides) > MAX_OVERRIDES:
        return None
    return tuple(word for key, value in sorted(overrides.items()) for word in ("-c", f"{key}={value}"))


def _override(setting: Setting) -> tuple[str, str] | None:
    """What to pass so that a key with a free name comes to nothing."""
    if setting.section == "hook":
        # Hooks out of the configuration: git 2.54 and later.
        return setting.key.rpartition(".")[0] + ".enabled", "false"
    return (setting.key, NEUTRAL_VALUES[setting.variable]) if setting.variable in NEUTRAL_VALUES else None


def _shortened(key: str) -> str:
    """A key as an answer names it: what a repository calls its sections must not fill the answer."""
    return key if len(key) <= KEY_CHARACTERS else f"{key[:KEY_CHARACTERS]}..."


def _is_unused(setting: Setting) -> bool:
    """Whether no command of ours takes anything from this key, or only after a fixed word of ours for it."""
    if "." not in setting.key:  # git 2.39 takes a key before any section, in a file that need not be configuration
        return False
    return setting.section in UNUSED_SECTIONS or setting.key in _FIXED_NAMES


def _is_reported(setting: Setting) -> bool:
    """Whether a repository that sets this wanted a program run or a file read."""
    value = (setting.value or "true").lower()
    if setting.key in _REPORTED:
        return value not in ("false", "no", "off", "0")
    if setting.variable in _HARMLESS:
        return value.startswith("!")
    return setting.section == "hook" or setting.variable in NEUTRAL_VALUES


def _exact(key: str, shown: str) -> str:
    """The key, if it can be overridden by its exact name."""
    if not _is_exact(key):
        raise GitRefused(
            f"{shown}: this repository is not used: its key {key!a} can't be switched off; remove that key"
        )
    return key


def _is_exact(key: str) -> bool:
    """Whether `-c KEY=VALUE` can say this key.

    git splits that word at its first `=`, and a subsection may hold one: `filter.a=b.clean=` would set `filter.a`.
    """
    section, _, rest = key.partition(".")
    name, dot, _ = rest.rpartition(".")
    return bool(section and rest) and bool(name or not dot) and "=" not in name and key.isprintable()
