"""Random sequences of changes, made by our tools in one repository and by the git command line in its copy."""

import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coretools.errors import CoreError
from tests.tools.git.change_calls import function_of
from tests.tools.git.second_reader import compare
from tests.tools.git.world import GitTools, World

SEQUENCES = int(os.environ.get("CORETOOLS_GIT_SEQUENCES", "10"))
STEPS = 10

FILES = ("a.txt", "b.txt", "folder/c.txt", "new.txt", "folder/new.txt")
BRANCHES = ("main", "left", "right", "extra")
MARKER = re.compile(rb"^(<<<<<<<|\|\|\|\|\|\|\||>>>>>>>).*$", re.MULTILINE)
EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
STATES = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "sequencer")


@dataclass(frozen=True)
class Step:
    """One change: the call, and the same for the command line. Without a call both edit a file."""

    name: str
    arguments: dict[str, Any]
    words: tuple[str, ...]


def edited(rng: random.Random) -> Step:
    lines = [f"line {number}\n" for number in range(8)]
    lines[rng.randrange(8)] = f"changed {rng.randrange(4)}\n"
    return Step("", {"name": rng.choice(FILES), "text": "".join(lines)}, ())


def paths(rng: random.Random) -> tuple[list[str], list[str]]:
    name = rng.choice(("a.txt", "b.txt", "folder", "."))
    return [f"work/{name}"] if name != "." else ["work"], [name]


def commits(rng: random.Random) -> Step:
    number = rng.randrange(100)
    return Step("git_commit", {"message": f"commit {number}"}, ("commit", "-q", "-m", f"commit {number}"))


def amends(rng: random.Random) -> Step:
    # Another message each time: with the fixed dates of these tests the same commit could come out again.
    message = f"amended {rng.randrange(1_000_000)}"
    return Step("git_commit", {"amend": True, "message": message}, ("commit", "-q", "--amend", "-m", message))


def resets(rng: random.Random) -> Step:
    mode, target = rng.choice(("soft", "mixed", "keep", "hard")), rng.choice(("HEAD", "HEAD~1", "left"))
    return Step("git_reset", {"mode": mode, "revision": target}, ("reset", "-q", f"--{mode}", target))


def restores(rng: random.Random) -> Step:
    ours, theirs = paths(rng)
    what, flags = rng.choice(
        (("worktree", ["--worktree"]), ("staged", ["--staged"]), ("both", ["--staged", "--worktree"]))
    )
    source = rng.choice(("", "HEAD", "left"))
    words = ("restore", *flags, *([f"--source={source}"] if source else []), "--", *theirs)
    return Step("git_restore", {"paths": ours, "what": what, "revision": source}, words)


def stashes(rng: random.Random) -> Step:
    action = rng.choice(("push", "push", "pop", "apply", "drop"))
    if action != "push":
        return Step("git_stash", {"action": action}, ("stash", action, "-q"))
    untracked = rng.random() < 0.5
    words = ("stash", "push", "-q", "-m", "kept", *(["-u"] if untracked else []))
    return Step("git_stash", {"action": "push", "message": "kept", "untracked": untracked}, words)


def branches(rng: random.Random) -> Step:
    name, start = rng.choice(BRANCHES), rng.choice(("main", "left", "right"))
    return rng.choice((
        Step("git_switch", {"branch": name}, ("switch", "-q", "--no-guess", name)),
        Step("git_switch", {"branch": name}, ("switch", "-q", "--no-guess", name)),
        Step("git_switch", {"detach": start}, ("switch", "-q", "--detach", start)),
        Step("git_switch", {"branch": name, "create": True, "start": start}, ("switch", "-q", "-c", name, start)),
        Step("git_branch", {"action": "create", "name": name, "start": start}, ("branch", name, start)),
        Step("git_branch", {"action": "delete", "name": name, "force": True}, ("branch", "-q", "-D", name)),
        Step("git_tag", {"action": "create", "name": "v1"}, ("tag", "v1")),
    ))  # fmt: skip


def combined(rng: random.Random) -> Step:
    other = rng.choice(("main", "left", "right"))
    return rng.choice((
        Step("git_merge", {"revision": other}, ("merge", "-q", "--no-edit", other)),
        Step("git_merge", {"revision": other, "fast_forward": False}, ("merge", "-q", "--no-edit", "--no-ff", other)),
        Step("git_cherry_pick", {"revisions": [other]}, ("cherry-pick", other)),
        Step("git_cherry_pick", {"revisions": [f"HEAD..{other}"]}, ("cherry-pick", f"HEAD..{other}")),
        Step("git_revert", {"revisions": ["HEAD"]}, ("revert", "--no-edit", "HEAD")),
        Step("git_rebase", {"upstream": other}, ("rebase", "-q", other)),
    ))  # fmt: skip


