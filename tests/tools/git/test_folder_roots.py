"""A folder of a repository as root, with --git-above: git for that folder, and no change of the rest.

The repository has two services, a secret that git ignores, and a branch that changes each of them.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.protocol.peer import marker
from tests.tools.git.test_linked_roots import CANARY, Session, Trees
from tests.tools.git.world import HOME_CONFIG


class Monorepo(Trees):
    """A repository `main` of which the root is a folder."""

    @property
    def root(self) -> Path:
        return self.main / "services" / "api"


def plant(top: Path) -> Monorepo:
    trees = Monorepo(top)
    (top / "home").mkdir()
    (top / "home" / ".gitconfig").write_text(HOME_CONFIG)
    trees.root.mkdir(parents=True)
    trees.git(trees.main, "init", "--quiet", "-b", "main")
    (trees.root / "a.txt").write_text("one\n")
    (trees.main / "other.txt").write_text("other\n")
    (trees.main / ".gitignore").write_text(".env\n")
    trees.git(trees.main, "add", ".")
    trees.git(trees.main, "commit", "--quiet", "-m", "first")
    trees.git(trees.main, "branch", "inside")
    trees.git(trees.main, "tag", "planted")
    trees.git(trees.main, "switch", "--quiet", "-c", "outside")
    (trees.main / "other.txt").write_text("changed\n")
    trees.git(trees.main, "commit", "--quiet", "-am", "elsewhere")
    trees.git(trees.main, "switch", "--quiet", "-c", "moved", "main")
    trees.git(trees.main, "mv", "other.txt", "services/api/a b.txt")
    trees.git(trees.main, "commit", "--quiet", "-m", "move")
    trees.git(trees.main, "switch", "--quiet", "main")
    (trees.main / ".env").write_text(f"TOKEN={CANARY}\n")
    return trees


@pytest.fixture
def session(served: Session) -> Session:
    """The session, with the repository as it was planted, branches of other tests apart."""
    trees = served.trees
    trees.git(trees.main, "switch", "--quiet", "--force", "main")
    trees.git(trees.main, "reset", "--quiet", "--hard", "planted")
    trees.git(trees.main, "clean", "--quiet", "-dff")
    return served


@pytest.fixture(scope="module", params=["full", "landlock"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    trees = plant(tmp_path_factory.mktemp("folder"))
    with trees.server("--git-above", tier=request.param) as client:
        client.start_session()
        found = Session(trees, client, request.param)
        diagnostics = found.text("get_diagnostics")
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        assert f"{trees.main} (read only, for git only" in diagnostics
        yield found


def test_the_refusal_names_the_flag(tmp_path: Path) -> None:
    """git-53: git is the operator's decision, since history shows the rest of the repository."""
    trees = plant(tmp_path)
    with trees.server() as client:
        client.start_session()
        session = Session(trees, client, "")
        is_done, text = session.answer("git_status")
        assert not is_done
        assert "--git-above" in text
        assert f"the root {trees.main}" in text
        assert "--git-above" in session.run("git status")


