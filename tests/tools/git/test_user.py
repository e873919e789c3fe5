"""The user's own git configuration: identity, aliases, ignore rules and habits, for the tools and for git in commands
(docs/specs/git-user.md). Through the workstation server, in both tiers."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.config.policy_schema import parse_policy
from coretools.errors import BadSetting, GitRefused
from coretools.tools.git.repository.habits import pull_mode, rebase_autosquash
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer
from tests.tools.git.world import HOME_CONFIG, World

ADA = "Ada Lovelace <ada@example.org>"
WORK = "Ada at Work <ada@work.example>"
PLANTED = "Eve <eve@evil.example>"

CONFIG = """[user]
	name = Ada Lovelace
	email = ada@example.org
[alias]
	co = checkout
	lg = log --oneline -1
	danger = !touch {marker}
	odd = -c core.pager=touch log
[core]
	excludesFile = ~/my-ignore
	editor = touch {marker}
	pager = touch {marker}
	fsmonitor = {marker}.sh
	hooksPath = {top}/hooks
[init]
	defaultBranch = trunk
[pull]
	rebase = true
[credential]
	helper = !touch {marker}
[include]
	path = more.inc
[include]
	path = {root}/planted.inc
[includeIf "gitdir:~/projects/office/"]
	path = work.inc
[includeIf "gitdir:{root}/"]
	path = {root}/planted.inc
[diff]
	external = touch {marker}
