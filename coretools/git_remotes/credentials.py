"""Credentials of the operator for https: a token from a variable or a file, or the user's own credential helper.

They stay in the server: no child but the helper itself sees them. A helper may be shell text (gitcredentials(7)) and
start anything, so the kernel refuses it, and git, all that agents can change.
"""

import base64
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

from coretools.config.remote_policy import RemoteRule
from coretools.config.remote_urls import RemoteUrl
from coretools.confinement.landlock import CHANGE, DEVICE, RESOLVE_UNIX, RUN
from coretools.confinement.user_git import configuration_files
from coretools.errors import PermissionRefused
from coretools.git_remotes.ssh import top_directory
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.out_of_reach import confined_out_of_reach
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.regular_file import read_regular

TOKEN_BYTES = 16 * 1024
"""Longest token."""

HELPER_SECONDS = 30.0
"""Deadline of the credential helper."""

CONFIGURATION_BYTES = 1024 * 1024
"""Largest list of the user's settings."""

_INCLUDE = re.compile(r"include\.path|includeif\..*\.path")
_REMEDY = 'use credentials = "token" in the [[remote]], or vouch for it with --trust PATH'


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a request carries, and what no answer may show."""

    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


async def authorization_for(
    rule: RemoteRule, url: RemoteUrl, runner: Runner, confined: ConfinedRunner, environment: Mapping[str, str]
) -> Authorization:
    """Return the credentials of a rule for one URL.

    Raises:
        PermissionRefused: they are not where the rule says, or others could read them.
    """
    if rule.credentials == "token":
        return _basic(rule.username, _token(rule, environment))
    if rule.credentials == "helper":
        return _basic(*await _filled(url, runner, confined, environment))
    return Authorization()


def _basic(user: str, secret: str) -> Authorization:
    encoded = base64.b64encode(f"{user}:{secret}".encode()).decode("ascii")
    return Authorization(f"Basic {encoded}", (secret, encoded))


def _token(rule: RemoteRule, environment: Mapping[str, str]) -> str:
    if rule.token_env:
        token = environment.get(rule.token_env, "").strip()
        if not token:
            raise PermissionRefused(f"the variable {rule.token_env}, in which the operator keeps the token, is not set")
    else:
        token = _token_in(rule.token_file)
    if not token.isascii() or not token.isprintable():
        raise PermissionRefused("the token of this remote has characters that no token has")
    return token


def _token_in(path: str) -> str:
    try:
        data, status = read_regular(path, TOKEN_BYTES, follow=True)
    except OSError as error:
        raise PermissionRefused(f"the token file of this remote can't be read: {error.strerror}") from error
    if status.st_mode & 0o077:
        raise PermissionRefused("others may read the token file of this remote; the operator runs chmod 600")
    return data.decode("utf-8", "replace").strip()


async def _filled(
    url: RemoteUrl, runner: Runner, confined: ConfinedRunner, environment: Mapping[str, str]
) -> tuple[str, str]:
    """Ask the helper that the user's own configuration names; it may not prompt."""
    variables = {name: text for name, text in environment.items() if not name.startswith(("GIT_", "SSH_ASKPASS"))}
    quiet = {"GIT_DIR": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": ""}
    variables |= {**quiet, "PATH": runner.tool_path}
    lines = {"protocol": url.scheme, "host": url.text.partition("://")[2].partition("/")[0], "path": url.path[1:]}
    stdin = "".join(f"{key}={value}\n" for key, value in lines.items()).encode() + b"\n"
    with _out_of_reach(runner, confined, variables) as options:
        await _require_own_configuration(runner, options)
        words = ("-c", "core.askPass=", "credential", "fill")
        completed = await _run_git(runner, replace(options, stdin=stdin), *words)
    answer = dict(line.split("=", 1) for line in completed.stdout.text().split("\n") if "=" in line)
    if not completed.ok or not answer.get("password"):
        raise PermissionRefused(f"the user's credential helper has nothing for this remote{_confinement(runner)}")
    return answer.get("username", ""), answer["password"]


@contextmanager
def _out_of_reach(runner: Runner, confined: ConfinedRunner, variables: Mapping[str, str]) -> Iterator[RunOptions]:
    """Yield the options for git and the helper, which get nothing that agents can change, and temporary files apart.

    Raises:
        PermissionRefused: the kernel can't refuse them that.
    """
    if runner.reach.places and not confined.is_possible:
        raise PermissionRefused(
            "no credential helper is started: the kernel can't keep it from files that tools and commands can change"
            ' (Landlock); use credentials = "token" in the [[remote]]'
        )
    # Beside the scratch directory: no command reaches what is there, even where /tmp is shared with commands.
    apart = os.path.dirname(runner.scratch) or None
    with TemporaryDirectory(prefix="coretools-helper-", dir=apart) as temporary:
        options = RunOptions(
            timeout_seconds=HELPER_SECONDS,
            environment={**variables, "TMPDIR": temporary},
            inherit=False,
            keep_bytes=CONFIGURATION_BYTES,
        )
        if not runner.reach.places:
            yield options
            return
        home = os.path.realpath(variables.get("HOME") or "/")
        rights = RUN | CHANGE | DEVICE | RESOLVE_UNIX
        more = ((temporary, rights),)
        with confined_out_of_reach(options, runner, rights, more=more, home=home, network=True) as options:
            yield options


async def _require_own_configuration(runner: Runner, options: RunOptions) -> None:
    """Refuse by name a configuration that agents can change, or of which they can change where it is.

    git itself lists the settings, each with its file; `git config` starts nothing.

    Raises:
        PermissionRefused: names the file.
    """
    home = options.environment.get("HOME", "")
    paths = [home, *configuration_files(options.environment)]
    _require_out_of_reach(runner, paths)
    listed = await _run_git(runner, options, "config", "--includes", "--list", "--show-origin", "-z")
    if not listed.ok or listed.stdout.dropped_bytes:
        raise PermissionRefused(f"git can't read the user's configuration{_confinement(runner)}")
    records = listed.stdout.text().split("\0")
    for origin, record in zip(records[::2], records[1::2], strict=False):
        file = origin.removeprefix("file:")
        key, _, value = record.partition("\n")
        paths.append(file)
        if _INCLUDE.fullmatch(key):
            paths.append(os.path.join(os.path.dirname(file), re.sub("^~(?=/)", lambda _: home, value)))
    _require_out_of_reach(runner, paths)


def _confinement(runner: Runner) -> str:
    """Return the part of an error that says what git and the helper lack here."""
    places = ", ".join(dict.fromkeys(place.path for place in runner.reach.places))
    return f"; nothing is used that tools or commands can change ({places}): {_REMEDY}" if places else ""


def _require_out_of_reach(runner: Runner, paths: Sequence[str]) -> None:
    for path in filter(os.path.isabs, dict.fromkeys(paths)):
        if reason := runner.reach.reason(path):
            raise PermissionRefused(f"{reason}, so no credential helper is started; {_REMEDY}")


async def _run_git(runner: Runner, options: RunOptions, *words: str) -> Completed:
    with top_directory() as directory:
        return await runner.run(("git", *words), cwd=directory, options=options)
