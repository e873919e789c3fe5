"""The settings of a server: roots, profile, permissions. An entry point reads them at start.

Frozen values only, without access to the system. `None` means "no limit" wherever it is allowed.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

from coretools.config.commit_author import Author
from coretools.config.limits import Limits
from coretools.config.operator_policy import OperatorPolicy
from coretools.errors import BadSetting

PROFILES = ("read", "dev", "ci", "all")
"""Names of the profiles, which list tools; `dev` is the default. `read`: only tools that read. `ci`: those, and builds,
tests and restores. `dev`: tools for development, including commands. `all`: everything, also tools in no other
profile."""

CHANGING_PROFILES = ("dev", "all")
"""Profiles that permit every effect: they also accept calls of tools that they do not list. The others accept calls of
unlisted tools that only read."""

LOG_LEVELS = ("debug", "info", "warning", "error")

AskMode = Literal["prefilled", "defaults", "elicitation", "sampling"]
"""How questions of a command may be answered (`questions.answer_resolution`); each mode includes those before it."""

ASK_MODES: tuple[AskMode, ...] = get_args(AskMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Which questions a server may ask, and how long it waits."""

    mode: AskMode = "elicitation"
    seconds: float = 300.0
    """Timeout of one question, for clients of the handshake era."""
    trusts_answers: bool = False
    """Whether a required confirmation may be sent in advance: a caller is usually not a person."""


def require_profile(name: str) -> str:
    """Check the name of a profile and return it.

    Raises:
        BadSetting: there is no such profile.
    """
    if name not in PROFILES:
        raise BadSetting(f"unknown profile {name!r}; choose {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings that an entry point needs to build a server."""

    roots: tuple[str, ...]
    """Root directories; relative paths are relative to the first. `PATH:ro` makes one read-only."""
    profile: str = "dev"
    read_only: bool = False
    """Overrides the profile and the permissions of every root."""
    deny: tuple[str, ...] = ()
    """Deny globs, besides the default ones."""
    default_deny: bool = True
    has_undo: bool = True
    """Whether changes of file tools are recorded, so that they can be taken back."""
    role: str = ""
    """Name of the role, where a server has several: each sees its own changes only."""
    limits: Limits = field(default_factory=Limits)
    pass_environment: tuple[str, ...] = ()
    """Environment variables passed to children, besides the allow-list; those of the policy file are among them."""
    author: Author | None = None
    """Author of commits for callers without their own; None: as in the git configuration."""
    umask: int | None = None
    """umask for files created by tools and commands; None: unchanged."""
    redact_output: bool = False
    """Whether credentials are redacted in the output of commands; the policy file may enable it too."""
    ask: AskMode = "elicitation"
    policy: OperatorPolicy = field(default_factory=OperatorPolicy)
    """The policy file, with overrides from options."""
    upstream: tuple[str, ...] = ()
    """Other servers whose tools are offered: `NAME` or `NAME:TOOL,TOOL`."""
    trusted: tuple[str, ...] = ()
    """Absolute paths that the operator vouches for, although tools or commands can change them."""
    confine: tuple[str, ...] = ()
    """Of these servers, those that are confined: `NAME` or `NAME=ACCESS`."""
    unconfined: tuple[str, ...] = ()
    """Servers that run with all rights of the user whatever they are."""
    log_level: str = "info"
    has_git_identity: bool = True
    """Whether commits have the name and address in the git configuration of the server's user, if nothing else names
    an author. A server with several principals ignores it unless the operator enables it."""
    git_config_digest: str = ""
    """Digest of the git configuration of the server's user; when it changes, a reload reads that again."""
    reads_login_path: bool = False
    """Whether commands get the PATH of the user's login shell. For servers that a desktop client starts."""

    @property
    def asking(self) -> Asking:
        """The settings for questions."""
        return Asking(mode=self.ask, seconds=self.limits.ask_seconds, trusts_answers=self.policy.tools.trusts_answers)
