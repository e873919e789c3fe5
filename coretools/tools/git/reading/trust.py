"""Report what a repository would run or reach under plain git, and what is granted. git is not started for this."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import PrivateAttr

from coretools.errors import CoreError, DeniedPath, NotFound
from coretools.operations.content import Result
from coretools.roots import directory_access
from coretools.roots.git_config import Setting, parse
from coretools.roots.read import open_directory
from coretools.roots.resolve import resolve
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.answer_budget import fitting, fitting_values
from coretools.tools.git.reading.trust_settings import Finding, attribute_findings, cut, finding_of, kind_of
from coretools.tools.git.repository.git_directory import read_pointer
from coretools.tools.git.repository.grants import (
    HOOK_BYTES,
    NO_GRANTS,
    RepositoryGrants,
    hook_hash,
    hooks_directory,
)
from coretools.tools.git.repository.open_checkout import GIT, work_tree

FILE_BYTES = 1024 * 1024
"""Largest file that is read."""
MAX_FILES = 64
"""Most configuration files that are read, includes counted."""
MAX_DIRECTORIES = 2_000
"""Most directories in which attributes are looked for."""
MAX_OF_A_KIND = 20
"""Most findings of a kind; the rest is counted, so that a thousand aliases hide no hook."""
FIRST_OF_A_KIND = 5
"""Findings of each kind that precede further ones of any kind."""

_HOOKS = {
    "pre-commit": "commit",
    "prepare-commit-msg": "commit, merge",
    "commit-msg": "commit, merge",
    "post-commit": "commit",
    "post-checkout": "checkout, switch, clone, rebase",
    "post-merge": "merge, pull",
    "pre-merge-commit": "merge",
    "pre-rebase": "rebase",
    "post-rewrite": "commit --amend, rebase",
    "pre-push": "push",
    "pre-auto-gc": "gc",
    "reference-transaction": "every change of a reference",
    "post-index-change": "every change of the index",
    "fsmonitor-watchman": "what core.fsmonitor names",
}


class Findings(NamedTuple):
    """What was found."""

    findings: list[Finding]
    total: int
    """With those that are only counted."""


class TrustReport(Result):
    """What a repository would run or reach."""

    repository: str
    refused: str
    findings: list[dict[str, str]]
    omitted: int
    _text: str = PrivateAttr("")

    @classmethod
    def of(
        cls, found: Findings, *, repository: Directory, refused: str, grants: "GrantView", budget: int
    ) -> "TrustReport":
        """Build the report from what fits into `budget` bytes, as text and as structured content."""
        fields = [_fields(one, grants) for one in found.findings]
        lines = [_line(one) for one in fields]
        kept = min(len(list(fitting(lines, budget))), len(fitting_values(fields, budget)))
        result = cls(
            repository=repository.display_path, refused=refused, findings=fields[:kept], omitted=found.total - kept
        )
        head = f"{repository.display_path}: {found.total} things that plain git would run or reach"
        refusal = [f"git is refused here: {refused}"] if refused else []
        more = [f"[{result.omitted} more]"] if result.omitted else []
        result._text = "\n".join((head, *refusal, *lines[:kept], *more))
        return result

    def text(self) -> str:
        """One line for each finding."""
        return self._text


@dataclass(frozen=True, slots=True)
class GrantView:
    """The grants of a repository, and how the operator would write one."""

    root: str
    """The root, if this is its own repository; else empty."""
    path: str
    grants: RepositoryGrants = NO_GRANTS

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
    roots: Roots, repository: str, grants: Mapping[str, RepositoryGrants]
) -> tuple[Findings, GrantView, Directory]:
    """Return the findings in the repository that contains a directory.

    Raises:
        NotFound: there is no repository.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(work_tree(roots, repository))
        reader = _Reader(roots, directory, stack)
        is_own = reader.read() and directory.path == directory.place.root.path
        root = directory.path if is_own else ""
        view = GrantView(root, directory.path, grants.get(root, NO_GRANTS))
        return Findings(reader.ordered(), reader.counts.total()), view, directory