def hunks(rng: random.Random) -> Step:
    """Stage some hunks of one file."""
    return Step("git_add", {"name": rng.choice(FILES), "chosen": [rng.random() < 0.5 for _ in range(8)]}, ())


async def staged(world: World, tools: GitTools, plain: World, step: Step) -> None:
    """Stage the same hunks with our tool and with `git add --patch`, which is asked for each of them."""
    name, chosen = step.arguments["name"], step.arguments["chosen"]
    count = plain.git("diff", "--", name).count("\n@@ ")
    numbers = [str(number) for number, is_chosen in enumerate(chosen[:count], 1) if is_chosen]
    if not numbers:
        return
    try:
        await tools.git_add([f"work/{name}"], "work", hunks=numbers)
    except CoreError:
        return  # deleted or in conflict: it has no hunks here
    answers = "".join("y\n" if str(number) in numbers else "n\n" for number in range(1, count + 1))
    plain.git("add", "--patch", "--", name, stdin=answers.encode())


def orders(rng: random.Random) -> Step:
    """A rebase with a list of steps: for each commit a verb, in another order."""
    verbs = [rng.choice(("pick", "pick", "reword", "squash", "fixup", "drop", "edit")) for _ in range(8)]
    return Step(
        "git_rebase", {"upstream": rng.choice(("main", "left", "HEAD~2")), "verbs": verbs}, (str(rng.random()),)
    )


def ordered(world: World, step: Step) -> tuple[str, list[str]]:
    """The upstream of such a rebase, and its steps with the commits of this world."""
    upstream, verbs = step.arguments["upstream"], step.arguments["verbs"]
    words = ("log", "--reverse", "--topo-order", "--no-merges", "--format=%H", f"{upstream}..HEAD")
    commits = [one for one in world.git(*words, check=False).split() if re.fullmatch("[0-9a-f]{40}", one)][:8]
    random.Random(step.words[0]).shuffle(commits)
    steps = [
        f"{verb} {commit}{f' reworded {number}' if verb == 'reword' else ''}"
        for number, (verb, commit) in enumerate(zip(verbs, commits, strict=False))
    ]
    first = next((at for at, one in enumerate(steps) if not one.startswith("drop")), None)
    if first is not None:
        steps[first] = f"pick {steps[first].split()[1]}"
    return upstream, steps


def rebased_by_git(plain: World, upstream: str, steps: list[str]) -> None:
    """The same with the command line, which gets the list from an editor; a reword is a pick and an amended message."""
    lines = []
    for one in steps:
        verb, commit, *text = one.split(" ", 2)
        lines.append(f"{'pick' if verb == 'reword' else verb} {commit}")
        lines += [f"exec git commit -q --amend --allow-empty -m '{text[0]}'"] if text else []
    script = plain.outside / "list"
    script.write_text("\n".join(lines) + "\n")
    options = ("-c", f"sequence.editor=cp {script}", "-c", "core.editor=true")
    plain.git(*options, "rebase", "-i", "-q", "--empty=drop", upstream, check=False)


CLEAN = Step("git_reset", {"mode": "hard"}, ("reset", "-q", "--hard"))
"""Before most combinations, which need a clean work tree."""

KINDS: tuple[Callable[[random.Random], Step], ...] = (
    edited,
    edited,
    lambda _: Step("git_add", {"paths": ["work"]}, ("add", ".")),
    commits,
    amends,
    resets,
    restores,
    stashes,
    branches,
    combined,
    combined,
    orders,
    hunks,
    hunks,
)


def started(top: Path) -> World:
    """Three branches that partly change the same lines."""
    world = World(top).filled()
    world.git("reset", "--quiet", "--hard")
    (world.repository / "new.txt").unlink()
    for number, name in enumerate(("left", "right", "main")):
        world.git("switch", "--quiet", *([] if name == "main" else ["-c"]), name, *(["main"] if name != "main" else []))
        for own in (f"own-{name}.txt", "a.txt"):
            lines = [f"line {line}\n" for line in range(8)]
            lines[number] = f"{name}\n"
            lines[5] = f"{name}\n" if name != "main" else lines[5]
            world.write(own, "".join(lines))
            world.git("add", ".")
            world.git("commit", "--quiet", "-m", f"{name}: {own}", "--author", f"{name} <{name}@example.org>")
    return world


