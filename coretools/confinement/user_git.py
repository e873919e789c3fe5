"""The user's git configuration, read once: identity, aliases, ignore rules and habits, without anything that runs.

The git tools, and git inside commands, get it as a read-only file of the server in place of `~/.gitconfig`. Only keys
of an allow-list are taken. Includes are followed as git follows them: a conditional include (`includeIf`) becomes a
file of its own with the same condition, since git decides about it in each repository.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from coretools.errors import GitRefused
from coretools.reach import NO_REACH, Reach
from coretools.regular_file import read_regular
from coretools.roots.directory_access import translate_errors
from coretools.roots.git_config import NotWritable, Setting, parse, serialize

IN_VIEW = "/.git-user"
"""Directory of the files in the namespaces of commands."""

FILE_BYTES = 1024 * 1024
"""Largest file that is read: configuration, ignore rules or attributes."""

INCLUDE_DEPTH = 10
"""Deepest nesting of includes: git's own limit."""

MAX_FILES = 64
"""Most configuration files that are read, each as often as it is included."""

MAX_REMARKS = 20
"""Most settings of the user that are reported as left out."""

IDENTITY = frozenset(f"{who}.{part}" for who in ("user", "author", "committer") for part in ("name", "email"))

SIGNING_KEYS = frozenset({"user.signingkey", "gpg.format"})
"""Which key signs; they start nothing, and a signature is made only where the operator grants it."""

_HABITS = frozenset(
    {
        *("user.useconfigonly", "init.defaultbranch"),
        *("pull.rebase", "pull.ff", "push.default", "push.autosetupremote", "push.followtags"),
        *("fetch.prune", "fetch.prunetags", "branch.sort", "tag.sort"),
        *("rebase.autosquash", "rebase.autostash", "rebase.updaterefs", "rebase.stat"),
        *("merge.conflictstyle", "merge.ff", "merge.renames", "merge.stat", "rerere.enabled", "rerere.autoupdate"),
        *("diff.algorithm", "diff.renames", "diff.indentheuristic", "diff.colormoved"),
        *("core.autocrlf", "core.eol", "core.safecrlf", "core.whitespace", "core.abbrev", "core.quotepath"),
        *("commit.verbose", "commit.status", "log.date", "log.abbrevcommit", "status.short", "status.branch"),
        *("status.showuntrackedfiles", "stash.showpatch", "column.ui"),
    }
)
"""Settings of the user that are taken, in lower case. None of them starts a program or names a file."""

_TEXTS = (
    IDENTITY
    | SIGNING_KEYS
    | {
        "init.defaultbranch",
        "push.default",
        "merge.conflictstyle",
        "diff.algorithm",
        "branch.sort",
        "tag.sort",
        "log.date",
    }
    | {"core.eol", "core.whitespace", "core.abbrev", "status.showuntrackedfiles"}
)
"""Settings that git refuses without a value."""

_PROGRAM_SECTIONS = frozenset({"credential", "difftool", "mergetool", "pager", "hook"})
_PROGRAM_KEYS = frozenset({"core.editor", "core.pager", "core.sshcommand", "core.hookspath", "core.fsmonitor"})
"""Settings of the user that are reported as left out, besides aliases and drivers."""

_SIGNERS = {"gpg.program": "openpgp", "gpg.openpgp.program": "openpgp", "gpg.ssh.program": "ssh"}
_SIGNERS |= {"gpg.x509.program": "x509"}

_EXCLUDES, _ATTRIBUTES = "core.excludesfile", "core.attributesfile"
_ALIAS = re.compile(r"[a-z][a-z0-9-]*(\s[^\n]*)?")
"""An alias that is a git command with arguments. `!TEXT` runs a shell, and options such as `-c` may start anything."""
_NAME_OF_ALIAS = re.compile(r"alias\.[A-Za-z][A-Za-z0-9-]*")
_DRIVER = re.compile(r"filter\.(?P<name>.+)\.(?:clean|smudge|process)")


