"""The environment variables that confinement sets for a command: its toolchains, caches, git's settings, the proxy."""

import os
from collections.abc import Mapping, Sequence

from coretools.confinement.caches import CARGO_HOME_NAME
from coretools.confinement.command_confinement import CommandConfinement, ScratchDirectories
from coretools.confinement.toolchains import home_of_user
from coretools.confinement.user_git import IN_VIEW
from coretools.egress.environment import java_options, proxy_variables
from coretools.roots.root import Root

JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"
"""The only variable that every Java virtual machine reads."""

GIT_SETTINGS_FOR_MASKED_FILES = (("core.checkStat", "minimal"), ("core.trustctime", "false"))
"""Settings that make git compare files by size and modification time alone. The placeholder of a masked file has both,
but another inode: git would take a tracked file for changed and fail to read it."""

GIT_SETTINGS_FOR_LINKED_ROOTS = (
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("gc.reflogExpire", "never"),
    ("gc.reflogExpireUnreachable", "never"),
)
"""Settings that leave automatic maintenance to the user's git, and the reflogs alone: commands can't write those of
other work trees. A failed maintenance leaves `gc.log` in the repository, which stops the user's too."""


def command_variables(
    commands: CommandConfinement,
    tier: str,
    scratch: ScratchDirectories,
    root: Root | None,
    *,
    has_masked_files: bool = False,
) -> dict[str, str]:
    """Return the variables for a command that starts in a root. `has_masked_files`: some files are hidden."""
    path = {"PATH": commands.toolchains.path} if commands.toolchains.path else {}
    caches = commands.caches.variables(root)
    if tier == "none":
        return {**path, **caches}
    tools = {**path, **commands.toolchains.variables}
    settings = [*GIT_SETTINGS_FOR_MASKED_FILES] if has_masked_files else []
    if any(root.only_git for root in commands.roots):
        settings += GIT_SETTINGS_FOR_LINKED_ROOTS
    if settings:
        tools |= _git_settings(commands.environment, settings)
    tools |= {**_cargo_home(commands, tier, scratch), **caches, **_git_configuration(commands, tier)}
    if tier == "full":
        java = java_options() if commands.has_host_list else []
        if commands.home and commands.home != os.path.realpath(home_of_user()):
            java.append(f"-Duser.home={commands.home}")
        tools |= _java_options(commands, java) | (proxy_variables() if commands.has_host_list else {})
        own = {"HOME": commands.home} if commands.home else {}
        return {**tools, "TMPDIR": "/tmp", **own}
    tools |= _java_options(commands, [f"-Duser.home={scratch.home}", f"-Djava.io.tmpdir={scratch.temporary}"])
    return {**tools, "HOME": scratch.home, "TMPDIR": scratch.temporary}


def _git_settings(environment: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Append git settings to those in the environment (git-config(1), GIT_CONFIG_COUNT)."""
    text = environment.get("GIT_CONFIG_COUNT", "")
    first = int(text) if text.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _git_configuration(commands: CommandConfinement, tier: str) -> dict[str, str]:
    user_git = commands.user_git
    if not user_git.directory or (tier == "full" and commands.mounts_git_config):
        return {}
    return {"GIT_CONFIG_GLOBAL": f"{IN_VIEW}/config-in-view" if tier == "full" else user_git.config}


def _cargo_home(commands: CommandConfinement, tier: str, scratch: ScratchDirectories) -> dict[str, str]:
    is_there = os.path.isdir(f"{scratch.home}/{CARGO_HOME_NAME}")
    if not is_there or (tier == "full" and not commands.hides_home):
        return {}
    return {"CARGO_HOME": f"{commands.home if tier == 'full' else scratch.home}/{CARGO_HOME_NAME}"}


def _java_options(commands: CommandConfinement, own: Sequence[str]) -> dict[str, str]:
    """Java asks the system for directories, not the environment. The operator's options come last and win."""
    return {JAVA_OPTIONS: " ".join([*own, commands.environment.get(JAVA_OPTIONS, "")]).rstrip()} if own else {}
