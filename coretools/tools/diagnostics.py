"""Report versions, roots, protections and limits, for a caller or operator when something does not work.

The report contains no values of environment variables and no secrets. Program versions are read through the runner.
"""

import importlib.metadata
import platform
from dataclasses import asdict

from coretools.config.limits import Limits
from coretools.confinement import landlock
from coretools.confinement.command_confinement import ConfinementStatus
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.distribution import VERSION
from coretools.errors import CannotStart, CoreError
from coretools.language_servers.find import servers_by_language
from coretools.operations.content import Result
from coretools.operations.declare import Effect, tool
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.ripgrep import Ripgrep
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.read import open_directory
from coretools.roots.root import Root
from coretools.roots.root_set import Roots
from coretools.tools.failure_explanations import MAX_LISTED
from coretools.tools.hidden_file_explanations import hidden_file_text
from coretools.tools.network_policy import NetworkPolicy
from coretools.tools.output_text import plain
from coretools.tools.tier_restrictions import TierRestrictions

PACKAGES = ("mcp", "pydantic", "anyio")
"""Installed packages whose version affects the server."""

VERSION_SECONDS = 5.0
"""Deadline of one `--version`; a program that takes longer hangs."""

MISSING = {
    "openat2": "paths are resolved by a walk over handles, which holds the same but is slower",
    "command-confinement": "a command may do whatever the server's user may, outside the roots too",
    "command-end-at-once": "what a command starts, if it multiplies fast enough, may outlive the call and the server",
    "command-view": "a command sees names, sizes and times of files outside, and reads denied files beneath the roots",
    "command-group": "what multiplies faster than it can be ended slows the machine for seconds",
    "command-group-bounds": "processes, memory and processor time are not bounded for all commands together",
    "deny-globs-in-view": "too many directories to look for denied files in: some are closed to commands whole",
    "git-confinement": "whoever writes in a root while git runs can make it read through a link that leads out",
}
"""Consequence for a caller of each protection that is not in force."""

WITHOUT_VIEW = "needs tier full: commands and language servers can read denied files beneath the roots"


OTHERS = "no other of the server's (NODE_ENV, EDITOR, ...) unless the operator names it with --pass-env"
"""Remark on the variables that are not passed."""


class DiagnosticsReport(Result):
    """The state of the server, for people and models."""

    versions: dict[str, str]
    platform: str
    roots: list[str]
    resolver: str
    search: str
    """What lists the files of a text search: which ripgrep, or the built-in engine and why."""
    servers: list[str]
    """The language server of each language that has one in the first root, and where it was found."""
    missing_servers: list[str]
    """Languages without one, and how to get it."""
    tier: str
    """Tier in which commands are confined: `full`, `landlock` or `none`."""
    network: str
    """Whether commands may use the network, and who decides."""
    remotes: list[str]
    """Remotes that the git tools may reach by the operator's policy."""
    environment: list[str]
    """Names of the server's variables that commands get."""
    closed: str
    """What this tier denies to commands although programs expect it; empty for nothing."""
    missing_tiers: dict[str, str]
    """Stronger tiers, and why they are not available here."""
    hidden: list[str]
    """Files and directories beneath the roots that are hidden from commands, with the reasons; the first few."""
    hidden_count: int
    exposed: list[str]
    """Files that hold a secret and that commands can read, since this tier can't hide them; the first few."""
    exposed_count: int
    refused: str
    """Why commands are refused as long as the roots are as they are; empty if they are not."""
    protections: dict[str, bool]
    polled: list[str]
    """Why directories are polled for changes before each command; the time grows with their number."""
    undo: str
    """What undo takes back here, and what not."""
    limits: dict[str, int | float]

    def text(self) -> str:
        """One line per subject; missing protections are listed."""
        in_force = [name for name, holds in self.protections.items() if holds]
        lines = [
            "versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"platform: {self.platform}",
            *(f"root: {root}" for root in self.roots),
            f"paths resolved by: {self.resolver}",
            f"text searched with: {self.search}",
            f"language servers: {'; '.join(self.servers) or 'none'}",
            *([f"no language server: {'; '.join(self.missing_servers)}"] if self.missing_servers else []),
            f"commands are confined in tier: {self.tier}",
            f"network: {self.network}",
            *([f"remotes that the git tools may reach: {', '.join(self.remotes)}"] if self.remotes else []),
            f"variables that commands have: {', '.join(self.environment)}; {OTHERS}",
            *([f"closed to commands in this tier: {self.closed}"] if self.closed else []),
            *(f"tier {tier} is not available: {why}" for tier, why in self.missing_tiers.items()),
            f"protections in force: {', '.join(in_force)}",
        ]
        lines.append(f"undo: {self.undo}")
        if self.hidden:
            lines.append(f"hidden from commands: {self.hidden_count}: {', '.join(self.hidden)}")
        if self.exposed:
            shown = ", ".join(self.exposed)
            lines.append(f"secrets that commands can read in this tier: {self.exposed_count}: {shown}")
        lines += [self.refused] if self.refused else []
        lines += [f"directories are polled for changes: {why}" for why in self.polled]
        lines += [self._missing(name) for name, holds in self.protections.items() if not holds]
        lines.append("limits: " + ", ".join(f"{name}={value:.12g}" for name, value in self.limits.items()))
        return "\n".join(lines)

    def _missing(self, name: str) -> str:
        meaning = WITHOUT_VIEW if name == "deny-globs-in-view" and self.tier != "full" else MISSING.get(name)
        return f"{name}: missing ({meaning})" if meaning else f"{name}: missing"


