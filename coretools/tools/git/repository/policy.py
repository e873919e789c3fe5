"""Settings of a repository that git must not obey, since they start programs or read other files, with neutral values.

Pure. There are two lists. FIXED_SETTINGS is passed on every call. Keys with a free middle part (`filter.NAME.clean`)
can't be listed; they are found in the repository's own configuration, and each is overridden by its exact name. A
command-line option (`-c key=value`) takes precedence over every file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coretools.errors import GitRefused
from coretools.roots.git_config import Setting

FIXED_SETTINGS: Mapping[str, str] = {
    # Programs that git would execute.
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
    "checkout.workers": "1",
    "merge.verifySignatures": "false",
    "protocol.allow": "never",
    # How long git waits for another git's lock of HEAD or a reference; 0.1 s by default.
    "core.filesRefLockTimeout": "1000",
    # Operations that would do more, or ask, than the call says.
    "branch.autoSetupMerge": "false",
    "branch.autoSetupRebase": "never",
    "checkout.guess": "false",
    "core.commentChar": "#",
    "merge.autoStash": "false",
    "core.preferSymlinkRefs": "false",  # with a link as HEAD no tool would use the repository any more
    "merge.default": "text",
    "merge.log": "false",
    "merge.branchdesc": "false",
    "rebase.autoSquash": "false",
    "rebase.autoStash": "false",
    "rebase.backend": "merge",
    "rebase.forkPoint": "false",
    "rebase.instructionFormat": "%s",
    "rebase.missingCommitsCheck": "ignore",
    "rebase.rebaseMerges": "false",
    "rebase.updateRefs": "false",
    "tag.forceSignAnnotated": "false",
    # Other repositories: a submodule has a configuration of its own.
    "diff.ignoreSubmodules": "all",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "safe.bareRepository": "explicit",
    # Files that git would read from any location. `Git` names the user's own ignore rules and attributes.
    "commit.template": "",
    "mailmap.file": "/dev/null",
    "mailmap.blob": "",
    "blame.ignoreRevsFile": "",
    "diff.orderFile": "/dev/null",
    # Names that are equal to `.git` on another file system.
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    # One output format, whatever the repository prefers.
    "core.quotePath": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "color.ui": "false",
    # A commit without a name and an address is an error; git must not derive them from the host name.
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
    # merge.*, branch.*, gpg.*, credential.*, submodule.*
    # An empty driver would succeed and keep our side; this one leaves a conflict.
    "driver": "false",
    "mergeoptions": "",
    "program": "false",
    "helper": "",
    "update": "none",
    # remote.*
    "uploadpack": "false",
    "receivepack": "false",
    "vcs": "",
    "proxy": "",
    # diff.*: a regular expression for the heading of a hunk may take all memory. This is nearly the default.
    "xfuncname": "^[[:alpha:]$_]",
    "funcname": "^[[:alpha:]$_]",
}
"""By the last part of the key, whatever the section. A section of a later git version is covered if it uses git's usual
names for a program to run."""

_REPORTED = frozenset({"core.fsmonitor", "core.hookspath", "core.editor", "sequence.editor", "core.pager"}) | frozenset(
    {"core.sshcommand", "core.askpass", "core.gitproxy", "core.alternaterefscommand", "core.worktree"}
    | {"diff.external", "interactive.difffilter", "commit.gpgsign", "tag.gpgsign", "log.showsignature"}
    | {"core.attributesfile", "commit.template", "mailmap.file", "blame.ignorerevsfile", "diff.orderfile"}
)
"""Fixed keys that an answer reports when a repository sets them: they would run a program or read a file."""

_HARMLESS = frozenset({"required", "update", "proxy", "mergeoptions", "xfuncname", "funcname"})
"""Keys of NEUTRAL_VALUES that start nothing by themselves."""

UNUSED_SECTIONS = frozenset(
    {"http", "credential", "url", "protocol", "ssh", "safe", "lfs"}  # remote hosts, and access to this repository
    | {"fetch", "pull", "push", "transfer", "clone", "sendemail", "imap", "init", "alias"}  # other commands
)
"""Sections that none of our git commands reads, in any file."""

MAX_LISTED_KEYS = 50
"""Most unused settings of a repository that an answer lists."""

KEY_CHARACTERS = 120
"""Longest key shown."""

MAX_OVERRIDES = 1_000
"""Most overridden keys of files outside the roots; each adds two arguments to every command."""

PATTERN_FILES = ("core.excludesFile", "core.attributesFile")
"""Passed on every call too, with the user's files."""

