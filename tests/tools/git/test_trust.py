"""git_trust_report: what a repository would run or reach under plain git (docs/specs/git-user.md)."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from coretools.errors import InvalidArguments, NotFound
from coretools.roots.git_config import Setting
from coretools.roots.git_programs import kind_of
from coretools.tools.git.trust.report import TrustReport
from tests.tools.git.harmless_keys import HARMLESS, ONLY_OF_THE_USER, SECTIONS
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
[includeIf "gitdir:/nowhere/"]
	path = ../up/more
[branch "main"]
	remote = https://ada:{token}@example.org/y.git
[branch "topic"]
	remote = origin
[gc]
	recentObjectsHook = {program}
[pull]
	twohead = ort
	octopus = evil
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
    ("program", "core.gitproxy", "up/more:", "fetch"),
    ("hook", "post-commit", ".git/hooks/post-commit", "commit"),
    ("remote", "branch.main.remote", ".git/config:", "fetch"),
    ("program", "gc.recentobjectshook", ".git/config:", "gc"),
    ("program", "pull.octopus", ".git/config:", "pull"),
    ("remote", "remotes/old", ".git/remotes/old:1", "fetch"),
    ("remote", "branches/older", ".git/branches/older:1", "fetch"),
    ("todo list", "exec", ".git/rebase-merge/git-rebase-todo:2", "rebase --continue"),
    ("todo list", "strategy", ".git/rebase-merge/strategy:1", "rebase --continue"),
    ("todo list", "exec", ".git/worktrees/linked/rebase-merge/git-rebase-todo:1", "rebase --continue"),
    ("program", "core.fsmonitor", ".git/worktrees/linked/config.worktree:", "status"),
    ("location", "commondir", ".git/worktrees/linked/commondir:1", "every"),
    ("program", "core.sshcommand", ".git/modules/group/sub/config:", "fetch"),
    ("pager", "pager.log", ".git/modules/group/sub/config.worktree:", "log"),
    ("hook", "post-checkout", ".git/modules/group/sub/hooks/post-checkout", "checkout"),
    ("editor", "core.editor", ".git/modules/group/sub/modules/inner/config:", "commit"),
    ("attribute", "filter=lfs", ".git/modules/group/sub/info/attributes:", "add"),
    ("repository", "vendor/kept", "vendor/kept/.git", "status"),
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
    world.write("up/more", f"[core]\n\tgitProxy = {program}\n\thooksPath = elsewhere\n")
    world.write("vendor/kept/.git/config", "[core]\n")
    own = {
        "hooks/post-commit": "#!/bin/sh\n",
        "remotes/old": f"URL: https://ada:{TOKEN}@example.org/z.git\nPull: main:main\n",
        "branches/older": f"{program}#main\n",
        "rebase-merge/git-rebase-todo": f"pick 1234567 x\n  exec {program} {TOKEN}\n# exec not this\n",
        "rebase-merge/strategy": "evil\n",
        "worktrees/linked/HEAD": "ref: refs/heads/main\n",
        "worktrees/linked/commondir": f"{world.outside}\n",
        "worktrees/linked/rebase-merge/git-rebase-todo": f"x {program}\n",
        "worktrees/linked/config.worktree": f"[core]\n\tfsmonitor = {program}\n",
        "modules/group/sub/HEAD": "ref: refs/heads/main\n",
        "modules/group/sub/config": f"[core]\n\tsshCommand = {program}\n",
        "modules/group/sub/config.worktree": f"[pager]\n\tlog = {program}\n",
        "modules/group/sub/hooks/post-checkout": "#!/bin/sh\n",
        "modules/group/sub/info/attributes": "*.x filter=lfs\n",
        "modules/group/sub/modules/inner/HEAD": "ref: refs/heads/main\n",
        "modules/group/sub/modules/inner/config": f"[core]\n\teditor = {program}\n",
    }
    for name, content in own.items():
        (world.git_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (world.git_dir / name).write_text(content)
    world.write(".lfsconfig", f"[lfs]\n\turl = https://ada:{TOKEN}@example.org/lfs\n")
    return world


async def reported(world: World, repository: str = "work", *, kind: str = "", offset: int = 0) -> TrustReport:
    async with world.tools() as tools:
        return await tools.git_trust_report(repository, kind, offset)


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
    assert not names & {"alias.st", "tag.gpgsign", "filter=no", "diff=text", "branch.topic.remote", "pull.twohead"}
    grants = {one["grant"] for one in report.findings if one["where"].startswith(".git/modules/")}
    assert grants == {""}
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
    own = [one for one in report.findings if not one["where"].startswith(".git/modules/")]
    grants = {one["name"]: one["grant"] for one in own}
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


async def test_everything_beyond_the_first_of_a_kind_can_be_seen(tmp_path: Path) -> None:
    """git-user-16: it is counted, and each answer says how to go on."""
    world = World(tmp_path).filled()
    with (world.git_dir / "config").open("a") as file:
        file.writelines(f'[alias]\n\ta{number} = "!{"x" * 150}"\n' for number in range(333))
    report = await reported(world)
    assert report.next_offsets == {"alias": 20}
    assert "[313 more of the kind 'alias'; kind='alias' offset=20 shows them]" in report.text()
    seen = [one["name"] for one in report.findings if one["kind"] == "alias"]
    while offset := report.next_offsets.get("alias"):
        assert len(seen) == offset
        report = await reported(world, kind="alias", offset=offset)
        assert len(report.text().encode()) <= 20_000
        seen += [one["name"] for one in report.findings]
    assert seen == [f"alias.a{number}" for number in range(333)]
    with pytest.raises(NotFound, match="kinds: alias"):
        await reported(world, kind="aliases")
    with pytest.raises(InvalidArguments):
        await reported(world, offset=1)


RUN_OR_REACH = [
    "gc.recentObjectsHook",
    "core.fsmonitor",
    "core.hooksPath",
    "core.sshCommand",
    "core.gitProxy",
    "core.askPass",
    "core.pager",
    "core.editor",
    "core.alternateRefsCommand",
    "core.attributesFile",
    "core.excludesFile",
    "core.worktree",
    "sequence.editor",
    "diff.external",
    "diff.x.command",
    "diff.x.textconv",
    "diff.tool",
    "diff.guitool",
    "difftool.x.cmd",
    "difftool.x.path",
    "merge.tool",
    "merge.guitool",
    "mergetool.x.cmd",
    "mergetool.x.path",
    "merge.x.driver",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "gpg.program",
    "gpg.x.program",
    "gpg.ssh.defaultKeyCommand",
    "gpg.ssh.allowedSignersFile",
    "gpg.ssh.revocationFile",
    "user.signingKey",
    "credential.helper",
    "credential.x.helper",
    "interactive.diffFilter",
    "pager.log",
    "man.viewer",
    "man.x.cmd",
    "man.x.path",
    "browser.x.cmd",
    "browser.x.path",
    "web.browser",
    "help.browser",
    "help.htmlPath",
    "instaweb.browser",
    "instaweb.httpd",
    "instaweb.modulePath",
    "guitool.x.cmd",
    "trailer.x.cmd",
    "trailer.x.command",
    "tar.x.command",
    "uploadpack.packObjectsHook",
    "receive.procReceiveRefs",
    "remote.x.vcs",
    "remote.x.uploadpack",
    "remote.x.receivepack",
    "remote.x.url",
    "remote.x.pushurl",
    "remote.x.proxy",
    "remote.pushDefault",
    "branch.x.remote",
    "branch.x.pushRemote",
    "branch.x.mergeOptions",
    "remotes.x",
    "url.x.insteadOf",
    "url.x.pushInsteadOf",
    "http.proxy",
    "http.x.sslCert",
    "http.cookieFile",
    "include.path",
    "includeIf.x.path",
    "submodule.x.url",
    "submodule.x.update",
    "commit.template",
    "mailmap.file",
    "mailmap.blob",
    "blame.ignoreRevsFile",
    "diff.orderFile",
    "fsck.skipList",
    "fetch.fsck.skipList",
    "receive.fsck.skipList",
    "format.signatureFile",
    "format.outputDirectory",
    "init.templateDir",
    "fsmonitor.socketDir",
    "pull.twohead",
    "pull.octopus",
    "sendemail.smtpServer",
    "sendemail.toCmd",
    "sendemail.ccCmd",
    "sendemail.aliasesFile",
    "imap.tunnel",
    "imap.host",
    "gitcvs.dbDriver",
    "gitcvs.logFile",
    "bundle.x.uri",
    "fetch.bundleURI",
    "hook.x.command",
    "alias.x",
    "extensions.partialClone",
    "lfs.url",
    "extensions.worktreeConfig",
    "extensions.refStorage",
    "ssh.variant",
    "attr.tree",
    "maintenance.repo",
    "scalar.repo",
    "promisor.acceptFromServer",
    "gitcvs.dbName",
    "gui.spellingDictionary",
    "http.sslKey",
    "http.sslCAInfo",
    "mergetool.vimdiff.layout",
    "submodule.x.gitdir",
    "svn.authorsProg",
]
"""Keys of git 2.39 to 2.54 whose documentation says that the value is a program, a file or an address."""


def harmless_keys() -> set[str]:
    lines = [line.partition(": ") for line in HARMLESS.strip().split("\n")]
    return {f"{section}.{name}".lower() for section, _, names in lines for name in names.split()}


def canonical(key: str) -> str:
    """A key in lower case, with a name for each placeholder."""
    return re.sub(r"<[^>]*>|\*", "x", key).lower()


def test_every_key_of_git_is_reported_or_known_to_be_harmless() -> None:
    """git-user-15: those of the documentation, and whatever this version of git lists."""
    listed = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout
    keys = {canonical(key) for key in listed.split("\n") if "." in key and " " not in key}
    known, harmless = set(map(canonical, RUN_OR_REACH)), harmless_keys()
    reported = {key for key in keys | known if kind_of(Setting(key, "!a:/b"))}
    ids = {key for key in keys if re.fullmatch(r"(fetch\.|receive\.)?fsck\.[a-z0-9]+", key)}
    ignored = {key for key in keys if key.partition(".")[0] in SECTIONS | ONLY_OF_THE_USER} | ids
    assert known - reported == set()
    assert keys - reported - ignored - harmless == set()
    assert reported & harmless == set()
    assert len(keys) > 500


async def test_no_repository_is_an_error(tmp_path: Path) -> None:
    """git-user-16."""
    with pytest.raises(NotFound):
        await reported(World(tmp_path), ".")
