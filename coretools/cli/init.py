"""`coretools init`: write a commented policy file for this machine and project, and say what will not work here."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

import anyio

from coretools.cli.common.terminal import print_text
from coretools.cli.toolchain_report import ToolchainReport, toolchain_report
from coretools.config.agent_reach import OperatorFile, require_out_of_reach
from coretools.config.operator_policy import CacheName, expand_home
from coretools.config.policy_file import VARIABLE, read_policy, usual_path
from coretools.config.settings import Settings
from coretools.confinement.caches import CACHES
from coretools.confinement.toolchains import names_in
from coretools.errors import AlreadyExists, BadSetting, InputOutput
from coretools.escapes import escape_unprintable

MAX_PROJECTS = 64
"""Most subdirectories of a root in which files of an ecosystem are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecosystem:
    """A language's package manager, recognised by its files."""

    files: tuple[str, ...]
    caches: tuple[CacheName, ...] = ()
    hosts: tuple[str, ...] = ()
    """Named sets of hosts that its package manager contacts."""
    programs: tuple[str, ...] = ()
    """Programs without which its projects can't be built."""


ECOSYSTEMS = (
    Ecosystem(
        files=("pyproject.toml", "requirements*.txt", "setup.py", "setup.cfg"),
        caches=("pip",),
        hosts=("pypi",),
        programs=("python3",),
    ),
    Ecosystem(files=("uv.lock",), caches=("uv",), hosts=("pypi",), programs=("uv",)),
    Ecosystem(files=("poetry.lock",), caches=("poetry",), hosts=("pypi",), programs=("poetry",)),
    Ecosystem(files=(".pre-commit-config.yaml",), caches=("pre-commit",), hosts=("github",)),
    Ecosystem(files=("package.json",), caches=("npm",), hosts=("npm",), programs=("node", "npm")),
    Ecosystem(files=("yarn.lock",), caches=("yarn",), hosts=("npm",), programs=("yarn",)),
    Ecosystem(files=("pnpm-lock.yaml",), caches=("pnpm",), hosts=("npm",), programs=("pnpm",)),
    Ecosystem(files=("bun.lock", "bun.lockb"), caches=("bun",), hosts=("npm",), programs=("bun",)),
    Ecosystem(files=("deno.json", "deno.jsonc"), caches=("deno",), programs=("deno",)),
    Ecosystem(files=("Cargo.toml",), caches=("cargo",), hosts=("crates",), programs=("cargo",)),
    Ecosystem(files=("go.mod",), caches=("go",), hosts=("go",), programs=("go",)),
    Ecosystem(files=("pom.xml",), caches=("maven",), hosts=("maven",), programs=("java", "mvn")),
    Ecosystem(
        files=("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
        caches=("gradle",),
        hosts=("gradle", "maven"),
        programs=("java",),
    ),
    Ecosystem(files=("*.csproj", "*.fsproj", "*.sln"), caches=("nuget",), hosts=("nuget",), programs=("dotnet",)),
    Ecosystem(files=("composer.json",), caches=("composer",), hosts=("packagist",), programs=("php", "composer")),
    Ecosystem(files=("Gemfile",), hosts=("rubygems",), programs=("ruby", "bundle")),
    Ecosystem(files=("CMakeLists.txt",), programs=("cmake",)),
)


def init(settings: Settings, environment: Mapping[str, str], path: str | None) -> int:
    """Write the policy file at a path, by default the usual one, and print what was found. Returns 0.

    Raises:
        AlreadyExists: there is a file; it is not touched.
        BadSetting: no place for it, or one that tools could change.
        InputOutput: it can't be written.
    """
    target = _target(path, environment)
    require_out_of_reach([OperatorFile("the policy file", target)], [settings])
    ecosystems = ecosystems_in(settings.roots)
    report = anyio.run(toolchain_report, settings, environment)
    _write(target, policy_text(settings.roots, ecosystems, report))
    try:
        read_policy(target, environment)
    except BadSetting:
        os.unlink(target)
        raise
    return print_text("\n".join([f"wrote {target}", *_summary(ecosystems, report)]))


def _target(path: str | None, environment: Mapping[str, str]) -> str:
    """Return the file to write, which does not exist."""
    named = path or environment.get(VARIABLE) or usual_path(environment)
    if named is None:
        raise BadSetting("no HOME and no XDG_CONFIG_HOME: name the file, --policy FILE")
    target = os.path.abspath(expand_home(named, environment))
    if os.path.lexists(target):
        raise AlreadyExists(f"{target}: exists and is left as it is; name another file (--policy FILE) or edit it")
    return target


def ecosystems_in(roots: Iterable[str]) -> list[Ecosystem]:
    """Return the ecosystems whose files are at the top of a root or of a directory in it."""
    names: set[str] = set()
    for root in roots:
        top = names_in(root)
        below = [name for name in top if not name.startswith(".") and os.path.isdir(f"{root}/{name}")]
        names.update(top, *(names_in(f"{root}/{name}") for name in below[:MAX_PROJECTS] if name != "node_modules"))
    return [one for one in ECOSYSTEMS if any(fnmatch(name, pattern) for name in names for pattern in one.files)]


def policy_text(roots: Iterable[str], ecosystems: Iterable[Ecosystem], report: ToolchainReport) -> str:
    """Return the content of a policy file."""
    ecosystems = list(ecosystems)
    caches = list(dict.fromkeys(name for one in ecosystems for name in one.caches))
    hosts = list(dict.fromkeys(name for one in ecosystems for name in one.hosts))
    lines = [
        "# Policy of coretools for this user, written by `coretools init`. It holds for every server without --policy.",
        f"# Written for: {escape_unprintable(', '.join(roots))}",
        "# Check it: coretools policy check. All keys: docs/specs/policy.md and docs/specs/confinement.md.",
        "",
        "[commands]",
        '# Which programs may run: "allow", "ask" (a person) or "deny", unless a rule decides.',
        'default = "allow"',
        "# [[commands.rule]]",
        '# program = "git"',
        '# arguments = ["push", "**"]',
        '# verdict = "ask"',
        "",
        "[confinement]",
        f"# Here commands run in tier {report.status.tier}. To refuse them in a weaker one:",
        f'# require = "{report.status.tier}"',
        "",
        "# Toolchains that commands can read, found at each start:",
        *(f"#   {one.name}: {escape_unprintable(one.place)}" for one in report.toolchains.found),
        *([] if report.toolchains.found else ["#   none in the home directory"]),
        "# Others, and data outside the roots:",
        '# readable = ["~/data"]',
        "",
        "# Package managers whose downloads are kept for each root, outside of it. Never the user's own caches.",
        f"# There are: {', '.join(CACHES)}",
        *([f"# Not for these roots: {escape_unprintable(report.cache_fault)}"] if report.cache_fault else []),
        f"{'# ' if report.cache_fault else ''}caches = {_listed(caches)}",
        "",
        *_network_lines(hosts, report.status.tier),
        "",
        "[environment]",
        "# Variables that commands get, besides the usual ones. Name no secret that the project should not have.",
        '# pass = ["CI", "NODE_ENV"]',
        "",
    ]
    return "\n".join(lines)


def _network_lines(hosts: list[str], tier: str) -> list[str]:
    lines = ["# Commands have no network. Package managers can't download then."]
    if hosts and tier == "full":
        return [*lines, "# To permit what the files of this project suggest:", f"# network = {_listed(hosts)}"]
    some = ["# To permit some hosts:", '# network = ["pypi", "github.com"]']
    whole = ["# To permit the whole network:", '# network = "allow"']
    return [*lines, *(some if tier == "full" else ["# A list of hosts needs tier full."]), *whole]


def _summary(ecosystems: Iterable[Ecosystem], report: ToolchainReport) -> list[str]:
    """Return what was found, and what will not work here."""
    lines = report.lines()
    status = report.status
    lines += [f"will not work: tier {tier}: {why}" for tier, why in status.missing.items()]
    if not status.is_permitted:
        lines.append(f"will not work: commands, which are refused in tier {status.tier} (allow_unconfined, require)")
    lines += [f"will not work: {status.refusal}"] if status.refusal else []
    lines += _missing_programs(ecosystems, report)
    if report.cache_fault and any(one.caches for one in ecosystems):
        lines.append(f"will not work: {report.cache_fault}")
    if any(one.hosts for one in ecosystems):
        lines.append("will not work: downloads of package managers, until the file permits a network")
    return lines


def _missing_programs(ecosystems: Iterable[Ecosystem], report: ToolchainReport) -> list[str]:
    wanted = dict.fromkeys(name for one in ecosystems for name in one.programs)
    missing = [f"will not work: {name}: not found in PATH" for name in wanted if report.which(name) is None]
    return missing + [
        f"will not work: {name}: {version}"
        for name, version in report.versions.items()
        if name in wanted and version.startswith(("can't be run", "fails", "did not answer"))
    ]


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise AlreadyExists(f"{path}: exists and is left as it is") from error
    except OSError as error:
        raise InputOutput(f"{path}: can't be written: {error.strerror}") from error


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
