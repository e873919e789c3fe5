"""Hooks, filters and merge drivers that the operator grants to one root (docs/specs/git-user.md), by effect: a program
of the repository leaves a mark in the work tree. Through the workstation server, in both tiers."""

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer

IDENTITY = "[user]\n\tname = Ada\n\temail = ada@example.org\n"

PRE_COMMIT = """#!/bin/sh
echo ran >> "$PWD/mark"
cat {secret} 2>/dev/null && echo reached >> "$PWD/mark"
touch {outside} 2>/dev/null
[ -z "$SSH_AUTH_SOCK$GIT_CONFIG_PARAMETERS" ] || echo leaked >> "$PWD/mark"
git diff --cached --name-only > "$PWD/names"
[ ! -e refuse ] || {{ echo "not today"; exit 3; }}
"""

COMMIT_MSG = '#!/bin/sh\necho "Checked: yes" >> "$1"\n'

POLICY = """[commands]
default = "deny"

[[commands.rule]]
program = "sh"
verdict = "allow"

[roots."{granted}".git]
hooks = ["pre-commit", "commit-msg", "post-merge"]
filters = ["upper", "strict"]
merge_drivers = ["ours"]
"""


SETTINGS = """
[filter "upper"]
	clean = "tee -a mark-clean | tr a-z A-Z"
	smudge = "tee -a mark-smudge | tr A-Z a-z"
[filter "strict"]
	clean = cat
	smudge = "[ ! -e refuse ] && cat"
	required = true
[merge "ours"]
	driver = "echo ran >> mark-driver"
[merge "theirs"]
	driver = "touch mark-theirs; cp %B %A"
"""


@cache
def _template() -> Path:
    """The repository that all of them are copies of."""
    top = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    root = top / "root"
    script = """git init -q -b main root && cd root && printf 'mark*\\nnames\\nrefuse\\nnested\\nlinked\\n' > .gitignore
    printf '*.up filter=upper\\n*.st filter=strict\\n*.m merge=ours\\n*.t merge=theirs\\n' > .gitattributes
    echo base > a.m && echo base > f && git add . && git commit -q -m first
    git switch -q -c side && echo side > a.m && git commit -q -am side
    git switch -q main && echo main > a.m && git commit -q -am main && rm -f .git/hooks/*.sample"""
    variables = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
    (top / ".gitconfig").write_text(IDENTITY)
    subprocess.run(["sh", "-ec", script], cwd=top, env=variables, check=True)
    with (root / ".git" / "config").open("a") as file:
        file.write(SETTINGS)
    return root


