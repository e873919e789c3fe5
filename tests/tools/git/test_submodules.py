"""docs/specs/git-remotes.md: submodules that are registered and cloned, and hostile records of them."""

import os
from pathlib import Path

import pytest

from coretools.errors import GitRefused
from tests.tools.git.remote_world import RemoteWorld, error_of
from tests.tools.git.traps import snapshot
from tests.tools.git.world import World

pytestmark = pytest.mark.anyio


def recorded(world: World, commit: str, *, path: str = "sub", url: str = "../origin.git") -> None:
    """Record a submodule in the index, and in `.gitmodules`."""
    world.write(".gitmodules", f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n')
    world.git("add", ".gitmodules")
    world.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")


def superproject(tmp_path: Path) -> RemoteWorld:
    remote = RemoteWorld(World(tmp_path).filled()).created()
    remote.world.git("remote", "add", "origin", str(remote.bare.parent / "super.git"))
    return remote


async def test_a_submodule_is_registered_and_cloned(tmp_path: Path) -> None:
    """git-remotes-24, git-remotes-25: by a relative URL, at the recorded commit; git itself agrees."""
    remote = superproject(tmp_path)
    world = remote.world
    commit = world.git("rev-parse", "HEAD~1")
    recorded(world, commit)
    (world.repository / "sub").mkdir()
    async with remote.tools() as (tools, _):
        registered = (await tools.git_submodule("init", "work")).text()
        assert registered == f"work/sub: registered ({remote.bare})"
        assert os.listdir(world.repository / "sub") == []
        cloned = (await tools.git_submodule("update", "work", ["work/sub"])).text()
        assert cloned.startswith(
            f"work/sub: cloned {remote.bare} at {commit[:10]}."
            " Undo: delete_directory path='work/sub' with_repositories=True"
        )
        assert "is cloned already" in (await tools.git_submodule("update", "work", depth=2)).text()
        assert "cloned: ../origin.git" in (await tools.git_submodule("list", "work")).text()
    assert world.git("submodule", "status").split()[:2] == [commit, "sub"]
    assert world.git("status", "--short", cwd=world.repository / "sub") == ""
    assert world.git("config", "submodule.sub.url") == str(remote.bare)


async def test_submodules_within_are_cloned_down_to_a_depth(tmp_path: Path) -> None:
    """git-remotes-26: none by default, and one that fails leaves the others."""
    remote = superproject(tmp_path)
    world = remote.world
    leaf = world.git("rev-parse", "HEAD")
    recorded(world, leaf, path="deep")
    world.git("commit", "-q", "-m", "with a submodule")
    world.git("push", "-q", str(remote.bare), "main:middle")
    middle = world.git("rev-parse", "HEAD")
    recorded(world, middle)
    world.git("update-index", "--force-remove", "deep")
    async with remote.tools() as (tools, _):
        await tools.git_submodule("update", "work")
        assert not (world.repository / "sub" / "deep" / ".git").exists()
        text = (await tools.git_submodule("update", "work", depth=1)).text()
    assert f"work/sub/deep: cloned {remote.bare} at {leaf[:10]}" in text
    assert world.git("rev-parse", "HEAD", cwd=world.repository / "sub" / "deep") == leaf


HOSTILE: tuple[tuple[str, dict[str, str], str], ...] = (
    ("s1", {"url": "ext::sh -c PROGRAM"}, "not a URL"),
    ("s2", {"url": "--upload-pack=PROGRAM"}, "not a URL"),
    ("s3", {"url": "-u PROGRAM"}, "not a URL"),
    ("s4", {"url": "fd::3"}, "not a URL"),
    ("s5", {"url": "OUTSIDE/other.git"}, "not allowed"),
    ("s6", {"url": "https://127.0.0.1:1/x"}, "not allowed"),
    ("s7", {"url": "../" * 40 + "etc/x"}, "leads above"),
    ("s8", {"url": "../x/../origin.git"}, "URL of a remote"),
    ("s9", {"update": "!PROGRAM"}, "update = !"),
    ("s10", {"name": "../../hooks"}, "the name"),
    ("s11", {"name": "x/../../y"}, "the name"),
    ("s12", {"name": "-c"}, "the name"),
    ("link/sub", {}, "is a link"),
    ("linked", {}, "is a link"),
    ("inside/sub", {}, "is a link"),
    ("full", {}, "not empty"),
    ("new.txt", {}, "a file is there"),
    (".aws/x", {"name": "aws"}, "hidden"),
    ("gone/sub", {}, "does not exist"),
    ("s13", {"commit": "f" * 40}, "no branch or tag of the remote has it"),
    ("twice", {}, "has them twice"),
    ("unnamed", {"url": ""}, "has no name and URL"),
)
"""Path of a submodule, what is recorded about it, and a part of the refusal."""


async def test_what_gitmodules_says_runs_and_reaches_nothing(tmp_path: Path) -> None:
    """git-remotes-24, git-remotes-26: each refused with a sentence; the work tree and the configuration stay."""
    remote = superproject(tmp_path)
    world = remote.world
    for name, target in {"link": world.outside, "linked": world.outside, "inside": "folder"}.items():
        (world.repository / name).symlink_to(target)
    world.write("full/file", "x")
    meanings = {"PROGRAM": str(world.program()), "OUTSIDE": str(world.outside)}
    links, sections = [], ['[submodule "again"]\n\tpath = twice\n\turl = ../origin.git']
    for path, given, _ in HOSTILE:
        keys = {"url": "../origin.git", "name": path, "commit": world.git("rev-parse", "main"), **given}
        for word, meaning in meanings.items():
            keys = {key: value.replace(word, meaning) for key, value in keys.items()}
        links.append(f"160000 {keys.pop('commit')}\t{path}\n")
        sections.append(f'[submodule "{keys.pop("name")}"]\n\tpath = {path}')
        sections += [f'\t{key} = "{value}"' for key, value in keys.items()]
    world.write(".gitmodules", "\n".join(sections) + "\n")
    world.git("add", ".gitmodules")
    world.git("update-index", "--add", "--index-info", stdin="".join(links).encode())
    settings = (world.git_dir / "config").read_bytes()
    before, names = snapshot(world), sorted(os.listdir(world.repository))
    async with remote.tools() as (tools, _):
        lines = str(await error_of(tools.git_submodule("update", "work", depth=2))).splitlines()
    refused = {path: [line for line in lines if line.startswith(f"work/{path}: ")] for path, _, _ in HOSTILE}
    assert [(path, refused[path]) for path, _, sentence in HOSTILE if sentence not in "".join(refused[path])] == []
    assert not any("cloned" in line for line in lines)
    assert (snapshot(world), sorted(os.listdir(world.repository))) == (before, names)
    assert (world.git_dir / "config").read_bytes() == settings
    assert not world.marker.exists()


async def test_without_a_rule_or_with_two_names_nothing_is_reached(tmp_path: Path) -> None:
    """git-remotes-24: each submodule needs its own rule; an ambiguous `.gitmodules` is refused."""
    remote = superproject(tmp_path)
    recorded(remote.world, remote.world.git("rev-parse", "HEAD"))
    async with remote.tools(remote.rule(url="/srv/elsewhere/*")) as (tools, _):
        for action in ("init", "update"):
            with pytest.raises(GitRefused, match="not allowed"):
                await tools.git_submodule(action, "work")
    with (remote.world.repository / ".gitmodules").open("a") as file:
        file.write('[submodule "two"]\n\tpath = sub\n\turl = ../origin.git\n')
    remote.world.git("add", ".gitmodules")
    async with remote.tools() as (tools, _):
        with pytest.raises(GitRefused, match="has them twice"):
            await tools.git_submodule("update", "work")
    assert not (remote.world.repository / "sub").exists()
