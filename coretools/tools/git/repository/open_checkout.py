"""Examine the repository of a work tree before git runs in it.

A hostile repository can redirect git with links and pointer files. Its structure is therefore checked first, through
handles opened beneath a root. git then gets the locations in its environment (GIT_DIR, GIT_WORK_TREE) and searches for
nothing. Nothing that is read during the check is shown to the caller.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial

from coretools.confinement.landlock import READ, Rule
from coretools.errors import DeniedPath, GitRefused, ReadOnly
from coretools.process.confined_runner import ConfinedRunner
from coretools.roots import directory_access
from coretools.roots.editor_settings import SettingsSnapshot
from coretools.roots.index_copy import IndexCopy, copy_index, directory_of_copies
from coretools.roots.linked_repository import GIT, WORKTREES
from coretools.roots.own_state import REASON
from coretools.roots.read import open_directory
from coretools.roots.root import Directory
from coretools.roots.root_set import Roots
from coretools.tools.git.repository.access_rules import FILES, TREE, WORK_TREE, read_rules, shared_rules, write_rules
from coretools.tools.git.repository.checkout import Checkout
from coretools.tools.git.repository.configuration import GitConfigurations
from coretools.tools.git.repository.find_work_tree import named_directory, work_tree
from coretools.tools.git.repository.git_directory import (
    GitDirectory,
    examine,
    examine_changeable,
    examine_shared,
    open_target,
    read_pointer,
    unusable,
)
from coretools.tools.git.repository.grants import NO_GRANTS, RepositoryGrants
from coretools.tools.git.repository.policy import GitPolicy
from coretools.tools.git.repository.setup import GitSetup
from coretools.tools.git.repository.work_tree_lock import lock_work_tree


class Access(Enum):
    """What a call does with a repository."""

    READ = "read"
    GIT_DIRECTORY = "git directory"
    """Stage and commit: write the git directory."""
    WORK_TREE = "work tree"
    """Write the work tree too, and keep the state of an unfinished operation in the git directory."""


_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
"""Entries of a git directory that show an unfinished operation."""


class Checkouts:
    """Opens work trees beneath the roots, and remembers the policy of each repository."""

    def __init__(self, roots: Roots, confined: ConfinedRunner, setup: GitSetup) -> None:
        self._roots = roots
        self._grants = setup.grants
        self._private = setup.user_git.directory
        self._user_rules: list[Rule] = [(setup.user_git.directory, READ)] if setup.user_git.directory else []
        self._confined = confined
        self._configurations = GitConfigurations(roots.for_git)

    @contextmanager
    def opened(
        self,
        repository: str,
        paths: Sequence[str] = (),
        *,
        access: Access = Access.READ,
        refreshes: bool = False,
        is_shared: bool = False,
        is_exclusive: bool = False,
    ) -> Iterator[Checkout]:
        """Open the work tree that contains the directory `repository`: the nearest one upwards, never above the root.

        If that is the root by default, and no work tree, the work tree of the first of the paths is opened.
        For a change every reference is examined too, since git would write through a link among them, and a writable
        root is required. With `refreshes` git gets a copy of the index that it may refresh, except in a read-only root.
        `is_shared`: it also changes what all work trees share besides objects and references. `is_exclusive`: no
        other call that is may run in the work tree.

        Raises:
            NotFound: there is no repository. GitRefused: git is not run in this one. ReadOnly: a change in a read-only
                root. WorkTreeLocked: another exclusive call is running.
        """
        with ExitStack() as stack:
            named = named_directory(self._roots, repository, paths)
            directory, changed = stack.enter_context(work_tree(self._roots, named))
            own, environment = self._git_directory(stack, directory)
            if is_exclusive:
                lock_work_tree(own, directory.display_path)  # before its state is read
            entries = examine(own)
            common, shared = self._common_directory(stack, own, entries, environment)
            if own.root.only_git or common.root.only_git:
                _require_own_entry(self._roots, directory, own, common)
            borrowed = examine_shared(self._roots.for_git, common, shared, stack)
            if access is not Access.READ:
                _require_writable(self._roots, changed, own, common, access=access)
                for place, kinds in {own: entries, common: shared}.items():
                    examine_changeable(place, kinds)
            policy = self._configurations.policy(own, common)
            handles = dict.fromkeys((directory.fd, own.handle, common.handle, *borrowed))
            rules = [*self._user_rules, *read_rules(self._roots.for_git, handles, policy.included, stack)]
            if access is not Access.READ:
                rules += write_rules(own, entries, common, shared, stack)
            if is_shared:
                rules += shared_rules(own, common, shared, stack)
            if access is Access.WORK_TREE:
                rules += [(changed.fd, WORK_TREE), (own.handle, TREE)]
            grants = self._granted(directory, own, common)
            refreshes = refreshes and _is_writable(self._roots, directory, own, common)
            index_copy = self._index_copy(own, grants, rules, environment, stack) if refreshes else None
            yield Checkout(
                directory=directory,
                rules=tuple(rules),
                confined_thread=None if policy.external_includes else self._confined.confined_thread("git", rules),
                is_confined=partial(self._confined.is_confined, "git"),
                environment=environment,
                git_handle=own.handle,
                git_path=own.path,
                common_handle=common.handle,
                common_path=common.path,
                policy=policy,
                grants=grants,
                hooks=installed_hooks(common, shared) if access is not Access.READ else (),
                in_progress=next((word for name, word in _IN_PROGRESS.items() if name in entries), ""),
                folder=changed.path.removeprefix(directory.path).removeprefix("/"),
                folder_path=changed.display_path,
                is_changing=access is not Access.READ,
                settings=SettingsSnapshot(self._roots, changed) if access is Access.WORK_TREE else None,
                index_copy=index_copy,
            )

    def _index_copy(
        self,
        own: GitDirectory,
        grants: RepositoryGrants,
        rules: list[Rule],
        environment: dict[str, str],
        stack: ExitStack,
    ) -> IndexCopy | None:
        """Copy the index, and let git use and write the copy; beneath the git directory it may write nothing.

        With granted filters git runs as a command, which may write the index itself.
        """
        if grants.filters:
            environment["GIT_OPTIONAL_LOCKS"] = "1"
            return None
        copies = directory_of_copies(self._private, own.path) if self._private else ""
        copy = copy_index(own.handle, copies) if copies else None
        if copy is None:
            return None
        stack.callback(copy.remove)
        rules.append((copies, READ | FILES))
        environment |= {"GIT_INDEX_FILE": copy.path, "GIT_OPTIONAL_LOCKS": "1"}
        return copy

    def _granted(self, directory: Directory, own: GitDirectory, common: GitDirectory) -> RepositoryGrants:
        """Return the grants of the root if this is its own repository, not a nested one or a linked work tree."""
        is_own = own is common and own.path == f"{directory.path}/.git" and not directory.place.root.is_above
        return self._grants.get(directory.path, NO_GRANTS) if is_own else NO_GRANTS

    def _git_directory(self, stack: ExitStack, directory: Directory) -> tuple[GitDirectory, dict[str, str]]:
        """Return the git directory, and the environment variables that name it."""
        display_path = f"{directory.display_path}/.git".removeprefix("./")
        kind = directory_access.entry_kind(directory.fd, GIT)
        if kind == "directory":
            handle = stack.enter_context(directory_access.open_subdirectory(directory.fd, GIT))
            # The repository of a folder is a directory of its own among these.
            place = self._roots.for_git.place(f"{directory.path}/{GIT}")
            root = place.root if directory.place.root.is_above else directory.place.root
            own = GitDirectory(handle, f"{directory.path}/.git", display_path, root, is_entry=True)
            # Relative to the handle that git runs in, so it names the examined work tree even after a rename.
            return own, {"GIT_DIR": ".git", "GIT_WORK_TREE": "."}
        if kind != "file":
            raise unusable(display_path, "is a link" if kind == "link" else "is neither a file nor a directory")
        pointer = read_pointer(directory.fd, ".git", directory.display_path)
        if not pointer.startswith("gitdir: "):
            raise unusable(display_path, "is a file that names no git directory")
        if refusal := self._roots.git_refusals.get(directory.path):
            raise GitRefused(f"{display_path}: {refusal}", found=display_path)
        target = pointer.removeprefix("gitdir: ")
        remedy = ""
        if directory.place.relative != ".":
            remedy = (
                f"; if it is the entry of a linked work tree, start the server with {directory.path} as another root"
            )
        opening = open_target(self._roots.for_git, display_path, target, directory.path, remedy=remedy)
        own = stack.enter_context(opening)
        return own, {"GIT_DIR": own.path, "GIT_WORK_TREE": "."}

    def _common_directory(
        self, stack: ExitStack, own: GitDirectory, entries: dict[str, str], environment: dict[str, str]
    ) -> tuple[GitDirectory, dict[str, str]]:
        """Return the directory that all work trees share, with its entries; the same one if there is only one."""
        if "commondir" not in entries:
            return own, entries
        pointer = read_pointer(own.handle, "commondir", own.display_path)
        opening = open_target(self._roots.for_git, f"{own.display_path}/commondir", pointer, own.path)
        common = stack.enter_context(opening)
        environment["GIT_COMMON_DIR"] = common.path
        return common, examine(common)


def new_checkout(directory: Directory) -> Checkout:
    """Return a directory in which there is no repository yet; git may write in it, and finds no other."""
    return Checkout(
        directory=directory,
        rules=((directory.fd, READ | WORK_TREE),),
        confined_thread=None,
        is_confined=lambda: True,
        environment={"GIT_DIR": "/dev/null", "GIT_CONFIG_GLOBAL": "/dev/null"},
        git_handle=directory.fd,
        git_path=f"{directory.path}/.git",
        common_handle=directory.fd,
        common_path=f"{directory.path}/.git",
        policy=GitPolicy(),
        grants=NO_GRANTS,
        hooks=(),
        in_progress="",
    )


def _require_own_entry(roots: Roots, directory: Directory, own: GitDirectory, common: GitDirectory) -> None:
    """Refuse a repository outside the roots unless it names this work tree itself: agents can write `.git` files.

    That of a submodule lies in the entry of the work tree that contains it. What is above the roots needs none.

    Raises:
        GitRefused: it names another one, or none.
    """
    if directory.place.root.is_above and own.path == f"{directory.path}/{GIT}":
        return
    repository = own.root
    above, is_module, _ = own.path.partition("/modules/")
    entry = above if is_module and own is common else own.path
    tree = ""
    if posixpath.dirname(entry) == f"{repository.path}/{WORKTREES}" and common.root is repository:
        with open_directory(roots.for_git, entry) as opened:
            tree = posixpath.normpath(posixpath.join(entry, read_pointer(opened.fd, "gitdir", entry)))
    top = tree.removesuffix(f"/{GIT}")
    is_within = directory.path.startswith(f"{top}/") if entry != own.path else directory.path == top
    if not tree.endswith(f"/{GIT}") or not is_within or (entry == own.path and common.path != repository.path):
        raise unusable(
            f"{directory.display_path}/{GIT}".removeprefix("./"),
            f"names {own.display_path}, which is not the entry of this work tree in a repository that has this path;"
            " a moved work tree is mended by `git worktree repair`",
        )


def _require_writable(roots: Roots, directory: Directory, *places: GitDirectory, access: Access) -> None:
    """Refuse a change in a read-only root. One can lie within the work tree's root: at or in its git directory.

    git may write anywhere in a work tree that it changes, so none may lie in that one either, nor our own state.
    """
    affected = [directory.place.root, *(place.root for place in places)]
    if access is Access.WORK_TREE:
        affected += [root for root in roots if root.path.startswith(f"{directory.path}/")]
        own = [f"{place.root.path}/{place.relative}" for place in roots.own_places]
        state = next((path for path in own if path.startswith(f"{directory.path}/")), None)
        if state is not None:
            raise DeniedPath(
                f"{directory.display_path}: the git tools change no work tree around {state}, since {REASON};"
                " use git in run_command",
                path=directory.display_path,
                reason=REASON,
            )
    for place in places:
        inner = roots.split(place.path)
        affected += [] if inner is None else [inner.root]
        affected += [root for root in roots if root.path.startswith(f"{place.path}/")]
    for root in affected:
        if not root.writable:
            raise ReadOnly(f"{directory.display_path}: the root {root.name} is read-only, so nothing is changed")


def _is_writable(roots: Roots, directory: Directory, *places: GitDirectory) -> bool:
    try:
        _require_writable(roots, directory, *places, access=Access.GIT_DIRECTORY)
    except ReadOnly:
        return False
    return True


def installed_hooks(common: GitDirectory, entries: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the hooks in a git directory, without git's samples."""
    if entries.get("hooks") != "directory":
        return ("hooks",) if "hooks" in entries else ()
    with directory_access.open_subdirectory(common.handle, "hooks") as hooks:
        return tuple(sorted(name for name in directory_access.entry_kinds(hooks) if not name.endswith(".sample")))
