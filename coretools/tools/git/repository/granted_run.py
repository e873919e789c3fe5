"""Run git as a command of its root where the operator granted it programs of the repository.

git itself, the hook, filter or merge driver, and all that they start, are then in the sandbox of commands: with the
files, network, deadline and limits of `run_command` in that root, and nothing else.
"""

import re
from collections.abc import Sequence

from coretools.confinement.user_git import IN_VIEW
from coretools.errors import GitRefused
from coretools.process.run import Completed, RunOptions
from coretools.process.runner import Runner
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.grants import REFUSED, RepositoryGrants
from coretools.tools.git.repository.porcelain import single_line

_HOOKED = frozenset({"commit", "merge", "switch", "checkout", "rebase", "cherry-pick", "revert"})
"""git commands that start hooks."""

_MERGING = frozenset({"merge", "merge-recursive", "rebase", "cherry-pick", "revert", "stash", "checkout"})
"""git commands that start merge drivers."""

_FILTERING = (
    _HOOKED
    | _MERGING
    | frozenset(
        {"status", "diff", "update-index", "add", "restore", "reset", "read-tree", "hash-object", "clean", "rm"}
    )
)
"""git commands that start filters, or compare files that a filter converts."""

_NOT_PASSED = frozenset({"HOME", "PATH", "LC_ALL", "GIT_NO_LAZY_FETCH"})
"""Variables that a command has of its own, or does not need."""

_OUTPUT_CHARACTERS = 4_000
_NAME = re.compile(rf"^{re.escape(REFUSED)}(?P<name>[a-z-]+) ended with exit code (?P<code>\d+)$", re.MULTILINE)
_FILTER = re.compile(r"(?:smudge|clean) filter '?(?P<name>[\w.-]+)'? failed|Error downloading object")
_NO_PROGRAM = re.compile(r"git-lfs: (?:command )?not found")


def starts_granted_program(grants: RepositoryGrants, command: str) -> bool:
    """Whether this git command may start a program that was granted."""
    return (
        (bool(grants.hooks) and command in _HOOKED)
        or (bool(grants.filters) and command in _FILTERING)
        or (bool(grants.merge_drivers) and command in _MERGING)
    )


async def run_granted(
    runner: Runner, checkout: Checkout, grants: RepositoryGrants, argv: Sequence[str], options: RunOptions
) -> Completed:
    """Run git in the sandbox of commands; `argv` and `options` are those of a confined thread.

    Raises:
        GitRefused: a hook refused, or a file's LFS object is missing.
        The errors of `Runner.run`.
    """
    if runner.tier is None:
        await runner.prepare()
    is_view = runner.tier == "full"
    place = IN_VIEW if is_view else grants.directory
    completed = await runner.run(
        _arguments(grants, argv, place),
        cwd=checkout.directory,
        options=RunOptions(
            is_command=True,
            is_granted=True,
            stdin=options.stdin,
            timeout_seconds=options.timeout_seconds,
            keep_bytes=options.keep_bytes,
            environment={
                **{name: value for name, value in options.environment.items() if name not in _NOT_PASSED},
                "GIT_CONFIG_GLOBAL": f"{place}/{'config-in-view' if is_view else 'config'}",
                "LC_ALL": "C.UTF-8",
            },
        ),
    )
    _explain(completed)
    return completed


def _arguments(grants: RepositoryGrants, argv: Sequence[str], place: str) -> tuple[str, ...]:
    """Return the arguments of git with the granted programs; `place` is the directory of the files for git."""
    granted = [("core.hooksPath", grants.stand_ins)] if grants.hooks else []
    # After all other options: the last of several values counts.
    words = [word for key, value in (*granted, *grants.definitions) for word in ("-c", f"{key}={value}")]
    at = next(number for number, word in enumerate(argv) if number and not _is_option(argv, number))
    moved = [word.replace(grants.directory, place) for word in (*argv[:at], *words)]
    return (*moved, *(word for word in argv[at:] if word != "--no-verify"))


def _is_option(argv: Sequence[str], number: int) -> bool:
    """Whether a word precedes the command of git: an option, or the value of `-c`."""
    return argv[number].startswith("-") or argv[number - 1] == "-c"


def _explain(completed: Completed) -> None:
    """Raise if a granted program made git fail.

    Raises:
        GitRefused: names it, with its output.
    """
    if completed.ok:
        return
    text = completed.stderr.text()
    output = "\n".join(map(single_line, text[-_OUTPUT_CHARACTERS:].strip().split("\n")))
    if match := _NAME.search(text):
        raise GitRefused(
            f"the hook {match['name']} refused with exit code {match['code']}; its output:\n{output}",
            exit_code=completed.exit_code,
        )
    if _NO_PROGRAM.search(text):
        raise GitRefused(f"git-lfs is granted and not installed, or not visible to commands; its output:\n{output}")
    if match := _FILTER.search(text):
        what = f"the filter {match['name']} failed"
        if match["name"] in (None, "lfs"):
            what = (
                "a file's LFS object is not in this repository and could not be fetched; `git lfs pull` by a person, or"
                " by run_command with a network, brings it"
            )
        raise GitRefused(f"{what}; its output:\n{output}", exit_code=completed.exit_code)
