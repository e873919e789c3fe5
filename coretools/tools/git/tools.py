"""All git tools, in the order in which they are listed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from coretools.config.remote_policy import RemoteRule
from coretools.tools.git.bisect.tools import BisectTools, RunCommand
from coretools.tools.git.branches.tools import BranchTools
from coretools.tools.git.commits.tools import CommitTools
from coretools.tools.git.merging.tools import MergingTools
from coretools.tools.git.reading.tools import ReadingTools
from coretools.tools.git.remotes.access import RemoteAccess
from coretools.tools.git.remotes.tools import RemoteTools
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.stash.tools import StashTools
from coretools.tools.git.trust.tools import TrustTools
from coretools.tools.git.worktrees.tools import WorktreeTools


def git_tools(
    repositories: Repositories,
    run_command: RunCommand,
    *,
    remote_rules: Sequence[RemoteRule],
    environment: Mapping[str, str],
) -> tuple[Callable[..., Awaitable[Any]], ...]:
    """Return every git tool; `environment` is that of the server, with tokens and the user's ssh agent for remotes."""
    reading, commits, branches = ReadingTools(repositories), CommitTools(repositories), BranchTools(repositories)
    merging, worktrees = MergingTools(repositories), WorktreeTools(repositories)
    bisect = BisectTools(repositories, run_command)
    remotes = RemoteTools(repositories, RemoteAccess(remote_rules, repositories.git, environment=environment))
    return (
        *(reading.git_status, reading.git_log, reading.git_diff, branches.git_branches, branches.git_current_branch),
        *(commits.git_add, commits.git_commit, reading.git_show, branches.git_switch),
        *(commits.git_restore, commits.git_reset, StashTools(repositories).git_stash),
        *(merging.git_merge, merging.git_rebase, merging.git_continue, merging.git_conflicts),
        *(TrustTools(repositories).git_trust_report, reading.git_blame, branches.git_branch, branches.git_tag),
        *(merging.git_cherry_pick, merging.git_revert),
        *(reading.git_reflog, worktrees.git_worktree, worktrees.git_sparse_checkout),
        *(bisect.git_bisect, bisect.git_bisect_run),
        *(remotes.git_fetch, remotes.git_pull, remotes.git_push),
        *(remotes.git_clone, remotes.git_submodule, remotes.git_remote),
    )