class Granted:
    """Two roots with the same repository; programs are granted to the first."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.home = top / "home"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text(IDENTITY)
        self.secret = top / "secret"
        self.secret.write_text("secret\n")
        self.outside = top / "outside"
        self.granted, self.other = top / "granted", top / "other"
        for root in (self.granted, self.other):
            self.make(root)
        self.make(self.granted / "nested")
        self.git(self.granted, "worktree", "add", "-q", "-b", "linked", str(self.granted / "linked"))
        (self.granted / ".git/info/exclude").write_text("nested\nlinked\nmark*\nnames\nrefuse\n")
        self.policy = top / "policy.toml"
        self.policy.write_text(POLICY.format(granted=self.granted))

    def make(self, root: Path) -> None:
        """A repository with hooks, a filter, a merge driver and two branches that conflict."""
        shutil.copytree(_template(), root, symlinks=True)
        for name, text in (
            ("pre-commit", PRE_COMMIT.format(secret=self.secret, outside=self.outside)),
            ("commit-msg", COMMIT_MSG),
            ("post-commit", "#!/bin/sh\ntouch mark-post-commit\n"),
            ("post-checkout", "#!/bin/sh\ntouch mark-post-checkout\n"),
        ):
            path = root / ".git" / "hooks" / name
            path.write_text(text)
            path.chmod(0o755)

    def git(self, root: Path, *words: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        argv = ["git", "-c", "core.hooksPath=/dev/null", *words]
        return subprocess.run(argv, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout

    def marks(self, root: Path) -> dict[str, str]:
        """What the programs of a repository left behind."""
        found = {path.name: path.read_text() for path in root.glob("mark*")}
        for path in root.glob("mark*"):
            path.unlink()
        return found


@pytest.fixture(scope="module", params=["full", "landlock"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Granted, Peer]]:
    place = Granted(tmp_path_factory.mktemp("granted"))
    before = under_profile() if request.param == "landlock" else ()
    environment = {"HOME": str(place.home), "GIT_CONFIG_NOSYSTEM": "1", "SSH_AUTH_SOCK": str(place.top / "agent")}
    words = (place.granted, place.other, "--profile", "all", "--policy", place.policy)
    with peer(*words, before=before, environment=environment) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield place, client


def call(client: Peer, tool: str, **arguments: object) -> tuple[bool, str]:
    result: dict[str, Any] = client.call(tool, **arguments)
    return not result.get("isError"), result["content"][0]["text"]


def commit(place: Granted, client: Peer, root: Path, message: str) -> tuple[bool, str]:
    with (root / "f").open("a") as file:
        file.write(message)
    assert call(client, "git_add", repository=str(root), paths=[str(root / "f")])[0]
    return call(client, "git_commit", repository=str(root), message=message)


def test_a_granted_hook_runs_like_a_command_and_no_other_one_does(served: tuple[Granted, Peer]) -> None:
    """git-user-11, git-user-12: it sees git as usual, reaches nothing outside; one that is not granted is listed."""
    place, client = served
    place.marks(place.granted)
    done, text = commit(place, client, place.granted, "one")
    assert done, text
    assert "hooks that did not run: post-checkout, post-commit" in text
    marks = place.marks(place.granted)
    assert marks["mark"] == "ran\n"
    assert not marks.keys() & {"mark-post-checkout", "mark-post-commit"}
    assert (place.granted / "names").read_text() == "f\n"
    assert not place.outside.exists()
    assert place.git(place.granted, "log", "-1", "--format=%B").split("\n")[:2] == ["one", "Checked: yes"]


def test_a_hook_that_refuses_is_named_with_its_output(served: tuple[Granted, Peer]) -> None:
    """git-user-12: and nothing is committed."""
    place, client = served
    (place.granted / "refuse").touch()
    before = place.git(place.granted, "rev-parse", "HEAD")
    try:
        done, text = commit(place, client, place.granted, "refused")
    finally:
        (place.granted / "refuse").unlink()
    assert not done
    assert "the hook pre-commit refused with exit code 3" in text
    assert "not today" in text
    assert place.git(place.granted, "rev-parse", "HEAD") == before
    place.marks(place.granted)


@pytest.mark.parametrize("name", ["other", "granted/nested", "granted/linked"])
def test_a_grant_is_for_one_repository(served: tuple[Granted, Peer], name: str) -> None:
    """git-user-11: not for another root, a repository in the root, or a linked work tree of it."""
    place, client = served
    root = place.top / name
    done, text = commit(place, client, root, "elsewhere")
    assert done, text
    assert place.marks(root) == {}
    assert "Checked" not in place.git(root, "log", "-1", "--format=%B")
    (root / "x.up").write_text("text\n")
    done, text = call(client, "git_add", repository=str(root), paths=[str(root / "x.up")])
    assert not done
    assert "need the filter upper" in text
    (root / "x.up").unlink()
    assert place.marks(root) == {}


def test_a_granted_filter_converts_files(served: tuple[Granted, Peer]) -> None:
    """git-user-13: when they are staged, compared and written; a definition that is planted later has no effect."""
    place, client = served
    root = place.granted
    (root / "x.up").write_text("text\n")
    place.git(root, "config", "filter.upper.clean", "touch mark-planted; cat")
    try:
        assert call(client, "git_add", repository=str(root), paths=[str(root / "x.up")])[0]
    finally:
        place.git(root, "config", "filter.upper.clean", "tr a-z A-Z")
    place.git(root, "config", "filter.upper.process", "touch mark-planted")
    try:
        done, text = call(client, "git_add", repository=str(root), paths=[str(root / "x.up")])
    finally:
        place.git(root, "config", "--unset", "filter.upper.process")
    assert not done
    assert "filter.upper.process was set after it was granted" in text
    assert place.git(root, "cat-file", "blob", ":x.up") == "TEXT\n"
    assert place.marks(root) == {"mark-clean": "text\n"}
    done, text = call(client, "git_commit", repository=str(root), message="filtered")
    assert done, text
    (root / "x.up").write_text("other\n")
    done, text = call(client, "git_restore", repository=str(root), paths=[str(root / "x.up")])
    assert done, text
    assert (root / "x.up").read_text() == "text\n"
    assert "clean: nothing to commit" in call(client, "git_status", repository=str(root))[1]
    assert "mark-smudge" in place.marks(root)


def test_a_filter_that_fails_loses_nothing(served: tuple[Granted, Peer]) -> None:
    """git-user-13: the error names the filter, and the stash with what was to be overwritten."""
    place, client = served
    root = place.granted
    (root / "x.st").write_text("text\n")
    assert call(client, "git_add", repository=str(root), paths=[str(root / "x.st")])[0]
    assert call(client, "git_commit", repository=str(root), message="strict")[0]
    (root / "x.st").write_text("uncommitted\n")
    (root / "refuse").touch()
    try:
        done, text = call(client, "git_restore", repository=str(root), paths=[str(root / "x.st")])
    finally:
        (root / "refuse").unlink()
    assert not done
    assert "the filter strict failed" in text
    stash = text.rpartition("stash='")[2].partition("'")[0]
    assert place.git(root, "show", f"{stash}:x.st") == "uncommitted\n"
    place.git(root, "checkout", "x.st")
    place.marks(root)


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_files_of_git_lfs_are_converted_and_a_missing_object_is_named(tmp_path: Path) -> None:
    """git-user-13: `lfs` needs no configuration."""
    place = Granted(tmp_path)
    root = place.granted
    found = shutil.which("git-lfs")
    assert found is not None
    readable = f'[confinement]\nreadable = ["{Path(found).resolve().parent}"]\n'
    place.policy.write_text(f'{readable}[roots."{root}".git]\nfilters = ["lfs"]\n')
    (root / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    environment = {"HOME": str(place.home), "GIT_CONFIG_NOSYSTEM": "1"}
    with peer(root, "--profile", "all", "--policy", place.policy, environment=environment) as client:
        client.start_session()
        (root / "x.bin").write_bytes(b"content" * 100)
        assert call(client, "git_add", paths=["x.bin", ".gitattributes"])[0]
        assert place.git(root, "cat-file", "blob", ":x.bin").startswith("version https://git-lfs.github.com/spec/v1\n")
        assert call(client, "git_commit", message="lfs")[0]
        assert "clean: nothing to commit" in call(client, "git_status")[1]
        (root / "x.bin").write_bytes(b"uncommitted")
        assert call(client, "git_restore", paths=["x.bin"])[0]
        assert (root / "x.bin").read_bytes() == b"content" * 100
        shutil.rmtree(root / ".git" / "lfs" / "objects")
        (root / "x.bin").write_bytes(b"uncommitted")
        done, text = call(client, "git_restore", paths=["x.bin"])
    assert not done
    assert "LFS object is not in this repository" in text
    assert "git_stash action='apply' stash='" in text


def test_a_granted_merge_driver_runs_and_another_one_does_not(served: tuple[Granted, Peer]) -> None:
    """git-user-13."""
    place, client = served
    call(client, "git_commit", repository=str(place.granted), message="what was refused")
    place.marks(place.granted)
    done, text = call(client, "git_merge", repository=str(place.granted), revision="side")
    assert done, text
    assert (place.granted / "a.m").read_text() == "main\n"
    assert place.marks(place.granted).keys() >= {"mark-driver", "mark"}
    call(client, "git_merge", repository=str(place.other), revision="side")
    assert place.marks(place.other) == {}
    call(client, "git_continue", repository=str(place.other), action="abort")


def test_a_hook_that_changed_is_refused(served: tuple[Granted, Peer]) -> None:
    """git-user-11: its content was recorded at the start; a hook that appears later was not granted either."""
    place, client = served
    hooks = place.granted / ".git" / "hooks"
    hook, before = hooks / "pre-commit", (hooks / "pre-commit").read_bytes()
    head = place.git(place.granted, "rev-parse", "HEAD")
    try:
        hook.write_bytes(before + b"touch mark-changed\n")
        done, text = commit(place, client, place.other, "free")
        assert done, text
        done, text = call(client, "git_commit", repository=str(place.granted), message="changed")
        digest = hashlib.sha256(hook.read_bytes()).hexdigest()
        assert not done
        assert "the hook pre-commit is not the one that was granted" in text
        assert f"pre-commit@sha256:{digest}" in text
        hook.write_bytes(before)
        (hooks / "post-merge").write_text("#!/bin/sh\ntouch mark-appeared\n")
        (hooks / "post-merge").chmod(0o755)
        done, text = call(client, "git_commit", repository=str(place.granted), message="appeared")
        assert not done
        assert "the hook post-merge is not the one that was granted" in text
    finally:
        hook.write_bytes(before)
        (hooks / "post-merge").unlink(missing_ok=True)
    assert place.marks(place.granted) == {}
    assert place.git(place.granted, "rev-parse", "HEAD") == head


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Granted, Peer]]:
    """A user with a key in an agent, and a root in which commits are signed."""
    place = Granted(tmp_path_factory.mktemp("signing"))
    key = place.home / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = (place.home / "key.pub").read_text()
    socket = place.top / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout is not None
        agent.stdout.readline()
        variables = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        subprocess.run(["ssh-add", "-q", str(key)], env=variables, check=True)
        key.rename(place.top / "key")
        settings = f"\tsigningKey = key::{public}[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"
        (place.home / ".gitconfig").write_text(IDENTITY + settings)
        (place.home / "signers").write_text(f"ada@example.org {public}")
        place.policy.write_text(f'[roots."{place.granted}".git]\nsigning = true\n')
        environment = {"HOME": str(place.home), "GIT_CONFIG_NOSYSTEM": "1", "SSH_AUTH_SOCK": str(socket)}
        words = (place.granted, place.other, "--profile", "all", "--policy", place.policy)
        with peer(*words, environment=environment) as client:
            client.start_session()
            yield place, client
    finally:
        agent.terminate()
        agent.communicate()


def is_signed(place: Granted, root: Path) -> bool:
    settings = (f"gpg.ssh.allowedSignersFile={place.home}/signers", "gpg.ssh.program=ssh-keygen")
    words = [*(word for one in settings for word in ("-c", one)), "log", "-1", "--format=%G?"]
    return place.git(root, *words) == "G\n"


def test_commits_are_signed_where_that_is_granted(signing: tuple[Granted, Peer]) -> None:
    """git-user-14: by the user's agent, which no command reaches; a repository chooses no key."""
    place, client = signing
    place.git(place.granted, "config", "user.signingKey", "key::ssh-ed25519 AAAA planted")
    place.git(place.granted, "config", "gpg.ssh.program", str(place.top / "program"))
    done, text = commit(place, client, place.granted, "signed")
    assert done, text
    assert "committed and signed" in text
    assert is_signed(place, place.granted)
    assert call(client, "git_commit", repository=str(place.granted), message="again", amend=True)[0]
    assert is_signed(place, place.granted)
    assert place.git(place.granted, "log", "-1", "--format=%s") == "again\n"
    done, text = call(client, "git_merge", repository=str(place.granted), revision="linked", fast_forward=False)
    assert "up to date" in text or is_signed(place, place.granted), text
    assert commit(place, client, place.other, "plain")[0]
    assert not is_signed(place, place.other)
    command = f"SSH_AUTH_SOCK={place.top}/agent ssh-add -l; git commit -q --allow-empty -S -m x"
    result = client.call("run_command", command=command, directory=str(place.granted))
    assert result["_meta"]["coretools/facts"]["exit_code"] != 0
    assert "ssh-ed25519" not in result["content"][0]["text"]


