"""What commands see of git's configuration, and which of their changes reach the repository's own file."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from coretools.confinement.git_config_changes import allowed_changes, restore_credentials
from coretools.errors import GitRefused
from coretools.process.fork_server import git_configs
from coretools.roots.git_config import Setting, edit, parse, serialize, values_of, with_changes
from coretools.roots.git_credentials import without_credentials
from tests.process.test_sandbox_pool import SandboxedRunner, needs_namespaces, sandboxed
from tests.protocol.peer import peer

TOKEN = "c4n4ry-0f-a-t0ken"
CREDENTIALS = f"""\
# https://user:{TOKEN}@comment.example/
[core]
	repositoryformatversion = 0
	bare = false ; kept as it is
[user]
	name = User
	email = user@host.example
	password = {TOKEN}
[remote "origin"]
	url = https://user:{TOKEN}@host.example/project.git
	pushurl = https://{TOKEN}@host.example/project.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[remote "behind"]
	url = https://host.example/behind.git
	proxy = http://user:{TOKEN}@proxy.example:3128
[remote "ssh"]
	url = ssh://git:{TOKEN}@host.example/project.git
[http]
	proxy = "http://me:two words {TOKEN}@proxy.example"
[http "https://host.example/"]
	extraHeader = "AUTHORIZATION: basic {TOKEN}"
	extraheader = "X-Private: {TOKEN}"
[http "https://{TOKEN}@other.example/"]
	sslVerify = true
[credential]
	helper = "!f() {{ echo password={TOKEN}; }}; f"
[url "https://oauth2:{TOKEN}@host.example/"]
	insteadOf = host:
[submodule "part"]
	url = HTTPS://{TOKEN}:x-oauth-basic@host.example/part.git
[sendemail]
	smtpPass = {TOKEN}
[imap]
	pass = {TOKEN}
[github]
	token = {TOKEN}
[lfs]
	url = https://user:{TOKEN}@host.example/lfs
[alias]
	api = "!curl -H 'Authorization: Bearer {TOKEN}' https://host.example"
	ship = push gcrypt::https://user:{TOKEN}@host.example/
"""


def git(*words: str, directory: Path) -> str:
    argv = ("git", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(argv, cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a commit and every kind of credential."""
    folder = tmp_path / "root" / "project"
    folder.mkdir(parents=True)
    git("init", "-q", "-b", "main", directory=folder)
    (folder / "file").write_text("one\n")
    git("add", "file", directory=folder)
    git("-c", "user.name=U", "-c", "user.email=u@h", "commit", "-qm", "one", directory=folder)
    (folder / ".git" / "config").write_text(CREDENTIALS)
    return folder


async def run(place: SandboxedRunner, text: str, directory: str = "project") -> tuple[str, str]:
    """The output of a command, and the remarks of its result."""
    completed = await place.run("sh", "-c", text, directory=directory)
    assert not [path for path in completed.changed_control_files if path.endswith("project/.git/config")]
    return completed.stdout.text() + completed.stderr.text(), " ".join(completed.remarks)


def setting(project: Path, *words: str) -> str:
    ended = subprocess.run(["git", "config", *words], cwd=project, check=False, capture_output=True, text=True)
    return ended.stdout.strip()


@needs_namespaces
async def test_no_token_is_in_what_commands_see(project: Path) -> None:
    """confinement-41: whichever way they read it; remotes, identity and branches are visible."""
    before = (project / ".git" / "config").read_bytes()
    async with sandboxed(project.parent) as place:
        output, remarks = await run(
            place,
            "git remote -v; git config --list --show-origin; cat .git/config; grep -r . .git /.git-config 2>/dev/null;"
            " cp .git/config /tmp/x; cat /tmp/x; git config --get-regexp . ; git ls-remote --get-url ssh;"
            " cat /proc/self/root/$PWD/.git/config; cd .git && cat config ./config ../.git/config",
        )
    assert TOKEN not in output
    assert remarks == ""
    for seen in (
        *("origin\thttps://host.example/project.git (fetch)", "ssh://git@host.example/project.git"),
        *("User", "user@host.example", "http://proxy.example", "https://host.example/lfs"),
        "https://host.example/part.git",
    ):
        assert seen.lower() in output.lower(), seen
    assert (project / ".git" / "config").read_bytes() == before