@dataclass(frozen=True, slots=True)
class UserGit:
    """The user's configuration, and where git finds it."""

    directory: str = ""
    """Directory of the files on the machine; empty: there are none, and git gets no configuration of the user."""
    has_ignore: bool = False
    has_attributes: bool = False
    filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Filters of the user by name, with their commands. They run only where the operator grants them."""
    signers: Mapping[str, str] = field(default_factory=dict)
    """Signing programs that the user chose, by format."""
    left_out: tuple[str, ...] = ()
    """Settings and files of the user that are not used, with the reason."""

    @property
    def config(self) -> str:
        """The file that git gets as its global configuration."""
        return f"{self.directory}/config" if self.directory else os.devnull

    @property
    def ignore(self) -> str:
        """The user's ignore rules, for `core.excludesFile`."""
        return f"{self.directory}/ignore" if self.has_ignore else os.devnull

    @property
    def attributes(self) -> str:
        """The user's attributes, for `core.attributesFile`."""
        return f"{self.directory}/attributes" if self.has_attributes else os.devnull

    def add_programs(self, name: str, programs: Mapping[str, str]) -> str:
        """Write programs, by name, to a new subdirectory, where commands can start them; return its path.

        Raises:
            OSError: they can't be written.
        """
        directory = f"{self.directory}/{name}"
        os.mkdir(directory, 0o700)
        for program, text in programs.items():
            path = Path(directory, program)
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
            path.chmod(0o700)
        return directory

    def public_key_file(self, key: str) -> str:
        """Write a public key to a file of its own; return its path.

        Raises:
            InputOutput: it can't be written.
        """
        path = Path(self.directory, f"{sha256(key.encode()).hexdigest()[:16]}.pub")
        with translate_errors("the file of the public key"):
            path.write_text(f"{key}\n", encoding="utf-8")
        return str(path)


NO_USER_GIT = UserGit()


@dataclass(slots=True)
class UserConfiguration:
    """The configuration of the user as it was read."""

    settings: list[Setting] = field(default_factory=list)
    included: list[list[Setting]] = field(default_factory=list)
    """Settings of conditional includes; the path in `settings` is the index here."""
    ignore: bytes | None = None
    attributes: bytes | None = None
    filters: dict[str, dict[str, str]] = field(default_factory=dict)
    signers: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    within_reach: list[str] = field(default_factory=list)
    """What is left out because tools or commands can change it."""

    def written(self, directory: str) -> UserGit:
        """Write the files to a directory that exists and is empty.

        Raises:
            OSError: they can't be written.
        """
        for name, place in (("config", directory), ("config-in-view", IN_VIEW)):
            # Absolute paths of includes: in the view this file is mounted in the home of commands, the others are not.
            settings = [_with_place(one, place) for one in self.settings]
            self._write(directory, name, [*self._files(place), *settings])
        for number, settings in enumerate(self.included):
            self._write(directory, f"include-{number}", settings)
        for name, data in (("ignore", self.ignore), ("attributes", self.attributes)):
            if data is not None:
                Path(directory, name).write_bytes(data)
        return UserGit(
            directory=directory,
            has_ignore=self.ignore is not None,
            has_attributes=self.attributes is not None,
            filters=self.filters,
            signers=self.signers,
            left_out=tuple(self.left_out[:MAX_REMARKS]),
        )

    def _files(self, place: str) -> list[Setting]:
        """Return the settings that name the copies of ignore rules and attributes."""
        copies = [(_EXCLUDES, "ignore", self.ignore), (_ATTRIBUTES, "attributes", self.attributes)]
        return [Setting(key, f"{place}/{name}") for key, name, data in copies if data is not None]

    @staticmethod
    def _write(directory: str, name: str, settings: Sequence[Setting]) -> None:
        head = b"# Made by coretools from the configuration of the user; it can't be changed from here.\n"
        Path(directory, name).write_bytes(head + serialize([one for one in settings if _can_be_written(one)]))