def test_a_signature_that_fails_leaves_nothing_committed(signing: tuple[Granted, Peer]) -> None:
    """git-user-14: what was staged still is."""
    place, client = signing
    head = place.git(place.granted, "rev-parse", "HEAD")
    variables = {**os.environ, "SSH_AUTH_SOCK": str(place.top / "agent")}
    subprocess.run(["ssh-add", "-q", "-D"], env=variables, check=True)
    done, text = commit(place, client, place.granted, "unsigned")
    subprocess.run(["ssh-add", "-q", str(place.top / "key")], env=variables, check=True)
    assert not done
    assert "the commit could not be signed: ssh-keygen: " in text
    assert "nothing was committed" in text
    assert place.git(place.granted, "rev-parse", "HEAD") == head
    assert place.git(place.granted, "diff", "--cached", "--name-only") == "f\n"
    place.git(place.granted, "reset", "-q")


PLANTED = (
    *("core.fsmonitor", "core.sshCommand", "core.askPass", "core.pager", "core.editor", "sequence.editor"),
    *("core.gitProxy", "core.alternateRefsCommand", "diff.external", "diff.word.command", "diff.word.textconv"),
    *("filter.lower.clean", "filter.lower.smudge", "filter.lower.process", "merge.theirs.driver", "gpg.program"),
    *("gpg.ssh.program", "gpg.ssh.defaultKeyCommand", "credential.helper", "alias.commit", "alias.status"),
    *("trailer.x.command", "tar.x.command", "mergetool.x.cmd", "difftool.x.cmd", "interactive.diffFilter"),
    *("remote.origin.uploadpack", "remote.origin.receivepack", "hook.x.command", "man.x.cmd", "pager.log"),
    *("uploadpack.packObjectsHook", "submodule.s.update", "core.hooksPath.x", "new.x.program"),
)
SWITCHES = {"commit.gpgSign": "true", "tag.gpgSign": "true", "log.showSignature": "true", "hook.x.event": "pre-commit"}
HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "post-merge", "pre-rebase"),
    *("pre-merge-commit", "post-rewrite", "post-index-change", "reference-transaction", "pre-auto-gc", "pre-push"),
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("git_status", {}),
    ("git_log", {}),
    ("git_diff", {}),
    ("git_diff", {"base": "HEAD~1"}),
    ("git_show", {}),
    ("git_blame", {"path": "f"}),
    ("git_branches", {"remote": True}),
    ("git_trust_report", {}),
    ("git_stash", {"action": "push"}),
    ("git_stash", {"action": "pop"}),
    ("git_add", {"paths": ["f"]}),
    ("git_commit", {"message": "one"}),
    ("git_commit", {"message": "two", "amend": True}),
    ("git_revert", {"revisions": ["HEAD"]}),
    ("git_tag", {"action": "create", "name": "v1", "message": "text"}),
    ("git_switch", {"branch": "new", "create": True}),
    ("git_switch", {"branch": "main"}),
    ("git_merge", {"revision": "side"}),
    ("git_conflicts", {}),
    ("git_restore", {"paths": ["."], "side": "ours"}),
    ("git_continue", {"action": "continue"}),
    ("git_cherry_pick", {"revisions": ["new"]}),
    ("git_continue", {"action": "abort"}),
    ("git_rebase", {"upstream": "side"}),
    ("git_continue", {"action": "abort"}),
    ("git_reset", {"revision": "HEAD~1", "mode": "hard"}),
    ("git_fetch", {}),
    ("git_push", {}),
)


