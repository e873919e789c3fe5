"""What a server starts, loads and trusts outside the sandbox, for `coretools doctor` and `coretools-http --check`."""

import os
import pwd
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from coretools.config.agent_reach import OperatorFile, files_of_installation, files_of_policy, reach_of_change
from coretools.config.settings import Settings
from coretools.confinement.command_path import trusted_program
from coretools.confinement.user_git import configuration_files, read_user_configuration
from coretools.errors import CannotStart
from coretools.process.ripgrep import packaged_ripgrep
from coretools.reach import Reach

PROGRAMS = ("git", "rg", "ssh", "ssh-keygen", "gpg", "gpgsm")
"""Programs that tools start outside the sandbox of commands."""

NO_START = "the server does not start"


class _Trusted(NamedTuple):
    what: str
    path: str
    effect: str
    """What happens if agents can change it."""


def trust_report(
    servers: Sequence[Settings], environment: Mapping[str, str], files: Iterable[OperatorFile] = ()
) -> list[str]:
    """Return a line for everything that agents of these servers could change, and one with the number of the others.

    `files` are those of the operator besides what the policy names.
    """
    reach = reach_of_change(servers)
    listed = [*_files(servers, files), *_of_the_user(environment)]
    lines = [f"{one.what}: {reason}; {one.effect}" for one in listed if (reason := reach.reason(one.path))]
    programs = dict(_programs(environment, reach))
    lines += filter(None, programs.values())
    lines += [
        f"git configuration, not used: {what}" for what in read_user_configuration(environment, reach).within_reach
    ]
    count = sum(not reach.reason(one.path) for one in listed) + sum(not fault for fault in programs.values())
    return [*lines, f"{count} other programs and files are trusted; tools and commands can change none of them"]


def _files(servers: Sequence[Settings], files: Iterable[OperatorFile]) -> Iterator[_Trusted]:
    policies = [file for settings in servers for file in files_of_policy(settings.policy)]
    for file in dict.fromkeys((*files_of_installation(), *policies, *files)):
        yield _Trusted(file.what, os.path.abspath(file.path), NO_START)


def _of_the_user(environment: Mapping[str, str]) -> Iterator[_Trusted]:
    for path in configuration_files(environment):
        yield _Trusted("git configuration", path, "only settings that name no program or file are used")
    home = environment.get("HOME", "")
    if gnupg := environment.get("GNUPGHOME") or (home and f"{home}/.gnupg"):
        yield _Trusted("directory of gpg", gnupg, "gpg signs no commits")
    if agent := environment.get("SSH_AUTH_SOCK"):
        yield _Trusted("SSH_AUTH_SOCK", agent, "ssh does not use the agent")
    with suppress(KeyError):
        yield _Trusted("login shell", pwd.getpwuid(os.geteuid()).pw_shell, "its PATH is not read")


def _programs(environment: Mapping[str, str], reach: Reach) -> Iterator[tuple[str, str]]:
    """Yield the programs that there are, each with why it is not started, or ""."""
    for name in (*PROGRAMS, *filter(None, [packaged_ripgrep()])):
        try:
            if trusted_program(name, environment.get("PATH") or os.defpath, reach):
                yield name, ""
        except CannotStart as error:
            yield name, f"program {error}"
