"""Every git tool that the server offers, in every odd or broken repository: an answer, or an error that says why."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.peer import Peer, peer
from tests.tools.git.world import HOME_CONFIG, World

VALUES: dict[str, Any] = {
    "message": "text",
    "name": "named",
    "new_name": "renamed",
    "branch": "side",
    "url": "../other",
}
"""Values of required arguments by name; paths are made for each repository."""


@dataclass(frozen=True)
class State:
    """A state of a repository, and what git_status or git_log says about it."""

    name: str
    make: Callable[[World], None]
    says: str
    tool: str = "git_status"


def _filled(world: World) -> None:
    world.filled()
    world.git("branch", "side", "HEAD~1")


def _bare(world: World) -> None:
    world.git("init", "--quiet", "--bare", str(world.repository), cwd=world.root)


def _unborn(world: World) -> None:
    world.created()


def _detached(world: World) -> None:
    _filled(world)
    world.git("switch", "--quiet", "--detach", "HEAD")


def _cloned(world: World, *options: str) -> World:
    source = World(world.top / "source")
    _filled(source)
    source.git("config", "uploadpack.allowFilter", "true")
    words = ("clone", "--quiet", "--no-checkout", *options, f"file://{source.repository}", str(world.repository))
    world.git(*words, cwd=world.root)
    return source


def _shallow(world: World) -> None:
    _cloned(world, "--depth=1")
    world.git("reset", "--quiet", "--hard")


def _partial(world: World) -> None:
    _cloned(world, "--filter=blob:none").repository.rename(world.top / "moved")
    world.git("read-tree", "HEAD")


def _corrupt(world: World) -> None:
    _filled(world)
    blob = world.git("rev-parse", "HEAD:b.txt")
    path = world.git_dir / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"garbage")


def _missing_tree(world: World) -> None:
    _filled(world)
    tree = world.git("rev-parse", "HEAD^{tree}")
    (world.git_dir / "objects" / tree[:2] / tree[2:]).unlink()


def _lfs(world: World) -> None:
    _filled(world)
    world.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    world.write("a.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n")
    world.git("add", ".gitattributes", "a.bin")
    world.git("commit", "--quiet", "-m", "lfs")
    for name in ("clean", "smudge", "process"):
        world.git("config", f"filter.lfs.{name}", f"git-lfs {name}")


def _sha256(world: World) -> None:
    world.git("init", "--quiet", "--object-format=sha256", "-b", "main", str(world.repository), cwd=world.root)
    for number in range(3):
        world.write("a.txt", f"{number}\n")
        world.write("b.txt", f"{number}\n")
        world.git("add", ".")
        world.git("commit", "--quiet", "-m", f"{number}")
    world.git("branch", "side", "HEAD~1")
    world.write("a.txt", "changed\n")


def _odd_bytes(world: World) -> None:
    world.created()
    for number in range(2):
        (world.repository / b'caf\xe9 "q"\n.txt'.decode("utf-8", "surrogateescape")).write_text(f"{number}\n")
        world.write("a.txt", f"{number}\n")
        world.git("add", ".")
        tree = world.git("write-tree")
        parent = world.git("rev-parse", "-q", "--verify", "HEAD", check=False)
        people = b"author \xe9 \x1b[2J <x@y> 1 +0000\ncommitter \xe9 <x@y> 1 +0000\n\n\xff message \x07\n"
        text = f"tree {tree}\n{f'parent {parent}{chr(10)}' if parent else ''}".encode() + people
        commit = world.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text)
        world.git("update-ref", "refs/heads/main", commit)
    world.git("branch", "side", "HEAD~1")


def _options(world: World) -> None:
    _filled(world)
    head = world.git("rev-parse", "HEAD")
    for name in ("--output=planted", "-d", "--exec=touch planted", "--all"):
        for space in ("heads", "tags"):
            path = world.git_dir / "refs" / space / name
            path.write_text(head + "\n")
    world.git("update-ref", "refs/remotes/origin/--upload-pack=x", head)


def _foreign(world: World) -> None:
    _filled(world)
    for path in (world.repository, *world.repository.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)


def _missing_head(world: World) -> None:
    _filled(world)
    (world.git_dir / "HEAD").write_text("ref: refs/heads/../../x\n")


def _locked(world: World) -> None:
    _filled(world)
    (world.git_dir / "index.lock").write_text("")
    os.utime(world.git_dir / "index.lock", (1, 1))  # a young one is waited for in each call


def _no_repository(world: World) -> None:
    world.repository.mkdir()
    world.write("a.txt", "x\n")


STATES = [
    State("no repository", _no_repository, "no git work tree"),
    State("bare", _bare, "bare repository"),
    State("unborn", _unborn, "no commits yet"),
    State("detached", _detached, "HEAD detached at"),
    State("shallow", _shallow, "second", "git_log"),
    State("partial clone", _partial, "partial clone", "git_diff"),
    State("corrupt object", _corrupt, "corrupt", "git_diff"),
    State("missing tree", _missing_tree, "tree"),
    State("git-lfs", _lfs, "branch main"),
    State("SHA-256", _sha256, "branch main"),
    State("bytes that are not UTF-8", _odd_bytes, "branch main"),
    State("references that look like options", _options, "branch main"),
    State("of another user", _foreign, "branch main"),
    State("a HEAD that names nothing", _missing_head, ""),
    State("a locked index", _locked, "the index is locked"),
]


EVERY_ACTION = {"unborn", "partial clone", "corrupt object"}
"""States in which each action of a tool is tried; in the others the first one is."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Path]]:
    top = tmp_path_factory.mktemp("states")
    (top / ".gitconfig").write_text(HOME_CONFIG)
    with peer(top, "--profile", "all", environment={"HOME": str(top)}) as client:
        client.start_session()
        yield client, top


