"""git_trust_report: what a repository would run or reach under plain git (docs/specs/git-user.md)."""

import os
from pathlib import Path

import pytest

from coretools.errors import NotFound
from coretools.tools.git.extra_tools import GitExtraTools
from coretools.tools.git.reading.trust import TrustReport
from tests.tools.git.world import SECRET, World

TOKEN = "ghp_" + "a1B2" * 9

CONFIG = """
[core]
	fsmonitor = {program}
	sshCommand = {program}
	pager = {program}
	attributesFile = {canary}
	hooksPath = .husky/_
[alias]
	run = "!{program}"
	st = status
[credential]
	helper = "!{program} {token}"
[filter "lfs"]
	clean = {program}
	smudge = {program}
[merge "ours"]
	driver = {program}
[diff "pdf"]
	textconv = {program}
[gpg]
	program = {program}
[commit]
	gpgSign = true
[tag]
	gpgSign = false
[remote "origin"]
	url = https://ada:{token}@example.org/x.git
	promisor = true
[url "https://{token}@example.org/"]
	insteadOf = gh:
[http "https://example.org"]
	extraHeader = "Authorization: Bearer {token}"
[include]
	path = more
[include]
	path = {canary}
[new "x"]
	command = {program}
"""

EXPECTED = {
    ("program", "core.fsmonitor", ".git/config:", "status"),
    ("program", "core.sshcommand", ".git/config:", "fetch"),
    ("pager", "core.pager", ".git/config:", "log"),
    ("file", "core.attributesfile", ".git/config:", "status"),
    ("hooks", "core.hookspath", ".git/config:", "commit"),
    ("alias", "alias.run", ".git/config:", "git with its name"),
    ("credential helper", "credential.helper", ".git/config:", "fetch"),
    ("filter", "filter.lfs.clean", ".git/config:", "add"),
    ("filter", "filter.lfs.smudge", ".git/config:", "checkout"),
    ("merge driver", "merge.ours.driver", ".git/config:", "merge"),
    ("text conversion", "diff.pdf.textconv", ".git/config:", "diff"),
    ("program", "gpg.program", ".git/config:", "commit"),
    ("signing", "commit.gpgsign", ".git/config:", "commit"),
    ("remote", "remote.origin.url", ".git/config:", "fetch"),
    ("promisor", "remote.origin.promisor", ".git/config:", "all"),
    ("address", "url.[redacted].insteadof", ".git/config:", "fetch"),
    ("network", "http.https://example.org.extraheader", ".git/config:", "fetch"),
    ("include", "include.path", ".git/config:", "every"),
    ("program", "new.x.command", ".git/config:", "not known"),
    ("editor", "core.editor", ".git/more:", "commit"),
    ("hook", "pre-commit", ".husky/_/pre-commit", "commit"),
    ("attribute", "filter=lfs", ".gitattributes:", "add"),
    ("attribute", "merge=ours", "folder/.gitattributes:", "merge"),
    ("attribute", "diff=pdf", ".git/info/attributes:", "diff"),
    ("submodule", "submodule.s.url", ".gitmodules:", "submodule"),
    ("submodule", "submodule.s.update", ".gitmodules:", "submodule"),
    ("lfs", "lfs.url", ".lfsconfig:", "git lfs"),
    ("alternate", "objects", ".git/objects/info/alternates:1", "all"),
    ("link", "planted", ".git/planted", "every"),
}


def hostile(world: World) -> World:
    """Everything that a repository can ask for, at once."""
    world.filled()
    program = world.program()
    text = CONFIG.format(program=program, canary=world.canary, token=TOKEN)
    with (world.git_dir / "config").open("a") as file:
        file.write(text)
    (world.git_dir / "more").write_text(f"# comment\n[core]\n\teditor = {program}\n")
    (world.git_dir / "info").mkdir(exist_ok=True)
    (world.git_dir / "info" / "attributes").write_text("*.pdf diff=pdf\n")
    (world.git_dir / "objects" / "info" / "alternates").write_text(f"{world.outside}/objects\n")
    (world.git_dir / "planted").symlink_to(world.canary)
    world.write(".husky/_/pre-commit", f"#!/bin/sh\n{program}\n").chmod(0o755)
    world.write(".gitattributes", "# *.x filter=no\n*.bin filter=lfs diff=text -text\n")
    world.write("folder/.gitattributes", "\n*.lock merge=ours\n")
    world.write(".gitmodules", f'[submodule "s"]\n\turl = ../s\n\tupdate = !{program}\n')
    world.write(".lfsconfig", f"[lfs]\n\turl = https://ada:{TOKEN}@example.org/lfs\n")
    return world


