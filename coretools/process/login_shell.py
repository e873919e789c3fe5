"""Read the PATH of the user's login shell: desktop clients start servers with a PATH that lacks the user's toolchains.

Starts the shell once, before the first command, with the environment of a fresh login. Whatever goes wrong leaves the
server's own PATH. A profile can start anything, and the shell can be killed at any moment (a deadline, the end of the
server), so the kernel refuses it to change files: a lock that it left behind would stop every later login.
"""

import logging
import os
import pwd
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import anyio

from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.landlock import CHANGE, DEVICE, RUN, Rule
from coretools.errors import CoreError
from coretools.process.out_of_reach import confined_out_of_reach
from coretools.process.run import RunOptions
from coretools.process.runner import Runner
from coretools.roots.open_beneath import HANDLE
from coretools.roots.read import open_directory
from coretools.roots.root_set import Roots

logger = logging.getLogger(__name__)

SECONDS = 5.0
"""Deadline of the shell. Its processes are stopped then, which takes up to the limit `grace_seconds` more."""

OUTPUT_BYTES = 64 * 1024
"""Kept of what it prints."""

FRESH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH at the start, as login(1) sets it."""

INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
"""Variables of the server that profiles may rely on; no other is passed."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""What it may write, besides a temporary directory of its own."""

PYENV_REHASH_TIMEOUT = "-1"
"""Seconds for which `pyenv rehash`, which `pyenv init` runs, tries to take its lock, 60 by default. Below 0 it does not
try: it neither waits for a lock that somebody left behind nor takes one where the kernel can't refuse that."""

NO_SHELLS = ("", "nologin", "false", "sync")
"""Names of programs in the user database that are no shells."""


class LoginShell:
    """The login shell of the user, which is started once."""

    def __init__(
        self,
        roots: Roots,
        environment: Mapping[str, str],
        confined_threads: ConfinedThreadPool,
        *,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        self._confined_threads = confined_threads
        self._roots = roots
        self._environment = environment
        self._lock = anyio.Lock()
        self._is_read = False
        self._entries: tuple[str, ...] = ()
        self.fault = ""
        """Why its PATH is unknown; empty if it is known, or was not read yet."""

    def path(self) -> tuple[str, ...]:
        """Return the directories on its PATH, in order; empty before `read` and if it can't be read."""
        return self._entries

    async def read(self, runner: Runner) -> None:
        """Start the shell unless that was done already, and keep its PATH."""
        async with self._lock:
            if self._is_read:
                return
            try:
                await self._read(runner)
            except CoreError as error:
                self.fault = str(error)
            self._is_read = True  # not after a cancellation: the next command tries again
        if self.fault:
            logger.warning("the PATH of the login shell is not known: %s", self.fault)

    async def _read(self, runner: Runner) -> None:
        account = _account()
        if account is None or os.path.basename(account.pw_shell) in NO_SHELLS:
            self.fault = "this user has no login shell"
            return
        mark = secrets.token_hex(8)
        # printf of sh: shells differ in how they print a list. In single quotes all of them pass it on unchanged.
        line = f'exec /bin/sh -c \'printf "\\n{mark}%s\\n" "$PATH"\''
        options = RunOptions(
            timeout_seconds=self._seconds,
            keep_bytes=OUTPUT_BYTES,
            environment=self._variables(account),
            inherit=False,
            is_swept=True,
        )
        with (
            open_directory(self._roots, ".") as directory,
            replace(directory, fd=os.open("/", HANDLE), display_path="/") as top,
            self._confined(options, runner) as options,
        ):
            run = await runner.run((account.pw_shell, "-l", "-c", line), cwd=top, options=options)
        lines = run.stdout.text().splitlines()
        printed = next((line.removeprefix(mark) for line in reversed(lines) if line.startswith(mark)), None)
        if printed is None:
            why = f"did not answer within {self._seconds:g} s" if run.timed_out else "did not print it"
            self.fault = f"{account.pw_shell} {why}"
            return
        self._entries = tuple(entry for entry in printed.split(os.pathsep) if os.path.isabs(entry))

    @contextmanager
    def _confined(self, options: RunOptions, runner: Runner) -> Iterator[RunOptions]:
        """Add a confined thread and a temporary directory; nothing where the kernel can't confine it.

        Raises:
            InputOutput, Busy: it can't be confined now.
        """
        if not self._confined_threads.is_possible:
            yield options
            return
        with _temporary_directory(runner.scratch) as temporary:
            more: list[Rule] = [(path, DEVICE) for path in DEVICES]
            variables = dict(options.environment)
            if temporary:  # here-documents are files in some shells
                more.append((temporary, RUN | CHANGE))
                variables |= {"TMPDIR": temporary, "TMPPREFIX": f"{temporary}/zsh"}
            # A profile would run an agent's file that it reads, and the PATH that it prints would tell commands what
            # is in files of the user.
            options = replace(options, environment=variables)
            with confined_out_of_reach(options, runner, RUN, more=more) as confined:
                yield confined

    def _variables(self, account: pwd.struct_passwd) -> dict[str, str]:
        given = {name: self._environment[name] for name in INHERITED if name in self._environment}
        return {
            "HOME": account.pw_dir,
            **given,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell,
            "PATH": FRESH_PATH,
            "TERM": "dumb",
            "PYENV_REHASH_TIMEOUT": PYENV_REHASH_TIMEOUT,
        }


@contextmanager
def _temporary_directory(path: str) -> Iterator[str]:
    """Create this directory for the time of the context; its path, or "" where it can't be created."""
    try:
        os.mkdir(path, 0o700)
    except OSError:
        yield ""
        return
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:
        return None
