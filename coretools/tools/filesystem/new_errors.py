"""The errors that a change brought into files, by a language server that runs already: few, and only new ones.

No server is started for an edit, and none is waited for that reads the project. An answer that is late, or that may be
outdated, is not told: a wrong error costs more than a missing one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import anyio.from_thread

from coretools.escapes import escape_controls
from coretools.language_servers.answers import Problem
from coretools.language_servers.find import FoundServer
from coretools.language_servers.pool import LanguageServers
from coretools.language_servers.positions import Lines
from coretools.roots.root import RootedPath
from coretools.tools.answer_budget import cut_line
from coretools.tools.filesystem.syntax_errors import MAX_BYTES

if TYPE_CHECKING:
    from coretools.language_servers.session import Session

SHOWN_ERRORS = 5
"""Maximum number of errors shown for one call; the rest are counted."""

_MESSAGE_CHARACTERS = 300

_MISSING_IMPORTS = frozenset({"import-not-found", "unresolved-import", "missing-import", "2307"})
"""Codes of ty, of its older releases, of pyrefly and of TypeScript. Where one was there, the server does not know
what is installed."""


_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A file that was changed."""

    place: RootedPath
    before: str | None
    """None for a file that was created."""
    after: str


@dataclass(frozen=True, slots=True)
class NewErrors:
    """The errors that a file has now and did not have before."""

    server: str = ""
    shown: tuple[Problem, ...] = ()
    total: int = 0

    def note(self, display_path: str) -> str:
        """A remark for the answer; empty if there are none."""
        if not self.total:
            return ""
        count = "a new error" if self.total == 1 else f"{self.total} new errors"
        lines = [f"line {one.line}: {_message(one)}" for one in self.shown]
        more = [f"and {self.total - len(lines)} more"] if len(lines) < self.total else []
        return f"[{display_path}: {count} ({self.server}):]\n" + "\n".join([*lines, *more])

    def facts(self) -> dict[str, object]:
        """The number, if there are any."""
        return {"new_errors": self.total} if self.total else {}


def find_new_errors(
    servers: LanguageServers, changes: Sequence[ChangedText], seconds: float
) -> Mapping[RootedPath, NewErrors]:
    """Return the new errors of files that were just changed, at most five in all. Called in a worker thread."""
    by_server: dict[tuple[str, str], tuple[FoundServer, list[ChangedText]]] = {}
    for change in changes:
        found = servers.ready(change.place)
        if found is not None and len(change.after) + len(change.before or "") <= 2 * MAX_BYTES:
            by_server.setdefault(found.key, (found, []))[1].append(change)
    errors: dict[RootedPath, NewErrors] = {}
    deadline, left = monotonic() + seconds, SHOWN_ERRORS
    for found, changed in by_server.values():
        ask = partial(servers.ask_in_time, found, partial(_new_problems, changed), deadline - monotonic())
        for place, problems in (anyio.from_thread.run(ask) or {}).items():
            errors[place] = NewErrors(found.kind.name, tuple(problems[:left]), len(problems))
            left = max(0, left - len(problems))
    return errors


async def _new_problems(changes: Sequence[ChangedText], session: "Session") -> dict[RootedPath, list[Problem]]:
    """Ask for the errors as the files are now, and, if there are any, as the files were."""
    errors = partial(_errors, session, changes)
    now = await errors(lambda change: change.after, [change.place for change in changes])
    wrong = [change for change in changes if now[change.place]]
    existed = [change.place for change in wrong if change.before is not None]
    before = await errors(lambda change: change.before, existed) if existed else {}
    found = {
        one.place: list(new_problems(before.get(one.place, []), now[one.place], one.before or "", one.after))
        for one in wrong
    }
    return {place: problems for place, problems in found.items() if problems}


async def _errors(
    session: "Session",
    changes: Sequence[ChangedText],
    text_of: Callable[[ChangedText], str | None],
    places: Sequence[RootedPath],
) -> dict[RootedPath, list[Problem]]:
    """The errors of these files while all files that changed have one of their two texts."""
    from coretools.language_servers.queries import shown_problems  # a server runs: it is loaded already

    texts = {change.place.path: text for change in changes if (text := text_of(change)) is not None}
    session.documents.show_only(texts)
    return {
        place: [one for one in await shown_problems(session, place.path) if one.severity == "error"] for place in places
    }


def new_problems(old: Sequence[Problem], now: Sequence[Problem], before: str, after: str) -> Iterator[Problem]:
    """Return the problems that were not there before, by what they say and by the text of their lines.

    A line that moved is the same line. One that was there is not new if it is worded differently, as after a rename, or
    if its line was edited: of the same code only more than there were are new.
    """
    left = Counter(_keys(old, before))
    unmatched = list(zip(now, _keys(now, after), strict=True))
    for parts in ((0, 1, 2), (0, 1), (0, 2), (0,)):
        rest: list[tuple[Problem, _Key]] = []
        for problem, key in unmatched:
            match = next((one for one in left if all(one[part] == key[part] for part in parts)), None)
            if match is None:
                rest.append((problem, key))
            else:
                left = left - Counter([match])  # not `subtract`: keeps no zeros
        unmatched = rest
    unknown = _MISSING_IMPORTS & {problem.code for problem in old}
    yield from (problem for problem, _ in unmatched if problem.code not in unknown)


def _keys(problems: Sequence[Problem], text: str) -> list[_Key]:
    """Code, message and text of the line of each."""
    lines = Lines.of(text)
    return [(one.code, one.message, lines.line(one.line - 1).strip()) for one in problems]


def _message(problem: Problem) -> str:
    message = cut_line(" ".join(problem.message.split()), longest=_MESSAGE_CHARACTERS)
    return escape_controls(f"{message} [{problem.code}]" if problem.code else message)
