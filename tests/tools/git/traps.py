"""Hostile repositories, one trap each: how it is created, and which plain git commands trigger it."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coretools.errors import CoreError
from tests.tools.git.world import SECRET, GitTools, World


@dataclass(frozen=True)
class Trap:
    """One hostile repository."""

    name: str
    lay: Callable[[World], None]
    triggers: tuple[tuple[str, ...], ...] = ()
    """Commands of plain git, one of which triggers the trap. Empty if this version of git has none."""
    reported: str = ""
    """A text that an answer or a refusal must contain."""


def laid(trap: Trap, top: Path) -> World:
    world = World(top).filled()
    trap.lay(world)
    return world


def snapshot(world: World) -> dict[str, object]:
    """Everything outside the root that a tool could have changed."""
    found: dict[str, object] = {"marker": world.marker.exists()}
    for path in sorted(world.outside.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


async def answers(tools: GitTools, repository: str = "work") -> list[str]:
    """Call every tool, one after the other; return the texts of answers and of expected errors."""
    texts = []
    for call in (
        lambda: tools.git_status(repository),
        lambda: tools.git_log(repository),
        lambda: tools.git_log(repository, path=f"{repository}/a.txt"),
        lambda: tools.git_diff(repository),
        lambda: tools.git_diff(repository, staged=True),
        lambda: tools.git_diff(repository, base="HEAD~1"),
        lambda: tools.git_diff(repository, base="HEAD~1", target="HEAD", stat=True),
        lambda: tools.git_branches(repository, remote=True),
        lambda: tools.git_current_branch(repository),
        lambda: tools.git_add([f"{repository}/a.txt"], repository),
        lambda: tools.git_commit("message", repository),
        lambda: tools.git_add(["."], repository),
        lambda: tools.git_commit("message", repository),
        lambda: tools.git_status(repository),
        lambda: tools.git_log(repository),
        lambda: tools.git_log(repository, changed="one", in_lines=True, stat=True, all_branches=True),
        lambda: tools.git_log(repository, path=f"{repository}/a.txt", follow=True, body=True),
        lambda: tools.git_diff(repository, base="HEAD~1...HEAD", word=True),
        lambda: tools.git_branches(repository, contains="HEAD~1", pattern="*"),
    ):
        try:
            texts.append((await call()).text())
        except CoreError as error:
            texts.append(f"{error.kind}: {error}")
    return texts


def _set(*pairs: tuple[str, str], attributes: str = "", then: str = "cat") -> Callable[[World], None]:
    """Set configuration values; `PROGRAM` in a value becomes a program that creates the marker."""

    def lay(world: World) -> None:
        program = str(world.program(then=then))
        for key, value in pairs:
            world.git("config", key, value.replace("PROGRAM", program).replace("OUTSIDE", str(world.outside)))
        if attributes:
            world.write(".gitattributes", attributes)
        os.utime(world.repository / "b.txt", (1, 1))

    return lay


def hooks(where: str) -> Callable[[World], None]:
    """Create hooks, in the git directory or elsewhere."""

    def lay(world: World) -> None:
        directory = world.git_dir / "hooks" if where == "own" else world.outside / "hooks"
        directory.mkdir(exist_ok=True)
        for name in ("pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"):
            (directory / name).write_text(f"#!/bin/sh\necho {name} >> {world.marker}\n")
            (directory / name).chmod(0o755)
        if where != "own":
            world.git("config", "core.hooksPath", str(directory))

    return lay


def _hook_settings(world: World) -> None:
    program = world.program()
    for event in ("pre-commit", "post-index-change", "reference-transaction"):
        world.git("config", f"hook.my-{event}.command", str(program))
        world.git("config", f"hook.my-{event}.event", event)


def signed(world: World) -> None:
    """Create a signed commit and the program that would verify it."""
    world.git("config", "gpg.program", str(world.program()))
    world.git("config", "log.showSignature", "true")
    tree, parent = world.git("rev-parse", "HEAD^{tree}"), world.git("rev-parse", "HEAD")
    people = "author A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n"
    text = f"tree {tree}\nparent {parent}\n{people} -----END PGP SIGNATURE-----\n\nsigned\n"
    commit = world.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    world.git("update-ref", "HEAD", commit)


def _promised(world: World) -> None:
    blob = world.git("rev-parse", "HEAD~1:b.txt")
    settings = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{world.program()}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
    }
    for key, value in settings.items():
        world.git("config", key, value)
    (world.git_dir / "objects" / blob[:2] / blob[2:]).unlink()


def _included(target: str, key: str = "include.path") -> Callable[[World], None]:
    def lay(world: World) -> None:
        text = f'[core]\nfsmonitor = {world.program()}\n[filter "evil"]\nclean = {world.program()}\n'
        (world.git_dir / target).write_text(text)
        world.write(".gitattributes", "* filter=evil\n")
        os.utime(world.repository / "b.txt", (1, 1))
        world.git("config", key, target)

    return lay


def _work_tree_settings(world: World) -> None:
    world.git("config", "core.repositoryFormatVersion", "1")
    world.git("config", "extensions.worktreeConfig", "true")
    program = world.program(then="cat")
    text = f'[core]\nfsmonitor = {program}\n[filter "evil"]\nclean = {program}\n'
    (world.git_dir / "config.worktree").write_text(text)
    world.write(".gitattributes", "* filter=evil\n")


def _submodule(world: World) -> None:
    inner = world.repository / "inner"
    world.git("init", "--quiet", str(inner))
    world.git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=inner)
    world.git("add", "inner")
    world.write(".gitmodules", '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n')
    (inner / "file").write_text("x")
    world.git("config", "core.fsmonitor", str(world.program()), cwd=inner)
    world.git("config", "status.submoduleSummary", "true")
    world.git("config", "diff.submodule", "log")
    world.git("config", "diff.ignoreSubmodules", "none")
    world.git("config", "submodule.inner.ignore", "none")


PROGRAMS = (
    Trap("fsmonitor", _set(("core.fsmonitor", "PROGRAM")), (("status",),), "core.fsmonitor"),
    Trap("hooks of the repository", hooks("own"), (("status",), ("commit", "-m", "x")), "pre-commit"),
    Trap("hooks elsewhere", hooks("elsewhere"), (("status",), ("commit", "-m", "x")), "core.hookspath"),
    Trap("hooks in the configuration", _hook_settings, (), "hook.my-pre-commit.command"),
    Trap("external diff", _set(("diff.external", "PROGRAM")), (("diff",),), "diff.external"),
    Trap(
        "diff command",
        _set(("diff.evil.command", "PROGRAM"), attributes="* diff=evil\n"),
        (("diff",),),
        "diff.evil.command",
    ),
    Trap(
        "text conversion",
        _set(("diff.evil.textconv", "PROGRAM"), attributes="* diff=evil\n"),
        (("diff",), ("log", "-p")),
        "diff.evil.textconv",
    ),
    Trap(
        "clean filter",
        _set(("filter.evil.clean", "PROGRAM"), ("filter.evil.required", "true"), attributes="* filter=evil\n"),
        (("status",), ("diff",)),
        "filter.evil.clean",
    ),
    Trap(
        "filter process",
        _set(("filter.evil.process", "PROGRAM"), attributes="* filter=evil\n"),
        (("add", "."),),
        "filter.evil.process",
    ),
    Trap(
        "smudge filter",
        _set(("filter.evil.smudge", "PROGRAM"), attributes="* filter=evil\n"),
        (("checkout", "--", "a.txt"),),
        "filter.evil.smudge",
    ),
    Trap(
        "signing program",
        _set(("gpg.program", "PROGRAM"), ("commit.gpgSign", "true"), ("user.signingKey", "x")),
        (("commit", "-m", "x"),),
        "gpg.program",
    ),
    Trap("signature of a commit", signed, (("log", "-1"),), "log.showsignature"),
    Trap(
        "editor", _set(("core.editor", "PROGRAM"), ("commit.template", "OUTSIDE/canary")), (("commit",),), "core.editor"
    ),
    Trap(
        "pager", _set(("core.pager", "PROGRAM"), ("pager.log", "PROGRAM"), ("pager.diff", "PROGRAM")), (), "core.pager"
    ),
    Trap(
        "ssh command",
        _set(("core.sshCommand", "PROGRAM"), ("remote.o.url", "ssh://x/y"), then="exit 1"),
        (("fetch", "o"),),
        "core.sshcommand",
    ),
    Trap("missing object of a promisor", _promised, (("log", "-p"), ("diff", "HEAD~1"))),
    Trap("included file", _included("evil"), (("status",),), "core.fsmonitor"),
    Trap("included file of the work tree", _included("../evil"), (("status",),), "filter.evil.clean"),
    Trap("conditional include", _included("evil", "includeIf.gitdir:**.path"), (("status",),), "core.fsmonitor"),
    Trap("settings of a work tree", _work_tree_settings, (("status",),), "filter.evil.clean"),
    Trap("aliases", _set(("alias.status", "!PROGRAM"), ("alias.st", "!PROGRAM")), (("st",),)),
    Trap("submodule with settings of its own", _submodule, (("status",), ("diff",))),
    Trap("filter with an equals sign", _set(("filter.a=b.clean", "PROGRAM")), (), "filter.a=b.clean"),
    Trap(
        "files outside as lists",
        _set(
            ("blame.ignoreRevsFile", "OUTSIDE/canary"),
            ("mailmap.file", "OUTSIDE/canary"),
            ("diff.orderFile", "OUTSIDE/canary"),
            ("core.excludesFile", "OUTSIDE/canary"),
            ("core.attributesFile", "OUTSIDE/canary"),
        ),
        (("blame", "a.txt"),),
        "blame.ignorerevsfile",
    ),
)


def _moved_out(name: str) -> Callable[[World], None]:
    """Replace an entry of the git directory by a link to a copy outside."""

    def lay(world: World) -> None:
        world.git("commit", "--quiet", "--allow-empty", "-m", SECRET)
        path = world.git_dir / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        away = world.outside / name.replace("/", "-")
        path.rename(away)
        path.symlink_to(away)

    return lay


def _elsewhere(world: World) -> Path:
    """The git directory of another repository, outside the root."""
    other = World(world.top / "other").filled()
    other.git("commit", "--quiet", "--allow-empty", "-m", SECRET)
    other.git_dir.rename(world.outside / "git")
    return world.outside / "git"


def _git_file(world: World) -> None:
    away = _elsewhere(world)
    world.git_dir.rename(world.repository / "old")
    world.git_dir.write_text(f"gitdir: {away}\n")


def _git_link(world: World) -> None:
    away = _elsewhere(world)
    world.git_dir.rename(world.repository / "old")
    world.git_dir.symlink_to(away)


def _common_directory(world: World) -> None:
    (world.git_dir / "commondir").write_text(f"{_elsewhere(world)}\n")


def _alternates(how: str) -> Callable[[World], None]:
    def lay(world: World) -> None:
        away = _elsewhere(world)
        head = world.git("rev-parse", "HEAD", cwd=away)
        store = str(away / "objects")
        if how == "through a link":
            # As text, `..` leads to `outside`; the kernel follows the link first and would stay beneath the root.
            # git before 2.39 takes the path as text (strbuf_normalize_path).
            (world.root / "a" / "outside" / "git" / "objects").mkdir(parents=True)
            (world.root / "a" / "b" / "c").mkdir(parents=True)
            (world.root / "link").symlink_to(world.root / "a" / "b" / "c")
            store = f"{world.root}/link/../../outside/git/objects"
        if how == "borrowed":
            between = world.root / "between"
            (between / "info").mkdir(parents=True)
            (between / "info" / "alternates").write_text(f"{store}\n")
            store = str(between)
        (world.git_dir / "objects" / "info" / "alternates").write_text(f"# honest\n{store}\n")
        (world.git_dir / "refs" / "heads" / "theirs").write_text(f"{head}\n")
        (world.git_dir / "refs" / "heads" / "main").write_text(f"{head}\n")

    return lay


def _linked_object_directory(world: World) -> None:
    """A commit would write objects into a directory outside."""
    for number in range(256):
        away = world.outside / f"{number:02x}"
        away.mkdir()
        (world.git_dir / "objects" / f"{number:02x}").is_dir() or (
            world.git_dir / "objects" / f"{number:02x}"
        ).symlink_to(away)


def _fifo(name: str) -> Callable[[World], None]:
    def lay(world: World) -> None:
        (world.git_dir / name).unlink()
        os.mkfifo(world.git_dir / name)

    return lay


def _home_include(world: World) -> None:
    (world.home / "settings").write_text(f"[core]\nfsmonitor = {world.program()}\n")
    world.git("config", "include.path", "~/settings")


_ADD = ("add", "a.txt")
_COMMIT = ("commit", "-a", "-m", "x")

REDIRECTIONS = (
    Trap("a .git file that leads out", _git_file, (("log",),), "work/.git"),
    Trap("a .git link that leads out", _git_link, (("log",),), "work/.git"),
    Trap("a common directory outside", _common_directory, (("log",),), "commondir"),
    Trap("alternates outside", _alternates("plain"), (("log",),), "alternates"),
    Trap("alternates through a link", _alternates("through a link"), (), "alternates"),
    Trap("alternates of alternates", _alternates("borrowed"), (("log",),), "alternates"),
    Trap("index", _moved_out("index"), (_ADD,), ".git/index"),
    Trap("logs", _moved_out("logs"), (_COMMIT,), ".git/logs"),
    Trap("HEAD", _moved_out("HEAD"), (), ".git/HEAD"),
    Trap("message of the last commit", _moved_out("COMMIT_EDITMSG"), (_COMMIT,), ".git/COMMIT_EDITMSG"),
    Trap("objects", _moved_out("objects"), (_COMMIT,), ".git/objects"),
    Trap("references", _moved_out("refs"), (_COMMIT,), ".git/refs"),
    Trap("packed references", _moved_out("packed-refs"), (), ".git/packed-refs"),
    Trap("packs", _moved_out("objects/pack"), (("gc", "--quiet"),), "objects/pack"),
    Trap("object directories", _linked_object_directory, (_COMMIT,), ".git/objects/"),
    Trap("configuration", _moved_out("config"), (), ".git/config"),
    Trap("FETCH_HEAD", _moved_out("FETCH_HEAD"), (), ".git/FETCH_HEAD"),
    Trap("information", _moved_out("info"), (), ".git/info"),
    Trap("exclusions", _moved_out("info/exclude"), (), ".git/info/exclude"),
    Trap("a FIFO for the index", _fifo("index"), (), ".git/index"),
    Trap("a FIFO for the configuration", _fifo("config"), (), ".git/config"),
    Trap("an included file at home", _home_include, (("status",),), "include.path"),
)
"""No tool uses such a repository."""

WRITTEN_THROUGH = (
    Trap("reflog of HEAD", _moved_out("logs/HEAD"), (_COMMIT,), ".git/logs/HEAD"),
    Trap("reflog of the branch", _moved_out("logs/refs/heads/main"), (_COMMIT,), "logs/refs/heads/main"),
    Trap("directory of branches", _moved_out("refs/heads"), (_COMMIT,), ".git/refs/heads"),
    Trap("a branch", _moved_out("refs/heads/main"), (), "refs/heads/main"),
)
"""Reads are harmless here; a change would be written through the link."""
