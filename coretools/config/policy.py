"""What the operator's configuration file decides: which commands may run, how they are confined, what they see.

Values only, without pydantic; `coretools.config.policy_file` reads them, at start and at a reload. Every default is
what holds
without a file: any command may be started, in the strongest confinement that the machine has, without a network.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["allow", "ask", "deny"]
"""What becomes of a command. `ask` needs a person's yes."""

Tier = Literal["full", "landlock", "none"]
"""How commands are held by the kernel."""

Access = Literal["allow", "deny"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""Mildest first: of several that apply the last one counts."""

TIERS: tuple[Tier, ...] = get_args(Tier)
"""Strongest first."""

ACCESSES: tuple[Access, ...] = get_args(Access)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule:
    """What becomes of one program, or of some of its argument lists (docs/specs/policy.md says how they match)."""

    program: str
    """A name, found anywhere on PATH, or an absolute path. May hold `*` and `?`."""
    verdict: Verdict
    arguments: tuple[str, ...] | None = None
    """A pattern for each word after the program; None: whatever the words."""
    reason: str = ""
    """The operator's own sentence; shown when the rule decides."""

    def __post_init__(self) -> None:
        """Refuse a rule that can't match as its writer means it.

        Raises:
            ValueError: names the field, and what would be right.
        """
        program = self.program
        if not program:
            raise ValueError('program is empty; name one: program = "git"')
        if "/" not in program and program.split() != [program]:
            raise ValueError(f"program = {program!r}: one word; the words after it belong in arguments")
        if "/" in program and program != os.path.normpath(os.path.join("/", program)):
            raise ValueError(f"program = {program!r}: write a name, or an absolute path without `..`")
        if self.arguments is not None and "**" in self.arguments[:-1]:
            raise ValueError('arguments has "**" before its end; it stands for all words that remain')


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPolicy:
    """Which commands may be started, by their argv."""

    default: Verdict = "allow"
    """For a program that no rule matches. Commands are held by the kernel; the policy is the operator's wish on top."""
    opaque: Verdict | None = None
    """For code that can't be judged by its argv (`sh -c TEXT`). None: as `default`, and no rule for a program alone
    allows it."""
    rule: tuple[CommandRule, ...] = ()
    """The rules; named as the file's tables are, `[[commands.rule]]`."""


CONTAINER_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # only by the operator's word
"""Directories of a container that commands of its one server share with nobody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinementPolicy:
    """How commands are confined. Sizes in bytes."""

    require: Tier | None = None
    """Weakest tier in which commands run. None: the strongest there is, whichever that be."""
    allow_unconfined: bool = False
    """Whether `run_command` works in tier `none`."""
    network: Access = "deny"
    readable: tuple[str, ...] = ()
    """Absolute paths that commands may read beside the roots and the system's own directories."""
    writable: tuple[str, ...] = ()
    """Absolute paths that commands may read and change beside the roots."""
    own_container: bool = False
    """Whether the server has a container to itself, whose `CONTAINER_DIRECTORIES` and terminals are the commands'."""
    memory_bytes: int | None = None
    """Address space of each process. None: the server's own default."""
    file_bytes: int | None = None
    """Largest file that a command may write. None: the server's own default."""
    processes: int | None = None
    """Processes of one command at once. None: the server's own default."""

    def __post_init__(self) -> None:
        """Refuse a limit that lets nothing run.

        Raises:
            ValueError: names the field.
        """
        for name in ("memory_bytes", "file_bytes", "processes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Which tools ask a person before each call."""

    ask: tuple[str, ...] = ()
    """Names or patterns of them (`git_*`)."""
    trusts_answers: bool = False
    """Whether a yes in the argument `answers` counts, where most often an agent fills in the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPolicy:
    """Which commands there are, and on which surfaces; `coretools.operations.catalog` has the meaning of each."""

    sets: tuple[str, ...] = ()
    """Tool sets; none named: all."""
    only: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    """Names or patterns of them."""
    promote_read_only: bool = False
    resources_as_tools: bool = False
    prompts_as_tools: bool = False

    def __post_init__(self) -> None:
        """Refuse a selection of nothing.

        Raises:
            ValueError: `only` is empty.
        """
        if not self.only:
            raise ValueError("only = [] would offer nothing; name a command, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPolicy:
    """The whole of the operator's file."""

    commands: CommandPolicy = CommandPolicy()
    tools: ToolPolicy = ToolPolicy()
    offer: CatalogPolicy = CatalogPolicy()
    confinement: ConfinementPolicy = ConfinementPolicy()
    environment_pass: tuple[str, ...] = ()
    """Names of variables that commands get beside the built-in allow-list."""
    redact_output: bool = False
    """Whether what looks like a credential is taken out of outputs too; in logs it always is."""
    source: str | None = None
    """Path of the file that this was read from. None: there was none."""


def expand_home(path: str, environment: Mapping[str, str]) -> str:
    """A path of the operator's with `~` at its start replaced by the home directory."""
    home = environment.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path
