"""Resolve conflicts by answers: for each path a side, a text, or one of these for each of its regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio import to_thread

from coretools.errors import GitRefused, InvalidArguments, NotFound
from coretools.roots.read import read_bytes
from coretools.roots.write import write_bytes
from coretools.tools.git.changes.writable import require_writable_names
from coretools.tools.git.merging.conflict_regions import read_regions, with_texts
from coretools.tools.git.repository.checkout import display_paths
from coretools.tools.git.repository.names import git_names, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import FROM_STDIN, decoded, encoded, quoted, terminated
from coretools.tools.git.repository.results import listed, paths_argument

SIDES = {"base": 1, "ours": 2, "theirs": 3}
"""git's numbers of the versions (gitrevisions(7), `:<n>:<path>`)."""

MAX_BYTES = 4 * 1024 * 1024
"""Largest file whose regions are answered, and largest text."""

_WHOLE = ("ours", "theirs", "base", "delete")
_OF_A_REGION = ("ours", "theirs", "base", "both")
_PLAIN_MODES = ("100644", "100755")

Stages = Mapping[int, tuple[str, str]]
"""Mode and object of each version of a path in conflict, by its number."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of the paths: a version of the index, a new content, or nothing."""

    versions: dict[int, list[bytes]]
    contents: dict[bytes, bytes]
    deleted: list[bytes]

    @property
    def names(self) -> list[bytes]:
        """Every path."""
        return sorted([*self.contents, *self.deleted, *(name for names in self.versions.values() for name in names)])


async def stages(repository: OpenRepository, names: Sequence[str] = ()) -> dict[bytes, dict[int, tuple[str, str]]]:
    """Return the versions of each path in conflict."""
    versions: dict[bytes, dict[int, tuple[str, str]]] = {}
    output = await repository.output("ls-files", "--unmerged", "-z", "--", *names)
    for record in output.split(b"\0"):
        fields, _, name = record.partition(b"\t")
        if name:
            mode, object_name, stage = fields.decode("ascii").split(" ")
            versions.setdefault(name, {})[int(stage)] = (mode, object_name)
    return versions


async def resolve(repository: OpenRepository, answers: Mapping[str, Any]) -> list[str]:
    """Resolve and stage the paths that have an answer; return lines that say so.

    Everything is checked before anything is written.

    Raises:
        InvalidArguments: not an answer. NotFound: the path is not in conflict. GitRefused: it can't be answered so.
    """
    checkout = repository.checkout
    names = git_names(repository, list(answers))
    refuse_hidden(repository, names)
    versions = await stages(repository)
    plan = _Plan({}, {}, [])
    for name, (path, answer) in zip(names, answers.items(), strict=True):
        raw = encoded(name)
        if raw not in versions:
            there = listed(display_paths(checkout, versions)) or "none"
            raise NotFound(f"{path}: is not in conflict; these are, by their paths from the root: {there}")
        await _plan(repository, plan, raw, versions[raw], answer)
    await require_writable_names(repository, plan.names)
    await _apply(repository, plan)
    rest = display_paths(checkout, versions.keys() - set(plan.names))
    return [
        f"resolved {len(names)}: {listed(display_paths(checkout, plan.names))}",
        f"in conflict: {listed(sorted(rest))}" if rest else "no conflict is left",
        f"Undo: git_restore side='conflict' {paths_argument(checkout, plan.names)}",
    ]


async def _plan(repository: OpenRepository, plan: _Plan, name: bytes, versions: Stages, answer: Any) -> None:
    """Add what an answer means for a path.

    Raises:
        InvalidArguments, GitRefused: it means nothing there.
    """
    shown = quoted(name)
    if isinstance(answer, str) and answer in _WHOLE:
        stage = SIDES.get(answer, 0)
        if stage in versions:
            plan.versions.setdefault(stage, []).append(name)
        else:
            plan.deleted.append(name)
        return
    if {mode for mode, _ in versions.values()} - set(_PLAIN_MODES):
        raise GitRefused(f"{shown}: is no ordinary file on each side; answer ours, theirs, base or delete")
    text = _text_of(answer)
    if text is not None:
        plan.contents[name] = text
    elif isinstance(answer, list):
        plan.contents[name] = await _answered_regions(repository, name, answer)
    else:
        raise InvalidArguments(
            f"resolutions, {shown}: must be 'ours', 'theirs', 'base', 'delete', {{'text': ...}}, or a list with one "
            "answer ('ours', 'theirs', 'base', 'both' or {'text': ...}) for each region"
        )


async def _answered_regions(repository: OpenRepository, name: bytes, answers: Sequence[Any]) -> bytes:
    path = f"{repository.checkout.directory.path}/{decoded(name)}"
    content = await to_thread.run_sync(partial(read_bytes, repository.roots, path, limit_bytes=MAX_BYTES))
    regions = read_regions(content.data)
    if len(regions) != len(answers):
        raise GitRefused(
            f"{quoted(name)}: has {len(regions)} regions that can be told apart, and {len(answers)} are answered; "
            "git_conflicts shows them, and {'text': ...} is the whole file"
        )
    texts = []
    for number, (region, answer) in enumerate(zip(regions, answers, strict=True), 1):
        text = region.text(answer) if isinstance(answer, str) else _text_of(answer)
        if text is None:
            sides = ", ".join(side for side in _OF_A_REGION if region.text(side) is not None)
            raise InvalidArguments(f"resolutions, {quoted(name)}, region {number}: must be {sides} or {{'text': ...}}")
        texts.append(text)
    return with_texts(content.data, regions, texts)


def _text_of(answer: Any) -> bytes | None:
    if not isinstance(answer, dict) or answer.keys() != {"text"} or not isinstance(answer["text"], str):
        return None
    try:
        text = encoded(answer["text"])
    except UnicodeEncodeError as error:
        raise InvalidArguments(f"resolutions: a text is not valid Unicode ({error.reason})") from error
    if len(text) > MAX_BYTES:
        raise InvalidArguments(f"resolutions: a text has {len(text)} bytes, at most {MAX_BYTES}")
    return text


async def _apply(repository: OpenRepository, plan: _Plan) -> None:
    for stage, names in plan.versions.items():
        stdin = terminated(names)
        await repository.output("checkout-index", f"--stage={stage}", "--force", "-z", "--stdin", stdin=stdin)
    for name, content in plan.contents.items():
        path = f"{repository.checkout.directory.path}/{decoded(name)}"
        await to_thread.run_sync(partial(write_bytes, repository.roots, path, content, parents=True))
    written = [*plan.contents, *(name for names in plan.versions.values() for name in names)]
    if written:
        await repository.output("update-index", "--add", "-z", "--stdin", stdin=terminated(written))
    if plan.deleted:
        await repository.output("rm", "-q", "-f", *FROM_STDIN, stdin=terminated(plan.deleted))