def test_tools_have_git_for_the_folder(session: Session) -> None:
    """git-54: what an agent does in the folder, judged by plain git at the top."""
    trees, root = session.trees, session.trees.root
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "new.txt").write_text("new\n")
    (trees.main / "other.txt").write_text("of the user\n")
    status = session.text("git_status")
    assert " M a.txt" in status
    assert "new.txt" in status
    assert "[1 more changed paths outside" in status
    assert "git_diff base='HEAD' paths=['../..'] shows" in status
    assert "of the user" in session.text("git_diff", base="HEAD", paths=["../.."])
    diff = session.text("git_diff")
    assert "+two" in diff
    assert diff.startswith("diff --git a/a.txt b/a.txt\nindex")
    assert "of the user" not in diff
    whole = session.text("git_diff", paths=[str(trees.main)])
    assert "--- a/../../other.txt\n+++ b/../../other.txt\n" in whole
    assert "new file mode" not in whole
    assert "of the user" in whole
    assert whole == session.text("git_diff", paths=["../.."])
    outside = "../../other.txt"
    assert f"\n{outside} | " in session.text("git_show", revision="outside", stat=True)
    assert f"b/{outside}\n" in session.text("git_show", revision="outside")
    assert session.text("git_show", revision="outside", path=outside) == "changed"
    moved = session.text("git_show", revision="moved")
    assert "rename from ../../other.txt\nrename to a b.txt" in moved
    assert "diff --git a/../../other.txt b/a b.txt\n" in moved
    assert f"    {outside} | +1 -1" in session.text("git_log", revision="outside", path=outside, stat=True)
    assert "of the user" in session.text("git_blame", path=outside)
    for path in ("../../../main/other.txt", f"{root}/../../other.txt", "../../missing", "../api/missing"):
        assert not session.answer("git_log", path=path)[0], path
    session.text("git_add", paths=["."])
    session.text("git_commit", message="second")
    assert trees.git(trees.main, "show", "--format=", "--name-only", "HEAD").split() == [
        "services/api/a.txt",
        "services/api/new.txt",
    ]
    assert trees.git(trees.main, "status", "--short") == "M other.txt"
    log = session.text("git_log")
    assert "second" in log
    assert "elsewhere" not in session.text("git_log", revision="outside")
    assert "elsewhere" in session.text("git_log", revision="outside", path=str(trees.main))
    (root / "a.txt").write_text("three\n")
    session.text("git_stash", action="push")
    assert (root / "a.txt").read_text() == "one\ntwo\n"
    session.text("git_stash", action="pop")
    session.text("git_restore", paths=["a.txt"])
    assert "two" in session.text("git_show", path="a.txt")
    assert "two" in session.text("git_blame", path="a.txt")
    session.text("git_switch", branch="inside")
    assert (root / "a.txt").read_text() == "one\n"
    session.text("git_switch", branch="topic", create=True)
    session.text("git_switch", branch="main")
    assert (trees.main / "other.txt").read_text() == "of the user\n"
    session.text("git_worktree", action="add", path="tree", branch="tree")
    is_done, used = session.answer("git_switch", branch="tree")
    assert not is_done
    assert f"is checked out in another work tree, {root}/tree; work there" in used
    assert "clean" in session.text("git_status", repository="tree")
    session.text("git_worktree", action="remove", path="tree")
    session.text("git_branch", action="upstream", name="main", upstream="inside")
    assert "inside" in session.text("git_status")
    session.text("git_branch", action="upstream", name="main", upstream="")


def test_tools_change_nothing_outside_the_folder(session: Session) -> None:
    """git-55: refused before git begins, with the files and the cure; a staged file of the user stays staged."""
    trees = session.trees
    (trees.main / "other.txt").write_text("of the user\n")
    trees.git(trees.main, "add", "other.txt")
    before = state(trees)
    secret, other = str(trees.main / ".env"), str(trees.main / "other.txt")
    for tool, arguments in (
        ("git_switch", {"branch": "outside"}),
        ("git_merge", {"revision": "outside"}),
        ("git_rebase", {"upstream": "outside"}),
        ("git_cherry_pick", {"revisions": ["outside"]}),
        ("git_reset", {"mode": "hard"}),
        ("git_reset", {"revision": "outside", "mode": "keep"}),
        ("git_restore", {"paths": [other]}),
        ("git_restore", {"paths": [str(trees.main)], "what": "both"}),
        ("git_add", {"paths": [other]}),
        ("git_stash", {"paths": [other]}),
        ("git_commit", {"message": "all"}),
        ("git_worktree", {"action": "add", "path": f"{trees.main}/tree", "branch": "x"}),
        ("git_sparse_checkout", {"action": "set", "paths": ["."]}),
        ("git_status", {"repository": str(trees.main)}),
        ("write_file", {"path": other, "content": "x"}),
        ("write_file", {"path": f"{trees.main}/.git/hooks/pre-commit", "content": "x"}),
        ("read_file", {"path": secret}),
        ("read_file", {"path": other}),
        ("list_directory", {"path": str(trees.main)}),
        ("search_text", {"pattern": ".", "path": str(trees.main)}),
    ):
        is_done, text = session.answer(tool, **arguments)
        assert not is_done, (tool, text)
        assert any(cause in text for cause in ("outside the root", "not in the folder", "read-only")), (tool, text)
        assert CANARY not in text
    assert state(trees) == before
    (trees.main / "other.txt").write_text("other\n")  # only the index has the user's text
    only_staged = state(trees)
    for mode in ("mixed", "keep", "hard"):
        is_done, text = session.answer("git_reset", mode=mode)
        assert not is_done
        assert "mode='soft'" in text
        assert "other.txt" in text
    assert state(trees) == only_staged
    (trees.main / "other.txt").write_text("of the user\n")
    session.text("git_reset", mode="soft")
    (trees.root / "a.txt").write_text("staged\n")
    session.text("git_add", paths=["a.txt"])
    session.text("git_reset", paths=["."])
    session.text("git_restore", paths=["."])
    assert state(trees) == before
    (trees.root / "a.txt").write_text("stashed\n")
    session.text("git_stash", action="push")
    assert state(trees)[0] == before[0]
    session.text("git_stash", action="pop")
    assert (trees.root / "a.txt").read_text() == "stashed\n"
    session.text("git_commit", message="only the root", paths=["."])
    assert trees.git(trees.main, "show", "--format=", "--name-only", "HEAD") == "services/api/a.txt"
    assert state(trees)[0] == before[0]
    trees.git(trees.main, "restore", "--staged", "other.txt")


