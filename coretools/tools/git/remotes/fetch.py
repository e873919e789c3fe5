"""Fetch: receive objects, then move tracking branches and tags to what the remote has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coretools.errors import InvalidArguments, NotFound
from coretools.tools.git.reading.references import HEADS, TAGS, head
from coretools.tools.git.remotes.configured import ConfiguredRemote
from coretools.tools.git.remotes.connected_git import Connected
from coretools.tools.git.remotes.references import (
    PRUNED,
    Advertised,
    Refspec,
    RefUpdate,
    default_refspec,
    is_reference,
    tracked,
)
from coretools.tools.git.remotes.results import Outcome, undo_line
from coretools.tools.git.remotes.transfer import (
    Transfers,
    classified,
    distance,
    local_references,
    present,
    update_references,
)
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision

TagMode = Literal["follow", "all", "none"]


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What is fetched."""

    branch: str = ""
    """Only this one; empty: all that the refspecs of the remote name."""
    tags: TagMode = "follow"
    """follow: tags of commits that are there."""
    prune: bool = False
    depth: int = 0
    """Commits of each branch, for a shallow repository; 0: as it is."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch did."""

    updates: Sequence[RefUpdate]
    advertised: Advertised
    lines: Sequence[str] = ()


async def fetch(
    repository: OpenRepository, remote: ConfiguredRemote, connected: Connected, options: FetchOptions
) -> Fetched:
    """Fetch from a remote.

    Raises:
        NotFound: the remote has no such branch. GitRefused, Unreachable, TooLarge: the transfer failed.
    """
    transfers = Transfers(repository, connected)
    advertised = await transfers.advertised()
    refspecs = _refspecs(remote, options)
    wanted = tracked(refspecs, advertised)
    if options.branch and f"{HEADS}{options.branch}" not in advertised.objects:
        raise NotFound(f"branch {options.branch!r}: the remote has none; it has {_some(advertised)}")
    there = await local_references(repository, "refs/remotes/", TAGS)
    planned = _planned(wanted, advertised, there)
    sources = sorted({source for source, _ in wanted.values()})
    targets = {advertised.objects[source] for source in sources}
    if sources and (options.depth or targets - await present(repository, sorted(targets))):
        await transfers.receive(sources, depth=options.depth)
    planned |= await _tags(repository, transfers, advertised, there, options=options)
    updates = await classified(repository, planned)
    pruned = _pruned(refspecs, there, set(wanted)) if options.prune else []
    message = f"fetch {remote.name or connected.url.text}"
    await update_references(repository, pruned, message=message)
    await update_references(repository, updates, message=message)
    others = ", ".join(remote.not_used)
    remark = f"[refspecs that are not used, since they change more than tracking branches: {others}]"
    return Fetched([*pruned, *updates], advertised, [remark] if others else [])


def _planned(
    wanted: Mapping[str, tuple[str, bool]], advertised: Advertised, there: Mapping[str, str]
) -> dict[str, tuple[str, str, bool]]:
    """Return old and new object of each tracking branch that moves, and whether it may be forced."""
    return {
        name: (there.get(name, ""), advertised.objects[source], may_force)
        for name, (source, may_force) in wanted.items()
        if there.get(name) != advertised.objects[source]
    }


async def outcome_of(
    repository: OpenRepository, remote: ConfiguredRemote, connected: Connected, fetched: Fetched, *, upstream: str
) -> Outcome:
    """Return what a fetch did, and where the current branch is afterwards."""
    branch, _ = await head(repository)
    ahead, behind = await distance(repository, branch, upstream) if upstream else (0, 0)
    lines = [*undo_line(fetched.updates), *fetched.lines]
    return Outcome(remote.name, connected.url.text, fetched.updates, branch, upstream, ahead, behind, lines)


def _refspecs(remote: ConfiguredRemote, options: FetchOptions) -> list[Refspec]:
    """Return what is mapped where: the refspecs of the remote, or one for a single branch."""
    if not options.branch:
        if not remote.refspecs:
            raise InvalidArguments("branch: name one; a URL that no remote has gets no tracking branches")
        return list(remote.refspecs)
    check_revision(options.branch)
    source = f"{HEADS}{options.branch}"
    if not is_reference(source):
        raise InvalidArguments(f"branch {options.branch!r}: not a valid name (git check-ref-format)")
    tracking = remote.tracking(source) or default_refspec(remote.name or "url").destination_of(source)
    return [Refspec(source, tracking)]


async def _tags(
    repository: OpenRepository,
    transfers: Transfers,
    advertised: Advertised,
    there: Mapping[str, str],
    *,
    options: FetchOptions,
) -> dict[str, tuple[str, str, bool]]:
    """Return the tags to create or compare, after their objects were received."""
    if options.tags == "none":
        return {}
    tags = {name: target for name, target in advertised.objects.items() if name.startswith(TAGS)}
    tags = {name: target for name, target in tags.items() if there.get(name) != target}
    if options.tags == "follow":
        # Those that point to commits which are here by now, and of which there is none yet.
        points = {name: advertised.peeled.get(name, target) for name, target in tags.items() if name not in there}
        commits = await present(repository, sorted(set(points.values())))
        tags = {name: tags[name] for name, target in points.items() if target in commits}
    missing = set(tags.values()) - await present(repository, sorted(set(tags.values())))
    if missing:
        await transfers.receive(sorted(name for name, target in tags.items() if target in missing))
    return {name: (there.get(name, ""), target, False) for name, target in tags.items()}


def _pruned(refspecs: Sequence[Refspec], there: Mapping[str, str], wanted: set[str]) -> list[RefUpdate]:
    """Return tracking branches whose branch the remote no longer has."""
    spaces = [refspec.destination.partition("*") for refspec in refspecs if "*" in refspec.destination]
    return [
        RefUpdate(name, target, "", PRUNED)
        for name, target in sorted(there.items())
        if name not in wanted
        and not name.endswith("/HEAD")
        and any(name.startswith(before) and name.endswith(after) for before, _, after in spaces)
    ]


def _some(advertised: Advertised) -> str:
    names = [name.removeprefix(HEADS) for name in advertised.objects if name.startswith(HEADS)]
    return f"{', '.join(names[:10])}{' and more' if len(names) > 10 else ''}" if names else "no branches"
