"""Settings of editors and agents: no git tool changes existing ones, and each names new ones.

A row prepares a repository with plain git, as a command of an agent can, and makes one call of a real server. It is
tried with a tracked `.vscode`, with an untracked one, and without any, in repositories beneath one root.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coretools.errors import DeniedPath
from coretools.roots.root import RootSpec
from tests.protocol.peer import Peer, peer
from tests.tools.git.world import World

SETTING = ".vscode/tasks.json"
MINE = "".join(f"mine {number}\n" for number in range(20))
EVIL = MINE + "evil\n"
NOTE = "editors and agents act on "
REFUSAL = "--allow-editor-settings"

TRACKED, UNTRACKED, ABSENT = "tracked", "untracked", "absent"
EXISTING = (TRACKED, UNTRACKED)


@dataclass(frozen=True)
class Repository:
    """The repository of one row."""

    world: World
    path: Path
    variant: str

    @property
    def mine(self) -> dict[str, str | None]:
        """The user's settings as a part of a commit."""
        return {SETTING: MINE if self.variant == TRACKED else None}

    def git(self, *words: str, stdin: str = "", check: bool = True) -> str:
        return self.world.git(*words, cwd=self.path, stdin=stdin.encode(), check=check)

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def branch(self, name: str, parent: str, files: dict[str, str | None], *, mode: str = "100644") -> str:
        """Make a branch with one commit more, without index and work tree. None deletes a file."""
        lines = [f"commit refs/heads/{name}", "mark :1", "committer A <a@example.org> 1700000000 +0000"]
        lines += ["data 1", "m", f"from {parent}^0"]
        for path, text in files.items():
            lines += [f"D {path}"] if text is None else [f"M {mode} inline {path}", f"data {len(text)}", text]
        return self.git("fast-import", "--quiet", "--force", stdin="\n".join([*lines, "get-mark :1", ""]))

    def settings(self) -> dict[str, bytes]:
        """Every file of the settings, by its name in them."""
        found = ((name.rpartition(".vscode/"), data) for name, data in self.state().items())
        return {name: data for (_, separator, name), data in found if separator}

    def state(self) -> dict[str, bytes]:
        """Every file of the work tree, and where HEAD is."""
        kept = {}
        for directory, below, names in os.walk(self.path):
            below[:] = [name for name in below if name != ".git"]
            paths = [Path(directory, name) for name in names]
            kept |= {str(path.relative_to(self.path)): path.read_bytes() for path in paths if path.is_file()}
        return {**kept, "HEAD": (self.path / ".git/HEAD").read_bytes() + self.git("rev-parse", "HEAD").encode()}


