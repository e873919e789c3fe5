"""Push: move branches and tags of the remote. What was there before is required to be what was last seen there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from coretools.errors import GitRefused, InvalidArguments, NotFound
from coretools.git_remotes.exchange import exchange
from coretools.process.run import Completed
from coretools.tools.git.reading.references import HEADS, TAGS, head
from coretools.tools.git.remotes.configured import ConfiguredRemote, RemoteSettings
from coretools.tools.git.remotes.connected_git import REMOTE, Connected, TransferRun, run_connected
from coretools.tools.git.remotes.references import DELETED, FAST_FORWARD, FORCED, NEW, REJECTED, RefUpdate, is_reference
from coretools.tools.git.remotes.results import Outcome
from coretools.tools.git.remotes.settings import PUSH_SETTINGS
from coretools.tools.git.remotes.transfer import distance, local_references, update_references
from coretools.tools.git.repository.open_repository import OpenRepository, check_revision, failure_message
from coretools.tools.git.repository.porcelain import as_text, single_line

_PUSH = (
    *("push", "--porcelain", "--no-progress", "--no-verify", "--no-signed", "--recurse-submodules=no"),
    "--no-follow-tags",
)

_LINE = re.compile(rb"([ +*=!-])\t([^\t]*):([^\t]*)\t(.*)")
_RANGE = re.compile(r"([0-9a-f]{40,64})\.{2,3}([0-9a-f]{40,64})")
_REASON = re.compile(r"\[[^\]]*\](?: \((.*)\))?")

_KINDS = {" ": FAST_FORWARD, "+": FORCED, "-": DELETED, "*": NEW, "!": REJECTED}


ForceMode = Literal["no", "lease", "plain"]


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What is pushed."""

    branch: str
    """Local branch; empty: the current one."""
    to: str
    """Name of the branch at the remote; empty: its upstream there, or the same name."""
    tags: tuple[str, ...]
    delete: str
    """Branch or tag that is deleted at the remote."""
    force: ForceMode
    """lease: overwrite only what was last seen there."""
    set_upstream: bool


@dataclass(frozen=True, slots=True)
class PushPlan:
    """A push, prepared: what moves where. `branch` is the local one that is pushed, if there is one."""

    refspecs: tuple[str, ...]
    leases: tuple[str, ...]
    branch: str = ""
    target: str = ""
    """Full name of the branch at the remote."""
    tracking: str = ""
    """Its tracking reference here."""
    seen: str = ""
    """What the tracking reference was before; empty: nothing."""
    local: tuple[tuple[str, str], ...] = ()
    """Local object, by the full name at the remote; empty for a deletion."""

    def description(self, url: str, *, force: bool) -> str:
        """Return a line for a person to confirm."""
        what = ", ".join(f"{name} = {target[:10]}" if target else f"delete {name}" for name, target in self.local)
        return single_line(f"Push to {url}?\n{'overwrite: ' if force else ''}{what}")


async def plan(
    repository: OpenRepository, settings: RemoteSettings, remote: ConfiguredRemote, options: PushOptions
) -> PushPlan:
    """Prepare a push from this repository alone: nothing is sent.

    Raises:
        NotFound: no such branch or tag. InvalidArguments: the arguments do not go together. GitRefused: HEAD is
            detached, or there are no commits.
    """
    there = await local_references(repository, HEADS, TAGS, "refs/remotes/")
    if options.delete:
        if options.branch or options.tags or options.set_upstream:
            raise InvalidArguments("delete: goes alone; push something else in another call")
        return _deletion(there, remote, options)
    refspecs, local = [], {}
    prepared = PushPlan((), ())
    if options.branch or not options.tags:
        prepared = await _branch_plan(repository, settings, remote, options, there)
        refspecs, local = list(prepared.refspecs), dict(prepared.local)
    for tag in options.tags:
        name = _checked(f"{TAGS}{tag}", "tag", tag)
        if name not in there:
            raise NotFound(f"tag {tag!r}: there is none; git_tag action='create' makes one")
        refspecs.append(f"{name}:{name}")
        local[name] = there[name]
    return replace(prepared, refspecs=tuple(refspecs), local=tuple(local.items()))


async def push(
    repository: OpenRepository, remote: ConfiguredRemote, connected: Connected, prepared: PushPlan
) -> tuple[Outcome, bool]:
    """Send a prepared push; return what moved, and whether nothing was rejected.

    Raises:
        GitRefused, Unreachable: the transfer failed.
    """

    async def start(connection: int) -> Completed:
        words = (*_PUSH, *prepared.leases, REMOTE, *prepared.refspecs)
        return await run_connected(repository, connection, *words, run=TransferRun(options=PUSH_SETTINGS))

    completed = await exchange(start, connected.transport, "git-receive-pack")
    updates = _updates(completed.stdout.head + completed.stdout.tail, prepared, connected)
    if not completed.ok and not any(one.kind == REJECTED for one in updates):
        message = connected.scrubbed(failure_message(completed))
        raise GitRefused(f"git push: {message}", exit_code=completed.exit_code)
    failed = await _track(repository, remote, updates)
    branch, _ = await head(repository)
    ahead, behind = await distance(repository, branch, prepared.tracking) if prepared.tracking else (0, 0)
    lines = [*failed, *_ways(updates, remote), *connected.messages(completed.stderr.text())]
    upstream = prepared.tracking if prepared.branch == branch else ""
    outcome = Outcome(remote.name, connected.url.text, updates, branch, upstream, ahead, behind, lines)
    return outcome, completed.ok