def test_operations_within_the_folder_leave_the_index_outside_alone(session: Session) -> None:
    """git-55: merges, picks and rebases, with and without conflicts, beside what the user staged outside."""
    trees, root = session.trees, session.trees.root
    start = trees.git(trees.main, "rev-parse", "HEAD")
    trees.git(trees.main, "branch", "behind")
    trees.git(trees.main, "branch", "theirs")
    for branch, text in (("main", "ours\n"), ("theirs", "theirs\n")):
        session.text("git_switch", branch=branch)
        (root / "a.txt").write_text(text)
        (root / f"{branch}.txt").write_text(text)
        session.text("git_add", paths=["."])
        session.text("git_commit", message=f"in {branch}")
    session.text("git_switch", branch="main")
    (root / "more.txt").write_text("more\n")
    session.text("git_add", paths=["."])
    session.text("git_commit", message="more")
    (trees.main / "other.txt").write_text("of the user\n")
    trees.git(trees.main, "add", "other.txt")
    before = state(trees)
    for tool, arguments in (
        ("git_merge", {"revision": "theirs"}),
        ("git_rebase", {"upstream": "theirs"}),
        ("git_rebase", {"upstream": "HEAD~1", "steps": ["reword HEAD again"]}),
        ("git_cherry_pick", {"revisions": ["theirs"]}),
        ("git_revert", {"revisions": ["HEAD"]}),
    ):
        is_done, text = session.answer(tool, **arguments)
        assert not is_done, (tool, text)
        assert "outside the root, in" in text, (tool, text)
        assert state(trees) == before, tool
        assert "in progress" not in session.text("git_status"), tool
    session.text("git_switch", branch="behind")
    session.text("git_merge", revision="theirs")  # by fast-forward
    session.text("git_switch", branch="main")
    assert state(trees)[0] == before[0]
    trees.git(trees.main, "restore", "--staged", "--worktree", "other.txt")

    for tool, arguments in (
        ("git_merge", {"revision": "theirs"}),
        ("git_rebase", {"upstream": "theirs"}),
        ("git_cherry_pick", {"revisions": ["theirs"]}),
    ):
        for action in ("abort", "continue"):
            head = trees.git(trees.main, "rev-parse", "HEAD")
            assert "git_continue" in session.text(tool, **arguments), tool
            _, text = session.answer("git_continue", resolutions={"services/api/a.txt": "ours"})
            assert "services/api/a.txt: is not in conflict; these are, by their paths from the root: a.txt" in text
            (trees.main / "other.txt").write_text("of the user\n")
            trees.git(trees.main, "add", "other.txt")
            (trees.main / "other.txt").write_text("other\n")  # only the index has the user's text
            given = {"resolutions": {"a.txt": {"text": "both\n"}}} if action == "continue" else {}
            is_done, text = session.answer("git_continue", action=action, **given)
            assert not is_done, (tool, action, text)
            assert "other.txt" in text
            assert trees.git(trees.main, "show", ":other.txt") == "of the user"
            assert trees.git(trees.main, "ls-files", "--unmerged"), (tool, action)
            trees.git(trees.main, "restore", "--staged", "other.txt")
            session.text("git_continue", action=action, **given)
            assert trees.git(trees.main, "status", "--short") == ""
            assert (root / "a.txt").read_text() == ("both\n" if given else "ours\n")
            assert (trees.git(trees.main, "rev-parse", "HEAD") == head) == (action == "abort")
            session.text("git_reset", revision=head, mode="keep")
    session.text("git_reset", revision=start, mode="hard")


