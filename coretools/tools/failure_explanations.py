"""Explain why a command failed if its own message does not name the cause.

Confinement makes ordinary programs fail in ways that look like faults of the machine. Each explanation examines how a
command ended and may add one sentence to its result. To add a cause, write an `Explanation` and pass it to
`Explanations` in `app/command_sandbox.py`.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coretools.escapes import escape_unprintable
from coretools.roots.path_text import printable
from coretools.truncation import and_more

logger = logging.getLogger(__name__)

EXAMINED_CHARACTERS = 64 * 1024
"""Characters at each end of an output that explanations examine."""

MAX_LISTED = 5
"""Most paths listed; the rest is counted."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended, or its present state, and what it printed."""

    argv: tuple[str, ...]
    tier: str | None
    """Tier of confinement; None if commands are not confined."""
    failed: bool
    """Whether it did not end with exit code 0, or still runs."""
    output: str
    """Both streams, without terminal escapes; at most `EXAMINED_CHARACTERS` characters of each end."""
    timed_out: bool = False
    """Whether it was stopped at its deadline; what it would have printed about a cause may be missing."""

    @property
    def program_names(self) -> frozenset[str]:
        """The name of the program; of a shell also every word of its line, since one may be a program."""
        name = self.argv[0].rpartition("/")[2] if self.argv else ""
        return frozenset(re.findall(r"[\w.+-]+", self.argv[-1])) | {name} if name in _SHELLS else frozenset({name})

    @property
    def may_have_failed(self) -> bool:
        """Whether a part of it may have failed. A shell exits with the code of its last command: `curl x | tail`."""
        return self.failed or (bool(self.argv) and self.argv[0].rpartition("/")[2] in _SHELLS)


Explanation = Callable[[CommandOutcome], str | None]
"""Returns one sentence without a final stop, or None if it does not apply."""


class Explanations:
    """All explanations of a server, in the order of display."""

    def __init__(self, *explanations: Explanation) -> None:
        self._explanations = explanations

    def of(
        self, *, argv: Sequence[str], tier: str | None, failed: bool, output: str, timed_out: bool = False
    ) -> tuple[str, ...]:
        """Return the explanations that apply to one command."""
        shown = (
            output
            if len(output) <= 2 * EXAMINED_CHARACTERS
            else f"{output[:EXAMINED_CHARACTERS]}\n{output[-EXAMINED_CHARACTERS:]}"
        )
        ending = CommandOutcome(argv=tuple(argv), tier=tier, failed=failed, output=shown, timed_out=timed_out)
        sentences = tuple(filter(None, (explanation(ending) for explanation in self._explanations)))
        for sentence in sentences:
            logger.info("refused: %s: %s", ending.argv[0] if ending.argv else "a command", sentence)
        return sentences


NONE = Explanations()
"""For tools that run without confinement."""


def lines_of(notes: Sequence[str]) -> list[str]:
    """Format the explanations as lines of a result."""
    return [f"[{escape_unprintable(note)}]" for note in notes]


def changed_files_text(paths: Sequence[str]) -> str:
    """List what a command made or changed that git, an editor or an agent acts on. Nothing can prevent that."""
    shown = and_more((escape_unprintable(printable(path)) for path in paths[:MAX_LISTED]), len(paths))
    return f"made or changed while it ran, and git, editors or agents act on it: {shown}"


_NO_TERMINAL = re.compile(
    r"^(?!Pseudo-terminal).*\b(?:not (?:to |from )?a (?:terminal|tty)\b|terminal is required|failed tty get)",
    re.IGNORECASE | re.MULTILINE,
)


def terminal_explanation(ending: CommandOutcome) -> str | None:
    """Explain that a program waited for a terminal: vim, for instance, reads keys from anything else without end."""
    if not ending.failed or _NO_TERMINAL.search(ending.output) is None:
        return None
    return (
        'it expects a terminal: give run_command terminal="80x24" and wait_seconds, and answer with write_run; '
        "edit_file does the work of an editor"
    )


_GIT_CONFIG = re.compile(r"could not (?:lock|write) config file \S*(?:/\.gitconfig|-git/config|/\.git-user/)")


def git_config_explanation(ending: CommandOutcome) -> str | None:
    """Explain that a command can't change the git configuration of the user."""
    if not ending.may_have_failed or _GIT_CONFIG.search(ending.output) is None:
        return None
    return (
        "the git configuration of the user (--global) is read-only for commands: set it in the repository, with git"
        " config and no --global; a person can change it and restart or reload the server"
    )


_GIT_REMOTE = re.compile(
    r"fatal: unable to (?:access|connect|look up)|fatal: Could not read from remote repository|does not appear to be a "
    r"git repository|fatal: repository '[^']*' does not exist"
)


def git_remote_explanation(ending: CommandOutcome) -> str | None:
    """Explain that git in a command has no remote, and which tool and key of the operator would do."""
    if not ending.may_have_failed or "git" not in ending.program_names or not _GIT_REMOTE.search(ending.output):
        return None
    return (
        "git in a command has no credentials, and a remote only as far as its network goes: use git_push, git_fetch,"
        ' git_pull or git_clone; the operator allows a remote to them with [[remote]] url = "..." in the policy file'
    )


_NO_REPOSITORY = re.compile(r"fatal: (?:not a git repository|invalid gitfile)")


def no_repository_explanation(refusals: Mapping[str, str]) -> Explanation:
    """Explain that git finds no repository; `refusals` are the reasons by the path of the root."""
    reason = "; ".join(f"no git in {printable(path)}: {why}" for path, why in list(refusals.items())[:MAX_LISTED])

    def explanation(ending: CommandOutcome) -> str | None:
        return reason if reason and ending.may_have_failed and _NO_REPOSITORY.search(ending.output) else None

    return explanation
