"""The operator's policy: which commands may run, how they are confined, what they see.

Values only, without pydantic; `policy_file` reads them at start and on reload. The defaults apply without a file: any
command may be started, in the strongest confinement that the machine supports, without network access.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

    from coretools.config.remote_policy import RemoteRule

Verdict = Literal["allow", "ask", "deny"]
"""The decision about a command. `ask` requires confirmation by a person."""

Tier = Literal["full", "landlock", "none"]
"""How the kernel confines commands."""

Access = Literal["allow", "deny"]

CommandText = str | tuple[str, ...]
"""A command as a line or as its words."""

NetworkAccess = Access | tuple[str, ...]
"""Whether commands have a network, or the hosts that they may reach (`coretools.egress.allow_list`)."""

CacheName = Literal[
    "pip",
    "uv",
    "poetry",
    "pre-commit",
    "npm",
    "yarn",
    "pnpm",
    "bun",
    "deno",
    "cargo",
    "go",
    "maven",
    "gradle",
    "nuget",
    "composer",
    "ccache",
]
"""Package managers whose caches can be kept (`coretools.confinement.caches`)."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""From mildest to strictest: of several that apply the strictest counts."""

TIERS: tuple[Tier, ...] = get_args(Tier)
"""Strongest first."""

ACCESSES: tuple[Access, ...] = get_args(Access)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule:
    """The decision about one program, or some of its argument lists (matching: docs/specs/policy.md)."""

    program: str
    """A name, found anywhere on PATH, or an absolute path. May contain `*` and `?`."""
    verdict: Verdict
    arguments: tuple[str, ...] | None = None
    """A pattern for each word after the program; None: any words."""
    reason: str = ""
    """The operator's explanation; shown when the rule decides."""
    match: tuple[CommandText, ...] = ()
    """Commands that the rule must match; tested at start."""
    not_match: tuple[CommandText, ...] = ()
    """Commands that it must not match."""

    def __post_init__(self) -> None:
        """Refuse a rule that cannot match as intended.

        Raises:
            ValueError: names the field and the correct form.
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
    """For a program that no rule matches. The kernel confines commands anyway; the policy restricts them further."""
    opaque: Verdict | None = None
    """For code that cannot be checked by its argv (`sh -c TEXT`). None: as `default`, and a rule for the program alone
    does not allow it."""
    rule: tuple[CommandRule, ...] = ()
    """The rules, named like the tables in the file: `[[commands.rule]]`."""


CONTAINER_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # only if the operator configures it
"""Shared directories that commands may use when the server has its container to itself."""


def network_access(value: object) -> NetworkAccess:
    """Return the access that a value of the key `network` stands for.

    Raises:
        ValueError: says what would be valid.
    """
    # Imported here: most servers list no hosts.
    from coretools.egress.allow_list import AllowList

    if isinstance(value, bool):
        return "allow" if value else "deny"
    if value == "allow" or value == "deny":
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise ValueError('must be true, false, or a list of hosts, such as ["pypi", "github.com"]')
    return AllowList.parse(value).entries or "deny"


def network_text(access: NetworkAccess) -> str:
    """Return the access as the option `--network` takes it."""
    return access if isinstance(access, str) else ",".join(access)


class NetworkSchema:
    """Annotation of a field that `network_access` validates."""

    @staticmethod
    def __get_pydantic_core_schema__(*_: Any) -> "CoreSchema":
        """Return the schema for pydantic, in whose files alone the key can have another type."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(network_access)


