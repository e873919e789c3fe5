"""Run git with a socket as its remote, and git's services on one. git may start itself here, and nothing else."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

from coretools.config.remote_policy import RemoteRule
from coretools.config.remote_urls import RemoteUrl
from coretools.confinement.landlock import EXECUTE, READ_FILE, Rule
from coretools.errors import CannotStart
from coretools.git_remotes.exchange import Transport
from coretools.process.run import Completed, RunOptions
from coretools.roots.root import Directory
from coretools.tools.git.repository.access_rules import file_rules
from coretools.tools.git.repository.open_repository import ENVIRONMENT, Git, OpenRepository, require_success
from coretools.tools.git.repository.policy import FIXED_SETTINGS
from coretools.tools.git.repository.porcelain import single_line

REMOTE = "<remote>"
"""Stands for the URL of the remote in the words of `run_connected`."""

_REFERENCES = "core.alternateRefsCommand"
"""git runs any value of this key where objects wait apart; without one it lists the references itself."""

_SERVICE_OPTIONS = (
    "--no-pager",
    *(word for key, value in FIXED_SETTINGS.items() if key != _REFERENCES for word in ("-c", f"{key}={value}")),
)

_OWN_PROGRAMS = (
    *("git", "git-remote-fd", "git-upload-pack", "git-receive-pack", "git-index-pack", "git-unpack-objects"),
    *("git-pack-objects", "git-rev-list"),
)
"""Programs of git that a transfer consists of; ordinarily all are one file."""

_GIVEN_URL = re.compile("fd::[0-9]+/[0-9a-f]{16}")
"""The URL that `run_connected` gives git."""

_REMOTE_LINES = 10
"""Most lines of a remote's messages that an answer shows."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A remote that may be reached, and the way to it."""

    url: RemoteUrl
    rule: RemoteRule
    transport: Transport
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What no answer may contain: a remote may send back what it got."""

    def scrubbed(self, text: str) -> str:
        """Return text of the remote without secrets, and with its URL in place of the one that git was given."""
        for secret in self.secrets:
            text = text.replace(secret, "[credential]")
        return _GIVEN_URL.sub(lambda _: self.url.text, text)

    def messages(self, stderr: str) -> list[str]:
        """Return what the remote itself said, one line each, without control characters."""
        lines = [line.removeprefix("remote:").strip() for line in stderr.split("\n") if line.startswith("remote:")]
        shown = [single_line(self.scrubbed(line.rpartition("\r")[2]))[:300] for line in lines if line.strip()]
        return [f"remote: {line}" for line in shown if line][:_REMOTE_LINES]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRun:
    """How git runs for one transfer."""

    options: Sequence[str] = ()
    """Further `-c` options."""
    stdin: bytes | None = None
    keep_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


async def run_connected(repository: OpenRepository, connection: int, *words: str, run: TransferRun) -> Completed:
    """Run a git command whose remote, the word `REMOTE`, is the socket `connection`.

    Raises:
        GitRefused: it took too long. CannotStart: there is no git in PATH.
    """
    checkout, git = repository.checkout, repository.git
    programs = await _own_programs(git, checkout.directory)
    rules = (*checkout.rules, *file_rules(checkout.policy.external_includes), *programs)
    common = repository.run_options(stdin=run.stdin, keep_bytes=run.keep_bytes)
    seconds = git.limits.transfer_seconds
    options = replace(
        common,
        timeout_seconds=seconds,
        environment={**common.environment, **run.environment, "GIT_ALLOW_PROTOCOL": "fd"},
        passed=(connection,),
        confined_thread=git.confined.confined_thread("git", rules, forks=True),
    )
    # Of several `insteadOf` the longest wins, so none of the repository can replace a URL that it can't know.
    url = f"fd::{connection}/{token_hex(8)}"
    own = [word for kind in ("insteadOf", "pushInsteadOf") for word in ("-c", f"url.{url}.{kind}={url}")]
    named = (url if word == REMOTE else word for word in words)
    argv = ("git", *_arguments(repository), *checkout.policy.overrides, *run.options, *own, *named)
    completed = await git.confined.run(argv, cwd=checkout.directory, options=options)
    return git.finished(completed, checkout, words[0], seconds=seconds)


def _arguments(repository: OpenRepository) -> Sequence[str]:
    """Return the options of every call, without the one that is in the way here, unless the repository sets its key."""
    if _REFERENCES.lower() in repository.checkout.policy.not_used:
        return repository.git.arguments
    neutral = f"{_REFERENCES}={FIXED_SETTINGS[_REFERENCES]}"
    at = repository.git.arguments.index(neutral)
    return (*repository.git.arguments[: at - 1], *repository.git.arguments[at + 1 :])


async def initialize(repository: OpenRepository, *words: str) -> None:
    """Run `git init` in a directory in which there is no repository yet.

    Raises:
        GitRefused: it failed.
    """
    git, checkout = repository.git, repository.checkout
    confined = git.confined.confined_thread("git", checkout.rules)
    confined_repository = replace(repository, checkout=replace(checkout, confined_thread=confined))
    require_success(await confined_repository.run("init", *words), "init")


async def serve(
    git: Git, directory: Directory, connection: int, words: Sequence[str], *, rules: Sequence[Rule]
) -> Completed:
    """Run a service of git (upload-pack, receive-pack) in a repository that was examined, on a socket."""
    programs = await _own_programs(git, directory)
    options = RunOptions(
        timeout_seconds=git.limits.transfer_seconds,
        environment={**git.programs, **git.identity, **ENVIRONMENT, "GIT_PROTOCOL": "version=2"},
        inherit=False,
        memory_bytes=git.memory_bytes,
        connection=connection,
        confined_thread=git.confined.confined_thread("git", (*rules, *programs), forks=True),
    )
    return await git.confined.run(("git", *_SERVICE_OPTIONS, *words), cwd=directory, options=options)


async def _own_programs(git: Git, directory: Directory) -> tuple[Rule, ...]:
    """Return Landlock rules that let git start git. In some installations it has several files."""
    options = RunOptions(
        timeout_seconds=git.limits.git_seconds,
        environment={**git.programs, **ENVIRONMENT},
        inherit=False,
        confined_thread=git.confined.confined_thread("git", ()),
    )
    completed = await git.confined.run(("git", "--exec-path"), cwd=directory, options=options)
    place = require_success(completed, "--exec-path").stdout.text().strip()
    if reason := git.runner.reach.reason(place):
        raise CannotStart(f"git: {reason}; install git elsewhere, or vouch for it with --trust PATH")
    return tuple((f"{place}/{name}", EXECUTE | READ_FILE) for name in _OWN_PROGRAMS)
