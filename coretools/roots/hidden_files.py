"""Decide which files are hidden from tools and commands: by deny globs, by names that suggest a secret, by inode.

A deny glob closes a path by its name. A name that suggests a secret closes nothing by itself: the content of the file
decides (`secret_check`). A hidden file is remembered by its inode and stays hidden under any name.

A glob matches at any depth; one that begins with `/` matches at the top of each root only. `*`, `?` and `[...]` stay
within a component; `**` is any number of directories. Everything beneath a covered directory is covered. A glob that
begins with `!` allows again what an earlier one denied, unless a parent directory is denied. The last matching glob
decides.

Matching ignores case: a mount beneath a root may do so too (vfat, CIFS, a Windows drive), and `.ENV` then names `.env`.
Nothing else is folded.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from coretools.errors import BadSetting, InvalidArguments
from coretools.roots.open_beneath import birth_time
from coretools.roots.path_globs import ANY_NUMBER, ComponentTest, component_pattern, component_tests, components_match

_CACHED_NAMES = 8192
"""Names whose verdict is cached; a walk meets the same ones repeatedly."""

GIT_FORMAT = "git"
"""Format of the files of a git directory, and of configurations by their names."""
ANY_CONFIGURATION = "configuration"
"""Format of all other files whose content is shown: any may be included by a configuration of git."""

_ENDINGS = {
    **dict.fromkeys(("pem", "key", "ppk", "asc", "gpg", "pgp", "p8", "pk8", "pkcs8"), "key"),
    **dict.fromkeys(("openssh", "rsa", "der", "priv", "ovpn"), "key"),
    **dict.fromkeys(("p12", "pfx", "jks", "jceks", "bks", "keystore", "kdbx", "kdb"), "store"),
    "env": "environment",
    "tfstate": "state",
    "tfvars": "settings",
    "kubeconfig": "kube",
    "json": "account",
}
"""Formats by file extension."""

_NAMES = {
    **dict.fromkeys((".npmrc", ".yarnrc", ".yarnrc.yml"), "npm"),
    **dict.fromkeys(("pip.conf", "pip.ini"), "address"),
    **dict.fromkeys((".netrc", "_netrc"), "netrc"),
    **dict.fromkeys((".pgpass", ".htpasswd", ".vault-token"), "lines"),
    **dict.fromkeys(("settings.xml", "settings-security.xml"), "maven"),
    **dict.fromkeys((".terraformrc", "terraform.rc", "credentials.tfrc.json", "terraform.tfvars.json"), "settings"),
    **dict.fromkeys((".pypirc", ".my.cnf", ".s3cfg", ".boto", "credentials.toml"), "settings"),
    **dict.fromkeys(("secrets.json", "auth.json", "local.settings.json", "hosts.yml"), "settings"),
    **dict.fromkeys(("secrets.toml", "secrets.yml", "secrets.yaml", "credentials.json", "token.json"), "settings"),
    **dict.fromkeys(("client_secret.json", "client_secrets.json", ".sentryclirc", ".databrickscfg"), "settings"),
    ".renviron": "environment",
    "application_default_credentials.json": "settings",
    "terraform.tfstate.backup": "state",
    "gradle.properties": "properties",
    ".dockercfg": "docker",
    "nuget.config": "nuget",
    ".mylogin.cnf": "any",
    **dict.fromkeys(("kubeconfig", "kube.config", "kubeconfig.yaml", "kubeconfig.yml", "kubeconfig.json"), "kube"),
    ".envrc": "environment",
    **dict.fromkeys((".gitmodules", ".lfsconfig"), GIT_FORMAT),
}

_IN_DIRECTORY = {
    (".docker", "config.json"): "docker",
    (".kube", "config"): "kube",
    (".aws", "credentials"): "settings",
    (".aws", "config"): "settings",
    (".cargo", "credentials"): "settings",
    (".gem", "credentials"): "settings",
    (".bundle", "config"): "bundle",
}
"""Names that suggest a secret only in a directory of this name."""

_PARENTS = frozenset(parent for parent, _ in _IN_DIRECTORY)
_ONLY_THERE = frozenset(name for _, name in _IN_DIRECTORY)

_KEY_NAME = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)|ssh_host_|identity$|[^.]*(?:key|[_-](?:rsa|dsa|ecdsa|ed25519))$"
    r"|.*private[._-]?key|.*\.(?:key|pem)[._~-]"
)
_ENVIRONMENT_NAME = re.compile(
    r"\.(?:env|dev\.vars)(?![a-z0-9])|.*\.env(?:~|[._-](?:bak|old|orig|save|backup)$)"
    r"|env(?:[._-](?:prod(?:uction)?|stag(?:e|ing)|dev(?:elopment)?|test(?:ing)?|local|live|private|secrets?|ci|qa|uat)){1,3}$"
)
_ACCOUNT_NAME = re.compile(r".*(?:service|account|credential|gcp|gcloud|firebase|adminsdk|key|[0-9a-f]{12})")
_TEMPLATE_NAME = re.compile(r".*(?:^|[._-])(?:example|sample|template|dist|tmpl|tpl|defaults?|schema|vault)(?:$|[._-])")
"""Templates, and encrypted files (`.env.vault`)."""


@lru_cache(_CACHED_NAMES)
def secret_format(name: str, parent: str = "") -> str:
    """The secret format that this name suggests, in a directory named `parent`; "" for nearly all.

    No directory is exempt: a command could move a secret into it.
    """
    lower = name.lower()
    found = _NAMES.get(lower) or _IN_DIRECTORY.get((parent.lower(), lower))
    if found:
        return found
    by_ending = _by_several(lower) or _ENDINGS.get(lower.rpartition(".")[2]) or _by_beginning(lower)
    if by_ending == "account":
        return by_ending if _ACCOUNT_NAME.match(lower) else ""
    if by_ending in ("key", "store"):
        return by_ending
    return "" if _TEMPLATE_NAME.match(lower) else by_ending


def _by_several(lower: str) -> str:
    """By more than the extension: `.env.local`, `x.tfvars.json`, a backup."""
    if _ENVIRONMENT_NAME.match(lower):
        return "environment"
    if lower.endswith(".tfvars.json"):
        return "settings"
    if lower.startswith((".gitconfig", "gitconfig")):
        return GIT_FORMAT
    if lower.startswith(".git-credentials"):
        return "git-credentials"
    return "state" if ".tfstate." in lower else ""


def _by_beginning(lower: str) -> str:
    return "key" if _KEY_NAME.match(lower) and not lower.endswith(".pub") else ""


def secret_format_of(relative: str) -> str:
    """The same for a path."""
    above, _, name = relative.rpartition("/")
    # Most names mean the same everywhere; cache them once.
    return secret_format(name, above.rpartition("/")[2] if name.lower() in _ONLY_THERE else "")


def is_significant_directory(directory_name: str) -> bool:
    """Whether some name suggests a secret only in a directory of this name."""
    return directory_name.lower() in _PARENTS


DEFAULT_DENY: tuple[str, ...] = (
    # Directories that contain only secrets.
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    # What git runs or takes credentials from, in submodules and worktrees too.
    ".git/config",
    ".git/config.worktree",
    ".git/hooks/**",
    ".git/modules/**/config",
    ".git/modules/**/hooks/**",
    ".git/worktrees/**/config.worktree",
)


@dataclass(frozen=True, slots=True)
class _DenyRule:
    glob: str
    denies: bool
    whole: Sequence[ComponentTest]
    """Match the paths that the glob names."""
    above: Sequence[Sequence[ComponentTest]]
    """Match the directories whose names are part of the glob; none for a glob of one component."""
    key: str
    """Regular expression of a component that every matching path contains."""


class DenyRules:
    """Decides by the text of a path beneath a root whether it is denied. The path must not contain `..`."""

    def __init__(self, globs: Sequence[str], *, by_content: bool = True, own: Sequence[str] = ()) -> None:
        """`by_content`: files whose names suggest a secret are denied when they contain one.

        `own` close our own state: they come last, so that no glob opens it again.
        """
        self._is_by_content = by_content
        self._globs = tuple(globs)
        self._own = [_rule(glob) for glob in own]
        self._rules = [*map(_rule, globs), *self._own]
        keys = "|".join(rule.key for rule in self._rules if rule.denies) or r"(?!)"
        matches = re.compile(keys, re.IGNORECASE).fullmatch
        # A path without such a component is allowed: one cached lookup per component instead of all rules.
        self._is_suspect = lru_cache(_CACHED_NAMES)(lambda name: matches(name) is not None)

    def with_own(self, globs: Sequence[str]) -> "DenyRules":
        """Return these rules with globs that close our own state."""
        return DenyRules(self._globs, by_content=self._is_by_content, own=globs) if globs else self

    def closes_own_state(self, glob: str) -> bool:
        """Whether a glob closes our own state."""
        return any(rule.glob == glob for rule in self._own)

    def denying_glob(self, relative_path: str) -> str | None:
        """The glob that denies this path, or None if it is allowed."""
        parts = relative_path.split("/")
        if not any(map(self._is_suspect, parts)):
            return None
        # From the top: what lies in a denied directory is denied, whatever later rules say of it.
        for end in range(1, len(parts) + 1):
            glob = self._verdict(parts[:end])
            if glob is not None:
                return glob
        return None

    @property
    def may_deny(self) -> Callable[[str], bool]:
        """Whether a path with this component can be denied; without such a component none is."""
        return self._is_suspect

    def secret_format(self, relative_path: str, otherwise: str = "") -> str:
        """The secret format that the file's name suggests; "" if a glob allows the file, `otherwise` for most names."""
        kind = (secret_format_of(relative_path) or otherwise) if self._is_by_content else ""
        if kind:
            names = relative_path.split("/")
            decides = next((rule for rule in reversed(self._rules) if components_match(names, rule.whole)), None)
            return kind if decides is None or decides.denies else ""
        return ""

    def name_dependent_glob(self, relative_path: str) -> str | None:
        """The glob that denies something beneath this directory because of the directory's name, or None.

        Such a directory cannot be moved, and nothing can be moved to its place: `.git/config` would be readable under
        another name, or be created where it is denied.
        """
        names = relative_path.split("/")
        for rule in self._rules[: len(self._globs)]:
            if rule.denies and any(components_match(names, tests) for tests in rule.above):
                return rule.glob
        return f"{names[-1]}/*" if self._is_by_content and is_significant_directory(names[-1]) else None

    def _verdict(self, names: list[str]) -> str | None:
        # The last rule that matches decides, as in gitignore(5).
        for rule in reversed(self._rules):
            if components_match(names, rule.whole):
                return rule.glob if rule.denies else None
        return None