@needs_namespaces
async def test_harmless_changes_are_kept_and_credentials_survive_them(project: Path) -> None:
    """confinement-42: in the repository's own file, whose other lines and comments stay the same."""
    async with sandboxed(project.parent) as place:
        output, remarks = await run(
            place,
            "git config user.name Agent && git checkout -q -b topic && git branch -u main &&"
            " git remote add more git@host.example:more.git && git update-ref refs/remotes/more/x HEAD &&"
            " git checkout -q --track more/x && git remote rename origin upstream && git branch -D topic",
        )
        assert "fatal" not in output
        assert remarks == ""
        text = (project / ".git" / "config").read_text()
        again, _ = await run(place, "git config user.name; git remote; git rev-parse --abbrev-ref @{u}")
    assert again.split() == ["Agent", "behind", "more", "ssh", "upstream", "more/x"]
    assert text.count(TOKEN) == CREDENTIALS.count(TOKEN)
    assert f"# https://user:{TOKEN}@comment.example/" in text
    assert "bare = false ; kept as it is" in text
    assert setting(project, "remote.upstream.url") == f"https://user:{TOKEN}@host.example/project.git"
    assert setting(project, "branch.x.remote") == "more"
    assert setting(project, "branch.topic.remote") == ""


@needs_namespaces
async def test_line_ends_and_a_mark_stay(project: Path) -> None:
    """confinement-42: CRLF line ends and a byte order mark are kept when a change is applied."""
    file = project / ".git" / "config"
    file.write_bytes(_dos(CREDENTIALS.encode()))
    async with sandboxed(project.parent) as place:
        output, remarks = await run(place, "git config user.name Agent; git config --unset user.email; git remote -v")
        assert TOKEN not in output + remarks
        assert "ssh://git@host.example" in output
    text = CREDENTIALS.replace("name = User", "name = Agent").replace("\temail = user@host.example\n", "")
    assert file.read_bytes() == _dos(text.encode())
    assert setting(project, "user.name") == "Agent"


PROGRAMS = {
    "core.fsmonitor": "./evil",
    "core.hooksPath": "evil",
    "core.sshCommand": "./evil",
    "core.pager": "./evil",
    "core.editor": "./evil",
    "core.worktree": "/tmp",
    "alias.status": "!./evil",
    "filter.x.clean": "./evil",
    "diff.x.command": "./evil",
    "diff.x.textconv": "./evil",
    "merge.x.driver": "./evil",
    "credential.helper": "!./evil",
    "include.path": "../evil",
    "includeIf.gitdir:/.path": "../evil",
    "gpg.program": "./evil",
    "url.https://evil.example/.insteadOf": "https://",
    "http.proxy": "http://evil.example",
    "http.sslVerify": "false",
    "protocol.ext.allow": "always",
    "extensions.worktreeConfig": "true",
    "remote.a.url": "ext::sh -c ./evil",
    "remote.b.url": "/somewhere/with/hooks",
    "remote.c.url": "../with/hooks",
    "remote.d.url": "file:///somewhere/with/hooks",
    "remote.e.url": "evil::x",
    "remote.f.url": "ssh://-oProxyCommand=evil/x",
    "remote.g.url": "-oProxyCommand=evil:x",
    "remote.h.vcs": "evil",
    "remote.origin.uploadpack": "./evil",
    "remote.origin.receivepack": "./evil",
    "branch.main.remote": "../with/hooks",
    "branch.main.pushRemote": "ext::sh -c evil",
    "branch.x.mergeOptions": "--strategy=evil",
    "remote.pushDefault": "/somewhere/with/hooks",
    "submodule.s.update": "!./evil",
    "submodule.s.url": "ext::sh -c evil",
    "user.signingKey": "x",
    "uploadpack.packObjectsHook": "./evil",
}


