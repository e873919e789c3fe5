"""Hidden files: for the diagnostics, and to explain the failure of a command that met one.

A hidden file looks to programs like a file without permissions; some, such as npm, ignore it silently. Neither the
kernel nor the namespace reports which file a command tried to read, so the explanation relies on the output and the
name of the program.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from coretools.confinement.protected_paths import HiddenPath
from coretools.roots.own_state import REASON
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.tools.failure_explanations import MAX_LISTED, CommandOutcome
from coretools.truncation import and_more

_LONGEST_SHOWN = 400

_DENIAL = re.compile(
    r"permission denied|permissionerror|\bEACCES\b|\bEPERM\b|\bEBUSY\b|device or resource busy|operation not permitted"
    r"|invalid cross-device link|\bEXDEV\b|access is denied|can(?:'t|not) open|unable to (?:index|read)",
    re.IGNORECASE,
)
"""Messages of programs about a file that they can't read, replace or move."""

_SILENT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("npm", "npx", "pnpm", "yarn"), frozenset({".npmrc", ".yarnrc", ".yarnrc.yml"})),
        **dict.fromkeys(("pip", "pip3", "twine"), frozenset({"pip.conf", ".pypirc"})),
        **dict.fromkeys(("docker", "docker-compose"), frozenset({".env"})),
        **dict.fromkeys(("gradle", "gradlew"), frozenset({"gradle.properties"})),
        **dict.fromkeys(("cargo",), frozenset({"credentials", "credentials.toml"})),
        **dict.fromkeys(("bundle",), frozenset({"config"})),
    }
)
"""Files that programs read on their own account, and skip silently if they can't."""


_MISSING_VARIABLE = re.compile(
    r"KeyError: '[A-Z][A-Z0-9_]+'|ImproperlyConfigured"
    r"|\b(?:environment|env) variables?\b[^\n]{0,80}(?:required|missing|must|not (?:set|defined|found|provided))"
    r"|(?:missing|required|undefined|set the) (?:required )?(?:environment|env) variables?"
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b[^\n]{0,40}\b(?:(?:is|was|are) (?:required|missing|undefined|unset|empty)"
    r"|not (?:set|defined|provided)|must be (?:set|defined))"
)
"""What programs say that lack a variable: most readers of `.env` pass over a file that they can't read in silence."""


class HiddenFileExplanations:
    """Explains failures by the files that are hidden from commands."""

    def __init__(self, roots: Roots, hidden: Callable[[], Sequence[HiddenPath]]) -> None:
        """`hidden` returns the hidden files of the newest namespace, none without one."""
        self._roots = roots
        self._hidden = hidden

    def explanation(self, ending: CommandOutcome) -> str | None:
        """Name the hidden files that a command met, judging by its output and its program."""
        hidden = self._hidden() if ending.tier == "full" else ()
        silent = frozenset(chain.from_iterable(_SILENT.get(name, ()) for name in ending.program_names))
        refusals = "\n".join(line for line in ending.output.splitlines() if _DENIAL.search(line)) if hidden else ""
        lacks_variable = bool(hidden) and ending.may_have_failed and _MISSING_VARIABLE.search(ending.output) is not None
        met = [
            file
            for file in hidden
            if _name(file) in silent
            or _is_in(_name(file), refusals)
            or (lacks_variable and _name(file).startswith(".env"))
        ]
        return f"hidden from commands: {self._listed(met)}{_what_works(met)}" if met else None

    def _listed(self, hidden: Sequence[HiddenPath]) -> str:
        return and_more((hidden_file_text(self._roots, file) for file in hidden[:MAX_LISTED]), len(hidden))


def hidden_file_text(roots: Roots, hidden: HiddenPath) -> str:
    """Return the path of a hidden file as tools accept it, and why it is hidden."""
    # Not validated: a command can create paths that no tool accepts, too long or in no encoding.
    place = roots.split(hidden.path)
    shown = printable(hidden.path) if place is None else roots.display_path(place)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[: _LONGEST_SHOWN // 2]}...{shown[-_LONGEST_SHOWN // 2 :]}"
    return f"{shown} ({hidden.reason})"


def _name(hidden: HiddenPath) -> str:
    return hidden.path.rpartition("/")[2]


def _is_in(name: str, output: str) -> bool:
    """Whether the output contains the name as a whole: `.env.example` does not contain `.env`."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])(?!\.\w)", output) is not None


def _what_works(hidden: Sequence[HiddenPath]) -> str:
    others = [file for file in hidden if file.reason != REASON]
    if not others:
        return ""
    return (
        "; a command can't read, rename or delete a hidden file, delete_directory deletes the directory it lies in; "
        f"the operator can open one with --deny '!{_name(others[0])}'"
    )
