"""Results of the git tools, and their text."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import PrivateAttr

from coretools.operations.content import Result
from coretools.tools.answer_budget import fitting, fitting_values
from coretools.tools.git.repository.checkout import Checkout, path_of
from coretools.tools.git.repository.porcelain import GitStatus, StatusEntry, as_text, quoted, single_line

MAX_LISTED = 10
"""Settings, hooks or files listed in a remark; the rest is counted."""


class StatusResult(Result):
    """Branch and changes of a work tree."""

    branch: str
    head: str
    upstream: str
    ahead: int
    behind: int
    clean: bool
    entries: list[dict[str, str]]
    omitted: int
    not_used: list[str]
    _text: str = PrivateAttr("")
    _tier: str = PrivateAttr("none")

    @classmethod
    def of(cls, status: GitStatus, checkout: Checkout, *, budget: int) -> "StatusResult":
        """Build the result with the entries that fit into `budget` bytes, as text and as structured content."""
        shown = fitting((_short(entry, checkout) for entry in status.entries), budget)
        fields = fitting_values((_fields(entry, checkout) for entry in status.entries), budget)
        kept = status.entries[: min(len(shown), len(fields))]
        result = cls(
            branch=status.branch,
            head=status.head,
            upstream=status.upstream,
            ahead=status.ahead,
            behind=status.behind,
            clean=not status.entries,
            entries=fields[: len(kept)],
            omitted=len(status.entries) - len(kept),
            not_used=list(checkout.policy.not_used),
        )
        lines = [_where(status, checkout), *shown[: len(kept)]]
        if not status.entries:
            lines.append("clean: nothing to commit")
        if result.omitted:
            lines.append(
                f"[{result.omitted} more entries; run_command with git status --short PATH lists those of a directory]"
            )
        result._text = "\n".join((*lines, *remarks(checkout)))
        result._tier = checkout.tier
        return result

    def text(self) -> str:
        """Format the status like `git status --short --branch`."""
        return self._text

    def facts(self) -> dict[str, object]:
        """Tier in which git was confined."""
        return {"tier": self._tier}


class TextResult(Result):
    """Text result of a git tool."""

    body: str
    details: dict[str, object]

    def text(self) -> str:
        """The text."""
        return self.body

    def facts(self) -> dict[str, object]:
        """Counts, object names, and the tier in which git was confined."""
        return self.details


def answer(
    checkout: Checkout, lines: Iterable[str], *, details: Mapping[str, object], hooks: bool = False
) -> TextResult:
    """Build a result, with remarks on what the repository requested and git did not do."""
    not_used = {"not_used": list(checkout.policy.not_used)} if checkout.policy.not_used else {}
    facts = {**details, **not_used, "tier": checkout.tier}
    return TextResult(body="\n".join((*lines, *remarks(checkout, hooks=hooks))), details=facts)


def remarks(checkout: Checkout, *, hooks: bool = False) -> list[str]:
    """Return one line for each kind of request of the repository that git did not follow."""
    sentences = []
    if checkout.policy.not_used:
        sentences.append(f"[settings of this repository that are not used: {listed(checkout.policy.not_used)}]")
    if checkout.policy.external_includes:
        sentences.append(
            "[included configuration outside the roots: only the names of its keys were checked; it is not used]"
        )
    if hooks and checkout.hooks:
        sentences.append(f"[hooks that did not run: {listed(checkout.hooks)}]")
    return sentences


def listed(names: Sequence[str]) -> str:
    """Join the first names in one line and count the rest."""
    first = ", ".join(single_line(name) for name in names[:MAX_LISTED])
    return first if len(names) <= MAX_LISTED else f"{first} and {len(names) - MAX_LISTED} more"


def hidden_line(checkout: Checkout, what: str, reasons: Mapping[bytes, str]) -> str:
    """Return a line with the hidden files and the reasons."""
    files = [f"{quoted(path_of(checkout, name))} ({reason})" for name, reason in reasons.items()]
    return f"[{what}, hidden: {listed(files)}]"


def log_lines(records: Iterable[Sequence[bytes]]) -> list[str]:
    """Format one line per commit: id, author, date, summary, references."""
    lines = []
    for commit, date, author, names, summary in records:
        references = f" ({as_text(names)})" if names else ""
        lines.append(
            single_line(f"{as_text(commit)} {as_text(date)} {as_text(author)}: {as_text(summary)}{references}")
        )
    return lines


def branch_lines(records: Iterable[Sequence[bytes]]) -> list[str]:
    """Format one line per branch; `*` marks the current one."""
    lines = []
    for mark, name, commit, upstream, track, date, summary in records:
        following = f" [{as_text(upstream)}{': ' + as_text(track) if track else ''}]" if upstream else ""
        lines.append(
            single_line(
                f"{as_text(mark)} {as_text(name)} {as_text(commit)} {as_text(date)}{following} {as_text(summary)}"
            )
        )
    return lines


def _where(status: GitStatus, checkout: Checkout) -> str:
    following = ""
    if status.upstream:
        following = f", upstream {status.upstream}, ahead {status.ahead}, behind {status.behind}"
    waiting = f", {checkout.in_progress} in progress" if checkout.in_progress else ""
    return single_line(f"{status.where}{following}{waiting}")


def _fields(entry: StatusEntry, checkout: Checkout) -> dict[str, str]:
    fields = {"path": as_text(path_of(checkout, entry.path)), "staged": entry.staged, "unstaged": entry.unstaged}
    return fields if entry.origin is None else {**fields, "from": as_text(path_of(checkout, entry.origin))}


def _short(entry: StatusEntry, checkout: Checkout) -> str:
    source = "" if entry.origin is None else f"{quoted(path_of(checkout, entry.origin))} -> "
    return f"{entry.letters.replace('.', ' ')} {source}{quoted(path_of(checkout, entry.path))}"