SPELLINGS = """
[core] fsMonitor = x
[CORE]hookspath=y
[user]
 email = a\\
 b
[alias "q"]
 command = !x
[remote "o\\"]"]
 url = https://host.example/y
[core]
 fsmonitor = z ; "
"""


@needs_namespaces
async def test_what_starts_programs_is_not_carried_over(project: Path) -> None:
    """confinement-43: the change holds for commands only, and the result names the keys, however they are spelled."""
    before = (project / ".git" / "config").read_bytes()
    (project / "set").write_text("".join(f"git config {key!r} {value!r}\n" for key, value in PROGRAMS.items()))
    (project / "set").chmod(0o755)
    async with sandboxed(project.parent) as place:
        output, remarks = await run(place, "sh ./set")
        assert (project / ".git" / "config").read_bytes() == before
        assert "branch.main.pushremote (project/.git/config)" in remarks
        assert "and " in remarks.split(",")[-1]
        assert "evil" in (await run(place, "git config core.hooksPath; git config user.email x@y"))[0]
        (project / "more").write_text(SPELLINGS)
        output, remarks = await run(place, "cat more >> .git/config")
        assert output == ""
        assert "core.fsmonitor" in remarks
    found = values_of(parse((project / ".git" / "config").read_bytes(), "config"))
    expected = {
        **values_of(parse(before, "config")),
        "user.email": ("x@y", "a b"),
        'remote.o"].url': ("https://host.example/y",),
    }
    assert found == expected
    assert setting(project, 'remote.o"].url') == "https://host.example/y"


@needs_namespaces
async def test_a_local_repository_takes_pushes_and_submodules_work(project: Path) -> None:
    """confinement-42, confinement-43: changes that are not applied still hold for later commands."""
    async with sandboxed(project.parent) as place:
        await run(
            place, "git init -q --bare ../bare.git; git push -q ../bare.git main; git remote add local ../bare.git"
        )
        output, _ = await run(place, "git push -u local main && git config branch.main.remote")
        assert "local\n" in output
        add = (
            "git -c protocol.file.allow=always submodule --quiet add -b main ../bare.git part2 && git submodule status"
        )
        assert "part2" in (await run(place, add))[0]
        assert "local/main" in (await run(place, "git branch -vv"))[0]
    assert setting(project, "remote.local.url") == ""
    assert setting(project, "branch.main.remote") == ""