def test_answers_say_what_was_done(session: Session) -> None:
    """git-10, git-changes-1, 5: what a commit took along, what changed nothing, and how to undo what was staged."""
    trees, root = session.trees, session.trees.root
    start = trees.git(trees.main, "rev-parse", "HEAD")
    (root / "theirs.txt").write_text("staged by somebody else\n")
    trees.git(root, "add", "theirs.txt")
    (root / "a.txt").write_text("mine\n")
    session.text("git_add", paths=["a.txt"])
    done = session.text("git_commit", message="mine")
    assert "\nM a.txt\nA theirs.txt\nUndo: " in done
    assert f"revision='{start}' mode='soft' (only while this is the newest commit" in done
    (root / "many").mkdir()
    for number in range(23):
        (root / "many" / f"{number:02}").write_text("x\n")
    session.text("git_add", paths=["many"])
    assert "\nA many/19\n[and 3 more files: git_show stat=true]\n" in session.text("git_commit", message="many")
    for tool, arguments, said in (
        ("git_switch", {"branch": "main"}, "already on branch main ("),
        ("git_reset", {}, "nothing changed: main is at "),
        ("git_reset", {"mode": "soft"}, "nothing changed: main is at "),
        ("git_rebase", {"upstream": start}, f"already up to date with {start}: main is at "),
        ("git_merge", {"revision": start}, "already up to date"),
    ):
        text = session.text(tool, **arguments)
        assert text.startswith(said), (tool, text)
        assert "Undo" not in text
    for reset in ({}, {"mode": "keep"}, {"revision": "HEAD~1"}, {"paths": ["a.txt"]}):
        (root / "a.txt").write_text("only staged\n")
        session.text("git_add", paths=["a.txt"])
        (root / "a.txt").write_text("in the work tree\n")
        text = session.text("git_reset", **reset)
        assert trees.git(root, "diff", "--cached", "--name-only") == ""
        for line in text.splitlines():
            if line.startswith(("Undo: ", "Then: ")):
                follow(session, line.partition(": ")[2])
        assert trees.git(root, "show", ":./a.txt") == "only staged", (reset, text)
        assert (root / "a.txt").read_text() == "in the work tree\n"
        session.text("git_restore", paths=["a.txt"], what="both")
    session.text("git_reset", revision=start, mode="hard")


def follow(session: Session, undo: str) -> None:
    """Make the call that an answer names."""
    tool, _, words = undo.partition(" (")[0].partition(" ")
    session.text(tool, **eval(f"dict({words.replace(' ', ', ')})"))


def state(trees: Trees) -> tuple[str, ...]:
    words = (("status", "--short"), ("for-each-ref",), ("rev-parse", "--abbrev-ref", "HEAD"), ("stash", "list"))
    return (*(trees.git(trees.main, *each) for each in words), (trees.main / "other.txt").read_text())


def test_commands_have_git_for_the_folder(session: Session) -> None:
    """confinement-52: in tier full as with plain git; in tier landlock they read what git keeps."""
    trees = session.trees
    (trees.main / "other.txt").write_text("other\n")
    head = trees.git(trees.main, "rev-parse", "HEAD")
    session.run("echo command >> a.txt")
    assert "first" in session.run("git log --oneline")
    if session.tier == "full":
        assert session.run("git status --short").strip().splitlines()[0] == "M a.txt"
        session.run("git add . && git commit -qam command")
        assert trees.git(trees.main, "show", "--format=", "--name-only", "HEAD") == "services/api/a.txt"
        assert "user.name, before: not set" in session.run("git config user.name Grace")
        assert "user.name, before: Grace" in session.run("git config --unset user.name")
    else:
        for line in ("git status", "git status --short", "git diff --stat"):
            assert "git in a command takes them for changed" in session.run(line), line
        assert "takes them for changed" not in session.run("git status --short .")
        assert "git_commit" in session.run("git commit -qam command")
        assert trees.git(trees.main, "rev-parse", "HEAD") == head
        session.text("git_restore", paths=["a.txt"])
    assert trees.git(trees.main, "status", "--short") == ""


