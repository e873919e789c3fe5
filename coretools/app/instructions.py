"""The instructions for the model that a server sends when a client connects: what can be done here, in a few lines.

Generated from the settings in force, and bounded: they are part of every conversation.
"""

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from coretools.config.operator_policy import CommandPolicy, OperatorPolicy, Verdict
from coretools.config.remote_policy import described
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.tools.network_policy import NetworkPolicy
from coretools.tools.tier_restrictions import TierRestrictions
from coretools.truncation import and_more

MOST_BYTES = 1_999
"""Size of all instructions: about 500 tokens. Clients cut longer ones, at 2,000 characters and more."""

_PATH_BYTES = 120
_LIST_BYTES = 120
"""Size of a list of names; the rest is counted."""

_UNLISTED_BYTES = 440
"""Size of the list of unlisted tools, which has the names of all that are built in."""

_TIER_BYTES = 256
_NETWORK_BYTES = 280
"""Size of the sentences about the tier and the network, which names hosts. With these, every part has room."""

TOOLCHAINS = (
    *("python3", "pip", "uv", "node", "npm", "pnpm", "yarn", "bun", "deno", "go", "cargo", "java", "mvn", "gradle"),
    *("dotnet", "ruby", "php", "gcc", "cmake", "make"),
)
"""Programs that a model wants to know of before it tries them."""

_USAGE = "Relative paths start there; paths elsewhere are refused. Prefer search_text to reading whole files"
_USAGE_OF_COMMANDS = ", and the file, git and ci tools to run_command, which takes any bash line"

_GUIDE = (
    ("Find", ("search_text", "search_files", "directory_tree")),
    ("Read", ("read_file", "read_files")),
    ("Change", ("edit_file", "edit_files", "write_file", "move_path", "delete_file", "delete_directory")),
    ("Take back changes", ("list_changes", "undo")),
    ("Git", ("git_status", "git_diff", "git_log", "git_add", "git_commit", "git_switch", "git_pull", "git_push")),
    ("Conflicts", ("git_conflicts", "git_continue")),
    ("Test", ("ci_test",)),
    ("Install packages", ("ci_restore",)),
    ("Commands", ("run_command", "wait_run", "read_run", "write_run", "stop_run")),
    ("Why something is refused", ("get_diagnostics",)),
)
"""Tools by what they are for: a client that loads tools on demand finds them by these words and names."""

_FOLDER = (
    "A root is a folder of a larger repository, which shares its index and HEAD: in commands use `git commit .`, not"
    " `git commit -a` or a bare `git reset`."
)

_TIERS = {
    "full": "Commands are confined (tier full): they see the roots, the system's programs and nothing else.",
    "none": "Commands are not confined here (tier none); the operator decides if they run.",
}
_REFUSED = "Commands are refused: they could read a credential of git. get_diagnostics says what helps."
_TIER_UNKNOWN = "How commands are confined: get_diagnostics names the tier and what it closes."


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the instructions depend on."""

    roots: Roots
    tier: str | None
    """None until it is known."""
    network: NetworkPolicy
    tier_restrictions: TierRestrictions
    is_refused: bool
    """Whether commands are refused, because git's credentials would be readable."""
    policy: OperatorPolicy
    path: str | None
    """PATH of commands."""
    can_run: bool
    """Whether commands, builds or tests can be started at all."""
    listed: Collection[str]
    """Names of the listed tools."""
    unlisted: Collection[str]
    """Names of the tools that can be called although they are not listed."""


def instructions(here: Situation) -> str:
    """The instructions, at most `MOST_BYTES` in UTF-8."""
    lines = [_roots_line(here.roots), f"{_USAGE}{_USAGE_OF_COMMANDS if here.can_run else ''}."]
    if here.can_run:
        lines += [
            _REFUSED if here.is_refused else "",
            _cut(here.tier_restrictions.instruction(here.tier), _TIER_BYTES)
            or _TIERS.get(here.tier or "", _TIER_UNKNOWN),
            _cut(here.network.instruction(here.tier), _NETWORK_BYTES),
            _FOLDER if here.roots.trees_above else "",
            _toolchains_line(here.path),
        ]
    lines += [_approval_line(here.policy), _remotes_line(here.policy) if here.can_run else ""]
    text = "\n".join(line for line in (*lines, _guide_line(here.listed)) if line)
    return _cut(text + _unlisted_line(here.unlisted, MOST_BYTES - len(text.encode())), MOST_BYTES)


def _guide_line(listed: Collection[str]) -> str:
    parts = ((purpose, [name for name in names if name in listed]) for purpose, names in _GUIDE)
    return "Tools: " + "; ".join(f"{purpose}: {', '.join(names)}" for purpose, names in parts if names) + "."


def _unlisted_line(names: Collection[str], room: int) -> str:
    """As many names as fit into the room; empty if none do."""
    line = f"\nNot listed, but can be called: {_listed(sorted(names), _UNLISTED_BYTES)}."
    return line if names and len(line.encode()) <= room else ""


def _roots_line(roots: Roots) -> str:
    first, *others = roots
    rights = "read and write" if first.writable else "read only"
    line = f"Files, search and git beneath {_shown(first.path)} ({rights})"
    if not others:
        return f"{line}."
    shown = [f"{_shown(root.path)} ({'read and write' if root.writable else 'read only'})" for root in others]
    return f"{line}. By absolute path also beneath {_listed(shown)}."


def _toolchains_line(path: str | None) -> str:
    installed = [name for name in TOOLCHAINS if shutil.which(name, path=path or "")]
    missing = "" if installed else "none of the usual ones"
    return f"Toolchains on PATH: {', '.join(installed) or missing}."


def _approval_line(policy: OperatorPolicy) -> str:
    """What a person must confirm, and what is denied: what is general first, since a long list is cut."""
    asked = [*_commands_with(policy.commands, "ask"), *policy.tools.ask]
    denied = _commands_with(policy.commands, "deny")
    needs = f"A person must approve: {_listed(asked)}." if asked else "No call needs approval."
    return f"{needs} Denied: {_listed(denied)}." if denied else needs


def _remotes_line(policy: OperatorPolicy) -> str:
    return f"The git tools reach: {_listed(described(policy.remote))}." if policy.remote else ""


def _commands_with(policy: CommandPolicy, verdict: Verdict) -> list[str]:
    general = ["programs without a rule"] if policy.default == verdict else []
    general += ["code that a command line does not show (scripts, interpreters)"] if policy.opaque == verdict else []
    rules = (rule for rule in policy.rule if rule.verdict == verdict)
    return general + [" ".join((rule.program, *(rule.arguments or ()))) for rule in rules]


def _shown(path: str) -> str:
    return _cut(printable(path), _PATH_BYTES)


def _listed(names: Iterable[str], most_bytes: int = _LIST_BYTES) -> str:
    """As many names as fit, and the number of the others."""
    names = list(dict.fromkeys(names))
    shown: list[str] = []
    for name in names:
        if shown and len(", ".join((*shown, name)).encode()) > most_bytes:
            break
        shown.append(_cut(printable(name), _LIST_BYTES))
    return and_more(shown, len(names))


def _cut(text: str, most_bytes: int) -> str:
    """The text, or its beginning with an ellipsis."""
    data = text.encode("utf-8", "backslashreplace")
    return text if len(data) <= most_bytes else data[: most_bytes - 3].decode("utf-8", "ignore") + "..."