@needs_namespaces
async def test_damaged_copies_change_nothing(project: Path, tmp_path: Path) -> None:
    """confinement-42: emptied, invalid, replaced by a link, a FIFO or a directory; the next command has a valid
    copy."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config").write_text("[core]\n\trepositoryformatversion = 0\n[user]\n\tname = Outside\n")
    before = (project / ".git" / "config").read_bytes()
    spoils = (
        "cp /dev/null .git/config",
        "echo '[core' >> .git/config",
        "printf '[.x]\\ny = z\\n' >> .git/config",
        'c=$(readlink .git/config); ln -sf /etc/passwd "$c"',
        'c=$(readlink .git/config); rm "$c"; mkfifo "$c"',
        f'd=$(dirname $(readlink .git/config)); mv "$d" "$d.x"; ln -s {outside} "$d"',
        'd=$(dirname $(readlink .git/config)); rm -rf "$d"',
        'c=$(readlink .git/config); head -c 300000 /dev/zero | tr "\\0" "#" >> "$c"',
    )
    async with sandboxed(project.parent) as place:
        for spoil in spoils:
            _, remarks = await run(place, spoil)
            assert git_configs.NO_CONFIGURATION in remarks, spoil
            assert (await run(place, "git config user.name"))[0] == "User\n", spoil
    assert (project / ".git" / "config").read_bytes() == before
    assert "Outside" in (outside / "config").read_text()


@needs_namespaces
async def test_settings_written_at_the_same_time_are_kept(project: Path) -> None:
    """confinement-44: among commands and a user who write at once the last writer of each key wins; no file is lost.

    While a command runs the file is not replaced: that would uncover it in the existing mount namespaces.
    """
    async with sandboxed(project.parent) as place:
        async with anyio.create_task_group() as tasks:
            waiting = "until [ -e go ]; do sleep 0.01; done; cat .git/config; git config user.email late@x"
            outputs: list[str] = []

            async def wait() -> None:
                outputs.append((await run(place, waiting))[0])

            tasks.start_soon(wait)
            async with anyio.create_task_group() as more:
                for number in range(6):
                    more.start_soon(run, place, f"until git config branch.b{number}.description d{number}; do :; done")
            await run(place, "git config user.name First; git config user.email early@x")
            assert setting(project, "user.name") == "User"
            assert (await run(place, "git config user.name"))[0] == "First\n"
            with (project / ".git" / "config").open("a") as file:  # in place, as an editor does
                file.write("[user]\n\tname = Editor\n[my]\n\tkey = 1\n")
            (project / "go").touch()
        assert TOKEN not in outputs[0]
    assert setting(project, "user.email") == "late@x"
    assert setting(project, "my.key") == "1"
    assert [setting(project, f"branch.b{number}.description") for number in range(6)] == [f"d{n}" for n in range(6)]
    assert setting(project, "remote.origin.url") == f"https://user:{TOKEN}@host.example/project.git"
    assert not (project / ".git" / "config.lock").exists()


@needs_namespaces
def test_a_server_that_is_killed_loses_nothing_of_the_user(project: Path) -> None:
    """confinement-42, confinement-44: at any moment the file is complete, and a pending change is dropped."""
    seen: set[bytes] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.add((project / ".git" / "config").read_bytes())

    with peer(project) as client:
        client.start_session()
        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(5):
            client.call("run_command", command=f"git config user.name N{number}")
        assert setting(project, "user.name") == "N4"
        client.call("run_command", command="sleep 1000", wait_seconds=0)
        output = str(
            client.call("run_command", command="sh -c 'git config user.name Late; git config alias.x !y'")["content"]
        )
        assert "alias.x (.git/config)" in output
        text = client.call("run_command", command="git config user.name")["content"][0]["text"]
        assert "Late" in text
        client.send("tools/call", {"name": "run_command", "arguments": {"command": "git config user.email x@y"}})
        client.process.kill()
        client.process.wait()
        is_over.set()
        watcher.join()
    assert setting(project, "user.name") == "N4"
    assert all(TOKEN in values_of(parse(data, "config"))["remote.origin.url"][0] for data in seen)
    assert "alias.x" not in (project / ".git" / "config").read_text()


@needs_namespaces
async def test_a_lock_is_respected_and_another_repository_left_alone(project: Path) -> None:
    """confinement-44: a change waits for git's own lock, and never goes to a repository that replaced this one."""
    lock = project / ".git" / "config.lock"
    async with sandboxed(project.parent) as place:
        lock.touch()
        _, remarks = await run(place, "git config user.name Waits")
        assert f"{git_configs.LOCKED}: project/.git/config.lock" in remarks
        lock.unlink()
        await run(place, "true")
        assert setting(project, "user.name") == "Waits"
        other = project.parent / "other"
        git("init", "-q", str(other), directory=project)
        git("config", "user.name", "Other", directory=other)
        _, remarks = await run(
            place, "git -C project config user.name Moved; mv project p; mv other project; mv p other", "."
        )
        assert "another repository is there" in remarks
    assert setting(project, "user.name") == "Other"
    assert setting(project.parent / "other", "user.name") == "Waits"


@needs_namespaces
async def test_a_sparse_checkout_reaches_the_user_where_there_is_one(project: Path) -> None:
    """confinement-42: a command cannot enable it, because the user's git would read files that commands can create."""
    for name in ("a", "b"):
        (project / name).mkdir()
        (project / name / "f").touch()
    git("add", "a", "b", directory=project)
    git("-c", "user.name=U", "-c", "user.email=u@h", "commit", "-qm", "two", directory=project)
    async with sandboxed(project.parent) as place:
        completed = await place.run("git", "sparse-checkout", "set", "a", directory="project")
        assert "extensions.worktreeconfig (project/.git/config)" in " ".join(completed.remarks)
        assert completed.changed_control_files == (str(project / ".git" / "config.worktree"),)
        assert setting(project, "core.sparseCheckout") == ""
        git("sparse-checkout", "set", "a", directory=project)
        assert await run(place, "git sparse-checkout set b") == ("", "")
        assert git("sparse-checkout", "list", directory=project) == "b\n"
        assert await run(place, "git sparse-checkout disable") == ("", "")
    assert setting(project, "core.sparseCheckout") == "false"
    assert (project / "a" / "f").exists()