def _arguments(schema: dict[str, Any], where: str, *, every_action: bool) -> Iterator[dict[str, Any]]:
    """Arguments for a tool from its schema: all that are required, and each value of an action."""
    given: dict[str, Any] = {"repository": where} if "repository" in schema["properties"] else {}
    for name in schema.get("required", ()):
        shape = schema["properties"][name]
        value = VALUES.get(name, f"{where}/a.txt" if name in ("path", "paths", "directory") else "HEAD")
        kinds = {"array": [value], "integer": 1, "boolean": False}
        given[name] = kinds.get(shape.get("type"), value)
    actions = schema["properties"].get("action", {}).get("enum")
    if actions is None:
        yield given
    else:
        yield from ({**given, "action": action} for action in (actions if every_action else actions[:1]))


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_every_tool_answers_in_every_state(served: tuple[Peer, Path], state: State) -> None:
    """git-48: no internal error, nothing planted or lost, and no unfinished operation or lock that is not mentioned."""
    if state.make is _foreign and os.geteuid() != 0:
        pytest.skip("only root can give a repository to another user")
    client, top = served
    where = re.sub(r"\W", "-", state.name)
    world = World(top / where)
    state.make(world)
    place = f"{where}/root/work"
    world.write("keep.txt", "untracked\n") if (world.repository / ".git").exists() else None
    first = client.call(state.tool, repository=place, **({"base": "HEAD~1"} if state.tool == "git_diff" else {}))
    assert state.says in first["content"][0]["text"]
    before = world.git("for-each-ref", check=False) if state.make is _options else ""
    called = 0
    for tool in client.ask("tools/list")["result"]["tools"]:
        if not tool["name"].startswith("git_"):
            continue
        for arguments in _arguments(tool["inputSchema"], place, every_action=state.name in EVERY_ACTION):
            result = client.call(tool["name"], **arguments)
            text = result["content"][0]["text"]
            label = (tool["name"], arguments, text[:600])
            assert 0 < len(text.encode()) <= 20_000, label
            assert "Traceback" not in text, label
            assert "\x1b" not in text, label
            assert not result.get("isError") or result["_meta"]["coretools/error"] != "internal", label
            called += 1
    assert called >= 20
    assert not list(world.top.rglob("planted"))
    if (world.repository / "keep.txt").exists() or (world.repository / ".git").exists():
        assert (world.repository / "keep.txt").read_text() == "untracked\n" or _is_in_a_stash(world)
    if before:
        assert "--output=planted" in world.git("for-each-ref", check=False)
    entries = set(os.listdir(world.git_dir)) if world.git_dir.is_dir() else set()
    assert ("index.lock" in entries) == (state.make is _locked)
    if entries & {"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "BISECT_LOG", "sequencer"}:
        assert "in progress" in client.call("git_status", repository=place)["content"][0]["text"]


def _is_in_a_stash(world: World) -> bool:
    return "keep.txt" in world.git("log", "--all", "--reflog", "--name-only", "--format=", check=False)


def test_two_servers_at_once_do_what_both_were_asked(served: tuple[Peer, Path]) -> None:
    """git-48: each waits for the other's lock."""
    _, top = served
    world = World(top / "at-once")
    _filled(world)
    for number in range(8):
        world.write(f"many-{number}.txt", "x\n")

    def one(number: int) -> str:
        with peer(top, "--profile", "all") as client:
            client.start_session()
            path = f"at-once/root/work/many-{number}.txt"
            return str(client.call("git_add", paths=[path], repository="at-once/root/work")["content"][0]["text"])

    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(one, range(2)))
    staged = world.git("diff", "--cached", "--name-only").splitlines()
    assert {"many-0.txt", "many-1.txt"} <= set(staged), texts
    assert subprocess.run(["git", "fsck"], cwd=world.repository, capture_output=True).returncode == 0
