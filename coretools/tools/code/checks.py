"""The tool that checks source files: by language servers, or else their syntax alone, marked as such."""

import time
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, Field

from coretools.config.limits import Limits
from coretools.errors import CoreError, InvalidArguments
from coretools.escapes import escape_controls
from coretools.language_servers.answers import Problem, Severity
from coretools.language_servers.failure import NoAnswer
from coretools.language_servers.kinds import kinds_for
from coretools.language_servers.pool import LanguageServers
from coretools.operations.content import Result
from coretools.operations.declare import Aliases, Effect, tool
from coretools.roots.read import file_status, open_directory, read_bytes
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.roots.text import decode
from coretools.tools.answer_budget import content_bytes, cut_line, fitting
from coretools.tools.code.server_questions import asked_problems
from coretools.tools.code.symbol_target import MAX_BYTES
from coretools.tools.filesystem.syntax_errors import introduced_faults
from coretools.tools.git.reading.status import uncommitted
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.search.ignore import beneath, entries_beneath

MAX_FILES = 100
"""Files of one call."""

_MESSAGE_CHARACTERS = 500
_DETAIL_BYTES = 160
"""Further lines of a message that are shown, as many as fit: ty lists in them wherever it looked for a module."""

_NOTHING = "no source files there"
_NOTHING_CHANGED = "no source file differs from the last commit; name paths to check others"

_RANKS: dict[str, int] = {"error": 0, "warning": 1, "information": 2, "hint": 3}


class FileProblem(BaseModel):
    """A diagnostic of a file."""

    path: str
    line: int
    severity: Severity
    message: str

    @property
    def shown(self) -> str:
        """One line."""
        return f"{escape_controls(self.path)}:{self.line}: {self.severity}: {escape_controls(self.message)}"


class FoundProblems(Result):
    """Result of `code_check`."""

    problems: list[FileProblem]
    total: int
    files: int
    """Files that were checked."""
    notes: list[str]

    def text(self) -> str:
        """One problem per line."""
        return "\n".join([*(one.shown for one in self.problems), *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Counts."""
        return {"problems": self.total, "files": self.files}


class CheckTools:
    """The tool that checks source files."""

    def __init__(self, roots: Roots, limits: Limits, servers: LanguageServers, repositories: Repositories) -> None:
        """`repositories` tell which files changed."""
        self._roots = roots
        self._repositories = repositories
        self._limits = limits
        self._servers = servers
        self._limiter = CapacityLimiter(limits.threads)

    @tool(Effect.READ, title="Check code")
    async def code_check(
        self,
        paths: Annotated[
            list[str] | None,
            Field(
                max_length=MAX_FILES,
                description="Source files, or directories; default the source files that are not as in the last commit",
            ),
            Aliases("path", "files", "file_path"),
        ] = None,
        *,
        severity: Annotated[
            Severity,
            Field(description="The mildest that is shown: `error`, `warning` (default), `information`, `hint`"),
        ] = "warning",
    ) -> FoundProblems:
        """Check source files for errors without running them: types, names, imports, syntax.

        Returns one line per problem, `path:line: error: message [code]`, or that there is none. Language servers check
        the files as they are now. If a file has no server, or the server fails, a last line in brackets says so, and
        only the syntax was checked. Up to 100 files and 20,000 bytes; of a directory the source files in it that
        .gitignore does not exclude. To run the project's own tests and linters use ci_test or run_command. Example:
        {"paths": ["src/config.py"]}.
        """
        names, left_out = await self._named(paths)
        deadline = time.monotonic() + 2 * self._limits.language_answer_seconds
        found: list[FileProblem] = []
        reasons: dict[str, list[str]] = {}
        checked = 0
        for number, path in enumerate(names):
            if time.monotonic() > deadline:
                left_out += len(names) - number
                break
            problems, remarks = await self._check(path)
            checked += problems is not None
            found += [one for one in problems or () if _RANKS[one.severity] <= _RANKS[severity]]
            for remark in remarks:
                reasons.setdefault(remark, []).append(path)
        found.sort(key=lambda one: (_RANKS[one.severity], one.path, one.line))
        shown = found[: len(fitting((one.shown for one in found), content_bytes(self._limits)))]
        notes = []
        if not names:
            notes.append(_NOTHING if paths else _NOTHING_CHANGED)
        elif checked and not found:
            notes.append(f"no problem in {checked} file{'' if checked == 1 else 's'}")
        if len(shown) < len(found):
            notes.append(f"{len(shown)} of {len(found)} problems shown; name fewer files")
        if left_out:
            notes.append(f"{left_out} files were not checked: name fewer, or one directory at a time")
        notes += [_remark(why, where) for why, where in reasons.items()]
        return FoundProblems(problems=shown, total=len(found), files=checked, notes=notes)

    async def _named(self, paths: list[str] | None) -> tuple[list[str], int]:
        if paths:
            return await to_thread.run_sync(partial(self._files, paths), limiter=self._limiter)
        try:
            changed = await uncommitted(self._repositories)
        except CoreError as error:
            raise InvalidArguments(f"paths: name files; which ones changed is not known: {error}") from error
        names, left_out = await to_thread.run_sync(partial(self._files, changed), limiter=self._limiter)
        return [name for name in names if kinds_for(name)], left_out

    def _files(self, paths: list[str]) -> tuple[list[str], int]:
        """The files to check, and the number of those that are too many."""
        names: dict[str, None] = {}
        for path in paths:
            if file_status(self._roots, path).kind == "file":
                names[path] = None
                continue
            with open_directory(self._roots, path) as directory:
                top = directory.place
            for relative, kind in entries_beneath(self._roots, top, include_ignored=False):
                if kind == "file" and kinds_for(relative):
                    names[self._roots.display_path(RootedPath(top.root, beneath(top, relative)))] = None
        return list(names)[:MAX_FILES], max(0, len(names) - MAX_FILES)

    async def _check(self, path: str) -> tuple[list[FileProblem] | None, tuple[str, ...]]:
        """The problems of a file, None if nothing can check it; and what a reader must know."""
        try:
            content = await to_thread.run_sync(
                partial(read_bytes, self._roots, path, limit_bytes=MAX_BYTES), limiter=self._limiter
            )
            text = decode(content.data, content.display_path).text
        except CoreError as error:
            return None, (f"not checked: {error}",)
        try:
            problems, answer = await asked_problems(self._servers, content.place, text)
        except NoAnswer as reason:
            faults = await to_thread.run_sync(introduced_faults, path, None, text, limiter=self._limiter)
            if not faults.language:
                return None, (f"not checked: {reason}",)
            found = [Problem(fault.line, "error", str(fault), "syntax") for fault in faults.faults]
            return [_shown(path, one) for one in found], (f"only its syntax was checked: {reason}",)
        return [_shown(path, one) for one in problems], answer.remarks


def _remark(why: str, paths: list[str]) -> str:
    return f"{', '.join(paths[:3])}{' ...' if paths[3:] else ''}: {why}"


def _shown(path: str, problem: Problem) -> FileProblem:
    code = f" [{problem.code}]" if problem.code else ""
    first, *rest = [" ".join(line.split()) for line in problem.message.splitlines() if line.strip()] or [""]
    message = " ".join([cut_line(first, longest=_MESSAGE_CHARACTERS), *fitting(rest, _DETAIL_BYTES)])
    return FileProblem(path=path, line=problem.line, severity=problem.severity, message=f"{message}{code}")
