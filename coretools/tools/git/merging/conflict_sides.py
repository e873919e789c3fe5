"""Say by branch or commit what `ours` and `theirs` are: git's words mean other things in a rebase than in a merge."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from coretools.errors import CoreError
from coretools.roots import directory_access
from coretools.tools.git.merging.conflict_answers import Stages
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, read_records, single_line
from coretools.tools.git.stash.stash import stash_list

_HEADS = ("MERGE_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
"""Files of a git directory that name the commit which is applied or merged."""

_NAMES = (
    "--decorate-refs=HEAD",
    "--decorate-refs=refs/heads",
    "--decorate-refs=refs/remotes",
    "--decorate-refs=refs/tags",
)
_LOG = ("log", "--no-walk=unsorted", "-z", "--format=tformat:%H%x00%h%x00%D%x00%s", "--no-show-signature", *_NAMES)

_REFERENCE_BYTES = 1_000
_SUBJECT_CHARACTERS = 60
_MAX_STASHES = 10
"""Newest stashes in which the applied one is looked for."""


@dataclass(frozen=True, slots=True)
class _Commit:
    name: str
    short: str
    branch: str
    """The branch that HEAD is, or else one reference that names the commit; "" without any."""
    subject: str

    def __str__(self) -> str:
        return f"{self.branch} ({self.short} {self.subject!r})" if self.branch else f"{self.short} {self.subject!r}"


async def sides(repository: OpenRepository, conflicts: Mapping[bytes, Stages]) -> dict[str, str]:
    """Describe `ours` and `theirs` by commit or branch; a side that is not known is left out."""
    checkout = repository.checkout
    state = {name: _state(checkout.git_handle, name) for name in _HEADS}
    head, applied = next(((name, commit) for name, commit in state.items() if commit), ("", ""))
    stash = "" if head or checkout.in_progress else await _stash(repository, conflicts)
    commits = await _commits(repository, ["HEAD", *([applied] if applied else [])])
    ours = commits[0] if commits else None
    theirs = commits[1] if len(commits) > 1 else None
    named = {}
    if ours is not None:
        named["ours"] = _new_base(checkout, ours) if checkout.in_progress == "rebase" else str(ours)
    if stash:
        named["theirs"] = stash
    elif theirs is not None:
        named["theirs"] = {
            "REBASE_HEAD": f"the commit that is moved, {theirs}{_of_branch(checkout)}",
            "REVERT_HEAD": f"the state before the reverted commit {theirs}",
            "CHERRY_PICK_HEAD": f"the picked commit {theirs}",
        }.get(head, str(theirs))
    return {side: single_line(text) for side, text in named.items()}


def _new_base(checkout: Checkout, ours: _Commit) -> str:
    """Return what HEAD is in a rebase: the new base, perhaps with commits that were moved already."""
    onto = _rebase_state(checkout, "onto")
    if not onto or onto == ours.name:
        return f"the new base, {ours}"
    return f"the new base {onto[:10]} with the commits moved so far, last {ours}"


def _of_branch(checkout: Checkout) -> str:
    branch = _rebase_state(checkout, "head-name").removeprefix("refs/heads/")
    return "" if branch in ("", "detached HEAD") else f", of {branch}"


def _rebase_state(checkout: Checkout, name: str) -> str:
    for directory in ("rebase-merge", "rebase-apply"):
        with suppress(CoreError), directory_access.open_subdirectory(checkout.git_handle, directory) as handle:
            return _state(handle, name)
    return ""


def _state(directory: int, name: str) -> str:
    with suppress(CoreError):
        data = directory_access.read_file(directory, name, limit_bytes=_REFERENCE_BYTES)
        return as_text(data.partition(b"\n")[0])
    return ""


async def _commits(repository: OpenRepository, names: list[str]) -> list[_Commit]:
    completed = await repository.run(*_LOG, "--stdin", "--", stdin="".join(f"{name}\n" for name in names).encode())
    if not completed.ok:  # an unborn branch, or a file of the state that names no commit
        return []
    commits = []
    for name, short, references, subject in read_records(completed.stdout.head + completed.stdout.tail, 4):
        branches = [one for one in as_text(references).split(", ") if one and one != "HEAD"]
        branch = next((one for one in branches if one.startswith("HEAD -> ")), branches[0] if branches else "")
        text = as_text(subject)
        short_subject = text if len(text) <= _SUBJECT_CHARACTERS else f"{text[:_SUBJECT_CHARACTERS]}..."
        commits.append(_Commit(as_text(name), as_text(short), branch.removeprefix("HEAD -> "), short_subject))
    return commits


async def _stash(repository: OpenRepository, conflicts: Mapping[bytes, Stages]) -> str:
    """Return the stash that has the content of a `theirs`; "" if none of the newest has."""
    name, theirs = next(((name, versions[3][1]) for name, versions in conflicts.items() if 3 in versions), (b"", ""))
    if not name or b"\n" in name:
        return ""
    places = (await stash_list(repository))[:_MAX_STASHES]
    stdin = b"".join(f"{commit}:".encode() + name + b"\n" for _, commit, *_ in places)
    output = (await repository.run("cat-file", "--batch-check=%(objectname)", stdin=stdin)).stdout
    for (place, _, _, message), line in zip(places, (output.head + output.tail).split(b"\n"), strict=False):
        if line == theirs.encode("ascii"):
            return f"{place} ({message[:_SUBJECT_CHARACTERS]})"
    return ""
