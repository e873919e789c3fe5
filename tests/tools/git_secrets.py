"""Repositories with a canary at every place where git, or a person who works with it, puts a credential."""

import os
import subprocess
from pathlib import Path

from tests.tools.git.world import without_samples

CANARY = "c4n4ry"


class Canaries:
    """Credentials that differ, so that a test reports which one was seen."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def token(self, place: str) -> str:
        """A token that begins with the canary."""
        value = f"{CANARY}{len(self.places):02d}Zz0123456789abcdef"
        self.places[value] = place
        return value

    def address(self, place: str) -> str:
        return f"https://user:{self.token(place)}@host.example/x"

    def seen_in(self, text: str) -> list[str]:
        """The places whose canary a text contains."""
        return [place for value, place in self.places.items() if value in text]


def git(*words: str, directory: Path) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": without_samples(),
    }
    argv = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(argv, cwd=directory, env=environment, check=True, capture_output=True, text=True).stdout


def plant(top: Path) -> Canaries:
    """Create the repositories beneath `top`."""
    canaries = Canaries()
    project = top / "project"
    git("init", "-q", "-b", "main", str(project), directory=top)
    (project / "file").write_text("one\n")
    git("add", ".", directory=project)
    git("commit", "-qm", "one", directory=project)
    git("clone", "-q", "--bare", str(project), "bare.git", directory=top)
    git("submodule", "-q", "add", str(top / "bare.git"), "libs/sub", directory=project)
    git("commit", "-qm", "sub", directory=project)
    git("worktree", "add", "-q", "../tree", directory=project)
    git("init", "-q", "--separate-git-dir=../apart", "../work", directory=project)
    _plant_in_git_directories(top, canaries)
    _plant_included(top, canaries)
    _plant_links(top, canaries)
    for directory in (top / "project" / ".git", top / "bare.git"):  # last: git writes no configuration beside one
        (directory / "config.lock").write_text(f'[remote "b"]\n\turl = {canaries.address("config.lock")}\n')
    return canaries


def _plant_in_git_directories(top: Path, canaries: Canaries) -> None:
    own = top / "project" / ".git"
    git("config", "extensions.worktreeConfig", "true", directory=top / "project")
    for directory in (own, own / "modules" / "libs" / "sub", top / "bare.git", top / "apart"):
        where = directory.relative_to(top)
        git("config", "--file", "config", "remote.o.url", canaries.address(f"{where}/config"), directory=directory)
        for name in ("config.bak", "config~", "config.orig", "my-config", "Config.OLD"):
            (directory / name).write_text(f'[remote "b"]\n\turl = {canaries.address(f"{where}/{name}")}\n')
        (directory / "config.part").write_text(f'[remote "c"]\n\turl = {canaries.address(f"{where}/part")}\n[unfin')
        (directory / "config.note").write_text(f"# {canaries.address(f'{where}/note')}\n[core]\n")
        for name in ("credentials", ".git-credentials"):
            (directory / name).write_text(f"{canaries.address(f'{where}/{name}')}\n")
        for name in ("remotes", "branches"):
            (directory / name).mkdir(exist_ok=True)
        (directory / "remotes" / "old").write_text(f"URL: {canaries.address(f'{where}/remotes')}\nPull: x\n")
        (directory / "branches" / "old").write_text(f"{canaries.address(f'{where}/branches')}#main\n")
    tree = own / "worktrees" / "tree"
    (tree / "config.worktree").write_text(
        f'[http "https://h/"]\n\textraheader = X-Token: {canaries.token("config.worktree")}\n'
    )
    # git writes the URL into the reflog, although not into FETCH_HEAD.
    address = canaries.address("reflog")
    local = f"url.{top}/bare.git.insteadOf={address}"
    git("-c", local, "pull", "-q", "--no-rebase", address, "main", directory=top / "tree")
    git(
        "-c", local, "-c", "core.logAllRefUpdates=always", "fetch", "-q", address, "main:pulled", directory=top / "tree"
    )


def _plant_included(top: Path, canaries: Canaries) -> None:
    project = top / "project"
    for key, value in (
        ("include.path", "secrets.inc"),
        ("include.path", "../team.inc"),
        ("includeIf.gitdir:**.path", "../conditional.inc"),
        ("include.path", "../.gitconfig-shared"),
    ):
        git("config", "--add", key, value, directory=project)
    header = f"AUTHORIZATION: basic {canaries.token('secrets.inc')}"
    (project / ".git" / "secrets.inc").write_text(f"[http]\n\textraHeader = {header}\n")
    chain = f'[include]\n\tpath = team.inc\n\tpath = deep/chain.inc\n[url "{canaries.address("team.inc")}"]\n'
    (project / "team.inc").write_text(f"{chain}\tinsteadOf = short:\n")
    (project / "deep").mkdir()
    (project / "deep" / "chain.inc").write_text(f'[submodule "x"]\n\turl = {canaries.address("chain.inc")}\n')
    helper = f'"!f() {{ echo password={canaries.token("conditional.inc")}; }}; f"'
    (project / "conditional.inc").write_text(f"; mine\n[credential]\n\thelper = {helper}\n")
    (project / ".gitconfig-shared").write_text(f"[sendemail]\n\tsmtpPass = {canaries.token('.gitconfig-shared')}\n")
    (project / ".gitmodules").write_text(f'[submodule "y"]\n\turl = {canaries.address(".gitmodules")}\n')
    for name in (".gitconfig", "gitconfig", ".lfsconfig"):
        (top / name).write_text(f"[lfs]\n\turl = {canaries.address(name)}\n")


def _plant_links(top: Path, canaries: Canaries) -> None:
    git("init", "-q", "linked", directory=top)
    (top / "linked" / ".git" / "config").rename(top / "elsewhere")
    (top / "linked" / ".git" / "config").symlink_to("../../elsewhere")
    git("config", "remote.o.url", canaries.address("target of a link"), directory=top / "linked")
    git("init", "-q", "moved", directory=top)
    git("config", "remote.o.url", canaries.address("target of .git"), directory=top / "moved")
    (top / "moved" / ".git").rename(top / "store")
    (top / "moved" / ".git").symlink_to("../store")
    os.link(top / "project" / ".git" / "config", top / "hard.txt")