"""


class User:
    """A user with a configuration, a root with two repositories, and a server for it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.home = top / "home"
        self.root = self.home / "projects"
        self.marker = top / "marker"
        (self.root / "office").mkdir(parents=True)
        (top / "hooks").mkdir()
        for name in ("pre-commit", "post-checkout"):
            self._program(top / "hooks" / name)
        self._program(Path(f"{self.marker}.sh"))
        text = CONFIG.format(marker=self.marker, root=self.root, top=top)
        (self.home / ".gitconfig").write_text(text)
        (self.home / "more.inc").write_text("[merge]\n\tconflictStyle = diff3\n")
        (self.home / "work.inc").write_text("[user]\n\tname = Ada at Work\n\temail = ada@work.example\n")
        (self.root / "planted.inc").write_text("[user]\n\tname = Eve\n\temail = eve@evil.example\n")
        (self.home / "my-ignore").write_text("*.bak\n")
        self.environment = {"HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        for name in ("one", "office/two"):
            self.git("init", "-q", "-b", "main", str(self.root / name))
            (self.root / name / "f").write_text("one\n")
            self.git("-C", str(self.root / name), "add", "f")
            self.git("-C", str(self.root / name), "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "first")
        self.marker.unlink(missing_ok=True)

    def _program(self, path: Path) -> None:
        path.write_text(f"#!/bin/sh\ntouch {self.marker}\n")
        path.chmod(0o755)

    def git(self, *words: str) -> str:
        environment = {"PATH": os.environ["PATH"], **self.environment, "GIT_CONFIG_COUNT": "1"}
        environment |= {"GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "false"}
        return subprocess.run(["git", *words], env=environment, check=True, capture_output=True, text=True).stdout

    def authors(self, name: str, most: int = 1) -> list[str]:
        """Author and committer of the last commits."""
        out = self.git("-C", str(self.root / name), "--no-pager", "log", f"-{most}", "--format=%an <%ae>|%cn <%ce>")
        return out.splitlines()


class Served:
    """The user's server."""

    def __init__(self, user: User, client: Peer, tier: str) -> None:
        self.user, self.client, self.tier = user, client, tier

    def tool(self, name: str, **arguments: object) -> str:
        result = self.client.call(name, **arguments)
        text: str = result["content"][0]["text"]
        assert not result.get("isError"), text
        return text

    def sh(self, text: str, directory: str) -> tuple[int, str]:
        """Run shell text as a command; exit code and output."""
        result: dict[str, Any] = self.client.call(
            "run_command", command=shlex.join(["sh", "-c", text]), directory=directory, timeout_seconds=60
        )
        return result["_meta"]["coretools/facts"]["exit_code"], result["content"][0]["text"]


@pytest.fixture(scope="module", params=["full", "landlock"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    user = User(tmp_path_factory.mktemp("user"))
    before = under_profile() if request.param == "landlock" else ()
    policy = user.top / "policy.toml"
    policy.write_text('[git]\ntrailer = "Assisted-by: coretools"\n')
    words = (user.root, "--profile", "all", "--policy", policy)
    with peer(*words, before=before, environment=user.environment) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield Served(user, client, request.param)


@pytest.mark.parametrize(("name", "author"), [("one", ADA), ("office/two", WORK)])
def test_every_way_to_commit_has_the_same_author(served: Served, name: str, author: str) -> None:
    """git-user-1, git-user-2, git-user-3, git-user-9: tools and commands, also where a condition of the user's
    configuration holds; a file in a root gives nobody a name."""
    tree = served.user.root / name
    (tree / "f").write_text("two\n")
    served.tool("git_add", paths=["."], repository=name)
    served.tool("git_commit", message="by tool", repository=name)
    (tree / "f").write_text("three\n")
    assert served.sh("git commit -qam 'by command' && git commit -q --amend -m 'amended by command'", name)[0] == 0
    served.tool("git_commit", message="amended by tool", amend=True, repository=name)
    (tree / "g").write_text("side\n")
    start = "git switch -qc side HEAD~1 && git add g && git commit -qm side && git switch -q main"
    assert served.sh(start, name)[0] == 0
    served.tool("git_merge", revision="side", repository=name)
    (tree / "f").write_text("stashed\n")
    served.tool("git_stash", action="push", repository=name)
    assert served.user.git("-C", str(tree), "log", "-1", "--format=%an <%ae>", "stash@{0}").strip() == author
    assert served.sh("git stash pop -q && git stash -q", name)[0] == 0
    assert served.user.git("-C", str(tree), "log", "-1", "--format=%an <%ae>", "stash@{0}").strip() == author
    served.tool("git_switch", branch="side", repository=name)
    served.tool("git_rebase", upstream="main~1", repository=name)
    assert served.sh("git rebase -q --force-rebase HEAD~1 && git revert --no-edit HEAD", name)[0] == 0
    assert set(served.user.authors(name, 3)) == {f"{author}|{author}"}
    served.tool("git_switch", branch="main", repository=name)
    assert set(served.user.authors(name, 4)) == {f"{author}|{author}"}
    trailers = served.user.git("-C", str(tree), "log", "-4", "--format=%s:%(trailers:key=Assisted-by,valueonly)")
    assert {line for line in trailers.splitlines() if line} == {
        "Merge branch 'side':coretools",
        "side:",
        "amended by tool:coretools",
        "by tool:coretools",
    }
    assert not served.user.marker.exists()


def test_the_ignore_rules_of_the_user_hold_for_tools_and_commands(served: Served) -> None:
    """git-user-4: a tool stages nothing that the user's own git would not."""
    tree = served.user.root / "one"
    (tree / "x.bak").write_text("x\n")
    (tree / "new.txt").write_text("new\n")
    served.tool("git_add", paths=["."], repository="one")
    assert "x.bak" not in served.tool("git_status", repository="one")
    assert "x.bak" not in served.sh("git status --short --untracked-files=all", "one")[1]
    assert served.user.git("-C", str(tree), "ls-files", "x.bak", "new.txt") == "new.txt\n"


def test_habits_and_aliases_hold_in_commands_and_programs_of_the_user_do_not_start(served: Served) -> None:
    """git-user-5, git-user-6: an alias that is a git command works; one with a shell, hooks, pagers, editors and
    monitors of the user do not exist here."""
    line = "git lg && git co -q main && git config pull.rebase && git config merge.conflictStyle"
    code, out = served.sh(line, "one")
    assert code == 0, out
    assert out.splitlines()[-2:] == ["true", "diff3"], out
    assert served.sh("git init -q fresh && git -C fresh symbolic-ref HEAD && rm -rf fresh", ".")[1].count("trunk") == 1
    for text in ("git danger", "git odd", "git -p log -1", "git commit --amend", "git config core.hooksPath"):
        served.sh(text, "one")
    assert not served.user.marker.exists()


def test_no_command_changes_the_configuration_of_the_user(served: Served) -> None:
    """git-user-7: by git, by any name of the file, or by replacing it; the answer says what works."""
    before = (served.user.home / ".gitconfig").read_bytes()
    code, out = served.sh("git config --global user.name Eve", "one")
    assert code != 0, out
    assert "is read-only for commands" in out, out
    for text in (
        'echo "[user]" > "${GIT_CONFIG_GLOBAL:-$HOME/.gitconfig}"',
        'f="${GIT_CONFIG_GLOBAL:-$HOME/.gitconfig}"; echo "[user]name=Eve" > f2; mv f2 "$f" || { rm -f f2; exit 1; }',
        'rm -f "${GIT_CONFIG_GLOBAL:-$HOME/.gitconfig}"',
        'f="${GIT_CONFIG_GLOBAL:-$HOME/.gitconfig}"; chmod 777 "$f" && echo "[user]name=Eve" >> "$f"',
        'd=$(git config core.excludesFile); echo "*" >> "$d"',
    ):
        assert served.sh(text, "one")[0] != 0, text
    assert served.sh("git config user.name", "one")[1].count("Ada Lovelace") == 1
    assert (served.user.home / ".gitconfig").read_bytes() == before


def test_a_configuration_that_is_replaced_has_no_effect_before_a_reload(served: Served) -> None:
    """git-user-2: it was read at the start; nothing that happens to it during a call reaches git."""
    path = served.user.home / ".gitconfig"
    before = path.read_bytes()
    try:
        path.write_text(
            f"[user]\n\tname = Eve\n\temail = eve@evil.example\n[core]\n\tpager = {served.user.marker}.sh\n"
        )
        (served.user.root / "one" / "f").write_text(f"{time.monotonic_ns()}\n")
        served.tool("git_add", paths=["one/f"], repository="one")
        served.tool("git_commit", message="replaced", repository="one")
        assert served.user.authors("one") == [f"{ADA}|{ADA}"]
    finally:
        path.write_bytes(before)


async def test_habits_are_read_from_branch_repository_and_user(tmp_path: Path) -> None:
    """git-user-6, git-user-10: the branch's setting, then the repository's, then the user's."""
    user = "[pull]\n\trebase = merges\n\tff = only\n[rebase]\n\tautosquash\n"
    world = World(tmp_path, home_config=HOME_CONFIG + user).created()
    async with world.tools() as tools:

        async def read(branch: str = "main") -> tuple[str, bool]:
            async with tools.repositories.opened("work") as opened:
                return await pull_mode(opened, branch), await rebase_autosquash(opened)

        assert await read() == ("rebase", True)
        for key, value in (("branch.main.rebase", "false"), ("rebase.autosquash", "no")):
            world.git("config", key, value)
        assert await read() == ("ff-only", False)
        assert await read("other") == ("rebase", False)
        for value in ("true", "false"):
            world.git("config", "pull.ff", value)
            assert await read() == ("merge", False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[git]\ntrailer = "no colon"', "trailer must be one line"),
        ('[git]\ntrailer = "A: b\\nC: d"', "trailer must be one line"),
        ('[git]\nidentity = "me"', "git.identity"),
        ('[roots."/p".git]\nhooks = ["../x"]', "hooks must be names"),
        ('[roots."/p".git]\nfilters = ["a=b"]', "filters must be names"),
        ('[roots."p".git]\nsigning = true', "write absolute paths"),
        ('[roots."/p"]\nhooks = ["pre-commit"]', "unknown key"),
    ],
)
def test_a_wrong_key_about_git_ends_the_start(text: str, found: str) -> None:
    """git-user-8, git-user-9: with a sentence that names it."""
    with pytest.raises(BadSetting, match=re.escape(found)):
        parse_policy(text.encode(), "policy.toml", {})


@pytest.mark.parametrize("kind", ["fifo", "loop", "long", "broken", "binary", "directory", "deep", "values"])
async def test_any_file_of_the_user_is_read_or_left_out(tmp_path: Path, kind: str) -> None:
    """git-user-2, git-user-3: within bounds; git works, and nothing of it runs."""
    world = World(tmp_path).filled()
    config = world.home / ".gitconfig"
    author = HOME_CONFIG
    if kind == "fifo":
        config.unlink()
        os.mkfifo(config)
    elif kind == "directory":
        config.unlink()
        config.mkdir()
    elif kind == "deep":
        for number in range(30):
            (world.home / f"i{number}").write_text(f"[include]\n\tpath = i{number + 1}\n")
        config.write_text(f"{author}[include]\n\tpath = i0\n")
    else:
        values = (
            '[alias]\n\tx = "log\\n--exec=y"\n\ty = "\x01log"\n[core]\n\tpager\n\texcludesFile\n[user]\n\tsigningKey\n'
        )
        texts = {
            "loop": f'{author}[include]\n\tpath = .gitconfig\n[includeIf "gitdir:**"]\n\tpath = ~/.gitconfig\n',
            "long": author + "#" * 2_000_000,
            "broken": f"{author}[core\n",
            "binary": f"{author}\0\0",
            "values": author + values,
        }
        config.write_text(texts[kind])
    is_read = kind in ("loop", "deep", "values")
    async with world.tools() as tools:
        assert (await tools.git_status("work")).branch == "main"
        if is_read:
            assert "committed" in (await tools.git_commit("message", "work")).text()
            assert "Ada Lovelace: message" in (await tools.git_log("work", limit=1)).text()
        else:
            with pytest.raises(GitRefused, match="to commit under is known"):
                await tools.git_commit("message", "work")