HARD = {"git_fetch", "git_push", "git_continue"}
"""Tools that have nothing to do there, or are refused."""


def plant(place: Granted, root: Path) -> None:
    """Every program that a repository can name, each with a mark of its own."""
    values = {**{key: f'"{command(key)}"' for key in PLANTED}, **SWITCHES}
    text = "".join(
        f"[{key.partition('.')[0]}{quoted(key)}]\n\t{key.rpartition('.')[2]} = {value}\n"
        for key, value in values.items()
    )
    text += f'[remote "origin"]\n\turl = ext::sh -c touch% {root}/mark-ext\n'
    with (root / ".git" / "config").open("a") as file:
        file.write(text)
    for name in HOOKS:
        path = root / ".git" / "hooks" / name
        path.write_text(f"#!/bin/sh\ntouch {root}/mark-hook-{name}\n")
        path.chmod(0o755)
    (root / ".git" / "info" / "attributes").write_text(
        "f diff=word\n*.m !merge\n*.lower filter=lower\n*.t merge=theirs\n"
    )
    (root / "f").write_text("changed\n")
    (root / "new.lower").write_text("new\n")


def quoted(key: str) -> str:
    middle = key.partition(".")[2].rpartition(".")[0]
    return f' "{middle}"' if middle else ""


def command(key: str) -> str:
    return f"{'!' if key.startswith(('alias', 'submodule')) else ''}touch mark-{key}; cat"


