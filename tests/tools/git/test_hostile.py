"""Hostile repositories against every git tool, judged by effect: programs that run, files outside that are read or
changed."""

import re
from pathlib import Path

import pytest

from coretools.errors import GitRefused, NotFound
from tests.tools.git.include_traps import EXTERNAL_PROGRAMS, EXTERNAL_REDIRECTIONS
from tests.tools.git.traps import PROGRAMS, REDIRECTIONS, WRITTEN_THROUGH, Trap, answers, laid, snapshot
from tests.tools.git.world import SECRET, World

ALL_PROGRAMS = (*PROGRAMS, *EXTERNAL_PROGRAMS)
ALL_REDIRECTIONS = (*REDIRECTIONS, *EXTERNAL_REDIRECTIONS)
TRIGGERED = [trap for trap in (*ALL_PROGRAMS, *ALL_REDIRECTIONS, *WRITTEN_THROUGH) if trap.triggers]


@pytest.mark.parametrize("trap", TRIGGERED, ids=lambda trap: trap.name)
def test_plain_git_falls_into_the_trap(tmp_path: Path, trap: Trap) -> None:
    """git-12, git-13: the traps of the tests below work with this git."""
    world = laid(trap, tmp_path)
    before = snapshot(world)
    outputs = [world.git(*words, check=False) for words in trap.triggers]
    assert snapshot(world) != before or SECRET in "".join(outputs)


@pytest.mark.parametrize("trap", ALL_PROGRAMS, ids=lambda trap: trap.name)
async def test_no_program_of_a_repository_runs(tmp_path: Path, trap: Trap) -> None:
    """git-12, git-15: whatever configures it, also after an earlier call; the answer names the setting."""
    world = World(tmp_path).filled()
    async with world.tools() as tools:
        assert "branch main" in (await tools.git_status("work")).text()
        trap.lay(world)
        before = snapshot(world)
        text = "\n".join(await answers(tools))
    assert snapshot(world) == before
    assert SECRET not in text
    assert trap.reported in text
    if "equals" not in trap.name:
        assert "branch main" in text


@pytest.mark.parametrize("trap", ALL_REDIRECTIONS, ids=lambda trap: trap.name)
async def test_a_repository_that_leads_out_is_refused(tmp_path: Path, trap: Trap) -> None:
    """git-13: no tool runs git there, with either resolver; the error names what leads out.

    git-35: also if the tools used the repository before.
    """
    world = World(tmp_path).filled()
    async with world.tools() as tools, world.tools(resolver="walk") as walking:
        for each in (tools, walking):
            assert "branch main" in (await each.git_status("work")).text()
        trap.lay(world)
        before = snapshot(world)
        texts = await answers(tools) + await answers(walking)
    assert snapshot(world) == before
    assert all(text.startswith("git-refused: ") and trap.reported in text for text in texts), texts
    assert SECRET not in "".join(texts)


@pytest.mark.parametrize("trap", WRITTEN_THROUGH, ids=lambda trap: trap.name)
async def test_nothing_is_written_through_a_link(tmp_path: Path, trap: Trap) -> None:
    """git-13: a change checks every reference and reflog first."""
    world = laid(trap, tmp_path)
    before = snapshot(world)
    async with world.tools() as tools:
        texts = await answers(tools)
    assert snapshot(world) == before
    changes = texts[9:13]
    assert all(text.startswith("git-refused: ") and trap.reported in text for text in changes), texts


async def test_a_work_tree_elsewhere_is_not_used(tmp_path: Path) -> None:
    """git-13: core.worktree is ignored, and named."""
    world = World(tmp_path).filled()
    world.git("config", "core.worktree", str(world.outside))
    assert "canary" in world.git("status", "--short", "--untracked-files=all")
    before = snapshot(world)
    async with world.tools() as tools:
        text = "\n".join(await answers(tools))
    assert snapshot(world) == before
    assert "canary" not in text
    assert " M work/a.txt" in text
    assert "core.worktree" in text