def test_commands_change_nothing_outside_the_folder(session: Session) -> None:
    """confinement-52, by effect: no file outside is written, no hook or configuration changed, no secret read."""
    trees = session.trees
    top, git = trees.main, trees.main / ".git"
    config = (git / "config").read_bytes()
    script = (
        f"cat {top}/.env; git show :.env; echo x > {top}/other.txt; echo x > {top}/new.txt; rm -f {top}/other.txt;"
        f" mv {top}/services {top}/elsewhere; rm -rf {top}/.gitignore; git -C {top} rm -q --cached other.txt;"
        f" git reset -q; git checkout -q outside -- {top}/other.txt; git reset -q;"
        f" echo x > {git}/hooks/pre-commit; ln -s /bin/true {git}/hooks/post-commit; rm -rf {git}/hooks;"
        f" mv {git} {top}/moved; git config core.fsmonitor x; git config -f {git}/config core.hooksPath /tmp; true"
    )
    seen = session.run(f"sh -c '{script}'")
    assert CANARY not in seen
    if session.tier == "full":
        before = state(trees)
        refused = session.run(f"touch {top}/x; true")
        assert "are read-only" in refused
        assert "git symbolic-ref" not in refused
        assert "git symbolic-ref" in session.run("git switch -q outside")
        session.run("git symbolic-ref HEAD refs/heads/main && git reset -q && git restore .")
        (trees.root / "a.txt").write_text("of the agent\n")
        (trees.main / "other.txt").write_text("of the user\n")
        back = "git restore --source=stash@{0} -- ."
        assert back in session.run("git stash")
        session.run(back)
        assert (trees.root / "a.txt").read_text() == "of the agent\n"
        assert (trees.main / "other.txt").read_text() == "of the user\n"
        session.run("git stash drop -q")
        trees.git(trees.main, "reset", "-q", "--hard")
        assert state(trees) == before
    assert (top / "other.txt").read_text() == "other\n"
    assert sorted(path.name for path in top.iterdir()) == [".env", ".git", ".gitignore", "other.txt", "services"]
    assert not list((git / "hooks").glob("p*commit"))
    assert (git / "config").read_bytes() == config
    if session.tier == "landlock":
        assert "other\n" not in session.run(f"cat {top}/other.txt")


BACK = re.compile(r"this takes it back: (.*?)(?:; then |]$)", re.MULTILINE)


OUTSIDE = (
    (True, "git reset -q", "unstaged"),
    (True, "git read-tree HEAD", "unstaged"),
    (True, "git commit -qm x", "committed"),
    (True, "git commit -qam x", "unstaged"),
    (False, "git commit -qam x && git commit -q --amend -m y", "committed"),
    (False, "git rm -q --cached :/other.txt", "staged"),
    (False, "git add -A :/", "staged"),
)
"""Whether the user's change outside the root is staged, and what a command does to it."""


def test_what_commands_do_outside_the_folder_is_named(session: Session) -> None:
    """confinement-54: with the exact way back, judged by plain git; changes of the user are not reported."""
    trees, other = session.trees, session.trees.main / "other.txt"

    def shared() -> list[str]:
        words = (("rev-parse", "HEAD:other.txt"), ("ls-files", "-s", "other.txt"))
        return [trees.git(trees.main, *each) for each in words]

    for is_staged, line, what in OUTSIDE:
        (trees.root / "a.txt").write_text("of the agent\n")
        other.write_text("of the user\n")
        if is_staged:
            trees.git(trees.main, "add", "other.txt")
            other.write_text("other\n")  # only the index has the user's text
        before = shared()
        assert "outside the root" not in session.run("git add a.txt"), line
        text = session.run(line)
        if session.tier == "full":
            assert re.search(f"outside the root in {trees.main}: {what}[^;]* ../../other.txt", text), (line, text)
            assert shared() != before, line
            found = BACK.search(text)
            assert found, (line, text)
            session.run(found[1])
        else:
            assert "while the command ran" not in text, line
        assert shared() == before, line
        trees.git(trees.main, "reset", "-q", "--hard")