def _rule(glob: str) -> _DenyRule:
    denies = not glob.startswith("!")
    text = glob if denies else glob[1:]
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise BadSetting(f"deny glob {glob!r}: names nothing beneath a root")
    keys = [part for part in parts if part.strip("*")]
    try:
        tests = component_tests(parts, flags=re.IGNORECASE)
        # Any component that is not all wildcard will do; take the first.
        key = component_pattern(keys[0]) if keys else "(?s:.*)"
    except InvalidArguments as error:
        raise BadSetting(f"deny {error}") from error
    start = [] if text.startswith("/") else [ANY_NUMBER]
    return _DenyRule(
        glob=glob,
        denies=denies,
        whole=[*start, *tests],
        above=[[*start, *tests[:end]] for end in range(1, len(parts))],
        key=key,
    )


MAX_INODES = 10_000
"""Entries kept; beyond that the least recently seen one is dropped."""


class Inode(NamedTuple):
    """The identity of a file, independent of its name. Numbers are reused; a number with a birth time is not."""

    device: int
    number: int
    birth_ns: int
    is_directory: bool


def inode_of(path: str, top: int | None = None) -> Inode | None:
    """The identity of what a path names, relative to `top` if given, links not followed; None if there is nothing."""
    try:
        found = os.stat(path, dir_fd=top, follow_symlinks=False)
        is_directory = stat.S_ISDIR(found.st_mode)
        # Without a birth time use the modification time, which a rename does not change. A directory's changes too
        # often.
        birth = birth_time(path, top) or (0 if is_directory else found.st_mtime_ns)
    except OSError:
        return None
    return Inode(found.st_dev, found.st_ino, birth, is_directory)