async def test_files_of_the_work_tree_that_are_links_are_not_followed(tmp_path: Path) -> None:
    """git-13: git's own files in a work tree, and tracked directories."""
    world = World(tmp_path).filled()
    for name in (".gitattributes", ".gitignore", ".gitmodules", ".mailmap"):
        (world.repository / name).symlink_to(world.canary)
    (world.repository / "folder" / "c.txt").rename(world.outside / "c.txt")
    (world.repository / "folder").rmdir()
    (world.repository / "folder").symlink_to(world.outside)
    before = snapshot(world)
    async with world.tools() as tools:
        text = "\n".join(await answers(tools))
    assert snapshot(world) == before
    assert SECRET not in text + world.git("log", "-p", "--all")


@pytest.mark.parametrize("where", ["work/bare", "work/bare/refs"])
async def test_a_bare_repository_in_the_work_tree_is_not_entered(tmp_path: Path, where: str) -> None:
    """git-20: its files are ordinary files."""
    world = World(tmp_path).filled()
    bare = world.repository / "bare"
    world.git("init", "--quiet", "--bare", str(bare))
    for key, value in {"core.bare": "false", "core.worktree": "..", "core.fsmonitor": str(world.program())}.items():
        world.git("config", "--file", str(bare / "config"), key, value)
    world.git("status", cwd=bare, check=False)
    assert world.marker.exists()
    world.marker.unlink()
    async with world.tools() as tools:
        assert "branch main" in (await tools.git_status(where)).text()
        await answers(tools, where)
    assert not world.marker.exists()


MEMORY_BOMB = "((((a{1,200}){1,200}){1,200}){1,200})"
"""A regular expression that takes any amount of memory before it is used."""


