"""Report what a repository would run or reach under plain git, and what is granted. git is not started for this."""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from coretools.errors import NotFound
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import fitting, fitting_values
from coretools.tools.git.repository.find_work_tree import work_tree
from coretools.tools.git.repository.grants import NO_GRANTS, RepositoryGrants
from coretools.tools.git.repository.results import GitResult
from coretools.tools.git.trust.findings import Finding, cut
from coretools.tools.git.trust.reader import TrustReader

MORE_BYTES = 100
"""Part of an answer for the way to the rest of a kind."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one examination."""

    findings: list[Finding]
    counts: Mapping[str, int]
    """All findings of each kind, with those that are only counted."""
    kind: str
    """The requested kind of findings; empty for all kinds."""
    skipped: int
    """Findings of this kind before the first one."""

    def next_offsets(self, shown: int) -> dict[str, int]:
        """Return where to go on after the first `shown` findings, by kind, for kinds with more."""
        kinds = Counter(one.kind for one in self.findings[:shown])
        offsets = {kind: self.skipped + kinds[kind] for kind in self.counts if self.kind in ("", kind)}
        return {kind: offset for kind, offset in offsets.items() if offset < self.counts[kind]}


class TrustReport(GitResult):
    """What a repository would run or reach."""

    repository: str
    refused: str
    findings: list[dict[str, str]]
    omitted: int
    next_offsets: dict[str, int]
    """Kinds of which there are more, with the offset that shows them."""

    @classmethod
    def of(
        cls, report: Findings, *, repository: Directory, refused: str, grants: "GrantView", budget: int
    ) -> "TrustReport":
        """Build the report from what fits into `budget` bytes, as text and as structured content."""
        fields = [_fields(one, grants) for one in report.findings]
        lines = [_line(one) for one in fields]
        budget -= MORE_BYTES * len(report.counts)
        kept = min(len(list(fitting(lines, budget))), len(fitting_values(fields, budget)))
        total = report.counts[report.kind] if report.kind else sum(report.counts.values())
        result = cls(
            repository=repository.display_path,
            refused=refused,
            findings=fields[:kept],
            omitted=total - report.skipped - kept,
            next_offsets=report.next_offsets(kept),
        )
        head = f"{repository.display_path}: {total} things that plain git would run or reach"
        head += f", of the kind {report.kind!r}" if report.kind else ""
        refusal = [f"git is refused here: {refused}"] if refused else []
        more = [
            f"[{report.counts[kind] - offset} more of the kind {kind!r}; kind={kind!r} offset={offset} shows them]"
            for kind, offset in result.next_offsets.items()
        ]
        return result.with_text([head, *refusal, *lines[:kept], *more], {})


@dataclass(frozen=True, slots=True)
class GrantView:
    """The grants of a repository, and how the operator would write one."""

    root: str
    """The root, if this is its own repository; else empty."""
    path: str
    grants: RepositoryGrants

    def of(self, finding: Finding) -> tuple[str, str]:
        """Return whether a finding is granted ("yes", "no", "changed"), and the policy key that would grant it."""
        section, _, name = finding.key.partition(".")
        name = name if section == "hookfile" else name.rpartition(".")[0]
        lists = {"hookfile": "hooks", "filter": "filters", "merge": "merge_drivers"}
        if finding.key == "commit.gpgsign":
            return self._answer(self.grants.signing, "signing = true")
        if section not in lists or not name:
            return "no", ""
        if section == "hookfile":
            pinned, now = self.grants.hooks.get(name), finding.value.removeprefix("sha256:")
            if pinned is not None and pinned != now:
                return "changed", self._key(f'hooks = ["{name}@sha256:{now}"]')
            return self._answer(pinned == now, f'hooks = ["{name}"]')
        granted = name in (self.grants.filters if section == "filter" else self.grants.merge_drivers)
        return self._answer(granted, f'{lists[section]} = ["{name}"]')

    def _answer(self, granted: bool, text: str) -> tuple[str, str]:
        return "yes" if granted else "no", self._key(text)

    def _key(self, text: str) -> str:
        key = f'[roots."{self.root or self.path}".git] {text}'
        return key if self.root else f"{key}, once this directory is a root"


def _fields(finding: Finding, grants: GrantView) -> dict[str, str]:
    granted, grant = grants.of(finding)
    return {
        "kind": finding.kind,
        "name": finding.name,
        "value": finding.value,
        "where": finding.where,
        "triggered_by": finding.triggered_by,
        "granted": granted,
        "grant": cut(grant),
    }


def _line(fields: dict[str, str]) -> str:
    value = f" = {fields['value']}" if fields["value"] else ""
    state = {"yes": "granted", "changed": "granted with another content"}.get(fields["granted"], "not used")
    grant = f"; grant: {fields['grant']}" if fields["grant"] and fields["granted"] != "yes" else ""
    return (
        f"{fields['kind']} {fields['name']}{value} ({fields['where']}); by git {fields['triggered_by']}; {state}{grant}"
    )


def examine_trust(
    roots: Roots, repository: str, grants: Mapping[str, RepositoryGrants], *, kind: str, offset: int
) -> tuple[Findings, GrantView, Directory]:
    """Return the findings in the repository that contains a directory: the first of each kind, or those of one kind.

    Raises:
        NotFound: there is no repository, or there are no findings of this kind.
    """
    with ExitStack() as stack:
        directory, _ = stack.enter_context(work_tree(roots, repository))
        reader = TrustReader(roots.for_git, directory, stack, kind, offset)
        is_own = reader.read() and directory.path == directory.place.root.path
        if kind and kind not in reader.counts:
            kinds = ", ".join(sorted(reader.counts)) or "none"
            raise NotFound(f"kind {kind!r}: there are no such findings in this repository (kinds: {kinds})")
        root = directory.path if is_own else ""
        view = GrantView(root, directory.path, grants.get(root, NO_GRANTS))
        return Findings(reader.ordered(), reader.counts, kind, offset), view, directory