Prepare = Callable[[Repository], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    tool: str
    prepare: Prepare
    variants: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.prepare.__name__


ROWS: list[Row] = []


def row(tool: str, *variants: str) -> Callable[[Prepare], Prepare]:
    """Add a row; without variants, for all of them."""

    def add(prepare: Prepare) -> Prepare:
        ROWS.append(Row(tool, prepare, variants or (*EXISTING, ABSENT)))
        return prepare

    return add


def where(repository: Repository, name: str = "") -> str:
    return f"{repository.path.name}/{name}".rstrip("/")


@row("git_switch")
def to_a_branch(repository: Repository) -> dict[str, Any]:
    return {"branch": "evil"}


@row("git_switch")
def to_a_commit(repository: Repository) -> dict[str, Any]:
    return {"detach": "evil"}


@row("git_switch", UNTRACKED, ABSENT)
def in_a_repository_in_the_work_tree(repository: Repository) -> dict[str, Any]:
    repository.git("init", "--quiet", "inner")
    if repository.variant == UNTRACKED:
        repository.write("inner/.vscode/settings.json", MINE)
    repository.branch("deep", "main", {f"inner/{SETTING}": EVIL})
    return {"branch": "deep"}


@row("git_restore")
def from_a_commit(repository: Repository) -> dict[str, Any]:
    return {"paths": [where(repository, ".vscode")], "revision": "evil", "what": "both"}


@row("git_restore", TRACKED)
def from_the_index(repository: Repository) -> dict[str, Any]:
    blob = repository.git("hash-object", "-w", "--stdin", stdin=EVIL)
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{SETTING}")
    return {"paths": [where(repository)]}


@row("git_restore", TRACKED)
def of_one_hunk(repository: Repository) -> dict[str, Any]:
    repository.write(SETTING, EVIL)
    return {"paths": [where(repository, SETTING)], "hunks": ["1"]}


@row("git_restore", TRACKED)
def of_one_side(repository: Repository) -> dict[str, Any]:
    repository.branch("other", "main", {SETTING: "other\n"})
    repository.git("reset", "--hard", "--quiet", "other")
    repository.git("merge", "evil", check=False)
    return {"paths": [where(repository, SETTING)], "side": "theirs"}


@row("git_reset")
def hard(repository: Repository) -> dict[str, Any]:
    return {"revision": "evil", "mode": "hard"}


@row("git_reset")
def keep(repository: Repository) -> dict[str, Any]:
    return {"revision": "evil", "mode": "keep"}


@row("git_reset", TRACKED)
def hard_with_a_file_that_counts_as_unchanged(repository: Repository) -> dict[str, Any]:
    repository.branch("main", "main", {SETTING: EVIL})
    repository.git("read-tree", "main")
    repository.git("update-index", "--assume-unchanged", SETTING)
    return {"mode": "hard"}


@row("git_merge")
def of_a_branch(repository: Repository) -> dict[str, Any]:
    return {"revision": "evil"}


@row("git_merge")
def by_fast_forward(repository: Repository) -> dict[str, Any]:
    repository.branch("ahead", "main", {SETTING: EVIL})
    return {"revision": "ahead"}


@row("git_merge", TRACKED)
def with_two_merge_bases(repository: Repository) -> dict[str, Any]:
    """The settings of the merged branch do not differ from one of them."""
    zero = repository.branch("zero", "base", {SETTING: EVIL})
    first = repository.branch("first", zero, {"f.txt": "f\n"})
    second = repository.branch("second", zero, {SETTING: MINE})
    for name, own, other, text in (("ours", first, second, MINE), ("theirs", second, first, EVIL)):
        tree = repository.git("rev-parse", f"{repository.branch(name, own, {SETTING: text, 'f.txt': 'f'})}^{{tree}}")
        merged = repository.git("commit-tree", tree, "-p", own, "-p", other, "-m", "merged")
        repository.git("update-ref", f"refs/heads/{name}", merged)
    repository.git("reset", "--hard", "--quiet", "ours")
    return {"revision": "theirs"}


@row("git_merge", TRACKED)
def in_conflict_through_a_link(repository: Repository) -> dict[str, Any]:
    repository.branch("start", "base", {SETTING: None, "way/tasks.json": "start\n"})
    repository.branch("theirs", "start", {"way/tasks.json": EVIL})
    repository.branch("main", "start", {"way/tasks.json": MINE})
    repository.git("reset", "--hard", "--quiet", "main")
    linked(repository)
    return {"revision": "theirs"}


@row("git_pull")
def from_a_remote(repository: Repository) -> dict[str, Any]:
    repository.git("clone", "--quiet", "--bare", ".", str(repository.world.outside / f"{repository.path.name}.git"))
    repository.branch("ahead", "main", {SETTING: EVIL})
    remote = str(repository.world.outside / f"{repository.path.name}.git")
    repository.git("push", "--quiet", remote, "ahead:main")
    repository.git("remote", "add", "origin", remote)
    return {"remote": "origin", "branch": "main"}


@row("git_cherry_pick")
def of_a_commit(repository: Repository) -> dict[str, Any]:
    return {"revisions": ["evil"]}


@row("git_cherry_pick")
def of_the_second_of_two(repository: Repository) -> dict[str, Any]:
    return {"revisions": [repository.branch("one", "base", {"o.txt": "o\n"}), "evil"]}


@row("git_revert")
def of_what_removed_it(repository: Repository) -> dict[str, Any]:
    repository.branch("main", "evil", repository.mine)
    repository.git("reset", "--hard", "--quiet", "main")
    return {"revisions": ["main"]}


@row("git_rebase")
def onto_a_branch(repository: Repository) -> dict[str, Any]:
    return {"upstream": "evil"}


@row("git_rebase")
def with_steps_over_a_passing_change(repository: Repository) -> dict[str, Any]:
    """The end of the branch has the settings of the user, and a commit on the way has others."""
    passing = repository.branch("main", "main", {SETTING: EVIL})
    last = repository.branch("main", "main", repository.mine)
    repository.git("reset", "--hard", "--quiet", "main")
    return {"upstream": f"{passing}~1", "steps": [f"pick {last}", f"pick {passing}"]}


@row("git_stash", TRACKED)
def push_of_a_change(repository: Repository) -> dict[str, Any]:
    repository.write(SETTING, EVIL)
    return {"action": "push"}


@row("git_stash", UNTRACKED)
def push_of_untracked_files(repository: Repository) -> dict[str, Any]:
    return {"action": "push", "untracked": True}


def stashed(repository: Repository, branch: str = "evil", base: str = "base") -> str:
    """Make a stash of the changes that lead from one branch to another."""
    trees = [repository.git("rev-parse", f"{name}^{{tree}}") for name in (base, branch)]
    index = repository.git("commit-tree", trees[0], "-p", base, "-m", "index")
    commit = repository.git("commit-tree", trees[1], "-p", base, "-p", index, "-m", "On main: x")
    repository.git("stash", "store", "-m", "x", commit)
    return commit


@row("git_stash")
def apply(repository: Repository) -> dict[str, Any]:
    return {"action": "apply", "stash": stashed(repository)}


@row("git_stash")
def pop(repository: Repository) -> dict[str, Any]:
    stashed(repository)
    return {"action": "pop"}


@row("git_stash")
def apply_untracked_files(repository: Repository) -> dict[str, Any]:
    blob = repository.git("hash-object", "-w", "--stdin", stdin=EVIL)
    inner = repository.git("mktree", stdin=f"100644 blob {blob}\tnew.json\n")
    tree = repository.git("mktree", stdin=f"040000 tree {inner}\t.vscode\n")
    base = repository.git("rev-parse", "HEAD^{tree}")
    untracked = repository.git("commit-tree", tree, "-m", "untracked")
    index = repository.git("commit-tree", base, "-p", "HEAD", "-m", "index")
    commit = repository.git("commit-tree", base, "-p", "HEAD", "-p", index, "-p", untracked, "-m", "On main: x")
    repository.git("stash", "store", "-m", "x", commit)
    return {"action": "apply"}


@row("git_continue")
def with_a_step_that_a_command_added(repository: Repository) -> dict[str, Any]:
    repository.branch("clash", "base", {"a.txt": "clash\n"})
    repository.git("rebase", "--merge", "clash", check=False)
    repository.write("a.txt", "resolved\n")
    repository.git("add", "a.txt")
    with (repository.path / ".git/rebase-merge/git-rebase-todo").open("a") as todo:
        todo.write(f"pick {repository.git('rev-parse', 'evil')} x\n")
    return {}


@row("git_continue")
def to_the_rest_of_a_sequence(repository: Repository) -> dict[str, Any]:
    repository.branch("clash", "base", {"a.txt": "clash\n"})
    repository.git("cherry-pick", "clash", "evil", check=False)
    return {"resolutions": {where(repository, "a.txt"): "theirs"}}


@row("git_continue", *EXISTING)
def abort_of_a_rebase_to_another_commit(repository: Repository) -> dict[str, Any]:
    repository.branch("clash", "base", {"a.txt": "clash\n"})
    repository.git("rebase", "--merge", "clash", check=False)
    (repository.path / ".git/rebase-merge/orig-head").write_text(repository.git("rev-parse", "evil") + "\n")
    return {"action": "abort"}


@row("git_continue", TRACKED)
def abort_of_a_merge_of_somebody(repository: Repository) -> dict[str, Any]:
    repository.branch("clash", "evil", {"a.txt": "clash\n"})
    repository.git("merge", "clash", check=False)
    return {"action": "abort"}


@row("git_continue", TRACKED)
def resolve(repository: Repository) -> dict[str, Any]:
    repository.branch("other", "main", {SETTING: "other\n"})
    repository.git("reset", "--hard", "--quiet", "other")
    repository.git("merge", "evil", check=False)
    return {"resolutions": {where(repository, SETTING): "theirs"}, "action": "resolve"}


@row("git_continue", TRACKED)
def resolve_by_text(repository: Repository) -> dict[str, Any]:
    arguments = resolve(repository)
    return {**arguments, "resolutions": {where(repository, SETTING): {"text": EVIL}}}


@row("git_sparse_checkout", TRACKED)
def set_without_them(repository: Repository) -> dict[str, Any]:
    return {"action": "set", "paths": [where(repository, "folder")]}


def left_out(repository: Repository) -> None:
    """Check out only `folder` of a commit that has other settings; the user's are untracked."""
    repository.branch("main", "main", {SETTING: EVIL})
    untracked = repository.path / ".vscode"
    if untracked.exists():
        untracked.rename(repository.world.top / "away")
    repository.git("reset", "--hard", "--quiet", "main")
    repository.git("sparse-checkout", "set", "--cone", "folder")
    if repository.variant == UNTRACKED:
        (repository.world.top / "away").rename(untracked)


@row("git_sparse_checkout", UNTRACKED, ABSENT)
def disable(repository: Repository) -> dict[str, Any]:
    left_out(repository)
    return {"action": "disable"}


@row("git_switch", UNTRACKED, ABSENT)
def after_the_patterns_were_changed(repository: Repository) -> dict[str, Any]:
    left_out(repository)
    repository.branch("later", "main", {"l.txt": "l\n"})
    (repository.path / ".git/info/sparse-checkout").write_text("/*\n!/*/\n/.vscode/\n")
    return {"branch": "later"}


@row("git_bisect")
def start(repository: Repository) -> dict[str, Any]:
    repository.branch("last", "evil", repository.mine)
    repository.git("reset", "--hard", "--quiet", "last")
    return {"action": "start", "good": ["base"]}


def bisecting(repository: Repository) -> None:
    """Stop a bisect at a commit after which only one with other settings is left."""
    middle = repository.branch("middle", "base", {"m.txt": "m\n"})
    repository.branch("other", "middle", {SETTING: EVIL})
    repository.branch("last", "other", repository.mine)
    repository.git("reset", "--hard", "--quiet", middle)
    repository.git("bisect", "start", "--no-checkout", "last", "base")
    for name in ("HEAD",):
        repository.git("update-ref", "--no-deref", name, middle)


@row("git_bisect")
def good(repository: Repository) -> dict[str, Any]:
    bisecting(repository)
    return {"action": "good"}


@row("git_bisect_run")
def one_step(repository: Repository) -> dict[str, Any]:
    bisecting(repository)
    return {"command": ["true"]}


@row("git_bisect")
def reset_to_another_branch(repository: Repository) -> dict[str, Any]:
    bisecting(repository)
    (repository.path / ".git/BISECT_START").write_text("evil\n")
    return {"action": "reset"}


@row("git_worktree", *EXISTING)
def add_in_them(repository: Repository) -> dict[str, Any]:
    return {"action": "add", "path": where(repository, ".vscode/tree"), "branch": "new"}


@row("git_worktree", ABSENT)
def add_beside(repository: Repository) -> dict[str, Any]:
    return {"action": "add", "path": f"{where(repository)}-tree", "branch": "evil"}


@row("git_clone")
def to_a_new_directory(repository: Repository) -> dict[str, Any]:
    bare = str(repository.world.outside / f"{repository.path.name}.git")
    repository.git("clone", "--quiet", "--bare", ".", bare)
    inner = ".vscode/clone" if repository.variant != ABSENT else ".vscode"
    return {"url": bare, "path": where(repository, inner)}


@row("git_submodule", UNTRACKED, ABSENT)
def update_at_settings(repository: Repository) -> dict[str, Any]:
    bare = str(repository.world.outside / f"{repository.path.name}.git")
    repository.git("clone", "--quiet", "--bare", "--branch=evil", ".", bare)
    place = ".vscode/sub" if repository.variant != ABSENT else "sub"
    repository.git("config", "-f", ".gitmodules", "submodule.sub.path", place)
    repository.git("config", "-f", ".gitmodules", "submodule.sub.url", bare)
    repository.git("add", ".gitmodules")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{repository.git('rev-parse', 'evil')},{place}")
    return {"action": "update"}


RENAMED: list[Row] = []
"""Rows in which git finds the settings as the new name of a file that the other side changes."""


def renamed(tool: str, *variants: str) -> Callable[[Prepare], Prepare]:
    def add(prepare: Prepare) -> Prepare:
        RENAMED.append(Row(tool, prepare, variants))
        return prepare

    return add


def renamed_here(repository: Repository, former: str = "notes.txt", latter: str = SETTING) -> None:
    """Let HEAD have the settings by a rename of a file that the branch `other` changes."""
    repository.branch("former", "base", {SETTING: None, former: MINE})
    repository.branch("other", "former", {former: EVIL})
    repository.branch("back", "other", {former: MINE})
    repository.branch("main", "former", {former: None, latter: MINE})
    repository.git("reset", "--hard", "--quiet", "main")


def linked(repository: Repository) -> None:
    """Rename a tracked directory to the settings, and let a link lead there: its file looks unchanged to git."""
    (repository.path / "way").rename(repository.path / ".vscode")
    (repository.path / "way").symlink_to(".vscode")


@renamed("git_merge")  # what a rename changed there is not named
def merged_into_a_repository_in_the_work_tree(repository: Repository) -> dict[str, Any]:
    renamed_here(repository, latter=f"inner/{SETTING}")
    repository.git("init", "--quiet", "inner")
    return {"revision": "other"}


@renamed("git_merge", TRACKED)
def merged_through_a_link(repository: Repository) -> dict[str, Any]:
    renamed_here(repository, latter="way/tasks.json")
    linked(repository)
    return {"revision": "other"}


@renamed("git_merge", TRACKED)
def merged(repository: Repository) -> dict[str, Any]:
    renamed_here(repository)
    return {"revision": "other"}


@renamed("git_merge", TRACKED)
def merged_with_a_file_in_a_renamed_directory(repository: Repository) -> dict[str, Any]:
    renamed_here(repository, "former/tasks.json")
    repository.branch("more", "former", {"former/new.json": EVIL})
    return {"revision": "more"}


@renamed("git_cherry_pick", TRACKED)
def picked(repository: Repository) -> dict[str, Any]:
    renamed_here(repository)
    return {"revisions": ["other"]}


@renamed("git_revert", TRACKED)
def reverted(repository: Repository) -> dict[str, Any]:
    renamed_here(repository)
    return {"revisions": ["back"]}


@renamed("git_stash", TRACKED)
def applied(repository: Repository) -> dict[str, Any]:
    renamed_here(repository)
    stashed(repository, "other", "former")
    return {"action": "apply"}


@renamed("git_continue", TRACKED)
def continued(repository: Repository) -> dict[str, Any]:
    renamed_here(repository)
    repository.branch("clash", "former", {"a.txt": "clash\n"})
    repository.branch("main", "main", {"a.txt": "main\n"})
    repository.git("reset", "--hard", "--quiet", "main")
    repository.git("cherry-pick", "clash", "other", check=False)
    return {"resolutions": {where(repository, "a.txt"): "theirs"}}


UNTOUCHED: dict[str, dict[str, Any]] = {
    "git_add": {"paths": ["SETTING"]},
    "git_commit": {"message": "m", "amend": True},
    "git_branch": {"action": "create", "name": "new", "start": "evil"},
    "git_tag": {"action": "create", "name": "v1", "revision": "evil"},
    "git_remote": {"action": "add", "name": "origin", "url": "BARE"},
    "git_push": {"remote": "origin", "branch": "evil"},
    "git_fetch": {"remote": "origin"},
}
"""Tools that write no work tree, in the order in which they are called."""


@dataclass(frozen=True)
class Place:
    """A real server, and the templates of the repositories beneath its root."""

    world: World
    server: Peer
    permissive: Peer
    """A server whose operator allows changes of settings."""

    def repository(self, name: str, variant: str) -> Repository:
        path = self.world.root / name
        shutil.copytree(self.world.top / "templates" / variant, path, symlinks=True)
        repository = Repository(self.world, path, variant)
        repository.git("update-index", "-q", "--refresh")
        return repository

    def call(
        self, tool: str, repository: Repository, arguments: dict[str, Any], *, server: Peer | None = None
    ) -> tuple[bool, str]:
        """Whether the call succeeded, and the text."""
        own = {} if tool == "git_clone" else {"repository": repository.path.name}
        result = (server or self.server).call(tool, **own, **arguments)
        return not result.get("isError"), result["content"][0]["text"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    world = World(tmp_path_factory.mktemp("settings"))
    for variant in (TRACKED, UNTRACKED, ABSENT):
        repository = Repository(world, world.top / "templates" / variant, variant)
        repository.path.mkdir(parents=True)
        repository.git("init", "--quiet", "--initial-branch=main")
        for name in ("a.txt", "folder/c.txt"):
            repository.write(name, "one\n")
        if variant == TRACKED:
            repository.write(SETTING, MINE)
        repository.git("add", ".")
        repository.git("commit", "--quiet", "-m", "base")
        repository.git("branch", "base")
        repository.branch("evil", "base", {SETTING: EVIL, "e.txt": "e\n"})
        repository.write("a.txt", "two\n")
        repository.git("commit", "--quiet", "-a", "-m", "main")
        if variant == UNTRACKED:
            repository.write(".vscode/settings.json", MINE)
    policy = world.top / "policy.toml"
    policy.write_text(f'[[remote]]\nurl = "{world.outside}/*"\npush = true\n')
    words = (world.root, "--profile", "all", "--policy", policy)
    home = {"HOME": str(world.home)}
    with (
        peer(*words, environment=home) as server,
        peer(*words, "--allow-editor-settings", environment=home) as permissive,
    ):
        server.start_session()
        permissive.start_session()
        yield Place(world, server, permissive)


def changed_by_permission(place: Place, one: Row, repository: Repository, arguments: dict[str, Any]) -> None:
    """Make the call where the operator allows it: the settings change, and what is written is named."""
    before = repository.settings()
    text = place.call(one.tool, repository, arguments, server=place.permissive)[1]
    now = repository.settings()
    assert now != before, (one.tool, one.title, text)
    is_written = any(before.get(name) != data for name, data in now.items())
    assert (NOTE in text and ".vscode" in text.partition(NOTE)[2]) == is_written, (one.tool, one.title, text)


@pytest.mark.parametrize("variant", EXISTING)
def test_no_git_tool_changes_existing_settings_unless_the_operator_allows_it(place: Place, variant: str) -> None:
    """editor-settings-2, editor-settings-3, git-changes-26: nor adds to them; nothing else is changed either, and the
    error names them and the operator's flag.

    editor-settings-5, editor-settings-7: the same call of a server with that flag changes them, and names what it
    wrote.
    """
    for number, one in enumerate(one for one in ROWS if variant in one.variants):
        repository = place.repository(f"{variant}-{number}", variant)
        arguments = one.prepare(repository)
        before = repository.state()
        is_done, text = place.call(one.tool, repository, arguments)
        assert repository.state() == before, (one.tool, one.title, text)
        assert not is_done, (one.tool, one.title, text)
        assert ".vscode" in text, (one.tool, one.title, text)
        assert REFUSAL in text, (one.tool, one.title, text)
        changed_by_permission(place, one, repository, arguments)


def test_no_change_reaches_settings_by_a_rename(place: Place) -> None:
    """editor-settings-4: git applies a change of a file that is gone to the one that it takes for its new name."""
    for number, one in enumerate(RENAMED):
        repository = place.repository(f"renamed-{number}", TRACKED)
        arguments = one.prepare(repository)
        text = place.call(one.tool, repository, arguments)[1]
        assert repository.settings() == {"tasks.json": MINE.encode()}, (one.tool, one.title, text)
        if TRACKED in one.variants:
            allowed = place.repository(f"allowed-{number}", TRACKED)
            changed_by_permission(place, one, allowed, one.prepare(allowed))


async def test_settings_of_every_kind_stay(tmp_path: Path) -> None:
    """editor-settings-1: at the top of a root and of one in it, replaced by a link or a file; where a link leads."""
    world = World(tmp_path)
    repository = Repository(world, world.root, TRACKED)
    repository.git("init", "--quiet", "--initial-branch=main")
    repository.write("a.txt", "a")
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "first")
    for name in (SETTING, ".mcp.json", "own/zed/tasks.json", ".github/hooks/x.json", "all.code-workspace"):
        repository.write(name, MINE)
    repository.write("package/.claude/settings.json", MINE)
    repository.write("other/.claude/settings.json", MINE)
    (world.root / "other/.git").mkdir()
    (world.root / ".zed").symlink_to("own/zed")
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file() and ".git/" not in str(path)}
    targets = [
        *((name, "100644") for name in (SETTING, ".vscode", ".vscode/new/x", ".mcp.json", ".github")),
        *((name, "120000") for name in (".vscode", ".mcp.json", ".zed")),
        *((name, "100644") for name in ("own", "own/zed/new.json", ".github/hooks/y", "all.code-workspace")),
        *((name, "100644") for name in ("package/.claude/x", "other/.claude/x", "other/.claude")),
    ]
    async with world.tools(roots=(RootSpec(str(world.root / "package")),)) as tools:
        for number, (name, mode) in enumerate(targets):
            repository.branch(f"b{number}", "main", {name: EVIL}, mode=mode)
            (tmp_path / "root/.git/info/exclude").write_text("*\n")  # git overwrites ignored files
            with pytest.raises(DeniedPath, match=REFUSAL):
                await tools.git_reset(f"b{number}", mode="hard")
    after = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file() and ".git/" not in str(path)}
    assert after == before


