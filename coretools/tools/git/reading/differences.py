"""Differences, without the content of hidden files.

git's exclusion patterns can't express the deny rules, and literal pathspecs, which keep a caller's text from being a
pattern, disable them anyway. So the whole patch is read, and the part of each hidden file is left out. The present
content of a file decides for both sides: committed content of a file that is not hidden now is available to everybody
in git.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from anyio import to_thread

from coretools.errors import CoreError, GitRefused, InvalidArguments, TooLarge
from coretools.operations.content import UnlessEmpty
from coretools.roots.directory_access import read_file
from coretools.tools.answer_budget import cut_line, fitting, fitting_values
from coretools.tools.git.reading.patch_text import PatchOptions, PatchText, patch_text
from coretools.tools.git.reading.revisions import range_argument, require_known
from coretools.tools.git.repository.checkout import Checkout, beginnings, path_of, prefix
from coretools.tools.git.repository.names import hidden_reason, refuse_hidden, refuse_unknown
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.patches import PATCH, FilePatch, read_patch
from coretools.tools.git.repository.porcelain import Change, as_text, encoded, quoted, read_changes, read_names
from coretools.tools.git.repository.results import GitResult, hidden_line

ATTRIBUTES_BYTES = 256 * 1024
"""Largest `.gitattributes` in which `linguist-generated` is looked for."""

_GENERATED = "linguist-generated"
_SAFE = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-relative")
_WORDS = ("--word-diff=porcelain", "--word-diff-regex=[^[:space:]]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What is compared, and how it is shown."""

    sides: Sequence[str] = ()
    """`--cached` and resolved revisions, as git gets them."""
    commits: Sequence[str] = ()
    """The commits among them."""
    given: Sequence[str] = ()
    """Those commits as the caller wrote them."""
    names: Sequence[str] = ()
    most_bytes: int
    is_summary: bool = False
    """Only the files, with the lines added and removed in each."""
    by_name: bool = False
    """Only the files."""
    by_word: bool = False
    skip: int = 0
    """Hunks left out at the start."""


async def compared(
    repository: OpenRepository, options: DiffOptions, *, base: str, target: str, staged: bool
) -> DiffOptions:
    """Return the options for a comparison with `base`, from `base` to `target`, or of a range in `base`.

    Raises:
        InvalidArguments: they do not go together, or are no revisions. NotFound: see `commit_argument`.
    """
    others = sum(map(bool, (target, staged, ".." in base)))
    if others > 1 or (target and not base):
        raise InvalidArguments("base: target and staged go with one base, not with a range or each other")
    wanted = [await range_argument(repository, one) for one in (base, target) if one]
    sides = ["--cached"] if staged else []
    sides += [one.argument for one in wanted]
    commits, given = (list(chain(*parts)) for parts in ((w.sides for w in wanted), (w.given for w in wanted)))
    return replace(options, sides=sides, commits=commits, given=given)


class DiffResult(GitResult):
    """Changed files with their hunks."""

    files: list[dict[str, object]]
    next_skip: UnlessEmpty[int]
    """The `skip` that continues; 0 at the end."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is shown of a difference."""

    lines: Sequence[str]
    files: list[dict[str, object]] = field(default_factory=list)
    next_skip: int = 0
    changed: int = 0
    """The number of all changed files."""


async def diff(repository: OpenRepository, options: DiffOptions) -> DiffResult:
    """Return the patch hunk by hunk, or the changed files, as a result.

    Raises:
        The errors of `difference`.
    """
    shown = await difference(repository, options)
    result = DiffResult(files=shown.files, next_skip=shown.next_skip)
    return result.with_answer(repository.checkout, shown.lines, details={"files": shown.changed})


async def difference(repository: OpenRepository, options: DiffOptions) -> Difference:
    """Return the patch hunk by hunk, or the changed files.

    Raises:
        DeniedPath: a name is hidden. NotFound: a revision or name that matches nothing. TooLarge: too many files.
    """
    refuse_hidden(repository, options.names)
    if options.is_summary or options.by_name:
        result = await _listed(repository, options)
    else:
        result = await _patch(repository, options)
    if not result.changed:
        await refuse_unknown(repository, options.names, trees=options.commits)
    return result


async def _patch(repository: OpenRepository, options: DiffOptions) -> Difference:
    words = ["diff", *PATCH, *prefixes(repository.checkout), *(_WORDS if options.by_word else ())]
    # An unstaged difference has one part for each file, so that its hunks can be staged.
    words.append("--find-renames" if options.sides else "--no-renames")
    end = (*options.sides, "--", *options.names)
    completed = await repository.run(*words, "--raw", "-z", *end)
    output = (await require_known(repository, completed, "diff", *options.given)).stdout
    parsed = read_changes(output.head if output.dropped_bytes else output.head + output.tail)
    if output.dropped_bytes and (parsed is None or not parsed[1]):
        raise TooLarge(f"git diff printed more than {repository.git.output_bytes} bytes; name paths, or use stat")
    if parsed is None:  # a file is in conflict: git mixes names and patch
        output = (await require_known(repository, await repository.run(*words, *end), "diff")).stdout
        patch = output.head if output.dropped_bytes else output.head + output.tail
        return await shown(repository, patch, options, cut=output.dropped_bytes)
    changes, patch = parsed
    part = await shown(repository, patch, options, cut=output.dropped_bytes)
    return replace(part, changed=len({change.name for change in changes}))