async def reported(world: World, repository: str = "work") -> TrustReport:
    async with world.tools() as tools:
        return await GitExtraTools(tools.repositories).git_trust_report(repository)


async def test_everything_that_git_would_run_or_reach_is_reported(tmp_path: Path) -> None:
    """git-user-15, git-user-16: with its place and its trigger, without a secret; git is refused there, and nothing
    runs."""
    world = hostile(World(tmp_path))
    report = await reported(world)
    found = {(one["kind"], one["name"], one["where"], one["triggered_by"]) for one in report.findings}
    missing = [
        wanted
        for wanted in EXPECTED
        if not any(
            one[:2] == wanted[:2] and one[2].startswith(wanted[2]) and one[3].startswith(wanted[3]) for one in found
        )
    ]
    assert missing == []
    names = {one["name"] for one in report.findings}
    assert not names & {"alias.st", "tag.gpgsign", "filter=no", "diff=text"}
    line = (world.git_dir / "config").read_text().split("\n").index("\tsshCommand = " + str(world.program())) + 1
    assert f".git/config:{line}" in {one["where"] for one in report.findings if one["name"] == "core.sshcommand"}
    assert ".git/planted is a link" in report.refused
    shown = report.model_dump_json() + report.text()
    assert TOKEN not in shown
    assert SECRET not in shown
    assert not world.marker.exists()


async def test_a_grant_is_written_as_the_operator_would_write_it(tmp_path: Path) -> None:
    """git-user-15: for what can be granted, and that alone; a repository that is no root can't have grants yet."""
    world = hostile(World(tmp_path))
    report = await reported(world)
    grants = {one["name"]: one["grant"] for one in report.findings}
    start, end = f'[roots."{world.repository}".git] ', ", once this directory is a root"
    assert grants["pre-commit"] == f'{start}hooks = ["pre-commit"]{end}'
    assert grants["filter.lfs.clean"] == grants["filter=lfs"] == f'{start}filters = ["lfs"]{end}'
    assert grants["merge.ours.driver"] == f'{start}merge_drivers = ["ours"]{end}'
    assert grants["commit.gpgsign"] == f"{start}signing = true{end}"
    assert {one["granted"] for one in report.findings} == {"no"}
    assert grants["core.fsmonitor"] == grants["alias.run"] == grants["gpg.program"] == ""


@pytest.mark.parametrize("kind", ["pointer", "broken", "fifo", "long", "many"])
async def test_a_repository_that_git_refuses_is_reported_too(tmp_path: Path, kind: str) -> None:
    """git-user-16: bounded, whatever is there; a thousand aliases hide no hook."""
    world = World(tmp_path).filled()
    config = world.git_dir / "config"
    (world.git_dir / "hooks").mkdir(exist_ok=True)
    (world.git_dir / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    if kind == "pointer":
        world.git_dir.rename(world.outside / "git")
        world.git_dir.write_text(f"gitdir: {world.outside}/git\n")
    elif kind == "broken":
        config.write_text("[core\n")
    elif kind == "fifo":
        config.unlink()
        os.mkfifo(config)
    elif kind == "long":
        config.write_text("#" * 2_000_000)
    else:
        config.write_text("".join(f'[alias]\n\ta{number} = "!{"x" * 500}"\n' for number in range(1500)))
    report = await reported(world)
    expected = {"pointer": "location", "many": "alias"}.get(kind, "configuration")
    assert expected in {one["kind"] for one in report.findings}
    assert len(report.text().encode()) <= 20_000
    assert len(report.model_dump_json().encode()) <= 40_000
    assert (kind == "many") == (report.omitted > 0)
    assert "hook" in {one["kind"] for one in report.findings} or kind == "pointer"
    assert bool(report.refused) == (kind != "many")


async def test_no_repository_is_an_error(tmp_path: Path) -> None:
    """git-user-16."""
    with pytest.raises(NotFound):
        await reported(World(tmp_path), ".")
