"""What the operator decides: roots, profile, rights, limits. Read at start by an entry point.

Frozen values only; nothing here touches the system. `None` means "no limit" wherever it is allowed.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from coretools.config.author import Author
from coretools.config.policy import OperatorPolicy
from coretools.errors import BadSetting

PROFILES = ("read", "dev", "ci", "all")
"""Names of the profiles; `dev` is the default. `read`: what only reads. `ci`: that, and builds, tests and restores.
`dev`: a day's work, commands too. `all`: everything, also what is declared for no other profile."""

RESOLVERS = ("openat2", "walk")

LOG_LEVELS = ("debug", "info", "warning", "error")

AskMode = Literal["prefilled", "defaults", "elicitation", "sampling"]
"""How far a question of a command goes (`coretools.questions.resolution`); each mode has those before it."""

ASK_MODES: tuple[AskMode, ...] = get_args(AskMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What the operator lets a server ask, and how long it waits."""

    mode: AskMode = "elicitation"
    seconds: float = 300.0
    """For one question of the handshake era."""
    trusts_answers: bool = False
    """Whether a yes that the operator wants may be sent beforehand: who calls a server is most often no person."""


def require_profile(name: str) -> str:
    """The name of a profile.

    Raises:
        BadSetting: there is no such profile.
    """
    if name not in PROFILES:
        raise BadSetting(f"unknown profile {name!r}; choose {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call, or the server as a whole, may use. Sizes in bytes, times in seconds."""

    read_bytes: int = 256 * 1024
    """Most bytes of file text in one answer: about 64,000 tokens, more than a client shows a model."""
    file_bytes: int = 64 * 1024 * 1024
    """Largest file that is read into memory to find lines in it or to edit it."""
    write_bytes: int = 16 * 1024 * 1024
    """Largest content that is written in one call; the line limit of the wire stands at the same figure."""
    list_entries: int = 2_000
    """Most entries in one listing."""
    search_results: int = 500
    """Most matches, or names, in one answer, whatever the call asks for."""
    search_line_bytes: int = 500
    """A longer matching line is cut in the answer."""
    search_seconds: float = 30.0
    """Deadline of one search."""
    output_bytes: int = 64 * 1024
    """Kept of each stream of a child that a caller sees."""
    run_seconds: float = 120.0
    """Deadline of a command when the call names none."""
    run_seconds_most: float = 3_600.0
    """Longest deadline a call may ask for."""
    build_seconds: float = 600.0
    """Deadline of a build, a test run or a restore when the call names none: they take longer than a plain command."""
    report_bytes: int = 2 * 1024 * 1024
    """Kept of each stream of a build or test run to find its report in; only a small part of it is shown."""
    git_seconds: float = 60.0
    """Deadline of one git process."""
    git_output_bytes: int = 4 * 1024 * 1024
    """Most output of git that is parsed; a longer one is an error or is cut and counted."""
    grace_seconds: float = 2.0
    """Between TERM and KILL."""
    linger_seconds: float = 0.2
    """How long output is awaited from grandchildren after the child has ended."""
    runs: int = 32
    """Runs of one caller that may be alive at once."""
    runs_kept: int = 64
    """Finished runs of one caller whose output can still be read; the oldest is forgotten."""
    run_idle_seconds: float = 1_800.0
    """A run that no call touches for so long is stopped, or forgotten when it has ended."""
    run_output_bytes: int = 64 * 1024 * 1024
    """Kept of the output of one run, on disk; the oldest is dropped."""
    ask_seconds: float = 300.0
    """How long a person is waited for with one question; no answer until then is a no."""
    processes: int = 256
    """Children at once; a further call is refused."""
    threads: int = 32
    """Worker threads for file work."""
    line_bytes: int = 16 * 1024 * 1024
    """Longest JSON-RPC line taken from a client."""

    def replaced(self, assignments: dict[str, str]) -> "Limits":
        """These limits with some replaced, as read from text (`{"run_seconds": "300"}`).

        Raises:
            BadSetting: no such limit, no number, or a number that is not above 0.
        """
        known = {field.name: field.type for field in fields(self)}
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, text in assignments.items():
            if name not in known:
                raise BadSetting(f"limit {name}: no such limit; there are {', '.join(sorted(known))}")
            try:
                value = float(text) if isinstance(values[name], float) else int(text)
            except ValueError:
                raise BadSetting(f"limit {name}={text}: not a number") from None
            if not value > 0:
                raise BadSetting(f"limit {name}={text}: must be above 0")
            values[name] = value
        return Limits(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an entry point decides before it builds a server."""

    roots: tuple[str, ...]
    """Directories, most important first: relative paths lie beneath the first. `PATH:ro` makes one read-only."""
    profile: str = "dev"
    read_only: bool = False
    """Wins over the profile and over the rights of every root."""
    deny: tuple[str, ...] = ()
    """Deny globs beside the default ones."""
    default_deny: bool = True
    limits: Limits = Limits()
    resolver: str | None = None
    """`openat2` or `walk`; None takes the strongest that the kernel has."""
    pass_environment: tuple[str, ...] = ()
    """Names of environment variables that children get beside the allow-list."""
    author: Author | None = None
    """As whom commits are made by whoever has no author of his own; None: as the git configuration says."""
    umask: int | None = None
    """Permissions that files made by tools and commands don't have; None: as the server was started."""
    redact_output: bool = False
    """Whether credentials are taken out of what commands print; the operator's file may ask for it too."""
    ask: AskMode = "elicitation"
    policy: OperatorPolicy = field(default_factory=OperatorPolicy)
    """What the operator's file says of commands, with what flags changed of it."""
    log_level: str = "info"

    @property
    def asking(self) -> Asking:
        """What a server of these settings may ask."""
        return Asking(mode=self.ask, seconds=self.limits.ask_seconds, trusts_answers=self.policy.tools.trusts_answers)
