"""Build roots, runner, tool sets and dispatcher from the settings. Every entry point builds its server here.

The SDK is imported only where a server is built: the command line runs commands without it.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Semaphore
from typing import TYPE_CHECKING

from coretools.app.change_journal import command_recording, open_recorder, record_commands
from coretools.app.command_sandbox import (
    explanations_of,
    inherited_environment,
    sandbox_pool_for,
)
from coretools.app.instructions import Situation, instructions
from coretools.app.root_specs import open_roots
from coretools.app.server_sandbox import open_server_sandbox
from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.settings import Settings
from coretools.confinement.command_confinement import ConfinementStatus
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.user_git import UserGit
from coretools.language_servers.pool import LanguageServers
from coretools.operations.catalog import Selection, require_known, selection_of, surfaces_of
from coretools.operations.dispatch import CallObserver, Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry, merge_registries
from coretools.operations.server_info import ServerInfo
from coretools.process.decoding.decoder import Decoder
from coretools.process.fork_server.pool import SandboxPool
from coretools.process.jobs.job_table import JobTable
from coretools.process.login_shell import LoginShell
from coretools.process.runner import Runner
from coretools.process.trials.trial_table import TrialTable
from coretools.protocol.tasks.store import TaskStore
from coretools.redaction.redactor import Redactor, secret_values
from coretools.redaction.stream_redactor import StreamRedactor
from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds
from coretools.roots.root_set import Roots
from coretools.services.interface import Services
from coretools.services.memory import MemoryServices
from coretools.tools.ci.tools import CiTools
from coretools.tools.code.checks import CheckTools
from coretools.tools.code.references import ReferenceTools
from coretools.tools.code.renames import RenameTools
from coretools.tools.code.text_mentions import TextMentions
from coretools.tools.code.tools import CodeTools
from coretools.tools.commands.tools import CommandTools
from coretools.tools.commands.trial_tools import TrialTools
from coretools.tools.commands.workspace import Workspace
from coretools.tools.diagnostics import Diagnostics
from coretools.tools.filesystem.change_checks import ChangeChecks
from coretools.tools.filesystem.known_files import KnownFiles
from coretools.tools.filesystem.tool_set import large_read_slots
from coretools.tools.filesystem.tools import FilesystemTools
from coretools.tools.git.changes.outside_folder import OutsideFolder
from coretools.tools.git.repository.grants import record_grants
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.setup import SIGNING_VARIABLES, GitSetup
from coretools.tools.git.tools import git_tools
from coretools.tools.network_policy import NetworkPolicy
from coretools.tools.search.tools import SearchTools
from coretools.tools.tier_restrictions import TierRestrictions
from coretools.tools.undo.tools import UndoTools
from coretools.undo.recorder import ChangeRecorder

if TYPE_CHECKING:
    from mcp.server.extension import Extension

    from coretools.protocol.resources import RunResources
    from coretools.protocol.round_trip_questions import QuestionFactory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedResources:
    """Resources shared by all assemblies of one server: those of every role, and their successors."""

    ids: ReplicaScopedIds = LOCAL_IDS
    """Ids of runs and tasks."""
    large_reads: Semaphore = field(default_factory=large_read_slots)
    """Bounds the memory of reading large files. One bound per role would grow with the number of roles."""
    known_files: KnownFiles = field(default_factory=KnownFiles)
    """What clients have read, also before a reload."""
    services: Services = field(default_factory=MemoryServices)
    """What commands share."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that only one assembly uses."""

    settings: Settings
    environment: Mapping[str, str]
    shared: SharedResources
    roots: Roots
    recorder: ChangeRecorder | None
    """Records changes of file tools; None where they can't be taken back."""
    confined_threads: ConfinedThreadPool
    sandbox_pool: SandboxPool
    runner: Runner
    servers: LanguageServers
    redactor: Redactor | None
    user_git: UserGit
    network: NetworkPolicy
    tier_restrictions: TierRestrictions
    exit_stack: ExitStack
    """Closes them."""

    @property
    def change_checks(self) -> ChangeChecks:
        """What file tools check when text changes."""
        return ChangeChecks(
            refuses_syntax_errors=self.settings.policy.files.refuses_syntax_errors,
            servers=self.servers,
            errors_seconds=self.settings.limits.edit_errors_seconds,
        )

    @property
    def make_filter(self) -> Callable[[], StreamRedactor] | None:
        """Return what makes the redactor of one output; None unless the operator enables it."""
        return partial(StreamRedactor, self.redactor) if self.redactor else None


