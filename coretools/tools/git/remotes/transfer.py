"""Transfers with a remote: list its references, receive objects, and move references of this repository."""

from collections.abc import Mapping, Sequence

from coretools.errors import GitRefused, TooLarge
from coretools.git_remotes.exchange import exchange
from coretools.git_remotes.incoming import incoming_objects
from coretools.process.run import Completed
from coretools.tools.git.reading.references import HEADS, TAGS
from coretools.tools.git.remotes.connected_git import REMOTE, Connected, TransferRun, run_connected
from coretools.tools.git.remotes.references import (
    DELETED,
    FAST_FORWARD,
    FORCED,
    NEW,
    PRUNED,
    REJECTED,
    UPDATED,
    Advertised,
    RefUpdate,
    read_advertised,
)
from coretools.tools.git.remotes.settings import FETCH_SETTINGS
from coretools.tools.git.repository.open_repository import OpenRepository, failure_message, require_success
from coretools.tools.git.repository.porcelain import decoded, encoded

LIST_BYTES = 16 * 1024 * 1024
"""Longest list of references of a remote."""

MAX_COMPARED = 50
"""Updates of one fetch that are told apart as fast-forward or forced; of more, the rest is `updated`."""

_FETCH = (
    *("fetch", "--quiet", "--no-progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
    *("--no-recurse-submodules", "--refmap=", "--stdin"),
)


class Transfers:
    """Transfers between one checkout and one remote."""

    def __init__(self, repository: OpenRepository, remote: Connected) -> None:
        self._repository = repository
        self._remote = remote

    async def advertised(self) -> Advertised:
        """Return the references of the remote.

        Raises:
            GitRefused, Unreachable: the remote does not answer, or is no repository. TooLarge: it has too many.
        """

        async def start(connection: int) -> Completed:
            words = ("ls-remote", "--quiet", "--symref", REMOTE)
            run = TransferRun(options=FETCH_SETTINGS, keep_bytes=LIST_BYTES)
            return await run_connected(self._repository, connection, *words, run=run)

        completed = await exchange(start, self._remote.transport, "git-upload-pack")
        self._require(completed, "ls-remote")
        if completed.stdout.dropped_bytes:
            raise TooLarge("the remote has too many references", limit=LIST_BYTES)
        return read_advertised(completed.stdout.head + completed.stdout.tail)

    async def receive(self, references: Sequence[str], *, depth: int = 0) -> None:
        """Receive the objects that these references of the remote need.

        Raises:
            GitRefused, Unreachable, TooLarge: the transfer failed; nothing was kept.
        """
        checkout = self._repository.checkout
        with incoming_objects(checkout.common_handle) as incoming:
            store = f"{checkout.common_path}/objects"
            environment = {
                "GIT_OBJECT_DIRECTORY": f"{store}/{incoming.name}",
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted_path(store),
                "GIT_QUARANTINE_PATH": f"{store}/{incoming.name}",  # git then refuses to move a reference
            }
            words = (*_FETCH, *([f"--depth={depth}"] if depth else []))

            async def start(connection: int) -> Completed:
                stdin = encoded("".join(f"{name}\n" for name in references))
                run = TransferRun(options=FETCH_SETTINGS, stdin=stdin, environment=environment)
                return await run_connected(self._repository, connection, *words, REMOTE, run=run)

            completed = await exchange(start, self._remote.transport, "git-upload-pack")
            self._require(completed, "fetch")
            incoming.keep()

    def _require(self, completed: Completed, command: str) -> None:
        if not completed.ok:
            message = self._remote.scrubbed(failure_message(completed))
            raise GitRefused(f"git {command}: {message}", exit_code=completed.exit_code)


async def local_references(repository: OpenRepository, *spaces: str) -> dict[str, str]:
    """Return the references of this repository beneath some prefixes, with their objects."""
    output = await repository.output("for-each-ref", "--format=%(objectname) %(refname)", *spaces)
    pairs = (line.partition(b" ") for line in output.split(b"\n") if line)
    return {decoded(name): target.decode("ascii") for target, _, name in pairs}


async def present(repository: OpenRepository, objects: Sequence[str]) -> set[str]:
    """Return those objects that this repository has."""
    if not objects:
        return set()
    stdin = "".join(f"{name}\n" for name in objects).encode()
    lines = (await repository.output("cat-file", "--batch-check=%(objectname)", stdin=stdin)).split(b"\n")
    return {line.decode("ascii") for line in lines if line and b" " not in line}


async def classified(repository: OpenRepository, planned: Mapping[str, tuple[str, str, bool]]) -> list[RefUpdate]:
    """Return what an update of each reference is; `planned` has old and new object and whether it may be forced."""
    updates = []
    compared = 0
    for name, (old, new, may_force) in sorted(planned.items()):
        if old and name.startswith(TAGS):
            way = f"git_tag action='delete' name={name.removeprefix(TAGS)!r}, then fetch again"
            updates.append(RefUpdate(name, old, new, REJECTED, f"the tag is another one here; {way}"))
            continue
        compared += bool(old)
        if compared > MAX_COMPARED:
            kind = UPDATED
        elif not old:
            kind = NEW
        else:
            completed = await repository.run("merge-base", "--is-ancestor", old, new)
            kind = FAST_FORWARD if completed.ok else FORCED
        if kind == FORCED and not may_force:
            updates.append(RefUpdate(name, old, new, REJECTED, "not a fast-forward, which its refspec requires"))
        else:
            updates.append(RefUpdate(name, old, new, kind))
    return updates


async def update_references(repository: OpenRepository, updates: Sequence[RefUpdate], *, message: str) -> None:
    """Move references, all or none, if each still is what it was.

    Raises:
        GitRefused: something else changed one meanwhile, or two names can't exist at the same time.
    """
    lines = []
    for one in updates:
        if one.kind in (PRUNED, DELETED):
            lines.append(f"delete {one.reference}\0{one.old}\0")
        elif one.kind != REJECTED:
            lines.append(f"update {one.reference}\0{one.new}\0{one.old or '0' * len(one.new)}\0")
    if not lines:
        return
    stdin = encoded("".join(lines))
    completed = await repository.run("update-ref", "-m", message, "-z", "--stdin", stdin=stdin)
    if not completed.ok:
        why = failure_message(completed)
        hint = "; prune=true removes tracking branches that are gone" if "exists" in why else ""
        hint = "; another call was faster, so call it again" if "but expected" in why else hint
        raise GitRefused(f"references were not moved: {why}{hint}", exit_code=completed.exit_code)


async def distance(repository: OpenRepository, branch: str, upstream: str) -> tuple[int, int]:
    """Return how many commits a branch is ahead of and behind another reference; zeros if either is missing."""
    own = f"{HEADS}{branch}" if branch else "HEAD"
    completed = await repository.run("rev-list", "--left-right", "--count", f"{own}...{upstream}", "--")
    if not completed.ok:
        return 0, 0
    ahead, behind = require_success(completed, "rev-list").stdout.text().split()
    return int(ahead), int(behind)


def _quoted_path(path: str) -> str:
    """Return a path as a list of object stores has it: colons separate them, but not within quotes."""
    if ":" not in path and not path.startswith('"'):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