def test_only_what_is_granted_runs_whatever_else_a_repository_names(tmp_path: Path) -> None:
    """git-user-11, git-user-12, git-12: every vector, granted and not, by every tool, in one repository each."""
    place = Granted(tmp_path)
    for root in (place.granted, place.other):
        plant(place, root)
        place.git(root, "-c", "filter.lower.process=", "-c", "filter.lower.clean=", "-c", "core.fsmonitor=", "status")
        place.marks(root)
    granted = f'[roots."{place.granted}".git]\nhooks = ["pre-commit", "post-checkout"]\nfilters = ["upper"]\n'
    place.policy.write_text(granted)
    environment = {"HOME": str(place.home), "GIT_CONFIG_NOSYSTEM": "1"}
    words = (place.granted, place.other, "--profile", "all", "--policy", place.policy)
    worked = set()
    with peer(*words, environment=environment) as client:
        client.start_session()
        for root in (place.granted, place.other):
            for tool, arguments in CALLS:
                own = {"paths": [f"{root}/{name}" for name in arguments["paths"]]} if "paths" in arguments else {}
                own |= {"path": f"{root}/{arguments['path']}"} if "path" in arguments else {}
                done, _ = call(client, tool, **{**arguments, **own}, repository=str(root))
                worked |= {(root.name, tool)} if done else set()
        for name in ("granted", "other"):
            assert {tool for tool, _ in CALLS if (name, tool) not in worked} <= HARD
        assert set(place.marks(place.granted)) == {"mark-hook-pre-commit", "mark-hook-post-checkout"}
        assert place.marks(place.other) == {}