HOLDER = """
import os, sys
from coretools.process.fork_server.git_lock import replace

def change(data):
    with open(f"{sys.argv[1]}/config.lock.new", "w") as file:
        file.write(sys.argv[2])
    print("locked", flush=True)
    sys.stdin.read()
    return data

replace(os.open(sys.argv[1], os.O_RDONLY), "config", change)
"""


@needs_namespaces
async def test_a_lock_of_a_killed_server_is_taken_over(project: Path) -> None:
    """confinement-44: at the next start and at the next change; while its server lives the lock is respected like any
    other."""
    directory = project / ".git"
    lock, new, before = directory / "config.lock", directory / "config.lock.new", (directory / "config").read_bytes()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def holder() -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory), f"https://u:{TOKEN}@h/"], **pipes)
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        return process

    with holder() as first:
        first.kill()
    assert lock.exists()
    setting(project, "user.name", "x")  # which git rejects
    assert (directory / "config").read_bytes() == before
    async with sandboxed(project.parent) as place:
        assert TOKEN not in (await run(place, "cat .git/config*"))[0]
        assert not lock.exists()
        assert not new.exists()
        with holder() as second:
            _, remarks = await run(place, "git config user.name Waits; cat .git/config.lock.new")
            assert f"{git_configs.LOCKED}: project/.git/config.lock" in remarks
            assert TOKEN not in (await run(place, "cat .git/config.lock.new"))[0]
            assert (directory / "config").read_bytes() == before
            second.kill()
        await run(place, "true")
        assert setting(project, "user.name") == "Waits"
        for number, plant in enumerate(("mkfifo", "mkdir", "ln -s /dev/null", "touch")):
            _, remarks = await run(place, f"{plant} .git/config.lock; git config user.name N{number}")
            assert git_configs.LOCKED in remarks, plant
            await run(place, "rm -r .git/config.lock")
            assert setting(project, "user.name") == f"N{number}"
    assert sorted(one.name for one in directory.glob("config*")) == ["config"]


@needs_namespaces
async def test_other_places_of_configurations(project: Path, tmp_path: Path) -> None:
    """confinement-41: submodules, linked worktrees, nested clones; and a read-only root, where nothing is changed."""
    part = tmp_path / "part"
    git("clone", "-q", "--bare", str(project), str(part), directory=tmp_path)
    git("submodule", "--quiet", "add", str(part), "sub", directory=project)
    git("clone", "-q", str(part), "nested", directory=project)
    git("worktree", "add", "-q", "../tree", directory=project)
    git("config", "extensions.worktreeConfig", "true", directory=project)
    for file in ("project/.git/modules/sub/config", "project/nested/.git/config"):
        git("config", "--file", file, "remote.origin.url", f"https://{TOKEN}@h.example/x", directory=project.parent)
    git("config", "--worktree", "remote.w.url", f"https://{TOKEN}@w.example/x", directory=project.parent / "tree")
    listing = (
        "for d in project project/sub project/nested tree; do"
        " git -C $d config --list; git -C $d config user.name N; done"
    )
    async with sandboxed(project.parent) as place:
        output, remarks = await run(place, f"{listing}; grep -rn {TOKEN} .", ".")
        assert TOKEN not in output
        assert remarks == ""
        assert "https://w.example/x" in output
    for place_of in ("project/sub", "project/nested"):
        assert setting(project.parent / place_of, "--local", "user.name") == "N"
    async with sandboxed(Path(f"{project.parent}:ro")) as place:
        output, _ = await run(place, "git config --list; git config user.name RO")
        assert TOKEN not in output
        assert "Read-only file system" in output
    assert setting(project, "user.name") == "N"