async def _branch_plan(
    repository: OpenRepository,
    settings: RemoteSettings,
    remote: ConfiguredRemote,
    options: PushOptions,
    there: dict[str, str],
) -> PushPlan:
    branch = options.branch or (await head(repository))[0]
    if not branch:
        raise GitRefused("HEAD is detached; name the branch to push, or git_switch to one")
    name = _checked(f"{HEADS}{branch}", "branch", branch)
    if name not in there:
        hint = "it has no commits yet; git_commit makes the first one" if not options.branch else "there is none"
        raise NotFound(f"branch {branch!r}: {hint}")
    own_remote, merged = settings.upstreams.get(branch, ("", ""))
    same = merged if own_remote == remote.name and merged.startswith(HEADS) else name
    target = _checked(f"{HEADS}{options.to}", "to", options.to) if options.to else same
    tracking = remote.tracking(target)
    seen = there.get(tracking, "")  # what the remote must have; nothing if nothing was seen there
    leases = (f"--force-with-lease={target}:{seen}",) if options.force == "lease" else ()
    prefix = "+" if options.force == "plain" else ""
    refspec = f"{prefix}{name}:{target}"
    return PushPlan((refspec,), leases, branch, target, tracking, seen, ((target, there[name]),))


def _deletion(there: dict[str, str], remote: ConfiguredRemote, options: PushOptions) -> PushPlan:
    named = options.delete
    name = named if named.startswith((HEADS, TAGS)) else f"{HEADS}{named}"
    _checked(name, "delete", named)
    tracking = remote.tracking(name)
    leases = (f"--force-with-lease={name}:{there[tracking]}",) if tracking in there and options.force != "plain" else ()
    seen = there.get(tracking, "") or (there.get(name, "") if name.startswith(TAGS) else "")
    return PushPlan((f":{name}",), leases, "", name, "", seen, ((name, ""),))


def _checked(name: str, kind: str, written: str) -> str:
    check_revision(written)
    if not is_reference(name):
        raise InvalidArguments(f"{kind} {written[:80]!r}: not a valid name (git check-ref-format)")
    return name


def _updates(output: bytes, prepared: PushPlan, connected: Connected) -> list[RefUpdate]:
    """Read the lines of `git push --porcelain`. Those of references that are up to date are left out."""
    updates, local = [], dict(prepared.local)
    for line in output.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] == b"=":
            continue
        name, summary = as_text(match[3]), as_text(match[4])
        moved = _RANGE.match(summary)
        reason = _REASON.match(summary)
        kind = _KINDS[match[1].decode("ascii")]
        why = single_line(connected.scrubbed((reason[1] if reason else "") or summary)) if kind == REJECTED else ""
        old = moved[1] if moved else prepared.seen if kind == DELETED else ""
        updates.append(RefUpdate(name, old, local.get(name, ""), kind, why[:300]))
    return updates


async def _track(repository: OpenRepository, remote: ConfiguredRemote, updates: Sequence[RefUpdate]) -> list[str]:
    """Move the tracking references to what the remote has now, as git does after a push by name.

    Returns:
        A line if that fails: the remote has what was pushed all the same.
    """
    there = await local_references(repository, "refs/remotes/")
    moved = []
    for one in updates:
        name = remote.tracking(one.reference)
        if one.kind == REJECTED or not name or there.get(name, "") == one.new:
            continue
        moved.append(RefUpdate(name, there.get(name, ""), one.new, one.kind))
    try:
        await update_references(repository, moved, message="update by push")
    except GitRefused as error:
        return [f"The remote has it, but tracking branches here were not moved: {single_line(str(error))}"]
    return []


def _ways(updates: Sequence[RefUpdate], remote: ConfiguredRemote) -> list[str]:
    """Return what to do about a rejection, and how to undo the rest."""
    lines = []
    name = remote.name or "URL"
    rejected = " ".join(one.reason for one in updates if one.kind == REJECTED)
    if "stale info" in rejected:
        lines.append(f"The remote has changed since it was last seen: git_fetch remote={name!r}, look, and push again")
    elif "fetch first" in rejected or "non-fast-forward" in rejected:
        lines.append(
            f"The remote has commits that are not here: git_pull remote={name!r} (mode 'rebase' or 'merge'), then push"
            " again; force='lease' overwrites them only if the last fetch has seen them"
        )
    return [*lines, *(line for line in map(_undo, updates) if line)][:10]


def _undo(one: RefUpdate) -> str:
    short = one.reference.removeprefix(HEADS)
    if one.kind in (FAST_FORWARD, FORCED):
        back = f"git_branch action='create' name='undo' start={one.old!r}"
        return f"Undo: {back}, then git_push branch='undo' to={short!r} force='lease'"
    if one.kind == NEW:
        return f"Undo: git_push delete={short!r}"
    if one.kind != DELETED:
        return ""
    if one.reference.startswith(TAGS):
        name = one.reference.removeprefix(TAGS)
        return f"Undo: git_tag action='create' name={name!r} revision={one.old!r}, then git_push tags={[name]!r}"
    return f"Undo: git_branch action='create' name={short!r} start={one.old!r}, then git_push branch={short!r}"
