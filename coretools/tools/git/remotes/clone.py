"""Clone: a new repository with one remote, beside its final place until it is complete."""

from dataclasses import dataclass, replace

from coretools.errors import InvalidArguments, NotFound
from coretools.roots.editor_settings import settings_at
from coretools.roots.new_directory import new_directory
from coretools.roots.read import open_directory
from coretools.tools.git.reading.references import HEADS
from coretools.tools.git.remotes.configured import remote_settings
from coretools.tools.git.remotes.connected_git import Connected, initialize
from coretools.tools.git.remotes.fetch import Fetched, FetchOptions, TagMode, fetch
from coretools.tools.git.remotes.references import TRACKING, Advertised
from coretools.tools.git.remotes.results import Outcome, TransferResult
from coretools.tools.git.remotes.transfer import Transfers, present
from coretools.tools.git.repository.open_checkout import Access, new_checkout
from coretools.tools.git.repository.open_repository import OpenRepository
from coretools.tools.git.repository.repositories import Repositories
from coretools.tools.git.repository.results import settings_line

ORIGIN = "origin"

_SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True)
class CloneOptions:
    """Where a clone goes, and what is in it."""

    path: str = ""
    branch: str = ""
    single_branch: bool = False
    depth: int = 0
    tags: TagMode = "follow"
    commit: str = ""
    """Check out this commit, detached, in place of a branch. The path may be an empty directory, as of a submodule."""


async def clone(repositories: Repositories, connected: Connected, options: CloneOptions) -> TransferResult:
    """Clone a remote that may be reached.

    Raises:
        AlreadyExists: something is at the path. NotFound: the remote has no such branch or commit. GitRefused,
            Unreachable, TooLarge: the transfer failed; nothing is left of it.
    """
    git, roots = repositories.git, repositories.roots
    path = options.path or connected.url.path.rpartition("/")[2].removesuffix(".git")
    if not path:
        raise InvalidArguments("path: name the new directory; the URL has no name for it")
    with new_directory(roots, path, replaces_empty=bool(options.commit)) as new:
        with open_directory(roots, new.path) as directory:
            empty = OpenRepository(roots, git, new_checkout(directory))
            advertised = await Transfers(empty, connected).advertised()
            branch = _branch(advertised, options)
            await _initialize(empty, advertised, branch)
        async with repositories.opened(new.path, access=Access.WORK_TREE) as opened:
            fetched = await _fill(opened, connected, options, branch)
            if options.commit:
                await _check_out_commit(opened, options.commit)
            else:
                await _check_out(opened, fetched.advertised, branch)
            new.keep()
            opened.checkout.directory.display_path = new.display_path
            outcome = _outcome(connected, fetched, options, branch, place=new.display_path)
            outcome = replace(outcome, lines=[*outcome.lines, *settings_line(roots, settings_at(roots, path))])
            return TransferResult.of(outcome, opened, verb="cloned")


def _outcome(connected: Connected, fetched: Fetched, options: CloneOptions, branch: str, *, place: str) -> Outcome:
    short = "" if options.commit else branch.removeprefix(HEADS)
    has_branch = branch in fetched.advertised.objects
    if options.commit:
        at = f"at {options.commit[:10]}, detached"
    else:
        at = f"on branch {short}" if has_branch else "the remote has no commits yet"
    upstream = f"{TRACKING}{ORIGIN}/{short}" if short and has_branch else ""
    lines = [f"{place}: {at}", f"Undo: delete_directory path={place!r} with_repositories=True"]
    return Outcome(ORIGIN, connected.url.text, fetched.updates, short, upstream, lines=lines)


def _branch(advertised: Advertised, options: CloneOptions) -> str:
    """Return the full name of the branch to check out."""
    name = f"{HEADS}{options.branch}" if options.branch else advertised.head
    branches = [one for one in advertised.objects if one.startswith(HEADS)]
    if options.branch and name not in branches:
        some = ", ".join(one.removeprefix(HEADS) for one in branches[:10]) or "none"
        raise NotFound(f"branch {options.branch!r}: the remote has none of this name (branches: {some})")
    return name or (branches[0] if branches else f"{HEADS}main")


async def _initialize(empty: OpenRepository, advertised: Advertised, branch: str) -> None:
    sample = next(iter(advertised.objects.values()), "")
    kind = "sha256" if len(sample) == _SHA256_DIGITS else "sha1"
    words = ("--quiet", "--template=", f"--object-format={kind}", f"--initial-branch={branch[len(HEADS) :]}")
    await initialize(empty.with_environment({"GIT_DIR": ".git", "GIT_WORK_TREE": "."}), *words)


async def _fill(repository: OpenRepository, connected: Connected, options: CloneOptions, branch: str) -> Fetched:
    only = ("-t", branch.removeprefix(HEADS)) if options.single_branch else ()
    await repository.output("remote", "add", *only, "--", ORIGIN, connected.url.text)
    settings = await remote_settings(repository)
    wanted = FetchOptions(tags=options.tags, depth=options.depth)
    return await fetch(repository, settings.remotes[ORIGIN], connected, wanted)


async def _check_out(repository: OpenRepository, advertised: Advertised, branch: str) -> None:
    short = branch.removeprefix(HEADS)
    await repository.output("config", "--local", f"branch.{short}.remote", ORIGIN)
    await repository.output("config", "--local", f"branch.{short}.merge", branch)
    if branch not in advertised.objects:
        return
    await repository.output("update-ref", "-m", "clone", branch, advertised.objects[branch])
    if advertised.head:
        target = f"{TRACKING}{ORIGIN}/{advertised.head.removeprefix(HEADS)}"
        await repository.output("symbolic-ref", f"{TRACKING}{ORIGIN}/HEAD", target)
    await repository.output("reset", "--hard", "--quiet")


async def _check_out_commit(repository: OpenRepository, commit: str) -> None:
    if not await present(repository, [commit]):
        raise NotFound(f"commit {commit}: no branch or tag of the remote has it")
    await repository.output("update-ref", "--no-deref", "-m", "submodule", "HEAD", commit)
    await repository.output("reset", "--hard", "--quiet")
