"""Hidden files, in words: for the diagnostics, and for the result of a command that met one.

A hidden file looks to programs like one without permissions; some, as npm, pass over it in silence. Neither the kernel
nor the view tells which file a command tried to read, so this goes by what it printed and by which program it was.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from coretools.confinement.hidden import Hidden
from coretools.sandbox.names import printable
from coretools.sandbox.roots import Roots
from coretools.tools.explanations import Ending

MOST_NAMED = 5
"""Hidden files that are named; the rest is counted."""

_LONGEST_SHOWN = 400

_SIGN = re.compile(
    r"permission denied|permissionerror|\bEACCES\b|\bEPERM\b|\bEBUSY\b|device or resource busy|operation not permitted"
    r"|invalid cross-device link|\bEXDEV\b|access is denied|can(?:'t|not) open|unable to (?:index|read)",
    re.IGNORECASE,
)
"""What programs say of a file that they can't read, replace or move."""

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
"""Files that programs read on their own, and of which they say nothing when they can't."""


class HiddenFiles:
    """What is hidden from commands now."""

    def __init__(self, roots: Roots, hidden: Callable[[], Sequence[Hidden]]) -> None:
        """`hidden` gives what the newest view of commands covers; nothing where there is none."""
        self._roots = roots
        self._hidden = hidden

    def explanation(self, ending: Ending) -> str | None:
        """The hidden files that a command met, as far as its output or its program tells."""
        hidden = self._hidden() if ending.tier == "full" else ()
        silent = _SILENT.get(ending.argv[0].rpartition("/")[2], frozenset())
        refusals = "\n".join(line for line in ending.output.splitlines() if _SIGN.search(line)) if hidden else ""
        met = [one for one in hidden if _name(one) in silent or _is_in(_name(one), refusals)]
        return f"hidden from commands: {self._listed(met)}{_way_out(met)}" if met else None

    def _listed(self, hidden: Sequence[Hidden]) -> str:
        shown = [named(self._roots, one) for one in hidden[:MOST_NAMED]]
        more = f" and {len(hidden) - MOST_NAMED} more" if len(hidden) > MOST_NAMED else ""
        return ", ".join(shown) + more


def named(roots: Roots, one: Hidden) -> str:
    """A hidden file by its path as tools take it, and why it is hidden."""
    # Not checked: a command can make paths that no tool takes, too long or in no encoding.
    place = roots.split(one.path)
    shown = printable(one.path) if place is None else roots.shown(place)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[: _LONGEST_SHOWN // 2]}...{shown[-_LONGEST_SHOWN // 2 :]}"
    return f"{shown} ({one.reason})"


def _name(one: Hidden) -> str:
    return one.path.rpartition("/")[2]


def _is_in(name: str, output: str) -> bool:
    """Whether the name stands in the output by itself: `.env` is not in `.env.example`."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])(?!\.\w)", output) is not None


def _way_out(hidden: Sequence[Hidden]) -> str:
    return (
        "; a command can't read, rename or delete a hidden file, delete_directory deletes the directory it lies in; "
        f"the operator can open one with --deny '!{_name(hidden[0])}'"
    )