async def shown(repository: OpenRepository, patch: bytes, options: DiffOptions, *, cut: int = 0) -> Difference:
    """Return what fits of a patch of git, without the files that are hidden.

    `cut` is the number of bytes that are missing at its end.
    """
    checkout = repository.checkout
    before = encoded(prefix(checkout))
    # What is in the work tree of the first root has relative paths.
    is_first = checkout.folder and checkout.folder_path == "."
    relative = [(before + start, path) for start, path in beginnings(checkout)] if is_first else []
    # In a thread: megabytes take a while.
    files = await to_thread.run_sync(partial(read_patch, patch, prefix=before, relative=relative))
    if cut and len(files) > 1:
        files.pop()
    denied: dict[bytes, str] = {}
    texts = PatchOptions(
        budget=options.most_bytes,
        skip=options.skip,
        path=partial(path_of, checkout),
        named=frozenset(encoded(name) for name in options.names),
        generated=await _generated(repository, files),
        by_word=options.by_word,
        is_single=len({file.name for file in files}) == 1 and not cut,
    )
    text = patch_text(_visible(repository, files, denied), texts)
    lines = [*text.lines, *_way_to_the_rest(text, options.skip, cut)]
    if denied:
        lines.append(hidden_line(checkout, "not shown", denied))
    names = {file.name for file in files}
    return Difference(lines or ["no differences"], text.files, text.next_skip, len(names))


def _way_to_the_rest(text: PatchText, skip: int, cut: int) -> Iterator[str]:
    if skip and not text.lines:
        yield f"no hunks after skip={skip}"
    if text.next_skip:
        yield f"[more hunks; go on with skip={text.next_skip}, name paths, or use stat to list the files]"
    elif text.cut_lines:
        yield "[for the rest use run_command with git diff, then read_run]"
    if cut:
        yield f"[the difference has {cut} more bytes; name paths, or use stat to list the files]"


def _visible(repository: OpenRepository, files: Sequence[FilePatch], denied: dict[bytes, str]) -> Iterator[FilePatch]:
    """Yield the files that are not hidden under any of their names; collect the others with the reason."""
    for file in files:
        reasons = {name: reason for name in sorted(file.names) if (reason := hidden_reason(repository, name))}
        denied.update(reasons)
        if not reasons:
            yield file


async def _generated(repository: OpenRepository, files: Sequence[FilePatch]) -> frozenset[bytes]:
    """Return the names that are `linguist-generated`; runs git only if the top-level `.gitattributes` has that word."""
    try:
        text = read_file(repository.checkout.directory.fd, ".gitattributes", limit_bytes=ATTRIBUTES_BYTES)
    except CoreError:
        return frozenset()
    if not files or _GENERATED.encode() not in text:
        return frozenset()
    names = b"".join(sorted({file.name + b"\0" for file in files}))
    output = await repository.output("check-attr", "-z", "--stdin", _GENERATED, stdin=names)
    fields = output.split(b"\0")
    return frozenset(name for name, value in zip(fields[::3], fields[2::3], strict=False) if value in (b"set", b"true"))


async def _listed(repository: OpenRepository, options: DiffOptions) -> Difference:
    """Return the files that fit, and the totals."""
    checkout = repository.checkout
    counts = ["--numstat"] if options.is_summary else []
    words = ("diff", *_SAFE, "--raw", *counts, "-z", "--no-renames", *options.sides, "--", *options.names)
    completed = await require_known(repository, await repository.run(*words), "diff", *options.given)
    parsed = read_changes(repository.complete_output(completed, "diff"), counts=True)
    if parsed is None:
        raise GitRefused("git diff printed something unknown")
    changes = {change.name: change for change in parsed[0]}
    numbers = _numbers(parsed[1])
    lines = [cut_line(f"{quoted(path_of(checkout, name))} | {_counted(changes[name], numbers)}") for name in changes]
    records = [_listed_record(checkout, change, numbers) for change in changes.values()]
    texts, values = fitting(lines, options.most_bytes), fitting_values(records, options.most_bytes)
    count = min(len(texts), len(values))
    texts = texts[:count] + ([f"[{len(lines) - count} more files; name paths]"] if count < len(lines) else [])
    texts.append(_totals(len(lines), numbers if counts else None) if lines else "no differences")
    return Difference(texts, values[:count], 0, len(lines))


def _numbers(output: bytes) -> dict[bytes, tuple[int, int] | None]:
    """Parse `--numstat -z`: lines added and removed by name; None for binary files."""
    rows = [row.split(b"\t", 2) for row in read_names(output)]
    return {name: None if more == b"-" else (int(more), int(less)) for more, less, name in rows}


def _totals(files: int, numbers: Mapping[bytes, tuple[int, int] | None] | None) -> str:
    if numbers is None:
        return f"{files} files changed"
    added, removed = (sum(pair[side] for pair in numbers.values() if pair) for side in (0, 1))
    return f"{files} files changed, +{added} -{removed} lines"


def _counted(change: Change, numbers: Mapping[bytes, tuple[int, int] | None]) -> str:
    if change.name not in numbers:
        return change.word
    pair = numbers[change.name]
    return "binary" if pair is None else f"+{pair[0]} -{pair[1]}"


def _listed_record(
    checkout: Checkout, change: Change, numbers: Mapping[bytes, tuple[int, int] | None]
) -> dict[str, object]:
    record: dict[str, object] = {"path": as_text(path_of(checkout, change.name)), "change": change.word}
    if change.name in numbers:
        pair = numbers[change.name]
        record |= {"binary": True} if pair is None else {"added": pair[0], "removed": pair[1]}
    return record


def prefixes(checkout: Checkout) -> tuple[str, str]:
    """Return options that make git print paths as all other tools do."""
    return f"--src-prefix=a/{prefix(checkout)}", f"--dst-prefix=b/{prefix(checkout)}"
