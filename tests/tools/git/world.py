"""A repository beneath a root, a canary outside it, and plain git for the setup."""

import atexit
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from coretools.config.limits import Limits
from coretools.confinement.confined_thread import ConfinedThreadPool
from coretools.confinement.user_git import read_user_configuration
from coretools.errors import CannotStart
from coretools.operations.call import Call
from coretools.operations.content import Result
from coretools.process.runner import Runner
from coretools.reach import Place, Reach
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.git.bisect.tools import BisectTools
from coretools.tools.git.branches.tools import BranchTools
from coretools.tools.git.commits.tools import CommitTools
from coretools.tools.git.merging.tools import MergingTools
from coretools.tools.git.reading.tools import ReadingTools
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.setup import GitSetup
from coretools.tools.git.stash.tools import StashTools
from coretools.tools.git.trust.tools import TrustTools
from coretools.tools.git.worktrees.tools import WorktreeTools

SECRET = "canary-content-that-stays-outside"
HOME_CONFIG = "[user]\n\tname = Ada Lovelace\n\temail = ada@example.org\n"


async def no_command(command: str | list[str], directory: str, *, timeout_seconds: int | None, call: Call) -> Result:
    """Stands for `run_command`."""
    raise CannotStart("these tests start no command; see test_bisect")


class GitTools(
    ReadingTools, TrustTools, CommitTools, BranchTools, StashTools, MergingTools, WorktreeTools, BisectTools
):
    """Every git tool that needs no network."""

    def __init__(self, repositories: Repositories) -> None:
        BisectTools.__init__(self, repositories, no_command)


@dataclass(frozen=True)
class World:
    """Directories of one test."""

    top: Path
    home_config: str = HOME_CONFIG
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directory in (self.root, self.outside, self.home):
            directory.mkdir(parents=True, exist_ok=True)
        self.canary.write_text(SECRET + "\n")
        (self.home / ".gitconfig").write_text(self.home_config)

    @property
    def root(self) -> Path:
        return self.top / "root"

    @property
    def repository(self) -> Path:
        return self.root / "work"

    @property
    def git_dir(self) -> Path:
        return self.repository / ".git"

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def canary(self) -> Path:
        return self.outside / "canary"

    @property
    def marker(self) -> Path:
        """A file that a program of the repository creates when it runs."""
        return self.top / "marker"

    @property
    def home(self) -> Path:
        return self.top / "home"

    def git(self, *words: str, cwd: Path | None = None, check: bool = True, stdin: bytes = b"") -> str:
        """Run plain git without protection, as a user does."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": "2026-03-01T12:00:00+00:00",
            "GIT_COMMITTER_DATE": "2026-03-01T12:00:00+00:00",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_TEMPLATE_DIR": without_samples(),
        }
        completed = subprocess.run(
            ["git", *words], cwd=cwd or self.repository, env=environment, input=stdin, capture_output=True
        )
        assert completed.returncode == 0 or not check, completed.stderr
        output = completed.stdout if check else completed.stdout + completed.stderr
        return output.decode("utf-8", "replace").rstrip("\n")

    def created(self) -> "World":
        """Create an empty repository."""
        self.git("init", "--quiet", "--initial-branch=main", str(self.repository), cwd=self.root)
        return self

    def filled(self) -> "World":
        """Create two commits, a staged change, an unstaged one, and an untracked file."""
        shutil.copytree(_template(self.home_config).repository, self.repository, symlinks=True, dirs_exist_ok=True)
        self.git("update-index", "-q", "--refresh", check=False)
        return self

    def _filled_by_git(self) -> "World":
        self.created()
        self.write("a.txt", "one\n")
        self.write("b.txt", "one\n")
        self.write("folder/c.txt", "one\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "first")
        self.write("b.txt", "two\n")
        self.git("commit", "--quiet", "-a", "-m", "second")
        self.write("a.txt", "unstaged\n")
        self.write("b.txt", "staged\n")
        self.git("add", "b.txt")
        self.write("new.txt", "new\n")
        return self

    def write(self, name: str, text: str) -> Path:
        """Write a file of the work tree."""
        path = self.repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str = "program", then: str = "exit 0") -> Path:
        """A program outside the root that creates the marker."""
        path = self.outside / name
        path.write_text(f"#!/bin/sh\necho ran >> {self.marker}\n{then}\n")
        path.chmod(0o755)
        return path

    @asynccontextmanager
    async def tools(
        self,
        *,
        limits: Limits | None = None,
        writable: bool = True,
        roots: tuple[RootSpec, ...] = (),
        resolver: str | None = None,
    ) -> AsyncIterator[GitTools]:
        """The tools for this world's root."""
        limits = limits or Limits(grace_seconds=0.3)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        environment.update(self.environment)
        reach = Reach([Place(str(self.root), "the writable root")] if writable else [])
        runner = Runner(limits, environment, reach=reach)
        confined_threads = ConfinedThreadPool()
        specs = (RootSpec(str(self.root), writable=writable), *roots)
        found = read_user_configuration(environment, reach)
        try:
            with (
                TemporaryDirectory() as directory,
                Roots(specs, deny=DenyRules(DEFAULT_DENY), resolver=resolver) as roots,
            ):
                setup = GitSetup(user_git=found.written(directory))
                yield GitTools(Repositories(roots, runner, limits, confined_threads=confined_threads, setup=setup))
        finally:
            await runner.close()
            confined_threads.close()


@cache
def without_samples() -> str:
    """What git copies into a new repository: no sample hooks, which would be half of the files of a small one."""
    directory = TemporaryDirectory(prefix="coretools-git-template-")
    atexit.register(directory.cleanup)
    for name in ("hooks", "info"):
        (Path(directory.name) / name).mkdir()
    return directory.name


@cache
def _template(home_config: str) -> World:
    """A filled world that others are copied from, because seven starts of git take a third of the time of a test."""
    directory = TemporaryDirectory(prefix="coretools-world-")
    atexit.register(directory.cleanup)
    return World(Path(directory.name), home_config)._filled_by_git()