@needs_namespaces
async def test_a_submodule_keeps_its_protection_wherever_it_is(project: Path, tmp_path: Path) -> None:
    """confinement-41, confinement-6: placed in another git directory, made one itself, or moved in `.git`."""
    part = tmp_path / "part"
    git("clone", "-q", "--bare", str(project), str(part), directory=tmp_path)
    git("submodule", "--quiet", "add", str(part), "libs/sub", directory=project)
    inner = project / ".git" / "modules" / "libs" / "sub"
    git("config", "remote.origin.url", f"https://{TOKEN}@h.example/x", directory=project / "libs" / "sub")
    attempts = (
        "touch libs/HEAD libs/config; mkdir libs/objects libs/refs",
        "mv libs/sub/HEAD libs/sub/objects libs/sub/refs .",
        "mv libs/sub ../refs/sub; mv libs ../refs/libs; mv ../modules ../refs/modules",
    )
    back = "mv HEAD objects refs libs/sub; mv ../refs/sub libs"
    use = f"grep -rs {TOKEN} ..; for d in libs/sub ../refs/sub; do git config -f $d/config core.fsmonitor x; done"
    modules = "project/.git/modules"
    async with sandboxed(project.parent) as place:
        for attempt in attempts[:2]:
            await place.run("sh", "-c", attempt, directory=modules)
            completed = await place.run("sh", "-c", f"{use}; echo x > libs/sub/hooks/post-checkout", directory=modules)
            assert TOKEN not in completed.stdout.text(), attempt
            assert not (inner / "hooks" / "post-checkout").exists(), attempt
            await place.run("sh", "-c", back, directory=modules)
        output, _ = await run(
            place, "git -C libs/sub branch config; git -C libs/sub branch -m config other; git status"
        )
        assert "nothing to commit" not in output
        assert "fatal" not in output
        await place.run("sh", "-c", attempts[2], directory=modules)
        assert TOKEN not in (await place.run("sh", "-c", use, directory=modules)).stdout.text()
    assert TOKEN in (inner / "config").read_text()
    assert "fsmonitor" not in (inner / "config").read_text()


@needs_namespaces
async def test_a_remote_that_is_used_keeps_its_address(project: Path) -> None:
    """confinement-43: without a URL git takes the remote's name for a path, and a push to it runs the hooks there."""
    git("config", "branch.main.remote", "origin", directory=project)
    git("config", "remote.pushDefault", "ssh", directory=project)
    async with sandboxed(project.parent) as place:
        _, remarks = await run(place, "for n in origin ssh behind; do git config --unset remote.$n.url; done")
        assert "remote.origin.url (project/.git/config), remote.ssh.url" in remarks
        assert "remote.behind" not in remarks
        assert setting(project, "remote.origin.url").endswith("host.example/project.git")
        assert setting(project, "remote.ssh.url") != ""
        assert setting(project, "remote.behind.url") == ""
        await run(place, "git config branch.main.remote evil")
        assert setting(project, "branch.main.remote") == "origin"
        _, remarks = await run(place, "git config --unset branch.main.remote")
        assert remarks == ""
    assert setting(project, "remote.origin.url") == ""


HELPER = f"!f() {{ echo password={TOKEN}; }}; f"


@needs_namespaces
@pytest.mark.parametrize(("key", "value"), [("http.extraHeader", f"X: {TOKEN}"), ("credential.helper", HELPER)])
async def test_a_credential_for_all_servers_is_not_sent_to_a_new_one(project: Path, key: str, value: str) -> None:
    """confinement-43: git would send it to an address that a command has chosen."""
    (project / ".git" / "config").write_text('[remote "origin"]\n\turl = https://h.example/x\n')
    git("config", key, value, directory=project)
    async with sandboxed(project.parent) as place:
        _, remarks = await run(
            place,
            "git config remote.origin.url https://h.example:8443/x; git config remote.n.url http://h.example/x;"
            " git config submodule.s.url https://h.example.evil/; git config remote.other.url https://H.example/y;"
            " git config remote.ssh.url git@h.example:y",
        )
        assert remarks.count("remote.") == 2
        assert "submodule.s.url" in remarks
    assert setting(project, "remote.origin.url") == "https://h.example/x"
    assert setting(project, "--get-regexp", r"remote\..*|submodule\..*").splitlines() == [
        "remote.origin.url https://h.example/x",
        "remote.other.url https://H.example/y",
        "remote.ssh.url git@h.example:y",
    ]