_FIXED_NAMES = frozenset(key.lower() for key in (*FIXED_SETTINGS, *PATTERN_FILES)) | {"core.worktree"}


@dataclass(frozen=True, slots=True)
class GitPolicy:
    """What the configuration of one repository implies for running git in it."""

    overrides: tuple[str, ...] = ()
    """`-c` options for the keys of NEUTRAL_VALUES."""
    not_used: tuple[str, ...] = ()
    """Overridden keys that would run a program or read a file, sorted."""
    included: tuple[tuple[str, str], ...] = ()
    """Included files beneath the roots, as directory and name, without those of the git directories."""
    external_includes: tuple[str, ...] = ()
    """Absolute paths of included files outside the roots. git may run only after `external_includes` accepted them, and
    its messages may quote them."""
    included_by: str = ""
    """What includes the first of them, for messages."""
    is_partial: bool = False
    """The repository is a partial clone: objects may be missing that git would fetch."""


def git_policy(settings: Iterable[Setting], display_path: str) -> GitPolicy:
    """Return what to override for a repository with these settings, and what to report.

    Raises:
        GitRefused: a key that must be overridden has a name that can't be passed exactly.
    """
    overrides: dict[str, str] = {}
    not_used: set[str] = set()
    is_partial = False
    for setting in settings:
        is_partial |= setting.key == "extensions.partialclone" or setting.variable in ("promisor", "partialclonefilter")
        if setting.section == "alias":
            continue  # an alias can't replace a built-in command, and only those are called
        override = _override(setting)
        if override is not None:
            key, value = override
            overrides[key] = value
            if not _is_exact(key):
                raise GitRefused(
                    f"{display_path}: git is not run in this repository: its key {key!a} can't be overridden; remove"
                    " that key"
                )
        if _is_reported(setting):
            not_used.add(setting.key)
    words = tuple(word for key, value in sorted(overrides.items()) for word in ("-c", f"{key}={value}"))
    listed = tuple(_shortened(key) for key in sorted(not_used)[:MAX_LISTED_KEYS])
    return GitPolicy(words, listed, is_partial=is_partial)


def external_overrides(names: Iterable[str]) -> tuple[str, ...] | None:
    """Return `-c` options that make keys of these names, whatever their values, irrelevant to the commands we run.

    Returns None if no options can do that: a key has another effect, includes more files, or can't be passed exactly.
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
    """Return the key and value that neutralise a setting of NEUTRAL_VALUES, or None for any other setting."""
    if setting.section == "hook":
        # Hooks defined in the configuration: git 2.54 and later.
        return setting.key.rpartition(".")[0] + ".enabled", "false"
    return (setting.key, NEUTRAL_VALUES[setting.variable]) if setting.variable in NEUTRAL_VALUES else None


def _shortened(key: str) -> str:
    """Return a key as an answer shows it, shortened: the repository chooses its section names."""
    return key if len(key) <= KEY_CHARACTERS else f"{key[:KEY_CHARACTERS]}..."


def _is_unused(setting: Setting) -> bool:
    """Whether none of our commands reads this key, or FIXED_SETTINGS overrides it."""
    if "." not in setting.key:  # git 2.39 accepts a key before any section, in a file that may not be configuration
        return False
    return setting.section in UNUSED_SECTIONS or setting.key in _FIXED_NAMES


def _is_reported(setting: Setting) -> bool:
    """Whether this setting would run a program or read a file."""
    value = (setting.value or "true").lower()
    if setting.key in _REPORTED:
        return value not in ("false", "no", "off", "0")
    if setting.variable in _HARMLESS:
        return value.startswith("!")
    return setting.section == "hook" or setting.variable in NEUTRAL_VALUES


def _is_exact(key: str) -> bool:
    """Whether `-c KEY=VALUE` can express this key.

    git splits the option at its first `=`, and a subsection may contain one: `filter.a=b.clean=` would set `filter.a`.
    """
    section, _, rest = key.partition(".")
    name, dot, _ = rest.rpartition(".")
    return bool(section and rest) and bool(name or not dot) and "=" not in name and key.isprintable()