@dataclass(slots=True)
class _Reader:
    """Reads one repository, through handles beneath the roots; what can't be read becomes a finding."""

    roots: Roots
    directory: Directory
    stack: ExitStack
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """How many there are of each kind."""
    files: int = 0
    hooks_path: str = ""

    def read(self) -> bool:
        """Collect the findings; return whether the git directory is `.git` itself."""
        own = self._git_directory(f"{self.directory.path}/{GIT}", self.directory.fd, GIT, "gitdir: ")
        self._attributes()
        for name in (".gitmodules", ".lfsconfig"):
            self._config(self.directory.fd, name, name, self.directory.path)
        if own is None:
            return False
        path, handle = own
        common = self._git_directory(path, handle, "commondir", "") or own
        for place, at in dict.fromkeys((common, own)):
            shown = self._shown(place)
            self._links(at, shown)
            self._config(at, "config", f"{shown}/config", place)
            self._config(at, "config.worktree", f"{shown}/config.worktree", place)
        self._hooks(common[0])
        self._alternates(*common)
        return common == own and path == f"{self.directory.path}/{GIT}"

    def _shown(self, path: str) -> str:
        return path.removeprefix(f"{self.directory.path}/")

    def _git_directory(self, path: str, handle: int, name: str, prefix: str) -> tuple[str, int] | None:
        """Return path and handle of the directory that an entry is or names; None if there is none that may be read."""
        kind = directory_access.entry_kind(handle, name)
        if kind == "directory" and name == GIT:
            return path, self.stack.enter_context(directory_access.open_subdirectory(handle, GIT))
        shown = self._shown(path) if name == GIT else f"{self._shown(path)}/{name}"
        if kind is None:
            return None
        target = ""
        try:
            target = read_pointer(handle, name, shown).removeprefix(prefix)
            start = path.rpartition("/")[0] if name == GIT else path
            opened = self.stack.enter_context(
                open_directory(self.roots, target if target.startswith("/") else f"{start}/{target}")
            )
        except CoreError as error:
            self._add("location", name, cut(target or str(error)), f"{shown}:1", "every command")
            return None
        self._add("location", name, cut(target), f"{shown}:1", "every command")
        return opened.path, self.stack.enter_context(directory_access.open_subdirectory(opened.fd, "."))

    def ordered(self) -> list[Finding]:
        """Return the findings, the first ones of each kind first."""
        seen = Counter[str]()
        ranked = []
        for one in self.findings:
            seen[one.kind] += 1
            ranked.append((seen[one.kind] > FIRST_OF_A_KIND, one))
        return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]

    def _extend(self, findings: Iterable[Finding]) -> None:
        self.findings += (one for one in findings if self._is_counted(one.kind))

    def _is_counted(self, kind: str) -> bool:
        """Count a finding; return whether it is more than a count."""
        self.counts[kind] += 1
        return self.counts[kind] <= MAX_OF_A_KIND

    def _add(self, kind: str, name: str, value: str, where: str, triggered_by: str, key: str = "") -> None:
        if self._is_counted(kind):
            self.findings.append(
                Finding(kind=kind, name=name, value=value, where=where, triggered_by=triggered_by, key=key)
            )

    def _links(self, handle: int, shown: str) -> None:
        for name, kind in directory_access.entry_kinds(handle).items():
            if kind in ("link", "other"):
                self._add(
                    kind if kind == "link" else "special file", cut(name), "", f"{shown}/{cut(name)}", "every command"
                )

    def _config(self, handle: int, name: str, shown: str, place: str, depth: int = 10) -> None:
        self.files += 1
        if self.files > MAX_FILES or directory_access.entry_kind(handle, name) is None:
            return
        try:
            data = directory_access.read_file(handle, name, limit_bytes=FILE_BYTES)
            settings = parse(data, shown)
        except CoreError as error:
            self._add("configuration", shown, cut(str(error)), shown, "every command")
            return
        for one in settings:
            self._setting(one, data, shown)
            if depth and one.section in ("include", "includeif") and one.variable == "path":
                self._include(one.value or "", place, depth - 1)

    def _setting(self, one: Setting, data: bytes, shown: str) -> None:
        if one.key == "core.hookspath":
            self.hooks_path = hooks_directory([one])
        if (kind := kind_of(one)) and self._is_counted(kind[0]):
            self.findings.append(finding_of(one, kind, data, shown))

    def _include(self, target: str, place: str, depth: int) -> None:
        """Read an included file beneath the roots; of one outside only the path is known."""
        path = target if target.startswith("/") else f"{place}/{target}"
        above, _, name = path.rpartition("/")
        if target.startswith(("~", "%")) or ".." in path.split("/") or not name or self.roots.split(path) is None:
            return
        with suppress(CoreError):
            resolve(self.roots, path, follow=False).close()  # not a file that is closed to tools
            with open_directory(self.roots, above) as directory:
                self._config(directory.fd, name, cut(self._shown(path)), above, depth)

    @contextmanager
    def _listed(self, path: str) -> Iterator[int]:
        """Open a directory so that it can be listed: the handle of `open_directory` may not permit that."""
        with (
            open_directory(self.roots, path) as directory,
            directory_access.open_subdirectory(directory.fd, ".") as handle,
        ):
            yield handle

    def _hooks(self, path: str) -> None:
        usual = self.hooks_path in ("", ".git/hooks")
        place = f"{path}/hooks" if usual else f"{self.directory.path}/{self.hooks_path}"
        with suppress(CoreError), self._listed(place) as hooks:
            for name, kind in sorted(directory_access.entry_kinds(hooks).items()):
                if name.endswith(".sample") or kind not in ("file", "link") or (not usual and name not in _HOOKS):
                    continue
                value = ""
                with suppress(CoreError):
                    data = directory_access.read_file(hooks, name, limit_bytes=HOOK_BYTES)
                    value = f"sha256:{hook_hash(data)}"
                where = f"{self._shown(place)}/{cut(name)}"
                self._add("hook", cut(name), value, where, _HOOKS.get(name, "not known"), f"hookfile.{name}")

    def _alternates(self, path: str, handle: int) -> None:
        for name in ("alternates", "http-alternates"):
            with suppress(CoreError):
                data = directory_access.read_file(handle, f"objects/info/{name}", limit_bytes=FILE_BYTES)
                where = f"{self._shown(path)}/objects/info/{name}"
                for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
                    if line and not line.startswith("#"):
                        self._add("alternate", "objects", cut(line), f"{where}:{number}", "all that read an object")

    def _attributes(self) -> None:
        """Look for attributes in the whole work tree, but not in other repositories or hidden directories."""
        with suppress(CoreError):
            data = directory_access.read_file(self.directory.fd, ".git/info/attributes", limit_bytes=FILE_BYTES)
            self._extend(attribute_findings(data, ".git/info/attributes"))
        waiting, count = [""], 0
        while waiting and count < MAX_DIRECTORIES:
            count += 1
            relative = waiting.pop(0)
            with suppress(DeniedPath, NotFound, CoreError):
                waiting += self._attributes_in(relative)

    def _attributes_in(self, relative: str) -> Iterator[str]:
        with self._listed(f"{self.directory.path}/{relative}".rstrip("/")) as directory:
            kinds = directory_access.entry_kinds(directory)
            above = f"{relative}/" if relative else ""
            if relative and GIT in kinds:
                return
            if kinds.get(".gitattributes") == "file":
                data = directory_access.read_file(directory, ".gitattributes", limit_bytes=FILE_BYTES)
                self._extend(attribute_findings(data, f"{cut(above)}.gitattributes"))
            yield from (f"{above}{name}" for name, kind in sorted(kinds.items()) if kind == "directory" and name != GIT)