def test_a_hook_of_husky_a_link_and_a_fixed_hash(tmp_path: Path) -> None:
    """git-user-11: hooks are where core.hooksPath says, if that is in the root; a link is not followed; a hash in the
    policy holds whatever was there at start."""
    place = Granted(tmp_path)
    root = place.granted
    (root / ".husky").mkdir()
    for name in ("pre-commit", "post-commit"):
        (root / ".husky" / name).write_text("#!/bin/sh\ntouch mark-husky-${0##*/}\n")
        (root / ".husky" / name).chmod(0o755)
    (root / ".husky" / "commit-msg").symlink_to(root / ".git" / "hooks" / "commit-msg")
    place.git(root, "config", "core.hooksPath", ".husky")
    digest = hashlib.sha256((root / ".husky" / "post-commit").read_bytes()).hexdigest()
    place.policy.write_text(
        f'[roots."{root}".git]\nhooks = ["pre-commit", "post-commit@sha256:{digest}", "commit-msg"]\n'
    )
    environment = {"HOME": str(place.home), "GIT_CONFIG_NOSYSTEM": "1"}
    with peer(root, "--profile", "all", "--policy", place.policy, environment=environment) as client:
        client.start_session()
        done, text = commit(place, client, root, "husky")
        assert done, text
        assert place.marks(root).keys() == {"mark-husky-pre-commit", "mark-husky-post-commit"}
        (root / ".husky" / "post-commit").write_text("#!/bin/sh\ntouch mark-other\n")
        done, text = call(client, "git_commit", repository=str(root), message="changed", amend=True)
        assert not done
        assert "the hook post-commit is not the one that was granted" in text
        report = call(client, "git_trust_report", repository=str(root))[1]
        assert "hook post-commit" in report
        assert "granted with another content" in report