def _described(root: Root) -> str:
    rights = "read and write" if root.writable else "read only"
    purpose = ", for git only: the repository of a root" if root.only_git else ""
    purpose += ", for git only: a root is a folder of it" if root.is_above else ""
    return f"{root.path} ({rights}{purpose})"


class Diagnostics:
    """Tools about the server itself."""

    def __init__(
        self,
        roots: Roots,
        runner: Runner,
        limits: Limits,
        *,
        confined_threads: ConfinedThreadPool,
        network: NetworkPolicy,
        tier_restrictions: TierRestrictions,
    ) -> None:
        self._network = network
        self._tier_restrictions = tier_restrictions
        self._roots = roots
        self._runner = runner
        self._confined = ConfinedRunner(runner, confined_threads)
        self._ripgrep = Ripgrep(self._confined)
        self._limits = limits

    @tool(Effect.READ, title="Show rights and limits")
    async def get_diagnostics(self) -> DiagnosticsReport:
        """Report what this server may do and reach, for a call that was refused or a tool that does not work.

        Returns one fact per line: versions, the roots with their rights, how paths and text are searched, the
        language server of each language or how to get one, the tier in
        which commands are confined and what it closes, the network with the setting that would open it, variables of
        commands, remotes, limits in bytes and seconds, and missing protections. It takes no arguments and changes
        nothing. Only the operator can change these settings. To see the state of a repository use git_status.
        """
        status = await self._runner.prepare()
        ripgrep_version, search = await self._search()
        servers, missing_servers = servers_by_language(self._roots.first, self._runner.command_path)
        return DiagnosticsReport(
            versions={**await self._versions(), "rg": ripgrep_version},
            platform=f"{platform.system()} {platform.release()} {platform.machine()}",
            roots=[_described(root) for root in self._roots.for_git],
            resolver=self._roots.resolver_name,
            search=search,
            servers=servers,
            missing_servers=missing_servers,
            tier=status.tier,
            network=self._network.state(status.tier),
            remotes=list(self._network.remotes),
            environment=sorted(self._runner.environment),
            closed=self._tier_restrictions.state(status.tier),
            missing_tiers=dict(status.missing),
            hidden=[hidden_file_text(self._roots, path) for path in status.hidden[:MAX_LISTED]],
            hidden_count=len(status.hidden),
            exposed=[hidden_file_text(self._roots, path) for path in status.exposed[:MAX_LISTED]],
            exposed_count=len(status.exposed),
            refused=status.refusal,
            protections=self._protections(status),
            polled=list(status.polled),
            undo=self._undo(),
            limits=asdict(self._limits),
        )

    def _undo(self) -> str:
        uncovered = "; ".join(self._roots.changes.uncovered())
        return "takes back what file tools and commands change" + (f", but not {uncovered}" if uncovered else "")

    def _protections(self, status: ConfinementStatus) -> dict[str, bool]:
        return {
            "paths-beneath-roots": True,
            "openat2": self._roots.resolver_name == "openat2",
            "environment-allow-list": True,
            **self._runner.protections,
            "command-confinement": status.tier != "none",
            "command-view": status.tier == "full",
            "command-end-at-once": self._ends_at_once(status),
            "command-group": status.bounds is not None,
            "command-group-bounds": status.bounds is not None and all(status.bounds.values()),
            "deny-globs-in-view": status.tier == "full" and status.is_whole,
            "git-confinement": self._is_git_confined(),
        }

    @staticmethod
    def _ends_at_once(status: ConfinementStatus) -> bool:
        """Whether a command that multiplies ends for certain: by its namespace, by signals, or by a control group."""
        has_signals = status.tier == "landlock" and landlock.abi() >= landlock.SIGNAL_SCOPE_ABI
        return status.tier == "full" or has_signals or status.bounds is not None

    def _is_git_confined(self) -> bool:
        try:
            return self._confined.is_confined("git")
        except CannotStart:
            return False  # agents can change it, so it is not started at all

    async def _versions(self) -> dict[str, str]:
        versions = {"coretools": VERSION, "python": platform.python_version()}
        for package in PACKAGES:
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = "missing"
        return {**versions, "git": await self._version("git")}

    async def _search(self) -> tuple[str, str]:
        """The version of the ripgrep that searches use, or why none is, and what to tell about it."""
        built_in = "the built-in engine, which is slower"
        try:
            with open_directory(self._roots, ".") as directory:
                program = await self._ripgrep.choose(directory)
        except CannotStart as error:
            return "not used", f"{built_in}: {error}"
        except CoreError as error:
            return f"unknown ({error.kind})", f"unknown ({error.kind})"
        if program is None:
            return "missing", f"{built_in}: ripgrep is neither installed with coretools nor on PATH"
        remark = "" if self._ripgrep.is_confined(program) else ", not confined by the kernel"
        return program.version_text, f"ripgrep {program}{remark}"

    async def _version(self, program: str) -> str:
        """The first line that `program --version` prints, without its name; or why there is none."""
        try:
            if self._runner.program(program) is None:
                return "missing"
            confined_thread = self._confined.confined_thread(program, ())
            options = RunOptions(timeout_seconds=VERSION_SECONDS, keep_bytes=4096, confined_thread=confined_thread)
            with open_directory(self._roots, ".") as directory:
                run = await self._confined.run((program, "--version"), cwd=directory, options=options)
        except CannotStart as error:
            return f"not used: {error}"
        except CoreError as error:
            return f"unknown ({error.kind})"
        first = plain(run.stdout.text()).partition("\n")[0]
        version = first.removeprefix(f"{program} version ")
        return version[:80] if run.ok and version else "does not answer"
