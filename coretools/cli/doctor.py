"""`coretools doctor`: check that everything the tools need is installed, and that a server starts and answers."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version

import anyio
from mcp import Client, MCPError, StdioServerParameters

from coretools.app.trust_report import trust_report
from coretools.cli.common.list_tools import result_text
from coretools.cli.common.terminal import print_text
from coretools.cli.install_listing import client_steps
from coretools.cli.installed_program import PROGRAM as SERVER_PROGRAM
from coretools.cli.installed_program import other_programs
from coretools.cli.toolchain_report import PROGRAMS, ToolchainReport, toolchain_report
from coretools.config.limits import Limits
from coretools.config.operator_policy import network_text
from coretools.config.settings import Settings
from coretools.distribution import EXTRAS, VERSION, is_installed, needs_extra
from coretools.process.ripgrep import PROGRAM, packaged_ripgrep

ANSWER_SECONDS = 30.0
"""Time for the server to answer before it is reported as failing to start."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. Those that are required determine the exit code."""

    name: str
    is_ok: bool
    detail: str
    is_required: bool = True

    @property
    def line(self) -> str:
        """The finding as it is printed."""
        mark = "ok     " if self.is_ok else "MISSING" if self.is_required else "absent "
        return f"{mark} {self.name}: {self.detail}"


async def doctor(settings: Settings, environment: Mapping[str, str], programs: Sequence[str] = PROGRAMS) -> int:
    """Print the findings; return 0 if everything required is available, else 69 (EX_UNAVAILABLE).

    `settings` are those of a server that a desktop client starts, as far as they concern the PATH of commands;
    `programs` are run with `--version`.
    """
    findings = [
        Finding("python", sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.system()}"),
        Finding("coretools", is_ok=True, detail=f"{VERSION}, mcp {version('mcp')}, in {sys.prefix}"),
        Finding("git", shutil.which("git") is not None, shutil.which("git") or "not on PATH; the git tools need it"),
        Finding("ripgrep", *_ripgrep(), is_required=False),
        *(_extra(name, what) for name, (what, _) in EXTRAS.items()),
        *_other_installations(environment),
    ]
    served, report = await _try_server(settings)
    print_text("\n".join([*(finding.line for finding in (*findings, served)), report]))
    toolchains = await toolchain_report(settings, environment, programs)
    trusted = [f"trusted: {line}" for line in trust_report([settings], environment)]
    tools = f"tools: {toolchains.listed} listed by profile {settings.profile}, {toolchains.unlisted} more can be called"
    steps = [f"  {line}" for line in _steps((*findings, served), toolchains, environment)]
    print_text("\n".join([tools, *trusted, *toolchains.lines(), "what to do:", *steps]))
    return 0 if all(finding.is_ok or not finding.is_required for finding in (*findings, served)) else 69


def _steps(findings: Sequence[Finding], toolchains: ToolchainReport, environment: Mapping[str, str]) -> list[str]:
    """Return what to do about the findings, what matters most first."""
    by_name = {finding.name: finding for finding in findings}
    status = toolchains.status
    missing = "; ".join(dict.fromkeys(status.missing.values()))
    steps = []
    if not by_name["git"].is_ok:
        steps.append("install git: the git tools need it")
    if not by_name["server"].is_ok:
        steps.append("correct what keeps the server from its start, above; it says more with --log-level debug")
    if not by_name["ripgrep"].is_ok:
        steps.append("optionally install ripgrep: search_text is slower without it")
    if not status.is_permitted:
        steps.append(
            f"commands are refused in tier {status.tier} ({missing}); to let them run unconfined: --allow-unconfined"
        )
    elif status.tier != "full":
        steps.append(f"commands run in tier {status.tier}, which keeps less from them than full ({missing})")
    if by_name["server"].is_ok:
        steps += client_steps(environment)
    return steps


def _ripgrep() -> tuple[bool, str]:
    """Whether there is a ripgrep, and where. The report of the server says which one it uses."""
    files = dict.fromkeys(file for file in (packaged_ripgrep(), shutil.which(PROGRAM)) if file)
    missing = "neither installed with coretools nor on PATH; search_text uses its own slower engine"
    return bool(files), ", ".join(files) or missing


def _extra(name: str, what: str) -> Finding:
    is_here = is_installed(name)
    return Finding(f"extra {name}", is_here, what if is_here else f"{what}: {needs_extra(name)}", is_required=False)


def _other_installations(environment: Mapping[str, str]) -> list[Finding]:
    """One finding for each: a client or a shell may start it instead of this one."""
    first = shutil.which(SERVER_PROGRAM, path=environment.get("PATH"))
    return [
        Finding("other coretools", is_ok=True, detail=f"{program}; `{SERVER_PROGRAM}` starts {first}")
        for program in other_programs(environment)
    ]


def _flags(settings: Settings) -> list[str]:
    """Return the flags that give a server the settings of this command line."""
    usual = asdict(Limits())
    limits = {name: value for name, value in asdict(settings.limits).items() if value != usual[name]}
    switches = {
        "--read-only": settings.read_only,
        "--no-default-deny": not settings.default_deny,
        "--no-undo": not settings.has_undo,
        "--redact-output": settings.redact_output,
    }
    words = [word for word, is_on in switches.items() if is_on]
    words += [f"--trust={path}" for path in settings.trusted]
    for flag, values in (
        ("--profile", [settings.profile]),
        ("--ask", [settings.ask]),
        ("--deny", settings.deny),
        ("--pass-env", settings.pass_environment),
        ("--limit", [f"{name}={value}" for name, value in limits.items()]),
    ):
        words += [f"{flag}={value}" for value in values]  # in one: a value may begin with a dash
    return words + _policy_flags(settings)


def _policy_flags(settings: Settings) -> list[str]:
    """Return the flags that give a server the confinement of this command line."""
    confinement = settings.policy.confinement
    words = ["--network", network_text(confinement.network)]
    words += ["--policy", settings.policy.source] if settings.policy.source else []
    words += ["--require-tier", confinement.require] if confinement.require else []
    words += ["--own-container"] if confinement.own_container else []
    words += ["--allow-git-credentials"] if confinement.allow_git_credentials else []
    words += ["--allow-editor-settings"] if settings.policy.files.changes_settings else []
    words += ["--refuse-syntax-errors"] if settings.policy.files.refuses_syntax_errors else []
    words += ["--git-above"] if settings.policy.git.above else []
    return words + (["--allow-unconfined"] if confinement.allow_unconfined else [])


async def _try_server(settings: Settings) -> tuple[Finding, str]:
    """Start the workstation server as a desktop client does, list its tools and ask it for its diagnostics."""
    parameters = StdioServerParameters(
        command=sys.executable,
        # -P: modules of the project in the current directory must not shadow ours.
        args=["-P", "-m", "coretools.servers.workstation", "--log-level", "error", *_flags(settings), *settings.roots],
        env=dict(os.environ),
    )
    failure: BaseException | None = None
    started = time.monotonic()
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            async with Client(parameters) as client:
                tools = (await client.list_tools()).tools
                seconds = time.monotonic() - started
                diagnostics = await client.call_tool("get_diagnostics", {})
    except* (OSError, TimeoutError, MCPError) as errors:
        failure = errors.exceptions[0]
    if failure is not None:
        return Finding("server", is_ok=False, detail=f"did not answer over stdio: {failure}"), ""
    detail = f"lists {len(tools)} tools over stdio, {seconds:.2f} s after its start"
    return Finding("server", is_ok=not diagnostics.is_error, detail=detail), result_text(diagnostics)
