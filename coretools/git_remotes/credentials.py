"""Credentials of the operator for https: a token from a variable or a file, or the user's own credential helper.

They stay in the server: no child but the helper itself sees them.
"""

import base64
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from coretools.config.remote_policy import RemoteRule
from coretools.config.remote_urls import RemoteUrl
from coretools.confinement.command_path import without_links_into
from coretools.confinement.user_git import configuration_files
from coretools.errors import PermissionRefused
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots.open_beneath import HANDLE
from coretools.roots.root import Directory, Root, RootedPath

TOKEN_BYTES = 16 * 1024
"""Longest token."""

HELPER_SECONDS = 30.0
"""Deadline of the credential helper."""


CONFIGURATION_BYTES = 1024 * 1024
"""Largest list of the user's settings."""

_INCLUDE = re.compile(r"include\.path|includeif\..*\.path")
_HELPER = re.compile(r"credential\.(.*\.)?helper")
_PATH = re.compile(r"""(?:~|\$HOME|\$\{HOME\})?/[^\s'";|&()<>`=]*""")
"""A path in the command of a helper, which may be shell text (gitcredentials(7))."""

_REMEDY = 'use credentials = "token" in the [[remote]], or vouch for it with --trust PATH'


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a request carries, and what no answer may show."""

    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


async def authorization_for(
    rule: RemoteRule, url: RemoteUrl, runner: Runner, environment: Mapping[str, str]
) -> Authorization:
    """Return the credentials of a rule for one URL.

    Raises:
        PermissionRefused: there are none where the rule says, or others could read them.
    """
    if rule.credentials == "token":
        return _basic(rule.username, _token(rule, environment))
    if rule.credentials == "helper":
        return _basic(*await _filled(url, runner, environment))
    return Authorization()


def _basic(user: str, secret: str) -> Authorization:
    encoded = base64.b64encode(f"{user}:{secret}".encode()).decode("ascii")
    return Authorization(f"Basic {encoded}", (secret, encoded))


def _token(rule: RemoteRule, environment: Mapping[str, str]) -> str:
    if rule.token_env:
        found = environment.get(rule.token_env, "").strip()
        if not found:
            raise PermissionRefused(f"the variable {rule.token_env}, in which the operator keeps the token, is not set")
    else:
        found = _token_in(rule.token_file)
    if not found.isascii() or not found.isprintable():
        raise PermissionRefused("the token of this remote has characters that no token has")
    return found


def _token_in(path: str) -> str:
    try:
        with open(path, "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
                raise PermissionRefused("others may read the token file of this remote; the operator runs chmod 600")
            return file.read(TOKEN_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise PermissionRefused(f"the token file of this remote can't be read: {error.strerror}") from error


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


async def _filled(url: RemoteUrl, runner: Runner, environment: Mapping[str, str]) -> tuple[str, str]:
    """Ask the helper that the user's own configuration names; it may not prompt."""
    variables = {name: text for name, text in environment.items() if not name.startswith(("GIT_", "SSH_ASKPASS"))}
    quiet = {"GIT_DIR": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": ""}
    variables = {**variables, **quiet, "PATH": without_links_into(runner.tool_path, runner.reach)}
    await _require_own_configuration(runner, variables)
    lines = {"protocol": url.scheme, "host": url.text.partition("://")[2].partition("/")[0], "path": url.path[1:]}
    stdin = "".join(f"{key}={value}\n" for key, value in lines.items()).encode() + b"\n"
    completed = await _run_git(runner, variables, "-c", "core.askPass=", "credential", "fill", stdin=stdin)
    answer = dict(line.split("=", 1) for line in completed.stdout.text().split("\n") if "=" in line)
    if not completed.ok or not answer.get("password"):
        raise PermissionRefused("the user's credential helper has nothing for this remote")
    return answer.get("username", ""), answer["password"]


async def _require_own_configuration(runner: Runner, variables: Mapping[str, str]) -> None:
    """Refuse to start git with a configuration that agents can change, or with a helper that they can change.

    git itself lists the settings, each with its file; `git config` starts nothing.

    Raises:
        PermissionRefused: names the file or program.
    """
    home = variables.get("HOME", "")
    paths = [home, *configuration_files(variables)]
    listed = await _run_git(runner, variables, "config", "--includes", "--list", "--show-origin", "-z")
    if not listed.ok or listed.stdout.dropped_bytes:
        raise PermissionRefused("the user's git configuration can't be read, so no credential helper is started")
    records = listed.stdout.text().split("\0")
    for origin, record in zip(records[::2], records[1::2], strict=False):
        file = origin.removeprefix("file:")
        key, _, value = record.partition("\n")
        paths.append(file)
        if _INCLUDE.fullmatch(key):
            paths.append(os.path.join(os.path.dirname(file), _expanded(value, home)))
        elif _HELPER.fullmatch(key):
            paths += [_expanded(word, home) for word in _PATH.findall(value)]
    for path in filter(os.path.isabs, paths):
        if reason := runner.reach.reason(path):
            raise PermissionRefused(f"{reason}, so no credential helper is started; {_REMEDY}")


def _expanded(path: str, home: str) -> str:
    for name in ("~/", "$HOME/", "${HOME}/"):
        if path.startswith(name):
            return f"{home}/{path.removeprefix(name)}"
    return path


async def _run_git(runner: Runner, variables: Mapping[str, str], *words: str, stdin: bytes = b"") -> Completed:
    options = RunOptions(
        timeout_seconds=HELPER_SECONDS,
        stdin=stdin,
        environment=variables,
        inherit=False,
        keep_bytes=CONFIGURATION_BYTES,
    )
    top = Root("/", "/", writable=False, fd=os.open("/", HANDLE), identity=(0, 0))
    with Directory(top.fd, RootedPath(top, "."), "/") as directory:
        return await runner.run(("git", *words), cwd=directory, options=options)
