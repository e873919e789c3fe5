"""What commands get of the user's toolchains: what was found, what is not on PATH, and which versions answer."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import anyio
from anyio import CapacityLimiter, to_thread

from coretools.app.assembly import Assembly, open_assembly
from coretools.config.settings import Settings
from coretools.confinement.caches import CommandCaches
from coretools.confinement.command_confinement import ConfinementStatus
from coretools.confinement.toolchain_grants import ToolchainSources, UserToolchains, user_toolchains
from coretools.confinement.toolchains import home_of
from coretools.errors import BadSetting, CoreError
from coretools.own_state import cache_directory
from coretools.process.login_shell import LoginShell
from coretools.process.run import RunOptions
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots
from coretools.tools.output_text import plain

PROGRAMS = (
    *("python", "python3", "pip", "uv", "poetry", "node", "npm", "pnpm", "yarn", "bun", "deno", "cargo", "rustc"),
    *("java", "mvn", "gradle", "ruby", "php", "dotnet", "make", "cmake", "gcc", "go"),
)
"""Programs run with `--version` to report their version; Go takes `go version`."""

VERSION_SECONDS = 10.0
"""Deadline of one program."""

TOTAL_SECONDS = 30.0
"""Deadline of all; programs that have not answered by then are named."""

CONCURRENT = 2
"""Most programs run at the same time."""


@dataclass(frozen=True, slots=True)
class ToolchainReport:
    """The findings for one machine and one list of roots."""

    toolchains: UserToolchains
    login_fault: str
    """Why the PATH of the login shell is unknown; empty if it is known."""
    refused: tuple[str, ...]
    """Entries of the login shell's PATH that commands don't get."""
    status: ConfinementStatus
    listed: int
    """Tools that a client's list has."""
    unlisted: int
    """Tools that can be called all the same."""
    versions: Mapping[str, str]
    """What each program that was found answered."""
    cache_fault: str
    """Why servers with these roots can't have caches; empty if they can."""

    def lines(self) -> list[str]:
        """Return one line for each finding."""
        lines = [f"PATH of commands: {plain(self.toolchains.path)}"]
        lines += [f"login shell: its PATH is not known: {self.login_fault}"] if self.login_fault else []
        lines += [
            f"login shell: {plain(entry)} is left out: it is missing, beneath a root or writable by others"
            for entry in self.refused
        ]
        names = [f"{one.name} ({plain(one.place)})" for one in self.toolchains.found]
        lines.append(f"toolchains in the home: {', '.join(names) or 'none'}")
        lines += [f"not on PATH, added for commands: {plain(entry)}" for entry in self.toolchains.added]
        for program, version in self.versions.items():
            where = self.which(program)
            lines.append(f"{program}: {version}" + (f" ({plain(where)})" if where else ""))
        return lines

    def which(self, program: str) -> str | None:
        """Return the file that commands get for a program."""
        return shutil.which(program, path=self.toolchains.path)


async def toolchain_report(
    settings: Settings, environment: Mapping[str, str], names: Sequence[str] = PROGRAMS
) -> ToolchainReport:
    """Find the toolchains as a server does, and ask the programs of these names for their versions in the sandbox.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    async with AsyncExitStack() as stack:
        assembly = await stack.enter_async_context(open_assembly(settings, environment))
        login = LoginShell(assembly.roots, environment, assembly.confined_threads)
        if settings.reads_login_path:
            await login.read(assembly.runner)
        roots = [root.path for root in assembly.roots]
        inherited = assembly.runner.environment
        sources = ToolchainSources(
            environment=inherited,
            home=await to_thread.run_sync(home_of, inherited),
            login_path=login.path(),
            roots=roots,
            readable=settings.policy.confinement.readable,
        )
        toolchains = await to_thread.run_sync(user_toolchains, sources)
        path = toolchains.path.split(os.pathsep)
        status = await assembly.runner.prepare()
        catalog = assembly.catalog.current
        programs = [name for name in names if shutil.which(name, path=toolchains.path)]
        return ToolchainReport(
            toolchains=toolchains,
            login_fault=login.fault,
            refused=tuple(entry for entry in dict.fromkeys(login.path()) if entry not in path),
            status=status,
            listed=len(catalog.tools),
            unlisted=len(catalog.unlisted),
            versions=await _versions(assembly, programs),
            cache_fault=_cache_fault(assembly.roots, cache_directory(inherited, sources.home)),
        )


def _cache_fault(roots: Roots, base: str) -> str:
    try:
        CommandCaches(("pip",), roots=roots, base=base)
    except BadSetting as error:
        return str(error)
    return ""


async def _versions(assembly: Assembly, programs: list[str]) -> dict[str, str]:
    """Ask programs for their versions, a few at a time."""
    versions: dict[str, str] = {}
    limiter = CapacityLimiter(CONCURRENT)

    async def ask(program: str) -> None:
        async with limiter:
            versions[program] = await _version(assembly, program)

    with anyio.move_on_after(TOTAL_SECONDS):
        async with anyio.create_task_group() as tasks:
            for program in programs:
                tasks.start_soon(ask, program)
    return {program: versions.get(program, "did not answer in time") for program in programs}


async def _version(assembly: Assembly, program: str) -> str:
    """Return the first line with a number that a program prints, or why there is none."""
    argv = (program, "version" if program == "go" else "--version")
    options = RunOptions(is_command=True, timeout_seconds=VERSION_SECONDS, keep_bytes=4096)
    try:
        with open_directory(assembly.roots, ".") as directory:
            run = await assembly.runner.run(argv, cwd=directory, options=options)
    except CoreError as error:
        return f"can't be run: {error}"
    text = plain(f"{run.stdout.text()}\n{run.stderr.text()}")
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if re.search(r"\d", line)), "")
    if run.timed_out:
        return f"did not answer within {VERSION_SECONDS:g} s"
    return first[:80] if run.ok and first else f"fails: {next(filter(None, lines), f'exit code {run.exit_code}')[:120]}"