async def test_a_regular_expression_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git-50: one of the configuration is not used, one of the caller has a limit."""
    monkeypatch.setattr("coretools.tools.git.repository.open_repository.MEMORY_BYTES", 128 << 20)
    world = World(tmp_path).filled()
    world.git("config", "diff.evil.xfuncname", MEMORY_BOMB)
    world.git("config", "diff.worse.funcname", re.sub("([(){}])", r"\\\1", MEMORY_BOMB))
    world.write(".gitattributes", "a.txt diff=evil\nb.txt diff=worse\n")
    async with world.tools() as tools:
        assert "+unstaged" in (await tools.git_diff("work")).text()
        for revision in (f"HEAD^{{/{MEMORY_BOMB}}}", f":/{MEMORY_BOMB}"):
            with pytest.raises((GitRefused, NotFound)):
                await tools.git_log("work", revision)
        assert "branch main" in (await tools.git_status("work")).text()


async def test_a_bare_repository_is_no_work_tree(tmp_path: Path) -> None:
    """git-20: not even as the root itself."""
    world = World(tmp_path)
    world.git("init", "--quiet", "--bare", str(world.root), cwd=tmp_path)
    async with world.tools() as tools:
        with pytest.raises(NotFound, match="a bare repository, which has no work tree"):
            await tools.git_status()


async def test_changed_settings_are_read_again(tmp_path: Path) -> None:
    """git-18: a parsed configuration is used until one of its files changes."""
    world = World(tmp_path).filled()
    (world.git_dir / "more").write_text("")
    world.git("config", "include.path", "more")
    world.git("config", "--add", "include.path", "missing")
    program = world.program()
    async with world.tools() as tools:
        assert (await tools.git_status("work")).not_used == []
        (world.git_dir / "more").write_text(f"[core]\nfsmonitor = {program}\n")
        assert (await tools.git_status("work")).not_used == ["core.fsmonitor"]
        (world.git_dir / "missing").write_text('[diff "x"]\ncommand = y\n')
        assert (await tools.git_status("work")).not_used == ["core.fsmonitor", "diff.x.command"]
        (world.git_dir / "more").unlink()
        assert (await tools.git_status("work")).not_used == ["diff.x.command"]
        (world.git_dir / "more").symlink_to(world.canary)
        with pytest.raises(GitRefused, match=r"\.git/more is a link"):
            await tools.git_status("work")


async def test_an_include_that_comes_to_lead_out_is_refused(tmp_path: Path) -> None:
    """git-18: a directory that becomes a link counts as a change."""
    world = World(tmp_path).filled()
    world.git("config", "include.path", "../later/settings")
    (world.outside / "settings").write_text(f"[core]\nfsmonitor = {world.program()}\n")
    async with world.tools() as tools:
        for _ in range(3):
            assert (await tools.git_status("work")).not_used == []
        (world.repository / "later").symlink_to(world.outside)
        with pytest.raises(GitRefused, match=r"include\.path|config"):
            await tools.git_status("work")
    assert not world.marker.exists()


@pytest.mark.parametrize(
    "name",
    [".env", "deep/.env", ".aws/x", ".git/hooks/x", "absolute", "key.pem", "by another", ".git/modules/x/config"],
)
async def test_a_closed_file_is_not_read_as_configuration(tmp_path: Path, name: str) -> None:
    """git-13: otherwise a name in it would appear as an author in the log."""
    world = World(tmp_path).filled()
    path = name if name.startswith((".git/", "deep", ".aws", "key")) else ".env"
    file = world.repository / path
    file.parent.mkdir(parents=True, exist_ok=True)
    key = (
        "# -----BEGIN PRIVATE KEY-----\n# " + "A" * 64 + "\n# -----END PRIVATE KEY-----\n" if path == "key.pem" else ""
    )
    file.write_text(f"[user]\nname = PLANTED\nemail = p@x\n{key}")
    target = str(file) if name == "absolute" else f"../{path}"
    if name == "by another":
        (world.git_dir / "more").write_text(f"[include]\npath = {target}\n")
        target = "more"
    world.git("config", "include.path", target)
    async with world.tools() as tools:
        for _ in range(2):
            with pytest.raises(
                GitRefused, match=r"includes a file that is denied .*(closed by the deny glob|hidden, since)"
            ):
                await tools.git_status("work")
        if path.endswith((".env", ".pem")):  # the others are closed by name, whether they exist or not
            file.unlink()
            assert (await tools.git_status("work")).not_used == []


async def test_a_configuration_that_includes_itself_is_refused(tmp_path: Path) -> None:
    """git-18: no loop."""
    world = World(tmp_path).filled()
    (world.git_dir / "more").write_text("[include]\npath = more\n")
    world.git("config", "include.path", "more", check=False)
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="nests includes more than 10 deep"):
            await tools.git_status("work")


async def test_a_repository_with_too_many_alternates_is_refused(tmp_path: Path) -> None:
    """git-13: each store is kept open while git runs, so their number is limited."""
    world = World(tmp_path).filled()
    store = f"{world.git_dir}/objects\n"
    between = world.root / "between"
    (between / "info").mkdir(parents=True)
    (world.git_dir / "objects" / "info" / "alternates").write_text(f"{between}\n" * 33)
    async with world.tools() as tools:
        with pytest.raises(GitRefused, match="more than 32 alternates"):
            await tools.git_status("work")
        (between / "info" / "alternates").write_text(store)
        with pytest.raises(GitRefused, match="a chain of alternates that is too long"):
            await tools.git_status("work")


async def test_an_honest_repository_may_have_alternates_beneath_the_roots(tmp_path: Path) -> None:
    """git-13: alternates, a separate git directory and shared hooks alone are not hostile."""
    world = World(tmp_path).filled()
    world.git("clone", "--quiet", "--shared", str(world.repository), str(world.root / "copy"), cwd=world.root)
    separate = ["--separate-git-dir", str(world.root / "store"), str(world.root / "tree")]
    world.git("clone", "--quiet", *separate[:2], str(world.repository), separate[2], cwd=world.root)
    (world.root / "shared-hooks").mkdir()
    hooks = world.root / "copy" / ".git" / "hooks"
    for sample in hooks.iterdir():
        sample.unlink()
    hooks.rmdir()
    hooks.symlink_to(world.root / "shared-hooks")
    async with world.tools() as tools:
        for repository in ("copy", "tree"):
            assert (await tools.git_status(repository)).upstream == "origin/main"
            assert "second" in (await tools.git_log(repository)).text()