@dataclass(frozen=True, kw_only=True)
class Assembly(Resources):
    """The parts of a server, built from the settings."""

    runs: JobTable
    selection: Selection
    """The commands available here, to agents and to people."""
    catalog: LiveCatalog
    dispatcher: Dispatcher
    tasks: TaskStore

    @property
    def is_idle(self) -> bool:
        """Whether no process runs that this assembly started."""
        return not self.runner.running

    async def retire(self) -> None:
        """Close the resources that only this assembly uses, after a successor took over and the last call ended."""
        await self.servers.close()
        await self.runner.close()
        self.exit_stack.close()

    def extensions(self, questions: "QuestionFactory") -> "tuple[Extension, ...]":
        """Return the protocol extensions: tasks and views. `questions` are those of the server."""
        from coretools.protocol.mcp_apps import BUILT_IN_VIEWS, Views
        from coretools.protocol.tasks.extension import TaskExtension  # imported late: needs the SDK

        limits = self.settings.limits
        tasks = TaskExtension(self.catalog, self.dispatcher, self.tasks, limits=limits, questions=questions)
        return tasks, Views(BUILT_IN_VIEWS)

    @cached_property
    def resources(self) -> "RunResources | None":
        """The output of runs as resources; None where the tool `read_run` is not available."""
        from coretools.protocol.resources import RunResources  # imported late: needs the SDK

        if "read_run" not in self.catalog.current.tools:
            return None
        return RunResources(self.runs, self.settings.limits)

    @property
    def identity(self) -> ServerInfo:
        """What the server reports about itself to clients: as an application, if it offers nothing of its own."""
        applications = self.catalog.registry.identity
        offered = self.catalog.current.commands
        if offered and all(command.application is not None for command in offered):
            return applications
        return ServerInfo(instructions="\n\n".join(filter(None, (self._instructions, applications.instructions))))

    @property
    def instructions(self) -> str:
        """The instructions for the model, sent when a client connects: its own, and those of the applications."""
        return self.identity.instructions

    @property
    def _instructions(self) -> str:
        return instructions(
            Situation(
                roots=self.roots,
                tier=self.runner.tier,
                network=self.network,
                tier_restrictions=self.tier_restrictions,
                is_refused=bool(self.sandbox_pool.refusals.of_credentials),
                policy=self.settings.policy,
                path=self.runner.command_path,
                can_run=any(map(self.catalog.current.find, ("run_command", "ci_build", "ci_test"))),
                listed=self.catalog.current.tools,
                unlisted=[name for name, one in self.catalog.current.unlisted.items() if name == one.name],
            )
        )


@asynccontextmanager
async def open_assembly(
    settings: Settings,
    environment: Mapping[str, str],
    registries: Sequence[Registry] = (),
    *,
    make_watcher: Callable[[LiveCatalog], CallObserver] | None = None,
    is_same_for_all: bool = True,
    shared: SharedResources | None = None,
) -> AsyncIterator[Assembly]:
    """Open the roots and build what serves them; at the end, end every child process and close every resource.

    The commands of `registries` come after the built-in ones. `make_watcher` creates the observer of calls.
    `is_same_for_all` states whether every client may see the same lists. `shared` belongs to the server; by default
    the assembly is its only one.

    Raises:
        BadSetting: a root or another setting can't be used, or two commands have one name.
    """
    if settings.umask is not None:
        os.umask(settings.umask)  # of the whole process, before any child starts
    shared = shared or SharedResources()
    async with AsyncExitStack() as lifespans:
        for registry in registries:
            await lifespans.enter_async_context(registry.running(is_alone=False))
        exit_stack = lifespans.enter_context(ExitStack())
        resources = _open_resources(settings, environment, shared, exit_stack)
        async with JobTable(
            resources.runner, settings.limits, make_filter=resources.make_filter, ids=shared.ids
        ) as runs:
            tasks = TaskStore(ids=shared.ids)
            try:
                catalog, selection = _build_catalog(resources, registries, runs, is_same_for_all=is_same_for_all)
                dispatcher = Dispatcher(
                    threads=settings.limits.threads,
                    services=shared.services,
                    observer=make_watcher(catalog) if make_watcher else None,
                )
                yield Assembly(
                    **vars(resources),
                    runs=runs,
                    selection=selection,
                    catalog=catalog,
                    dispatcher=dispatcher,
                    tasks=tasks,
                )
            finally:
                await tasks.close()
                await resources.servers.close()
                await resources.runner.close()


async def open_successor(
    before: Assembly, settings: Settings, environment: Mapping[str, str], registries: Sequence[Registry] = ()
) -> Assembly:
    """Build the successor of an assembly with other settings; runs, tasks and dispatcher are kept.

    The caller lets the old catalog adopt the new one. `retire` closes the successor, before the first assembly ends.

    Raises:
        BadSetting: a root or another setting can't be used, or two commands have one name.
    """
    exit_stack = ExitStack()
    async with AsyncExitStack() as undo:
        undo.callback(exit_stack.close)
        resources = _open_resources(settings, environment, before.shared, exit_stack)
        undo.push_async_callback(resources.runner.close)
        undo.push_async_callback(resources.servers.close)
        runs = before.runs.with_runner(resources.runner, make_filter=resources.make_filter)
        is_same_for_all = before.catalog.is_same_for_all
        catalog, selection = _build_catalog(resources, registries, runs, is_same_for_all=is_same_for_all)
        undo.pop_all()
    return replace(before, **vars(resources), runs=runs, selection=selection, catalog=catalog)


