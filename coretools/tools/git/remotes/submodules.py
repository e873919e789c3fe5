"""Submodules: which may be cloned, from where, and how the repository learns about it.

A repository records path, name and address of each, so everything here is judged before something is reached: the
address is resolved here and compared with the policy, and git itself never reads `.gitmodules` to act on it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coretools.config.remote_urls import RemoteUrl
from coretools.errors import AlreadyExists, CoreError, GitRefused, NotFound
from coretools.roots import directory_access
from coretools.tools.git.changes.writable import refuse_outside
from coretools.tools.git.reading.references import head
from coretools.tools.git.remotes.configured import parsed_url, remote_settings
from coretools.tools.git.remotes.recorded_submodules import Submodule, is_cloned, submodules
from coretools.tools.git.repository.checkout import is_beneath, prefix
from coretools.tools.git.repository.names import git_names, refuse_hidden
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.porcelain import single_line

MAX_SUBMODULES = 50
"""Submodules of one repository that one call clones."""

MAX_DEPTH = 5
"""Levels of submodules in submodules that one call may enter."""

_UPDATES = ("", "checkout", "rebase", "merge")
_NAME = re.compile(r"(?![-.])[^\x00-\x1f\x7f\\:]{1,200}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A submodule that passed the checks, and the URL to which its address leads."""

    submodule: Submodule
    url: RemoteUrl
    path: str
    """As callers write it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The submodules of one call."""

    wanted: Sequence[Wanted]
    cloned: Sequence[str] = ()
    """Paths at which a repository is already."""
    refused: Sequence[str] = ()
    """One line for each that did not pass the checks."""


async def choose(repository: OpenRepository, paths: Sequence[str]) -> Chosen:
    """Return the submodules at or beneath these paths; without paths, all.

    Raises:
        NotFound: there is none. GitRefused: there are too many.
    """
    names = git_names(repository, paths)
    named = [
        one
        for one in await submodules(repository)
        if not names or "." in names or any(is_beneath(one.path, name) for name in names)
    ]
    if not named:
        raise NotFound("paths: no submodule is there; git_submodule action='list' lists them")
    if len(named) > MAX_SUBMODULES:
        raise GitRefused(f"{len(named)} submodules, more than {MAX_SUBMODULES}; name some in paths")
    base = await _base(repository) if any(_is_relative(one.url) for one in named) else None
    wanted, cloned, refused = [], [], []
    for one in named:
        path = f"{prefix(repository.checkout)}{one.text}"
        try:
            _require_place(repository, one)
            if is_cloned(repository, one):
                cloned.append(path)
                continue
            wanted.append(Wanted(one, _checked(one, base), path))
        except CoreError as error:
            refused.append(single_line(f"{path}: {error}"))
    return Chosen(wanted, cloned, refused)


async def register(repository: OpenRepository, wanted: Wanted) -> None:
    """Record in the repository's configuration that a submodule is in use, as `git submodule init` does."""
    key = f"submodule.{wanted.submodule.name}"
    await repository.output("config", "--local", f"{key}.active", "true")
    await repository.output("config", "--local", f"{key}.url", wanted.url.text)


def _is_relative(url: str) -> bool:
    return url.startswith(("./", "../"))


async def _base(repository: OpenRepository) -> RemoteUrl:
    settings = await remote_settings(repository)
    branch, _ = await head(repository)
    return settings.remotes[settings.default(branch)].url(push=False)


def _checked(submodule: Submodule, base: RemoteUrl | None) -> RemoteUrl:
    name, update = submodule.name, submodule.update
    if not name or not submodule.url:
        raise GitRefused(".gitmodules has no name and URL for this path, or has them twice")
    if not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise GitRefused(f"the name {name[:80]!r} in .gitmodules is not accepted; use letters, digits, '-' and '/'")
    if update not in _UPDATES:
        raise GitRefused(f"update = {update[:80]} in .gitmodules is not followed; only checkout, rebase and merge are")
    return _resolved(base, submodule.url) if base and _is_relative(submodule.url) else parsed_url(submodule.url)


def _resolved(base: RemoteUrl, url: str) -> RemoteUrl:
    """Return where a relative URL leads, each `../` one component up from the URL of the superproject's remote."""
    path, rest = base.path.rstrip("/"), url
    while _is_relative(rest):
        step, _, rest = rest.partition("/")
        if step == "..":
            if not path.strip("/"):
                raise GitRefused(f"URL {url[:80]}: leads above the host of {base.text}")
            path = path.rpartition("/")[0] if "/" in path else ""
    joined = f"{path}/{rest}" if path or base.path.startswith("/") else rest
    return parsed_url(replace(base, path=joined).text)


def _require_place(repository: OpenRepository, submodule: Submodule) -> None:
    """Refuse a path that leads elsewhere, is hidden, or has something else.

    Raises:
        GitRefused, AlreadyExists: says which.
    """
    parts = submodule.text.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or not submodule.text.isprintable():
        raise GitRefused("is not accepted as the path of a submodule")
    refuse_outside(repository.checkout, [submodule.path])
    refuse_hidden(repository, [submodule.text])
    above = repository.checkout.directory.fd
    for count in range(1, len(parts) + 1):
        if directory_access.entry_kind(above, "/".join(parts[:count])) == "link":
            raise GitRefused(f"{'/'.join(parts[:count])} is a link; make it a directory")
    if not is_cloned(repository, submodule):
        _require_free(above, submodule.text)


def _require_free(above: int, name: str) -> None:
    kind = directory_access.entry_kind(above, name)
    if kind not in (None, "directory"):
        raise AlreadyExists(f"a {kind} is there; a submodule takes an empty directory")
    if kind:
        with directory_access.open_subdirectory(above, name) as directory:
            if directory_access.entry_kinds(directory):
                raise AlreadyExists("the directory is not empty; move its content away")
