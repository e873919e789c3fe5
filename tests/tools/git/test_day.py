"""A day's work with the git tools through a real client, in both tiers: every call as an agent makes it.

A clone by policy, a branch, two hunks of which one is committed, an amended commit, a rebase with a conflict, a push, a
pull by another clone, and the way back by the reflog.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Figure
from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, peer
from tests.tools.git.world import HOME_CONFIG

MOST_CALLS = 25
MOST_BYTES = 40_000

GUESTS = "".join(f"guest {number}\n" for number in range(1, 31))


@dataclass
class Day:
    """A client that counts, and the repositories that it works in."""

    client: Peer
    root: Path
    remote: Path
    calls: int = 0
    bytes: int = 0
    texts: list[str] = field(default_factory=list)

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        result = self.client.call(tool, **arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        self.calls += 1
        self.bytes += len(text.encode())
        self.texts.append(f"{tool}: {text}")
        assert not result.get("isError"), text
        return result

    def text(self, tool: str, **arguments: object) -> str:
        self.call(tool, **arguments)
        return self.texts[-1]

    def git(self, directory: Path, *words: str) -> str:
        """Ask the git command line, for comparison only."""
        done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()


@pytest.fixture(params=["full", "landlock"])
def day(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Day]:
    root, remote, home = tmp_path / "root", tmp_path / "srv" / "guests.git", tmp_path / "home"
    for directory in (root, remote, home):
        directory.mkdir(parents=True)
    (home / ".gitconfig").write_text(HOME_CONFIG)
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[remote]]\nurl = "{remote}"\npush = true\n')
    seed = tmp_path / "seed"
    environment = {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (
        ("init", "--quiet", "--bare", "-b", "main", str(remote)),
        ("init", "--quiet", "-b", "main", str(seed)),
    ):
        subprocess.run(["git", *words], check=True, env=environment)
    (seed / "guests.txt").write_text(GUESTS)
    for words in (
        ("add", "."),
        ("commit", "--quiet", "-m", "list the guests"),
        ("push", "--quiet", str(remote), "main"),
    ):
        subprocess.run(["git", "-C", str(seed), *words], check=True, env=environment)
    before = under_profile() if request.param == "landlock" else ()
    with peer(root, "--profile", "all", "--policy", policy, before=before, environment=environment) as client:
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield Day(client, root, remote)


def test_a_days_work(day: Day, figure: Figure) -> None:
    """git-changes-15, git-remotes-13, git-remotes-14: at most 25 calls and 40 KB of answers; git agrees."""
    day.call("git_clone", url=str(day.remote), path="work")
    day.call("git_switch", repository="work", branch="topic", create=True)
    edits = [{"old": "guest 2\n", "new": "guest 2 (late)\n"}, {"old": "guest 29\n", "new": "guest 29 (early)\n"}]
    day.call("edit_file", path="work/guests.txt", edits=edits)
    assert "(late)" in day.text("git_diff", repository="work")
    day.call("git_add", repository="work", paths=["work/guests.txt"], hunks=["1"])
    day.call("git_commit", repository="work", message="one guest is late\n\nHe told us yesterday.")
    work = day.root / "work"
    assert "(early)" not in day.git(work, "show", "HEAD")
    day.call("git_add", repository="work", paths=["."])
    day.call("git_commit", repository="work", message="another one is erly")
    day.call("git_commit", repository="work", message="another one is early", amend=True)

    day.call("git_clone", url=str(day.remote), path="other")
    day.call("edit_file", path="other/guests.txt", edits=[{"old": "guest 2\n", "new": "guest 2 (ill)\n"}])
    day.call("git_add", repository="other", paths=["."])
    day.call("git_commit", repository="other", message="a guest is ill")
    day.call("git_push", repository="other")

    day.call("git_fetch", repository="work")
    assert "conflict" in day.text("git_rebase", repository="work", upstream="origin/main").lower()
    conflicts = day.text("git_conflicts", repository="work")
    assert "(late)" in conflicts
    assert "(ill)" in conflicts
    answer = {"text": GUESTS.replace("guest 2\n", "guest 2 (ill, so not late)\n")}
    day.call("git_continue", repository="work", action="resolve", resolutions={"work/guests.txt": answer})
    day.call("git_continue", repository="work")
    day.call("git_push", repository="work", to="main")
    day.call("git_pull", repository="other")
    other = day.root / "other"
    assert (
        day.git(other, "rev-parse", "HEAD")
        == day.git(work, "rev-parse", "HEAD")
        == day.git(day.remote, "rev-parse", "main")
    )
    names = day.git(work, "log", "--format=%an|%s")
    assert names.splitlines()[:3] == [
        "Ada Lovelace|another one is early",
        "Ada Lovelace|one guest is late",
        "Ada Lovelace|a guest is ill",
    ]
    assert "(early)" in (other / "guests.txt").read_text()
    assert "not late" in (other / "guests.txt").read_text()

    before = day.git(other, "rev-parse", "HEAD@{1}")
    assert before[:7] in day.text("git_reflog", repository="other")
    day.call("git_reset", repository="other", revision=before, mode="keep")
    assert day.git(other, "rev-parse", "HEAD") == before
    figure(f"a day with git: {day.calls} calls, {day.bytes} bytes of answers")
    assert day.calls <= MOST_CALLS
    assert day.bytes <= MOST_BYTES
