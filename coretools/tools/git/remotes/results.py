"""The answer of fetch, pull, push and clone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import PrivateAttr

from coretools.tools.answer_budget import cut_line, fitting, fitting_values
from coretools.tools.git.remotes.references import RefUpdate
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import single_line
from coretools.tools.git.repository.results import GitResult, remarks


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transfer did."""

    remote: str
    """Name of the remote; empty for a URL."""
    url: str
    updates: Sequence[RefUpdate]
    branch: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    lines: Sequence[str] = field(default=())
    """Further lines of the text: how to undo it, what the remote said."""


MAX_UPDATES = 50
"""References in the text of an answer: a clone has thousands, and few matter to its caller."""


class TransferResult(GitResult):
    """References that a transfer moved, and where the current branch is afterwards."""

    remote: str
    url: str
    updates: list[dict[str, str]]
    omitted: int
    branch: str
    ahead: int
    behind: int
    _remarks: list[str] = PrivateAttr([])

    @classmethod
    def of(cls, outcome: Outcome, repository: OpenRepository, *, verb: str) -> "TransferResult":
        """Build the answer with the updates that fit into one, as text and as structured content."""
        lines = [cut_line(single_line(update.line())) for update in outcome.updates[:MAX_UPDATES]]
        extra = [cut_line(single_line(line)) for line in outcome.lines]
        budget = repository.git.answer_bytes - sum(len(line.encode("utf-8", "replace")) + 1 for line in extra)
        shown = fitting(lines, max(0, budget))
        fields = fitting_values((update.fields() for update in outcome.updates), max(0, budget))
        result = cls(
            remote=outcome.remote,
            url=outcome.url,
            updates=fields,
            omitted=len(outcome.updates) - len(fields),
            branch=outcome.branch,
            ahead=outcome.ahead,
            behind=outcome.behind,
        )
        where = f"{verb} {f'{outcome.remote} ' if outcome.remote else ''}({outcome.url})"
        text = [single_line(where), *(shown or ["nothing changed"])]
        if len(shown) < len(outcome.updates):
            text.append(
                f"[{len(outcome.updates) - len(shown)} more references; git_branches remote=true and git_tag list them]"
            )
        if outcome.upstream:
            text.append(single_line(f"{outcome.branch}: {_distance(outcome)} {outcome.upstream}"))
        result._remarks = remarks(repository.checkout, hooks="push" if verb == "pushed" else "")
        facts = {**result.model_dump(), "tier": repository.checkout.tier}
        return result.with_text([*text, *extra, *result._remarks], facts)

    @property
    def remarks(self) -> list[str]:
        """The lines about what git did not follow, and settings of editors and agents that are new."""
        return self._remarks


def undo_line(updates: Iterable[RefUpdate]) -> list[str]:
    """Return how tracking branches and tags get back to where they were."""
    old = [one for one in updates if one.old and one.new and one.kind != "rejected"]
    if not old:
        return []
    first = old[0]
    rest = f" (and {len(old) - 1} more)" if len(old) > 1 else ""
    return [f"Before: {first.reference} was {first.old}{rest}; the commits stay in the repository and its reflog"]


def _distance(outcome: Outcome) -> str:
    if not outcome.ahead and not outcome.behind:
        return "up to date with"
    parts = [f"{outcome.ahead} ahead of" if outcome.ahead else "", f"{outcome.behind} behind" if outcome.behind else ""]
    return " and ".join(part for part in parts if part)