def state(world: World) -> dict[str, object]:
    """Everything that must be the same: what names of commits and dates do not show."""
    log = world.git("log", "--all", "--reflog", "--format=%H%x00%P%x00%T|%an|%s").splitlines()
    commits = {line.split("\0")[0]: line.split("\0")[1:] for line in log if line}

    def canonical(commit: str) -> tuple[object, ...]:
        parents, facts = commits[commit]
        return (facts, *(canonical(parent) for parent in parents.split()))

    references = world.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags").splitlines()
    stashes = world.git("log", "-g", "--format=%H", "refs/stash", "--", check=False).splitlines()
    hexadecimal = [one for one in stashes if re.fullmatch("[0-9a-f]{40}", one)]
    return {
        "references": {name: canonical(commit) for commit, name in (line.split() for line in references)},
        "HEAD": world.git("symbolic-ref", "-q", "HEAD", check=False) or canonical(world.git("rev-parse", "HEAD")),
        "at": canonical(world.git("rev-parse", "HEAD")),
        "index": world.git("ls-files", "--stage"),
        "stashes": [trees(world, one) for one in hexadecimal],
        "files": {
            str(path.relative_to(world.repository)): MARKER.sub(rb"\1", path.read_bytes())
            for path in sorted(world.repository.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        },
        "in progress": [name for name in STATES if (world.git_dir / name).exists()],
    }


def trees(world: World, stash: str) -> list[str]:
    """The trees of a stash and its parents. git keeps untracked files even where there are none."""
    parents = world.git("log", "--max-count=1", "--format=%P", stash).split()
    found = world.git("log", "--no-walk=unsorted", "--format=%T", stash, *parents).split()
    return [tree for tree in found if tree != EMPTY]


async def taken(world: World, tools: GitTools, plain: World, step: Step) -> None:
    if not step.name:
        for one in (world, plain):
            one.write(step.arguments["name"], step.arguments["text"])
        return
    if "chosen" in step.arguments:
        await staged(world, tools, plain, step)
        return
    if "verbs" in step.arguments:
        (upstream, steps), (_, theirs) = ordered(world, step), ordered(plain, step)
        refusal = ""
        if steps:
            try:
                await function_of(tools, "git_rebase")(repository="work", upstream=upstream, steps=steps)
            except CoreError as error:
                refusal = str(error)
            rebased_by_git(plain, upstream, theirs)
        if "without a change" in refusal:  # git stops there
            plain.git("rebase", "--abort")
        return
    with suppress(CoreError):  # the command line refuses it too, or the states differ
        await function_of(tools, step.name)(repository="work", **step.arguments)
    plain.git("-c", "core.editor=true", *step.words, check=False)


async def ended(rng: random.Random, world: World, tools: GitTools, plain: World) -> None:
    """End an operation that stopped: resolve and continue, skip, or abort."""
    for _ in range(6):
        found = [str(name) for name in STATES if (plain.git_dir / name).exists()]
        if not found:
            return
        name = "rebase-merge" if "rebase-merge" in found else next(iter(found))
        word = {"MERGE_HEAD": "merge", "REVERT_HEAD": "revert", "rebase-merge": "rebase"}.get(name, "cherry-pick")
        has_conflict = bool(plain.git("ls-files", "--unmerged"))
        action = rng.choice(("continue", "continue", "abort", "skip"))
        if not has_conflict and action == "continue":
            action = "skip"
        if word == "merge" and action == "skip":
            action = "abort"
        if action == "continue":
            text = f"resolved {rng.randrange(3)}\n"
            for one in (world, plain):
                for conflict in set(re.findall(r"\t(.*)$", one.git("ls-files", "--unmerged"), re.MULTILINE)):
                    one.write(conflict, text)
                    one.git("add", conflict)
        await taken(world, tools, plain, Step("git_continue", {"action": action}, (word, f"--{action}")))


@pytest.mark.parametrize("seed", range(SEQUENCES))
async def test_a_sequence_of_changes_ends_as_with_the_command_line(tmp_path: Path, seed: int) -> None:
    """git-changes-15: the same references, trees, authors, index, stashes and files."""
    rng = random.Random(seed)
    world = started(tmp_path / "ours")
    plain = World(tmp_path / "plain")
    shutil.copytree(world.repository, plain.repository, symlinks=True)
    plain.git("update-index", "-q", "--refresh", check=False)
    steps: list[Step] = []
    async with world.tools() as tools:
        for _ in range(STEPS):
            kind = rng.choice(KINDS)
            now = [CLEAN, kind(rng)] if kind in (combined, orders) and rng.random() < 0.7 else [kind(rng)]
            for step in now:
                await taken(world, tools, plain, step)
            steps += now
            await ended(rng, world, tools, plain)
            if os.environ.get("CORETOOLS_GIT_EVERY_STEP"):
                assert state(world) == state(plain), steps
        await compare(world, tools)
    assert state(world) == state(plain), steps