MAX_EXPOSED = 20
"""Most exposed ports: the server listens on each as long as it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinementPolicy:
    """How commands are confined. Sizes in bytes."""

    require: Tier | None = None
    """Weakest tier in which commands run. None: the strongest available, whichever it is."""
    allow_unconfined: bool = False
    """Whether `run_command` works in tier `none`."""
    allow_git_credentials: bool = False
    """Whether commands run although they can read a credential of git beneath the roots (tier `landlock`)."""
    network: Annotated[NetworkAccess, NetworkSchema()] = "deny"
    """`true` and `false` in files."""
    expose: tuple[int, ...] = ()
    """Ports of the commands' loopback that are reached on the loopback of the machine."""
    readable: tuple[str, ...] = ()
    """Absolute paths that commands may read, besides the roots and the system directories."""
    writable: tuple[str, ...] = ()
    """Absolute paths that commands may read and change, besides the roots."""
    caches: tuple[CacheName, ...] = ()
    """Package managers that have a cache for each root, kept between runs of the server."""
    cache_bytes: int | None = None
    """Size beyond which the oldest entries of a cache are removed at start. None: the server's default."""
    own_container: bool = False
    """Whether the server has a container to itself: commands may use its `CONTAINER_DIRECTORIES` and terminals."""
    memory_bytes: int | None = None
    """Address space of each process. None: the server's default."""
    file_bytes: int | None = None
    """Largest file that a command may write. None: the server's default."""
    processes: int | None = None
    """Concurrent processes of one command. None: the server's default."""

    def __post_init__(self) -> None:
        """Refuse a limit under which nothing can run, and a port that commands can't listen on.

        Raises:
            ValueError: names the field.
        """
        if len(self.expose) > MAX_EXPOSED or any(not 1024 <= port <= 65535 for port in self.expose):
            raise ValueError(f"expose must be at most {MAX_EXPOSED} ports from 1024 to 65535")
        for name in ("memory_bytes", "file_bytes", "processes", "cache_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePolicy:
    """What tools and commands may do with files beneath the roots."""

    editor_settings: Access = "deny"
    """Whether they may change existing settings of editors and agents (`coretools.roots.editor_settings`)."""
    syntax_errors: Access = "allow"
    """Whether file tools may make a change that introduces syntax errors; they report them anyway."""

    @property
    def changes_settings(self) -> bool:
        """Whether they may."""
        return self.editor_settings == "allow"

    @property
    def refuses_syntax_errors(self) -> bool:
        """Whether a change that introduces syntax errors is refused."""
        return self.syntax_errors == "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Which tools ask a person for confirmation before each call."""

    ask: tuple[str, ...] = ()
    """Names or patterns (`git_*`)."""
    trusts_answers: bool = False
    """Whether a yes in the argument `answers` counts, which is usually filled in by an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPolicy:
    """Which commands are offered, and as what; `coretools.operations.catalog` defines each field."""

    sets: tuple[str, ...] = ()
    """Tool sets; empty: all."""
    only: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    """Names or patterns."""
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


_GIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOOK = re.compile(r"[a-z][a-z0-9-]*(@sha256:[0-9a-f]{64})?")
_TRAILER = re.compile(r"[A-Za-z0-9-]+: \S.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitGrants:
    """What git may run in the repository of one root, confined like a command: `[roots."PATH".git]`."""

    hooks: tuple[str, ...] = ()
    """Names, each with the content that it had at start, or with `@sha256:HASH` the content of that hash."""
    filters: tuple[str, ...] = ()
    merge_drivers: tuple[str, ...] = ()
    signing: bool = False
    """Whether commits are signed with the key of the server's user."""

    def __post_init__(self) -> None:
        """Refuse what can't be a name.

        Raises:
            ValueError: names the field.
        """
        for name in ("filters", "merge_drivers"):
            if not all(map(_GIT_NAME.fullmatch, getattr(self, name))):
                raise ValueError(f'{name} must be names, such as ["lfs"]')
        if not all(map(_HOOK.fullmatch, self.hooks)):
            raise ValueError('hooks must be names, such as ["pre-commit"], or "pre-commit@sha256:HASH"')


@dataclass(frozen=True, slots=True, kw_only=True)
class GitOptions:
    """Which repositories git has, and how the git tools commit."""

    identity: Literal["server", "caller"] | None = None
    """Whether the name and address of the server's user may author commits of other principals. None: only on a server
    without tokens."""
    above: bool = False
    """Whether a root that is a folder of a repository has that repository, for git alone."""
    trailer: str = ""
    """A trailer for the messages of commits, such as `Assisted-by: NAME`."""

    def __post_init__(self) -> None:
        """Refuse what is no trailer.

        Raises:
            ValueError: names the field.
        """
        if self.trailer and not (_TRAILER.fullmatch(self.trailer) and self.trailer.isprintable()):
            raise ValueError("trailer must be one line such as 'Assisted-by: NAME'")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPolicy:
    """All values of the policy file."""

    commands: CommandPolicy = CommandPolicy()
    tools: ToolPolicy = ToolPolicy()
    catalog: CatalogPolicy = CatalogPolicy()
    confinement: ConfinementPolicy = ConfinementPolicy()
    files: FilePolicy = FilePolicy()
    git: GitOptions = GitOptions()
    git_grants: Mapping[str, GitGrants] = field(default_factory=dict)
    """By the real path of the root."""
    remote: "tuple[RemoteRule, ...]" = ()
    """Remotes that the git tools may reach, named like the tables in the file: `[[remote]]`."""
    environment_pass: tuple[str, ...] = ()
    """Environment variables passed to commands, besides the built-in allow-list."""
    redact_output: bool = False
    """Whether credentials are redacted in outputs too; in logs they always are."""
    source: str | None = None
    """Path of the file that was read. None: there was none."""


def expand_home(path: str, environment: Mapping[str, str]) -> str:
    """A path with a leading `~` replaced by the home directory."""
    home = environment.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path