def read_user_configuration(
    environment: Mapping[str, str], reach: Reach, *, has_identity: bool = True
) -> UserConfiguration:
    """Read the configuration that git itself would use for this environment.

    Of a file that tools or commands can change, only settings are taken that name no file, program or key. Without
    `has_identity` names, addresses and signing keys are left out.
    """
    reader = _Reader(environment, reach, has_identity=has_identity)
    for path in configuration_files(environment):
        reader.found.settings += reader.file(path, INCLUDE_DEPTH, is_conditional=False)
    reader.read_patterns()
    return reader.found


def user_configuration_digest(environment: Mapping[str, str]) -> str:
    """Return a digest that changes with the configuration of the user."""
    return sha256(repr(read_user_configuration(environment, NO_REACH)).encode("utf-8", "replace")).hexdigest()


def configuration_files(environment: Mapping[str, str]) -> list[str]:
    """Return the system's and the user's configuration files in git's order (git-config(1), FILES)."""
    paths = [environment.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"]
    if environment.get("GIT_CONFIG_NOSYSTEM", "0").lower() not in ("", "0", "false", "no", "off"):
        paths = []
    if "GIT_CONFIG_GLOBAL" in environment:
        paths.append(environment["GIT_CONFIG_GLOBAL"])
    else:
        above, home = _config_home(environment), environment.get("HOME")
        paths += [*([f"{above}/git/config"] if above else []), *([f"{home}/.gitconfig"] if home else [])]
    return [path for path in paths if os.path.isabs(path)]


def _config_home(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME", "")
    return environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")


class _Reader:
    """Reads the files of one user."""

    def __init__(self, environment: Mapping[str, str], reach: Reach, *, has_identity: bool) -> None:
        self._home = environment.get("HOME", "")
        self._above = _config_home(environment)
        self._reach = reach
        self._taken = _HABITS | (IDENTITY | SIGNING_KEYS if has_identity else frozenset())
        self._count = 0
        self._patterns = {_EXCLUDES: f"{self._above}/git/ignore", _ATTRIBUTES: f"{self._above}/git/attributes"}
        self.found = UserConfiguration()

    def file(self, path: str, depth: int, *, is_conditional: bool) -> list[Setting]:
        """Return the settings that are taken from a configuration file and what it includes."""
        self._count += 1
        data = _content(path)
        if data is None or self._count > MAX_FILES:
            return []
        try:
            settings = parse(data, path)
        except GitRefused as error:
            self._leave_out(str(error))
            return []
        if reason := self._reach.reason(path):
            return self._harmless(settings, reason)
        taken: list[Setting] = []
        for one in settings:
            if one.variable == "path" and one.section in ("include", "includeif") and one.value:
                taken += self._include(one, path, depth - 1, is_conditional=is_conditional)
            else:
                taken += self._setting(one, os.path.dirname(path), is_conditional=is_conditional)
        return taken

    def _harmless(self, settings: Iterable[Setting], reason: str) -> list[Setting]:
        """Return the settings that start nothing and name no file, of a file that agents can change."""
        usable, others = [], set[str]()
        for one in settings:
            is_alias = one.section == "alias" and bool(self._alias(one))
            is_usable = is_alias or (one.key in self._taken - SIGNING_KEYS and (one.value or one.key not in _TEXTS))
            if is_usable:
                usable.append(one)
            elif one.section != "alias":
                others.add(one.key)
        if others:
            self._refuse(f"{', '.join(sorted(others)[:MAX_REMARKS])}: {reason}")
        return usable

    def read_patterns(self) -> None:
        """Read the ignore rules and attributes of the user."""
        self.found.ignore = self._pattern_file(_EXCLUDES)
        self.found.attributes = self._pattern_file(_ATTRIBUTES)

    def _pattern_file(self, key: str) -> bytes | None:
        path = self._patterns[key]
        data = _content(path)
        # A link that an agent makes there could lead to any file of the user, whose text commands would see.
        reason = "" if data is None else self._reach.reason(path)
        if reason:
            self._refuse(f"{key}: {reason}")
        return None if reason else data

    def _setting(self, one: Setting, directory: str, *, is_conditional: bool) -> list[Setting]:
        if one.section == "alias":
            return self._alias(one)
        if one.key in self._patterns and one.value is not None and is_conditional:
            self._leave_out(f"{one.key}: used only outside a conditional include")
        elif one.key in self._patterns and one.value is not None:
            self._patterns[one.key] = self._expanded(one.value, directory)
        self._program(one)
        is_usable = one.key in self._taken and not (one.value is None and one.key in _TEXTS)
        return [one] if is_usable else []

    def _alias(self, one: Setting) -> list[Setting]:
        if _NAME_OF_ALIAS.fullmatch(one.key) and _ALIAS.fullmatch((one.value or "").strip()):
            return [one]
        self._leave_out(f"{one.key}: is no git command with arguments")
        return []

    def _program(self, one: Setting) -> None:
        """Record a setting that names a program: for a grant, or as left out."""
        if driver := _DRIVER.fullmatch(one.key):
            self.found.filters.setdefault(driver["name"], {})[one.variable] = one.value or ""
        elif one.key in _SIGNERS:
            self.found.signers[_SIGNERS[one.key]] = self._expanded(one.value or "", "")
        elif one.section in _PROGRAM_SECTIONS or one.key in _PROGRAM_KEYS:
            self._leave_out(f"{one.key}: runs a program")

    def _include(self, one: Setting, path: str, depth: int, *, is_conditional: bool) -> list[Setting]:
        target = self._expanded(one.value or "", os.path.dirname(path))
        if depth < 0:
            self._leave_out(f"{one.key} = {target}: is nested too deep")
            return []
        if reason := self._reach.reason(target):
            self._refuse(f"{one.key}: {reason}")
            return []
        if one.section == "include":
            return self.file(target, depth, is_conditional=is_conditional)
        settings = self.file(target, depth, is_conditional=True)
        if not settings:
            return []
        self.found.included.append(settings)
        return [Setting(self._condition(one.key, path), f"include-{len(self.found.included) - 1}")]

    def _condition(self, key: str, path: str) -> str:
        """Return the key of a conditional include with an absolute pattern: the copy has another home and place."""
        condition = key.removeprefix("includeif.").removesuffix(".path")
        kind, colon, pattern = condition.partition(":")
        if kind in ("gitdir", "gitdir/i") and pattern.startswith("~/"):
            pattern = os.path.realpath(self._home) + pattern[1:]
        elif kind in ("gitdir", "gitdir/i") and pattern.startswith("./"):
            pattern = os.path.realpath(os.path.dirname(path)) + pattern[1:]
        return f"includeif.{kind}{colon}{pattern}.path"

    def _expanded(self, path: str, directory: str) -> str:
        """Return a path as git reads one from a configuration file."""
        if path == "~" or path.startswith("~/"):
            return self._home + path[1:]
        path = os.path.expanduser(path) if path.startswith("~") else path
        return os.path.join(directory, path) if directory else path

    def _refuse(self, what: str) -> None:
        self._leave_out(what)
        self.found.within_reach.append(self.found.left_out[-1])

    def _leave_out(self, what: str) -> None:
        self.found.left_out.append(what if what.isprintable() else ascii(what))


def _content(path: str) -> bytes | None:
    """Return the content of a regular file, through links; None if it is anything else, too long or unreadable."""
    with suppress(OSError, ValueError):
        return read_regular(path, FILE_BYTES, follow=True)[0]
    return None


def _with_place(one: Setting, place: str) -> Setting:
    return Setting(one.key, f"{place}/{one.value}") if one.section == "includeif" else one


def _can_be_written(setting: Setting) -> bool:
    try:
        serialize([setting])
    except NotWritable:
        return False
    return True
