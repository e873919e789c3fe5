"""Pull: fetch the upstream of the current branch, then fast-forward, merge or rebase."""

from coretools.errors import GitRefused
from coretools.tools.git.merging.merge import merge
from coretools.tools.git.merging.rebase import RebaseOptions, rebase
from coretools.tools.git.reading.references import HEADS, head
from coretools.tools.git.remotes.configured import ConfiguredRemote, RemoteSettings
from coretools.tools.git.remotes.transfer import distance, local_references
from coretools.tools.git.repository.habits import PullMode
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.results import TextResult


async def current_upstream(repository: OpenRepository, settings: RemoteSettings) -> str:
    """Return the tracking reference of the current branch; "" if it has none."""
    branch, _ = await head(repository)
    name, merged = settings.upstreams.get(branch, ("", ""))
    remote = settings.remotes.get(name)
    if remote is None:
        return merged if name == "." else ""
    return remote.tracking(merged)


def pulled_branch(settings: RemoteSettings, remote: ConfiguredRemote, branch: str, local: str) -> str:
    """Return the branch of the remote to pull: the named one, or the upstream of the local branch.

    Raises:
        GitRefused: the local branch has no upstream there.
    """
    own, merged = settings.upstreams.get(local, ("", ""))
    if not branch and own == remote.name and merged.startswith(HEADS):
        return merged.removeprefix(HEADS)
    if not branch:
        raise GitRefused(
            f"branch {local or '(detached HEAD)'} has no upstream at {remote.name or 'this URL'}; name branch, or set"
            " one with git_branch action='upstream'"
        )
    return branch


async def integrate(repository: OpenRepository, *, tracking: str, mode: PullMode) -> TextResult:
    """Bring what was fetched into the current branch.

    Raises:
        GitRefused: `ff-only` is not possible, or uncommitted changes are in the way.
    """
    branch, commit = await head(repository)
    target = (await local_references(repository, tracking)).get(tracking, "")
    if not commit:
        raise GitRefused(
            f"branch {branch} has no commits yet; git_switch to a branch that begins at {tracking} instead"
        )
    ahead, behind = await distance(repository, branch, tracking)
    if mode == "rebase" and behind and ahead:
        return await rebase(repository, RebaseOptions(upstream=target, onto="", autosquash=False))
    if mode == "ff-only" and ahead and behind:
        raise GitRefused(
            f"fetched, but not pulled: the branch has {ahead} commits that {tracking} lacks, and lacks {behind} of its"
            " commits; choose mode 'rebase' or 'merge'"
        )
    message = f"Merge remote-tracking branch '{tracking.removeprefix('refs/remotes/')}'"
    return await merge(repository, revision=target, message=message, fast_forward=True)
