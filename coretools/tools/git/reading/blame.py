"""Who last changed the lines of a file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from coretools.errors import InvalidArguments
from coretools.roots.read import read_bytes
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.reading.revisions import commit_argument
from coretools.tools.git.repository.names import refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository, require_success
from coretools.tools.git.repository.porcelain import as_text, single_line
from coretools.tools.git.repository.results import TextResult, answer

BLAME_LINES = 200
"""Lines of a file that one call explains by default."""

IGNORED_BYTES = 256 * 1024
"""Largest list of ignored commits."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameOptions:
    """Which lines of which version are explained, and which commits are passed over."""

    name: str
    revision: str
    """Empty: the work tree."""
    first: int
    count: int
    ignore_whitespace: bool
    ignored: Sequence[str]
    """Revisions whose changes are attributed to the commits before them."""
    ignored_file: str
    """A file with more of them, as `git blame --ignore-revs-file` takes it."""


async def blame(repository: OpenRepository, options: BlameOptions) -> TextResult:
    """Return who last changed each line.

    Raises:
        DeniedPath: a file is hidden. GitRefused: it has fewer lines, or is not in git. InvalidArguments: not a list of
            commits.
    """
    refuse_hidden(repository, [options.name])
    where = [await commit_argument(repository, options.revision)] if options.revision else []
    ignored = await _ignored(repository, options)
    words = (
        "--porcelain",
        "--no-textconv",
        "--no-ignore-revs-file",  # the empty value in FIXED_SETTINGS counts only after git has read the files before it
        *(("--ignore-revs-file=/dev/stdin",) if ignored else ()),
        f"-L{options.first},+{options.count}",
        *(("-w",) if options.ignore_whitespace else ()),
    )
    completed = await repository.run("blame", *words, *where, "--", options.name, stdin=ignored or None)
    if not completed.ok and options.revision:
        await repository.resolved(options.revision)
    output = repository.complete_output(require_success(completed, "blame"), "blame")
    lines = [cut_line(line) for line in _lines(output)]
    shown = fitting(lines, repository.git.answer_bytes)
    after = options.first + len(shown)
    more = [f"[for more lines: start={after}]"] if len(shown) < len(lines) or len(lines) == options.count else []
    return answer(repository.checkout, [*shown, *more], details={"lines": len(shown)})


async def _ignored(repository: OpenRepository, options: BlameOptions) -> bytes:
    """Return the list of ignored commits, one in a line. git gets it through a pipe, so it opens no file for it."""
    commits = await repository.resolved(*options.ignored)
    if options.ignored_file:
        # Read as `read_file` does: a hidden file is refused, and no line of another file can show in a message of git.
        data = read_bytes(repository.roots, options.ignored_file, limit_bytes=IGNORED_BYTES).data
        lines = [line.partition("#")[0].strip() for line in data.decode("utf-8", "replace").split("\n")]
        for number, line in enumerate(lines, 1):
            if line and not _COMMIT.fullmatch(line):
                raise InvalidArguments(f"{options.ignored_file}: line {number} is not a full commit name")
        commits += [line for line in lines if line]
    return "".join(f"{commit}\n" for commit in commits).encode()


def _lines(output: bytes) -> Iterator[str]:
    commits: dict[str, dict[str, str]] = {}
    name, number = "", ""
    for raw in output.removesuffix(b"\n").split(b"\n"):
        line = as_text(raw)
        if line.startswith("\t"):
            facts = commits[name]
            who = "not committed" if not name.strip("0") else facts.get("author", "")
            yield single_line(f"{name[:10]} {facts.get('date', '')} {who} {number}: ") + line[1:]
            continue
        key, _, value = line.partition(" ")
        if _COMMIT.fullmatch(key):
            name, number = key, value.split(" ")[1]
            commits.setdefault(name, {})
        elif key == "author-time":
            commits[name]["date"] = datetime.fromtimestamp(int(value), tz=UTC).date().isoformat()
        else:
            commits[name].setdefault(key, value)