def _open_resources(
    settings: Settings, environment: Mapping[str, str], shared: SharedResources, exit_stack: ExitStack
) -> Resources:
    roots = exit_stack.enter_context(open_roots(settings, environment))
    recorder = open_recorder(settings, environment, roots, exit_stack)
    confined_threads = exit_stack.enter_context(closing(ConfinedThreadPool()))
    inherited = inherited_environment(settings, environment)
    login_shell = LoginShell(roots, environment, confined_threads) if settings.reads_login_path else None
    sandbox_pool, user_git, reach = sandbox_pool_for(
        roots, settings, inherited, login_shell, exit_stack, command_recording(recorder, settings)
    )
    programs = ProgramPolicy(settings.policy.commands, source=settings.policy.source)
    before_commands = None if login_shell is None else login_shell.read
    runner = Runner(
        settings.limits,
        inherited,
        sandbox_pool=sandbox_pool,
        programs=programs,
        before_commands=before_commands,
        reach=reach,
    )
    confinement = settings.policy.confinement
    visible = (*confinement.readable, *confinement.writable)
    trials = TrialTable(roots, sandbox_pool, settings.limits, environment, visible=visible, ids=shared.ids)
    runner.trials = exit_stack.enter_context(closing(trials))
    trials.prepare = runner.prepare  # which waits for the login shell
    record_commands(runner, recorder, roots, settings)
    login_path = tuple if login_shell is None else login_shell.path
    open_sandbox = partial(open_server_sandbox, settings, environment, login_path)
    return Resources(
        settings=settings,
        environment=environment,
        shared=shared,
        roots=roots,
        recorder=recorder,
        confined_threads=confined_threads,
        sandbox_pool=sandbox_pool,
        runner=runner,
        servers=LanguageServers(settings.limits, open_sandbox, lambda: runner.command_path),
        redactor=output_redactor(settings, environment),
        user_git=user_git,
        network=NetworkPolicy.of(settings.policy.confinement, settings.policy.remote),
        tier_restrictions=TierRestrictions.of(settings.policy.confinement, roots),
        exit_stack=exit_stack,
    )


def _build_catalog(
    resources: Resources, registries: Sequence[Registry], runs: JobTable, *, is_same_for_all: bool
) -> tuple[LiveCatalog, Selection]:
    """Build and verify the catalog, and the selection of commands available here."""
    settings = resources.settings
    registry = _own_registry(resources, runs)
    merge_registries(registry, registries, resources.exit_stack)
    registry.require_known()
    selection = selection_of(settings)
    require_known(registry, selection)
    catalog = LiveCatalog(registry, selection, surfaces_of(settings), is_same_for_all=is_same_for_all)
    return catalog, selection


def output_redactor(settings: Settings, environment: Mapping[str, str]) -> Redactor | None:
    """Return the redactor of credentials in command output; None unless the operator enables it."""
    if settings.redact_output or settings.policy.redact_output:
        return Redactor(secret_values(environment))
    return None