@needs_namespaces
async def test_credentials_beside_the_configuration(project: Path) -> None:
    """confinement-41: old copies, credential stores, included files, bare repositories, separate git directories, and
    links."""
    top = project.parent
    directory = project / ".git"
    address = f"https://user:{TOKEN}@host.example/x"
    (directory / "config.bak").write_text(CREDENTIALS)
    (directory / "config~").write_text(f"# {address}\n[core]\n")
    (directory / "credentials").write_text(f"{address}\n")
    (directory / ".git-credentials").write_text(f"{address}\n")
    (project / "included").write_text(f'[include]\n\tpath = more\n[remote "i"]\n\turl = {address}\n')
    (project / "more").write_text(
        f'[http "https://h/"]\n\textraheader = X: {TOKEN}\n[branch]\n\tsort = -committerdate\n'
    )
    git("config", "include.path", "../included", directory=project)
    git("clone", "-q", "--bare", ".", "../bare.git", directory=project)
    git("init", "-q", "--separate-git-dir=../apart", "../tree", directory=project)
    git("init", "-q", "../linked", directory=project)
    (top / "linked" / ".git" / "config").rename(top / "linked" / "elsewhere")
    (top / "linked" / ".git" / "config").symlink_to("../elsewhere")
    for name in ("bare.git", "tree", "linked"):
        git("config", "remote.origin.url", address, directory=top / name)
    git("clone", "-q", "--bare", ".", "../plain.git", directory=project)
    git("config", "--remove-section", "remote.origin", directory=top / "plain.git")
    (top / "bare.git" / "config.worktree").write_text(f'[http "https://h/"]\n\textraheader = X: {TOKEN}\n')
    async with sandboxed(top) as place:
        listing = (
            "for d in project bare.git tree linked; do git -C $d remote -v; done; git -C project config branch.sort"
        )
        output, _ = await run(place, f"{listing}; grep -rs {TOKEN} .", ".")
        assert TOKEN not in output
        assert output.count("origin\thttps://host.example/x (fetch)") == 3
        assert "i\thttps://host.example/x (fetch)" in output
        assert "-committerdate" in output
        output, _ = await run(place, "git -C bare.git config user.name N; rm -rf plain.git; ls -d plain.git", ".")
        assert "cannot access 'plain.git'" in output
        (directory / "config.bak").unlink()
        (directory / "config.bak").write_text(CREDENTIALS)
        assert TOKEN not in (await run(place, "cat .git/config.bak"))[0]
        output, _ = await run(
            place, "mv ../project ../p; cat ../p/.git/config; cp -a ../p ../copy; cat ../copy/.git/*", "project"
        )
        assert TOKEN not in output
        copied = top / "copy" / ".git" / "config"
        assert copied.is_file()
        assert not copied.is_symlink()
        assert setting(top / "copy", "remote.ssh.url") == "ssh://git@host.example/project.git"
    assert setting(top / "bare.git", "user.name") == "N"
    assert setting(top / "bare.git", "remote.origin.url") == address


def _any_file(chosen: random.Random) -> bytes:
    def value() -> str:
        return "".join(
            chosen.choice([*'ab c";#\\\t=/é', "\\\n", "https://u:p@h/"]) for _ in range(chosen.randint(0, 6))
        )

    lines: list[str] = []
    for _ in range(chosen.randint(0, 5)):
        section = chosen.choice(["core", 'remote "a"', 'branch "x/y"', "user", 'url "b c\\"d"', "a.B"])
        lines.append(chosen.choice(["", "# c\n", "\n"]) + f"[{section}]" + chosen.choice(["\n", " ", "\n\t# k\n"]))
        for _ in range(chosen.randint(0, 3)):
            name, sign = chosen.choice(["k", "K2", "url"]), chosen.choice([" = ", "=", ""])
            lines.append(chosen.choice(["\t", "", " "]) + name + sign + value() + "\n")
    return "".join(lines).encode()