def test_each_git_tool_names_the_settings_that_it_creates(place: Place) -> None:
    """editor-settings-5, git-changes-26: whichever way they come into the work tree."""
    for number, one in enumerate(one for one in ROWS if ABSENT in one.variants):
        repository = place.repository(f"new-{number}", ABSENT)
        is_done, text = place.call(one.tool, repository, one.prepare(repository))
        assert is_done, (one.tool, one.title, text)
        assert NOTE in text, (one.tool, one.title, text)
        assert ".vscode" in text.partition(NOTE)[2], (one.tool, one.title, text)


def test_a_call_that_fails_halfway_names_what_it_created(place: Place) -> None:
    """editor-settings-5: git has written the settings before it misses an object."""
    repository = place.repository("halfway", ABSENT)
    repository.branch("broken", "main", {SETTING: EVIL, "z.txt": "z"})
    blob = repository.git("rev-parse", "broken:z.txt")
    (repository.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    is_done, text = place.call("git_reset", repository, {"revision": "broken", "mode": "hard"})
    assert not is_done
    assert (repository.path / SETTING).exists()
    assert f"{NOTE}halfway/.vscode " in text, text


def test_every_tool_that_changes_a_repository_is_tried(place: Place) -> None:
    """editor-settings-2: a new tool has to be added to the rows, or to those that write no work tree."""
    listed = place.server.ask("tools/list")["result"]["tools"]
    changing = {tool["name"] for tool in listed if not tool["annotations"]["readOnlyHint"]}
    assert {one.tool for one in ROWS} | UNTOUCHED.keys() == {name for name in changing if name.startswith("git_")}
    repository = place.repository("untouched", TRACKED)
    bare = place.world.outside / "untouched.git"
    repository.git("clone", "--quiet", "--bare", ".", str(bare))
    repository.branch("evil", "evil", {"more.txt": "x"})
    before = repository.state()
    for tool, arguments in UNTOUCHED.items():
        named = {"SETTING": where(repository, SETTING), "BARE": str(bare)}
        given = {key: named.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()}
        given |= {"paths": [named["SETTING"]]} if "paths" in given else {}
        is_done, text = place.call(tool, repository, given)
        assert is_done, (tool, text)
        assert {**repository.state(), "HEAD": b""} == {**before, "HEAD": b""}, tool