class HiddenInodes:
    """The hidden files and directories, and the kind of each. Written by one thread at a time, read by any.

    The scan before each command (`confinement.hidden`) records them, so a hidden file is recognised after a rename.
    """

    def __init__(self) -> None:
        self._kinds: dict[Inode, str] = {}
        self._numbers: set[int] = set()
        """Their inode numbers, so that any other file costs one lookup."""
        self.has_directories = False

    def remember(self, inode: Inode, kind: str) -> None:
        """Record a hidden file with its kind."""
        # Moved to the end: the first entry is the one that was seen least recently.
        self._kinds.pop(inode, None)
        self._kinds[inode] = kind
        self._numbers.add(inode.number)
        self.has_directories = self.has_directories or inode.is_directory
        if len(self._kinds) > MAX_INODES:
            del self._kinds[next(iter(self._kinds))]
            self._numbers = {one.number for one in self._kinds}

    def forget(self, inode: Inode) -> None:
        """Remove a file that is no longer hidden."""
        self._kinds.pop(inode, None)

    def kind_of(self, top: int, path: str, number: int) -> str:
        """The kind that the file with this path and inode number was hidden as; "" for nearly all."""
        if number not in self._numbers:
            return ""
        inode = inode_of(path, top)
        return "" if inode is None else self._kinds.get(inode, "")

    def has(self, number: int) -> bool:
        """Whether a file with this inode number may be among them."""
        return number in self._numbers
