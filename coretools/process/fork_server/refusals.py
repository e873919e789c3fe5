"""Why commands are refused: the tier is too weak for the operator's policy, or for what lies beneath the roots.

Landlock grants whole directories, so in tier `landlock` commands read files that tier `full` hides. That is said, and
accepted, except for credentials of git.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from coretools.config.operator_policy import TIERS, ConfinementPolicy
from coretools.confinement.protected_paths import HiddenPath, Masks
from coretools.escapes import escape_unprintable
from coretools.roots.git_config import Setting
from coretools.roots.git_credentials import HOLDS_CREDENTIAL, REMOVED
from coretools.roots.hidden_inodes import inode_of
from coretools.roots.own_state import exposed
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.truncation import and_more

MAX_FILES = 3
"""Files that a refusal names; more are counted."""
MAX_KEYS = 3
"""Settings of a file that are named; more are counted."""

OPTION = (
    "--allow-git-credentials (CORETOOLS_ALLOW_GIT_CREDENTIALS=1; allow_git_credentials = true in [confinement] of the"
    " policy file)"
)

_LONGEST_SHOWN = 200


class CommandRefusals:
    """What keeps the commands of one server from running. Used by one thread at a time."""

    def __init__(self, roots: Roots, policy: ConfinementPolicy) -> None:
        self._roots = roots
        self._policy = policy
        self._own_state = exposed(roots.own_places)
        self.readable = ReadableSecrets()
        """What commands could read in tier `landlock`, as of the last search of the roots."""

    def of_tier(self, tier: str | None, missing: Mapping[str, str]) -> str:
        """Return why commands must not run in a tier; empty if they may. `missing`: stronger ones, and why."""
        if tier == "landlock" and self._own_state:
            return f"commands are refused in tier landlock: {self._own_state}"
        if tier is None:
            return ""
        required = self._policy.require
        is_unconfined = tier == "none" and not self._policy.allow_unconfined
        is_too_weak = required is not None and TIERS.index(tier) > TIERS.index(required)
        if not (is_unconfined or is_too_weak):
            return ""
        why = "; ".join(f"{stronger}: {reason}" for stronger, reason in missing.items())
        if required is not None and tier != "none":
            return f"the operator requires tier '{required}' for commands, which is unavailable here: {why}"
        return (
            f"commands can't be confined on this machine ({why}), so none is run;"
            " the operator can allow them without confinement: --allow-unconfined"
        )

    @property
    def of_credentials(self) -> str:
        """Why commands are refused as long as the roots are as they are; empty if they are not."""
        return "" if self._policy.allow_git_credentials else self.readable.refusal(self._roots)

    def note(self, masks: Masks, credentials: Mapping[str, tuple[Setting, ...]]) -> None:
        """Note what a search found that nothing can hide from commands here."""
        self.readable = ReadableSecrets.of(self._roots, masks, credentials)


class ReadableSecrets(NamedTuple):
    """Files beneath the roots that tier `full` would hide, or show without their credentials."""

    files: tuple[HiddenPath, ...] = ()
    credentials: Mapping[str, tuple[Setting, ...]] = MappingProxyType({})
    """Of these, the files with a credential for git, and the settings that hold it, without it."""

    @classmethod
    def of(cls, roots: Roots, masks: Masks, credentials: Mapping[str, tuple[Setting, ...]]) -> Self:
        """Return what the masks would hide, and the files with credentials for git that tools refuse to read too.

        Tools read those that the operator opens, or whose content is in git's index.
        """
        unreadable = {path: settings for path, settings in credentials.items() if _is_refused_to_tools(roots, path)}
        files = {one.path: one for one in masks.hidden if not _is_above(roots, one.path)}
        for path, settings in unreadable.items():
            files[path] = HiddenPath(path, f"{HOLDS_CREDENTIAL}{_keys(settings)}", inode_of(path) or (0, 0, 0))
        return cls(tuple(sorted(files.values())), unreadable)

    def refusal(self, roots: Roots) -> str:
        """Return why no command runs here, and what would help; empty if nothing holds a credential for git."""
        if not self.credentials:
            return ""
        paths = sorted(self.credentials)
        named = [f"{_shown(roots, path)}{_keys(self.credentials[path])}" for path in paths[:MAX_FILES]]
        files = and_more(named, len(paths), separator="; ")
        removal = "; ".join(_commands(paths[0], self.credentials[paths[0]]))
        return (
            f"commands are refused here: they could read a credential for git in {files}; tier"
            f" landlock can't hide it from them. Take it out ({removal}) and leave it to a credential helper (git"
            " config --global credential.helper store; for actions/checkout persist-credentials: false), or run the"
            " server where it has namespaces (tier full shows commands the file without the credential), or accept"
            f" that they read it: {OPTION}"
        )


def _is_refused_to_tools(roots: Roots, path: str) -> bool:
    place = roots.split(path)
    return not _is_above(roots, path) and (place is None or roots.hidden(place, is_shown=True) != "")


def _is_above(roots: Roots, path: str) -> bool:
    """Whether a path is in the work tree of which a root is a folder, which commands can't read in tier `landlock`."""
    place = roots.split(path)
    return place is not None and place.root.is_above


def _keys(settings: Iterable[Setting]) -> str:
    keys = [_cut(one.key) for one in settings]
    return f": {and_more(keys[:MAX_KEYS], len(keys))}" if keys else ""


def _commands(path: str, settings: tuple[Setting, ...]) -> Iterator[str]:
    """Yield the git commands that take the credentials out of a file."""
    file = f"git config --file {_word(path)}"
    for one in settings[:MAX_KEYS]:
        if REMOVED in one.key:
            yield f"{file} --edit"
        elif one.value is None:
            yield f"{file} --unset-all {_word(one.key)}"
        else:
            yield f"{file} {_word(one.key)} {_word(one.value)}"
    if not settings:
        yield f"edit or delete {_word(path)}"


def _shown(roots: Roots, path: str) -> str:
    place = roots.split(path)
    return _cut(path if place is None else roots.display_path(place))


def _word(text: str) -> str:
    return escape_unprintable(shlex.quote(printable(text)))


def _cut(text: str) -> str:
    shown = escape_unprintable(printable(text))
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
