"""A repository that is open for one call, and how git runs there: environment, options, the meaning of failures.

The arguments of every call are built in this package. Nothing that a caller wrote comes before `--`, and every
revision is passed as the object name that it resolved to.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from coretools.config.call_context import caller_variables
from coretools.config.commit_author import VARIABLES
from coretools.config.limits import Limits
from coretools.confinement.memory import memory_bytes
from coretools.errors import GitRefused, InvalidArguments, NotFound, TooLarge
from coretools.process.confined_runner import ConfinedRunner
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.roots import directory_access
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import content_bytes
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.granted_run import run_granted, starts_granted_program
from coretools.tools.git.repository.grants import NO_GRANTS
from coretools.tools.git.repository.index_lock import LOCKING_COMMANDS, index_lock, is_refused, run_when_unlocked
from coretools.tools.git.repository.policy import FIXED_SETTINGS, PATTERN_FILES
from coretools.tools.git.repository.porcelain import decoded, single_line
from coretools.tools.git.repository.setup import GitSetup
from coretools.truncation import Excerpt

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        # Not a directory, so `~/x` in a configuration is a missing file and no error.
        "HOME": "/dev/null",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": ":",
        "GIT_SEQUENCE_EDITOR": ":",
        "GIT_MERGE_AUTOEDIT": "no",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }
)
"""All variables that git gets besides PATH and the location of the repository. The server's own variables are not
passed: git would obey a GIT_DIR or a GIT_EXTERNAL_DIFF among them."""

OPTIONS: tuple[str, ...] = (
    "--no-pager",
    *(word for key, value in FIXED_SETTINGS.items() for word in ("-c", f"{key}={value}")),
)

REVISION_BYTES = 1_000
"""Longest revision accepted."""

MESSAGE_CHARACTERS = 500
"""Longest part of git's own message in an error."""

MEMORY_BYTES = 4 * 1024**3
"""Most memory of a git process, or half of the machine's: an object or a regular expression may ask for any amount."""

_WITHHELD = Excerpt(b"failed; its message may quote configuration outside the roots and is withheld", b"", 0)

_ENDS_PICK = ("commit", "reset", "cherry-pick", "revert", "rebase")
_PICKED = ("CHERRY_PICK_HEAD", "REVERT_HEAD")
"""What these commands delete when they succeed. In a linked work tree they can't: git deletes references under a lock
in the common directory, where a change may not write, and goes on without a word."""

_MISSING = re.compile(r"promisor|could not fetch|unable to read|bad object|missing|lazy", re.IGNORECASE)
"""What git says when it has not got an object."""

_COMMIT = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) commit [0-9]+")
"""How git describes a commit: object name, type and size."""

_OBJECT = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (commit|tag|tree|blob) [0-9]+")