def _files(count: int) -> Iterator[tuple[random.Random, bytes, list[Setting]]]:
    for seed in range(count):
        chosen = random.Random(seed)
        data = _any_file(chosen)
        try:
            yield chosen, data, parse(data, "config")
        except GitRefused:
            continue


def test_a_configuration_is_edited_as_git_reads_it() -> None:
    """confinement-42: whatever the file contains, other keys keep their values and comments stay."""
    for chosen, data, settings in _files(400):
        assert parse(serialize(settings), "config") == settings
        keys = [*(one.key for one in settings), "new.s.k", "remote.a.k", "core.z"]
        changes = {
            chosen.choice(keys): tuple(
                chosen.choice([None, "v", "x y", " a", 'q"\\', "tab\t\nnl;#"]) for _ in range(chosen.randint(0, 3))
            )
            for _ in range(chosen.randint(1, 4))
        }
        after = edit(data, changes)
        expected = {key: values for key, values in {**values_of(settings), **changes}.items() if values}
        assert values_of(parse(after, "config")) == expected
        assert values_of(with_changes(settings, changes)) == expected
        assert after.count(b"# c") == data.count(b"# c")
        if b"\n" in data:  # otherwise it has no line ends
            assert edit(_dos(data), changes) == _dos(after)
        mixed = b"".join(one.replace(b"\n", b"\r\n") if chosen.random() < 0.5 else one for one in data.splitlines(True))
        assert parse(mixed, "config") == settings
        assert values_of(parse(edit(mixed, changes), "config")) == expected
        added = edit(mixed, {"z.z": ("z",)})
        assert added.startswith(mixed)


def _dos(data: bytes) -> bytes:
    """The text with CRLF line ends."""
    return b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")


def test_git_reads_what_is_written(tmp_path: Path) -> None:
    """confinement-42: git reads the same settings."""
    file = tmp_path / "config"
    for _, data, settings in list(_files(60))[:12]:
        text = edit(data, {"a.b": ('x;\n\t"y\\',), 'url.c"\\d.k': (None, " z ")}) + serialize(settings)
        for spelled in (text, _dos(text), _dos(text)[:-2], _dos(text)[:-1]):
            file.write_bytes(spelled)
            words = git("config", "--file", str(file), "--list", "-z", directory=tmp_path).split("\0")[:-1]
            expected = parse(spelled, "config")
            assert words == [one.key if one.value is None else f"{one.key}\n{one.value}" for one in expected]


def test_unchanged_files_and_hidden_values_are_kept() -> None:
    """confinement-42: an unchanged copy changes nothing, and a change keeps each hidden value beside it."""
    settings = parse(CREDENTIALS.encode(), "config")
    seen = values_of(without_credentials(settings))
    assert TOKEN not in str(seen)
    assert edit(CREDENTIALS.encode(), restore_credentials(settings, seen)) == CREDENTIALS.encode()
    two = {"remote.origin.url": ("https://host.example/project.git", "https://new.example/x")}
    assert allowed_changes(two, seen) == two
    assert (
        restore_credentials(settings, two)["remote.origin.url"][0] == f"https://user:{TOKEN}@host.example/project.git"
    )
    assert not allowed_changes({"remote.n.url": (f"https://u:{TOKEN}@n.example/x",)}, seen)
    assert os.fsdecode(serialize(without_credentials(settings))).count("[credential]") == 0


@needs_namespaces
async def test_a_hidden_file_that_a_configuration_includes_is_listed_once(project: Path) -> None:
    """confinement-41: what is hidden for another reason keeps that reason."""
    (project / ".env").write_text(f"API_TOKEN={TOKEN}\n")
    git("config", "include.path", "../.env", directory=project)
    async with sandboxed(project.parent) as place:
        output, _ = await run(place, "cat .env")
        assert TOKEN not in output
        found = [one for one in place.runner.hidden() if one.path.endswith("/.env")]
        assert [one.reason for one in found] == ["it holds values of environment variables"]
