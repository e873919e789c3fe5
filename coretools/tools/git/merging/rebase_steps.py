"""The steps of a rebase: read from text, checked against the commits that move, and written as git's own list.

Pure. git starts an editor for `reword` and `squash`, and here it starts nothing. A reworded commit is picked as a copy
that has the new message; a squashed one joins as a copy with the message of both (`fixup -C`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from coretools.errors import InvalidArguments
from coretools.tools.git.repository.porcelain import single_line

MAX_STEPS = 200
"""Most steps of one list."""

_VERBS = {"p": "pick", "r": "reword", "e": "edit", "s": "squash", "f": "fixup", "d": "drop"}
_JOINED = ("squash", "fixup")
_STEP = re.compile(r"\s*(\S+)\s+(\S+)[ \t]*(.*)", re.DOTALL)
_AUTOSQUASH = re.compile(r"((?:(?:fixup|squash|amend)! )+)(.*)", re.DOTALL)

_HOW = "write steps as in git's list: 'pick COMMIT', 'reword COMMIT NEW MESSAGE', edit, squash, fixup or drop"


@dataclass(frozen=True, slots=True)
class MovedCommit:
    """A commit that a rebase moves."""

    commit: str
    message: str
    author: tuple[str, str, str] = ("", "", "")
    """Name, address and date, as git writes them."""

    @property
    def subject(self) -> str:
        """The first paragraph of its message, in one line."""
        return " ".join(self.message.strip("\n").partition("\n\n")[0].split("\n")).rstrip()


@dataclass(frozen=True, slots=True)
class Step:
    """What is done with one commit."""

    verb: str
    revision: str
    """As it was written; once resolved the commit."""
    text: str = ""
    """The message of a reword or squash. For other steps it is the subject that people copy from a list."""


@dataclass(frozen=True, slots=True)
class TodoLine:
    """A line of git's list."""

    command: str
    moved: MovedCommit
    message: str | None = None
    """A copy of the commit with this message takes its place."""

    def written(self, commit: str) -> str:
        """The line, with the commit or its copy."""
        return f"{self.command} {commit} {single_line(self.moved.subject)[:200]}".rstrip() + "\n"


def read_steps(steps: Sequence[str]) -> list[Step]:
    """Read steps from text.

    Raises:
        InvalidArguments: a step is not one that is done here.
    """
    if len(steps) > MAX_STEPS:
        raise InvalidArguments(f"steps: {len(steps)}, at most {MAX_STEPS}")
    parsed = []
    for number, text in enumerate(steps, 1):
        match = _STEP.fullmatch(text)
        verb = _VERBS.get(match[1], match[1]) if match else ""
        if match is None or verb not in _VERBS.values() or "\0" in text:
            raise InvalidArguments(f"steps, number {number}, {text[:80]!r}: {_HOW}")
        parsed.append(Step(verb, match[2], match[3].strip()))
        if verb == "reword" and not parsed[-1].text:
            raise InvalidArguments(
                f"steps, number {number}: 'reword {match[2]}' needs the new message after the commit"
            )
    return parsed


def check_steps(steps: Sequence[Step], moved: Sequence[MovedCommit]) -> None:
    """Refuse steps that are not about each of the commits once.

    Raises:
        InvalidArguments: names the commit.
    """
    known = {one.commit: one for one in moved}
    seen: set[str] = set()
    for number, step in enumerate(steps, 1):
        if step.revision not in known:
            listed = ", ".join(one[:10] for one in known) or "none"
            raise InvalidArguments(f"steps, number {number}: {step.revision[:10]} is not moved; these are: {listed}")
        if step.revision in seen:
            raise InvalidArguments(f"steps, number {number}: {step.revision[:10]} has two steps")
        seen.add(step.revision)
    _require_complete(steps, moved)
    first = next((step for step in steps if step.verb != "drop"), None)
    if first is not None and first.verb in _JOINED:
        raise InvalidArguments(f"steps: {first.verb} {first.revision[:10]} has no commit before it to join")


def _require_complete(steps: Sequence[Step], moved: Sequence[MovedCommit]) -> None:
    missing = {one.commit: one for one in moved}
    for step in steps:
        missing.pop(step.revision, None)
    for one in missing.values():
        shown = f"{one.commit[:10]} {single_line(one.subject)[:60]!r}"
        raise InvalidArguments(f"steps: {shown} has no step; add one, such as 'drop {one.commit[:10]}'")


def todo_lines(steps: Iterable[Step], moved: Iterable[MovedCommit]) -> list[TodoLine]:
    """Return git's list for steps that were checked."""
    known = {one.commit: one for one in moved}
    lines: list[TodoLine] = []
    message = ""
    for step in steps:
        one = known[step.revision]
        if step.verb == "squash":
            is_new = step.text and step.text != one.subject
            message = step.text if is_new else f"{message.strip()}\n\n{_own_message(one)}".strip()
            lines.append(TodoLine("fixup -C", one, message))
        elif step.verb == "reword":
            message = step.text
            lines.append(TodoLine("pick", one, message))
        else:
            message = one.message if step.verb in ("pick", "edit") else message
            lines.append(TodoLine(step.verb, one))
    return lines


def _own_message(one: MovedCommit) -> str:
    """Return what a squashed commit adds to a message: all but a subject that only names another commit."""
    message = one.message.strip()
    return message.partition("\n")[2].strip() if _AUTOSQUASH.match(message) else message


def autosquash_steps(moved: Sequence[MovedCommit]) -> list[Step]:
    """Return the steps of `git rebase --autosquash`: `fixup!`, `squash!` and `amend!` join the commit that they name.

    `amend!` becomes a fixup and a new message of the whole group.
    """
    groups: dict[str, list[Step]] = {}
    target_of: dict[str, str] = {}
    for at, one in enumerate(moved):
        match = _AUTOSQUASH.match(one.subject)
        target = _target(match[2], moved[:at]) if match else ""
        if match is None or not target:
            groups[one.commit] = [Step("pick", one.commit)]
            continue
        top = target_of.get(target, target)
        target_of[one.commit] = top
        kind = match[1].partition("!")[0]
        groups[top].append(Step(kind, one.commit))
    return [step for group in groups.values() for step in _settled(group, moved)]


def _settled(group: Sequence[Step], moved: Sequence[MovedCommit]) -> Iterator[Step]:
    """Replace `amend` steps by squashes: the message without its first paragraph is that of the whole group."""
    messages = {one.commit: one.message for one in moved}
    for step in group:
        if step.verb != "amend":
            yield step
            continue
        text = messages[step.revision].strip().partition("\n\n")[2].strip()
        yield replace(step, verb="squash" if text else "fixup", text=text)


def _target(name: str, before: Sequence[MovedCommit]) -> str:
    """Return the earlier commit that a subject names: by its own subject, or the beginning of its id or subject."""
    for one in before:
        if one.subject == name:
            return one.commit
    if re.fullmatch(r"[0-9a-f]{4,64}", name):
        for one in before:
            if one.commit.startswith(name):
                return one.commit
    return next((one.commit for one in before if one.subject.startswith(name)), "")