class Git:
    """How git runs in every repository: its options, identity and limits."""

    def __init__(self, runner: Runner, confined: ConfinedRunner, limits: Limits, setup: GitSetup) -> None:
        self.runner = runner
        self.tool_path = runner.tool_path
        self.confined = confined
        self.setup = setup
        self.user_git = setup.user_git
        files = zip(PATTERN_FILES, (self.user_git.ignore, self.user_git.attributes), strict=True)
        self.arguments = (*OPTIONS, *(word for key, path in files for word in ("-c", f"{key}={path}")))
        self.limits = limits
        self.memory_bytes = min(MEMORY_BYTES, memory_bytes() // 2)
        given = runner.environment
        self.programs = {"PATH": runner.tool_path}
        self.environment = {**self.programs, **ENVIRONMENT, "GIT_CONFIG_GLOBAL": self.user_git.config}
        """That of every call; the identity and the location of the repository are added."""
        self._identity = {name: given[name] for name in VARIABLES if name in given}

    @property
    def answer_bytes(self) -> int:
        """The bytes of an answer that text of git may take."""
        return content_bytes(self.limits)

    @property
    def output_bytes(self) -> int:
        """The bytes of output of one git process that are kept."""
        return self.limits.git_output_bytes

    @property
    def identity(self) -> Mapping[str, str]:
        """Author and committer as configured by the operator or the caller's token, as git's four variables."""
        return {**self._identity, **caller_variables()}

    def finished(
        self, completed: Completed, checkout: Checkout, command: str, *, seconds: float | None = None
    ) -> Completed:
        """Return what may be shown of a finished command.

        Raises:
            GitRefused: it took too long.
        """
        if completed.timed_out:
            seconds = self.limits.git_seconds if seconds is None else seconds
            raise GitRefused(f"git {command} took longer than {seconds:g} s and was stopped")
        # The message could quote a value of a file outside the roots.
        return replace(completed, stderr=_WITHHELD) if checkout.policy.external_includes else completed


@dataclass(frozen=True, slots=True)
class OpenRepository:
    """What a function about one repository needs: its roots, its examined work tree, and git to run there."""

    roots: Roots
    git: Git
    checkout: Checkout

    def with_environment(self, variables: Mapping[str, str]) -> Self:
        """Return the same repository with further variables for git."""
        environment = {**self.checkout.environment, **variables}
        return replace(self, checkout=replace(self.checkout, environment=environment))

    async def run(
        self,
        *words: str,
        options: Sequence[str] = (),
        stdin: bytes | None = None,
        keep_bytes: int | None = None,
    ) -> Completed:
        """Run one git command to its end, whatever its exit code. `options` are further `-c` options.

        Raises:
            GitRefused: it took too long. CannotStart: there is no git in PATH.
        """
        git, checkout = self.git, self.checkout
        run_options = self.run_options(stdin=stdin, keep_bytes=keep_bytes)
        argv = ("git", *git.arguments, *checkout.policy.overrides, *options, *words)
        is_granted = checkout.grants is not NO_GRANTS and starts_granted_program(checkout.grants, words[0])
        if is_granted:
            run_options = replace(run_options, timeout_seconds=git.limits.run_seconds)

        async def run() -> Completed:
            if is_granted:
                return await run_granted(git.runner, checkout, checkout.grants, argv, run_options)
            return await git.confined.run(argv, cwd=checkout.directory, options=run_options)

        completed = await (run_when_unlocked(run, checkout) if words[0] in LOCKING_COMMANDS else run())
        if checkout.is_linked and completed.ok and words[0] in _ENDS_PICK and "--no-commit" not in words:
            for name in _PICKED:
                directory_access.remove_file(checkout.git_handle, name)
        if is_refused(completed):
            lock = await index_lock(checkout)
            state = lock or "another process held its lock and has released it; try again"
            completed = replace(completed, stderr=Excerpt(f"the index is locked: {state}".encode(), b"", 0))
        if not completed.ok and checkout.is_partial and _MISSING.search(completed.stderr.text()):
            message = (
                completed.stderr.text().strip() + "; this is a partial clone, and what it lacks is not fetched here"
            )
            completed = replace(completed, stderr=Excerpt(message.encode(), b"", 0))
        return git.finished(completed, checkout, words[0], seconds=run_options.timeout_seconds)

    async def output(self, *words: str, stdin: bytes | None = None) -> bytes:
        """Run a git command and return its complete standard output.

        Raises:
            GitRefused: it failed, with git's own reason. TooLarge: it printed more than the limit.
        """
        return self.complete_output(await self.run(*words, stdin=stdin), words[0])

    def run_options(self, *, stdin: bytes | None = None, keep_bytes: int | None = None) -> RunOptions:
        """Return how git runs here: its complete environment, confinement and deadline."""
        git, checkout = self.git, self.checkout
        return RunOptions(
            timeout_seconds=git.limits.git_seconds,
            stdin=stdin,
            environment={**git.environment, **git.identity, **checkout.environment},
            inherit=False,
            confined_thread=checkout.confined_thread,
            memory_bytes=git.memory_bytes,
            keep_bytes=git.limits.git_output_bytes if keep_bytes is None else keep_bytes,
        )

    def complete_output(self, completed: Completed, command: str) -> bytes:
        """Return the complete standard output of a finished command.

        Raises:
            The errors of `output`.
        """
        require_success(completed, command)
        if completed.stdout.dropped_bytes:
            most = self.git.limits.git_output_bytes
            raise TooLarge(f"git {command} printed more than {most} bytes; ask for less (name paths)", limit=most)
        return completed.stdout.head + completed.stdout.tail

    async def resolved(self, *revisions: str) -> list[str]:
        """Resolve revisions to commits, as the hexadecimal names that every later command gets instead.

        Raises:
            InvalidArguments: not a revision. NotFound: no such commit.
        """
        if not revisions:
            return []
        lines = await self._object_lines(revisions, "^{commit}")
        commits = []
        for revision in revisions:
            match = _COMMIT.fullmatch(next(lines, b""))
            if match is None:
                hint = "; a range is two revisions, give each one separately" if ".." in revision else ""
                raise NotFound(f"revision {revision!r}: names no commit of this repository{hint}")
            commits.append(match[1].decode("ascii"))
        return commits

    async def _object_lines(self, revisions: Sequence[str], peel: str) -> Iterator[bytes]:
        """Return git's line about each revision; git ends, without further lines, at a branch that lacks an upstream.

        Raises:
            InvalidArguments: not a revision.
        """
        for revision in revisions:
            check_revision(revision)
        # One revision per line, of printable characters only: no line can be an option or a range.
        stdin = "".join(f"{revision}{peel}\n" for revision in revisions).encode()
        output = (await self.run("cat-file", "--batch-check", stdin=stdin)).stdout
        return iter((output.head + output.tail).split(b"\n"))

    async def objects(self, *revisions: str) -> list[tuple[str, str]]:
        """Resolve revisions to objects of any kind: the hexadecimal name and the type ("commit", "tag", ...) of each.

        Raises:
            InvalidArguments: not a revision. NotFound: no such object.
        """
        lines = await self._object_lines(revisions, "")
        objects = []
        for revision in revisions:
            match = _OBJECT.fullmatch(next(lines, b""))
            if match is None:
                raise NotFound(f"revision {revision!r}: names nothing in this repository")
            objects.append((match[1].decode("ascii"), match[2].decode("ascii")))
        return objects

    async def settings(self, pattern: str, *, only_user: bool = False) -> dict[str, str]:
        """Return settings whose key matches, as git reads them: the user's, then those of the repository.

        Raises:
            GitRefused: git can't read its configuration.
        """
        scope = ("--global",) if only_user else ()
        argv = ("git", "--no-pager", "config", *scope, "--includes", "-z", "--get-regexp", pattern)  # no `-c` of ours
        completed = await self.git.confined.run(argv, cwd=self.checkout.directory, options=self.run_options())
        completed = self.git.finished(completed, self.checkout, "config")
        if completed.exit_code == 1:  # git-config(1): no key matches
            return {}
        output = require_success(completed, "config").stdout
        pairs = (record.partition(b"\n") for record in (output.head + output.tail).split(b"\0") if record)
        return {decoded(key): decoded(value) for key, _, value in pairs}


OpenShared = Callable[[], AbstractAsyncContextManager[OpenRepository]]
"""Opens a repository once more, to change what its work trees share; git may not write the work tree there."""


def require_success(completed: Completed, command: str) -> Completed:
    """Return the completed command if it succeeded.

    Raises:
        GitRefused: it failed, with git's own reason.
    """
    if completed.ok:
        return completed
    raise GitRefused(f"git {command}: {failure_message(completed)}", exit_code=completed.exit_code)


_UNWRITTEN = "error: unable to write file "
"""Before a file of the work tree; before one of the repository too, and then the reason follows."""
_WHEN_UNWRITTEN = (
    " (is the disk full?); git_status shows what was changed or created until then, git_restore takes changes back"
)


def failure_message(completed: Completed) -> str:
    """Return git's own message in one line, or how it ended."""
    lines = [line for line in completed.stderr.text().split("\n") if not line.startswith("hint: ")]
    unwritten = [line for line in lines if line.startswith(_UNWRITTEN) and ": " not in line.removeprefix(_UNWRITTEN)]
    if unwritten:
        count = f" and {len(unwritten) - 1} more files" if len(unwritten) > 1 else ""
        others = [line for line in lines if line not in unwritten]
        lines = [f"{unwritten[0]}{count}{_WHEN_UNWRITTEN}", *others]
    message = single_line(" ".join(" ".join(lines).split()).removeprefix("fatal: "))[:MESSAGE_CHARACTERS]
    return message or completed.signal or f"exit code {completed.exit_code}"


def check_revision(revision: str) -> None:
    """Refuse text that git could take for anything but a revision.

    Raises:
        InvalidArguments: empty, too long, an option, or with unprintable characters.
    """
    if not revision or len(revision.encode("utf-8", "replace")) > REVISION_BYTES:
        raise InvalidArguments(f"revision: must have 1 to {REVISION_BYTES} bytes")
    if revision.startswith("-"):
        raise InvalidArguments(f"revision {revision[:80]!r}: begins with '-'; options are not accepted here")
    if not all(character.isprintable() for character in revision):
        raise InvalidArguments(f"revision {revision[:80]!a}: contains an unprintable character")
