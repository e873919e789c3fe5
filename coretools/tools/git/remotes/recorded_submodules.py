"""The submodules that a repository records: commits in the index, names and addresses in the staged `.gitmodules`."""

import re
from collections import Counter
from dataclasses import dataclass

from coretools.roots.read import kind_at
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.git.repository.checkout import path_of
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import as_text, decoded, quoted, read_names, single_line
from coretools.tools.git.repository.results import TextResult, answer

_GITLINK = b"160000"
_SETTING = re.compile(r"submodule\.(?P<name>.*)\.(?P<key>path|url|branch|update)", re.DOTALL)
_CREDENTIALS = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, slots=True)
class Submodule:
    """One submodule. Name, URL and update mode are empty if `.gitmodules` does not say, or says it twice."""

    path: bytes
    """git's name of it, relative to the work tree."""
    commit: str
    name: str = ""
    url: str = ""
    update: str = ""

    @property
    def text(self) -> str:
        """Its path as Python's functions for files take it."""
        return decoded(self.path)


async def submodules(repository: OpenRepository) -> list[Submodule]:
    """Return the submodules that the index records. No submodule is entered."""
    records = read_names(await repository.output("ls-files", "--stage", "-z"))
    commits = {
        name: as_text(fields.split(b" ")[1])
        for fields, _, name in (one.partition(b"\t") for one in records)
        if fields.startswith(_GITLINK)
    }
    settings = await _settings(repository) if commits else {}
    count = Counter(one.get("path", "") for one in settings.values())
    known = {one["path"]: (name, one) for name, one in settings.items() if count[one.get("path", "")] == 1}
    listed = []
    for path, commit in commits.items():
        name, keys = known.get(as_text(path), ("", {}))
        listed.append(Submodule(path, commit, name, keys.get("url", ""), keys.get("update", "")))
    return listed


async def list_submodules(repository: OpenRepository) -> TextResult:
    """Return path, commit and address of each submodule, and whether something is there."""
    checkout = repository.checkout
    recorded = await submodules(repository)
    lines = []
    for one in recorded:
        address = _CREDENTIALS.sub("//", one.url) or "no address is recorded"
        state = "cloned" if is_cloned(repository, one) else "not cloned"
        lines.append(single_line(f"{quoted(path_of(checkout, one.path))} {one.commit[:10]} {state}: {address}"))
    shown = fitting(map(cut_line, lines), repository.git.answer_bytes)
    more = [f"[{len(lines) - len(shown)} more]"] if len(shown) < len(lines) else []
    return answer(checkout, [*shown, *more] or ["no submodules"], details={"submodules": len(lines)})


def is_cloned(repository: OpenRepository, submodule: Submodule) -> bool:
    """Whether something is where the repository of a submodule would be."""
    return kind_at(repository.roots, f"{repository.checkout.directory.path}/{submodule.text}/.git") is not None


async def _settings(repository: OpenRepository) -> dict[str, dict[str, str]]:
    words = ("config", "--blob", ":.gitmodules", "-z", "--get-regexp", r"^submodule\.")
    completed = await repository.run(*words)
    settings: dict[str, dict[str, str]] = {}
    for record in read_names(completed.stdout.head + completed.stdout.tail) if completed.ok else ():
        key, _, value = as_text(record).partition("\n")
        match = _SETTING.fullmatch(key)
        if match is not None:
            settings.setdefault(match["name"], {})[match["key"]] = value
    return settings