def test_each_command_is_compared_with_what_was_there_before_it(session: Session) -> None:
    """confinement-54: a short command beside a long one is not told of what the user did before it began."""
    trees, other = session.trees, session.trees.main / "other.txt"
    head = trees.git(trees.main, "rev-parse", "HEAD")
    line = "touch started; while ! test -e go; do read -t 0.05 x < /dev/zero; done; rm started go"
    wait = {"command": ["bash", "-c", line]}
    long = session.client.send("tools/call", {"name": "run_command", "arguments": wait})
    assert "started" in session.run(["bash", "-c", "while ! test -e started; do :; done; ls"])
    other.write_text("of the user\n")
    trees.git(trees.main, "commit", "--quiet", "-m", "of the user", "--", "other.txt")
    assert "while the command ran" not in session.run("true")
    session.run("touch go")
    text = str(session.client.answer(long)["result"]["content"])
    assert ("committed ../../other.txt" in text) == (session.tier == "full"), text
    trees.git(trees.main, "reset", "--quiet", "--hard", head)


def test_what_a_cancelled_command_did_is_in_the_next_result(session: Session) -> None:
    """confinement-54: nobody got the result of the first."""
    if session.tier != "full":
        pytest.skip("git in commands only reads here in tier landlock")
    trees, other = session.trees, session.trees.main / "other.txt"
    other.write_text("of the user\n")
    line = f"git reset -q; touch was-reset; sleep {marker()}"
    for _ in range(5):
        trees.git(trees.main, "add", "other.txt")
        number = session.client.send("tools/call", {"name": "run_command", "arguments": {"command": line}})
        session.run(["bash", "-c", "while ! test -e was-reset; do :; done; rm was-reset"])
        session.client.notify("notifications/cancelled", {"requestId": number})
        while "one before it without a result" not in (text := session.run("true")):
            pass
        assert "unstaged, or replaced in the index, ../../other.txt" in text
    trees.git(trees.main, "reset", "--quiet", "--hard")


def test_a_planted_pointer_opens_no_other_repository(session: Session) -> None:
    """git-52: a `.git` file in the folder does not give the whole repository, nor the entry of another tree."""
    planted = session.trees.root / "planted"
    planted.mkdir()
    (planted / ".git").write_text(f"gitdir: {session.trees.main}/.git\n")
    is_done, text = session.answer("git_log", repository="planted")
    assert not is_done
    assert "git is not run" in text
    (planted / ".git").unlink()
    planted.rmdir()
    assert "a.txt" in session.text("list_directory", path=".")


def test_a_folder_without_a_tracked_file_is_named(tmp_path: Path) -> None:
    """git-54: git names it as one untracked directory, which is the root itself."""
    trees = plant(tmp_path)
    fresh = trees.main / "services" / "fresh"
    fresh.mkdir()
    (fresh / "new.txt").write_text("new\n")
    with trees.server("--git-above", root=fresh) as client:
        client.start_session()
        session = Session(trees, client, "")
        assert "?? .\n" in session.text("git_status") + "\n"
        session.text("git_add", paths=["."])
        assert "A  new.txt" in session.text("git_status")


def test_one_command_at_a_time_is_reported_too(tmp_path: Path) -> None:
    """confinement-54: with limits.processes=1 the command does not take the place of the git that observes it."""
    trees = plant(tmp_path)
    with trees.server("--git-above", "--limit", "processes=1") as client:
        client.start_session()
        session = Session(trees, client, "")
        if "commands are confined in tier: full" not in session.text("get_diagnostics"):
            pytest.skip("tier full is not available here")
        assert "staged ../../other.txt" in session.run("git rm -q --cached :/other.txt")


def test_a_folder_of_a_linked_work_tree(tmp_path: Path) -> None:
    """git-54: the repository of the linked work tree is found as for a root that is one."""
    trees = plant(tmp_path)
    trees.git(trees.main, "worktree", "add", "--quiet", "-b", "feature", "../feature")
    root = tmp_path / "feature" / "services" / "api"
    with trees.server("--git-above", root=root) as client:
        client.start_session()
        session = replace(Session(trees, client, ""))
        (root / "a.txt").write_text("changed\n")
        session.text("git_add", paths=["."])
        session.text("git_commit", message="in the folder")
        session.run("echo more >> a.txt && git commit -qam more")
    assert trees.git(trees.main, "log", "-2", "--format=%s", "feature").splitlines() == ["more", "in the folder"]
    assert trees.git(tmp_path / "feature", "status", "--short") == ""