def _own_registry(resources: Resources, runs: JobTable) -> Registry:
    """Register every built-in tool set, in the order in which tools are listed."""
    settings, roots, runner = resources.settings, resources.roots, resources.runner
    confined_threads, redactor = resources.confined_threads, resources.redactor
    limits, environment = settings.limits, resources.environment
    registry = Registry(policy=settings.policy.tools, given={Workspace: Workspace(roots, runner, settings.limits)})
    registry.context("git", summary="the git repositories beneath the roots")
    registry.context("ci", summary="build, test and restore a project by its own build system")
    shared = resources.shared
    files = FilesystemTools(
        roots,
        limits,
        large_reads=shared.large_reads,
        known_files=shared.known_files,
        checks=resources.change_checks,
        decoder=Decoder(runner),
    )
    for function in files.in_order():
        registry.add(function, "filesystem")
    search = SearchTools(roots, runner, limits, confined_threads=confined_threads)
    registry.add_set("search", search)
    if resources.recorder is not None:
        registry.add_set("undo", UndoTools(roots, limits, resources.recorder))
    setup = GitSetup(
        user_git=resources.user_git,
        grants=record_grants(settings.policy.git_grants, roots, resources.user_git),
        trailer=settings.policy.git.trailer,
        signing_environment={name: environment[name] for name in SIGNING_VARIABLES if name in environment},
    )
    repositories = Repositories(roots, runner, limits, confined_threads=confined_threads, setup=setup)
    _add_code_tools(registry, resources, search, repositories)
    if roots.trees_above:
        runner.observe_command = OutsideFolder(repositories, roots.trees_above).command
    network, tier_restrictions = resources.network, resources.tier_restrictions
    explanations = explanations_of(roots, runner, network, tier_restrictions)
    approvals = resources.sandbox_pool.network.approvals
    commands = CommandTools(roots, runs, limits, redactor=redactor, approvals=approvals, explanations=explanations)
    rules = settings.policy.remote
    for function in git_tools(repositories, commands.run_command, remote_rules=rules, environment=environment):
        registry.add(function, "git", context=("git",))
    ci = CiTools(roots, runs, limits, redactor=redactor, explanations=explanations, network=network)
    registry.add_set("ci", ci, context=("ci",))
    registry.add_set("commands", commands)
    if runner.trials is not None:
        registry.add_set("commands", TrialTools(runner.trials))
    diagnostics = Diagnostics(
        roots, runner, limits, confined_threads=confined_threads, network=network, tier_restrictions=tier_restrictions
    )
    registry.add_set("diagnostics", diagnostics)
    return registry


def _add_code_tools(registry: Registry, resources: Resources, search: SearchTools, repositories: Repositories) -> None:
    settings, roots, servers = resources.settings, resources.roots, resources.servers
    limits, known_files = settings.limits, resources.shared.known_files
    mentions = TextMentions(roots, limits, search.engines)
    registry.add_set("code", CodeTools(roots, limits, servers, mentions))
    registry.add_set("code", ReferenceTools(roots, limits, servers, mentions))
    registry.add_set("code", CheckTools(roots, limits, servers, repositories))
    renames = RenameTools(roots, limits, servers, mentions, known_files=known_files, checks=resources.change_checks)
    registry.add_set("code", renames)


def log_start(assembly: Assembly, name: str = "") -> None:
    """Log what is served and which protections are missing. `name` is the role, if there are several."""
    roots = ", ".join(f"{root.path} ({'rw' if root.writable else 'ro'})" for root in assembly.roots)
    protections = {**assembly.runner.protections, "git-confinement": assembly.confined_threads.is_possible}
    missing = ", ".join(name for name, is_active in protections.items() if not is_active) or "none"
    logger.info(
        "serving %s%s; profile %s%s; path resolver %s; missing protections, except those of commands: %s",
        f"{name}: " if name else "",
        roots,
        assembly.settings.profile,
        ", read-only" if assembly.settings.read_only else "",
        assembly.roots.resolver_name,
        missing,
    )
    for root in assembly.roots.for_git:
        if root.only_git:
            logger.info("git alone uses %s, the repository of a root", root.path)
        if root.is_above:
            logger.info("git alone reads %s, of which a root is a folder", root.path)
    for path, why in assembly.roots.git_refusals.items():
        logger.info("no git in %s: %s", path, why)


async def require_tier(assembly: Assembly) -> None:
    """Refuse to serve if commands can't be confined as the operator requires.

    Raises:
        Unconfined: the required tier is unavailable.
    """
    await confinement_status(assembly)
    assembly.sandbox_pool.require()


async def prepare(assembly: Assembly, name: str = "") -> None:
    """Detect the tier and prefork a process while the client is still connecting; log the result.

    `name` is the role, if there are several.
    """
    status = await confinement_status(assembly)
    if status is None or assembly.runner.is_closed:  # a reload replaced it meanwhile
        return
    role = f"{name}: " if name else ""
    level = logging.INFO if status.tier == "full" else logging.WARNING
    parts = (status.tier, *(f"not {tier}: {why}" for tier, why in status.missing.items()), status.refusal)
    logger.log(level, "%scommands are confined in tier: %s", role, "; ".join(filter(None, parts)))
    logger.info("%snetwork: %s", role, assembly.network.state(status.tier))
    if assembly.tier_restrictions.exposed and status.tier == "landlock":
        logger.warning("%scommands are refused in tier landlock: %s", role, assembly.tier_restrictions.exposed)
        return
    for why in status.polled:
        logger.warning("%sdirectories are polled for changes before each command: %s", role, why)
    if not status.is_permitted:
        logger.warning("%scommands are refused in tier %s (--allow-unconfined, --require-tier)", role, status.tier)


async def confinement_status(assembly: Assembly) -> ConfinementStatus | None:
    """Return how commands are confined; None if no tool can run one."""
    offered = assembly.catalog.current
    if not any(offered.find(name) for name in ("run_command", "ci_test", "ci_build", "ci_restore")):
        return None
    return await assembly.runner.prepare()
