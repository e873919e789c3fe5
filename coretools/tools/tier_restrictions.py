"""Describe what a tier denies that programs expect of any machine: for instructions, diagnostics and results.

Without a mount namespace commands have no private `/dev/shm`, `/tmp` or terminals; those of the machine are denied to
them. Programs report a missing permission; the explanations here name the cause, what works, and the operator's option.
"""

import re
from dataclasses import dataclass, replace
from typing import Self

from coretools.config.operator_policy import ConfinementPolicy
from coretools.confinement.allowed_paths import directories_above_read_only_roots
from coretools.reach import is_beneath
from coretools.roots.editor_settings import NAMES, WAY_OUT
from coretools.roots.linked_repository import GIT, WORKTREES
from coretools.roots.own_state import exposed
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.tools.failure_explanations import MAX_LISTED, CommandOutcome, Explanation
from coretools.truncation import and_more

OPTION = (
    "where the server has a container to itself the operator opens it with --own-container (CORETOOLS_OWN_CONTAINER=1;"
    " own_container = true in [confinement] of the policy file)"
)
"""How to allow these places."""

_DENIED = r"(?:Permission denied|EACCES|Errno 13)"
_ON_THE_LINE = r"[^\n]{0,160}"


def _denial_near(what: str) -> re.Pattern[str]:
    """Match a refusal and its subject, in either order on one line."""
    return re.compile(f"(?:{what}){_ON_THE_LINE}{_DENIED}|{_DENIED}{_ON_THE_LINE}(?:{what})", re.IGNORECASE)


_SOCKETS = re.compile(
    r"Address family not supported|Protocol not supported|\b(?:EAFNOSUPPORT|EPROTONOSUPPORT)\b", re.IGNORECASE
)
_READ_ONLY = re.compile("Read-only file system")
_WORK_TREE = re.compile(r"unable to (?:unlink|create file)|cannot create directory at")
"""What git says when it can't write a file of the work tree, and goes on: HEAD moves all the same."""
_OUTSIDE = re.compile(
    r"^(?:\t(?:modified|deleted|typechange): +| ?[MDT]{1,2} |[ MADRC][MDT] |[MDT]\t)\"?\.\./"
    rf"|(?:could not open directory|open\(){_ON_THE_LINE}{_DENIED}",
    re.MULTILINE,
)
"""A file above the directory that git takes for changed, or could not read."""
_REFUSED = re.compile(_DENIED, re.IGNORECASE)
_OTHER_TREE = re.compile(
    r"symref for HEAD: Device or resource busy|HEAD of working tree .* is not updated"
    r"|(?:logs/HEAD|\.git/HEAD|\.git/index)[^\n]*(?:Read-only|busy)"
    r"|unable to write\s+new[ _]index|Could not (?:reset|write new) index"
)
"""What git and other programs print that could not change HEAD or the index of another work tree."""
_ABSOLUTE = re.compile(r"(?<![\w./-])/[^\s'\"`:,;\u2018\u2019]+")
_UNIX_SOCKET = _denial_near(r"\.sock(?:et)?\b")
_SHARED_MEMORY = re.compile(rf"(?:SemLock|sem_open|shm_open|/dev/shm|shared_memory)[\s\S]{{0,400}}{_DENIED}")
_IN_TMP = r"(?<![\w/])/(?:var/)?tmp\b(?!/coretools-)"
_TEMPORARY = _denial_near(_IN_TMP)
_TEMPORARY_OR_ABOVE = _denial_near(rf"{_IN_TMP}|(?<![\w./])\.\.(?![\w.])")
_MISSING = r"(?:No such file|ENOENT)"
_MISSING_TEMPORARY = re.compile(rf"{_IN_TMP}/{_ON_THE_LINE}{_MISSING}|{_MISSING}{_ON_THE_LINE}{_IN_TMP}/")
_CD_TEMPORARY = re.compile(r"\bcd /(?:var/)?tmp\b")
_TERMINALS = re.compile(r"out of pty devices|pseudo-?terminal|/dev/ptmx|\b(?:open|fork)pty\b|create window failed")
_SIGNALS = re.compile(
    r"kill: [^\n]*Operation not permitted|\bkill EPERM\b|os\.kill[\s\S]{0,200}Errno 1\b", re.IGNORECASE
)
_FIXED = r"(?:Device or resource busy|Read-only file system|\bE(?:ROFS|BUSY)\b|Errno (?:30|16)\b|os error (?:30|16)\b)"


def _fixed(what: str) -> re.Pattern[str]:
    """Match a subject and a refused change of it in one line: git names the file first, Python last."""
    return re.compile(f"(?:{what}){_ON_THE_LINE}{_FIXED}|{_FIXED}{_ON_THE_LINE}(?:{what})", re.IGNORECASE)


_CONTROL_FILES = _fixed(r"could not (?:write|lock) config file|\.git/(?:config|hooks)\b")
_SUBMODULES = re.compile(
    r"Could not remove submodule work tree"
    rf"|(?:cannot (?:remove|move|overwrite)|could not open) '(?:[^\n']+/)?\.git'[^\n]{{0,20}}{_FIXED}"
)
_SETTINGS = _fixed(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(NAMES)))})(?![\w-])")


@dataclass(frozen=True, slots=True)
class TierRestrictions:
    """What a tier denies under the operator's policy."""

    policy: ConfinementPolicy
    read_only_parents: tuple[str, ...] = ()
    """Directories in which commands can create nothing, since a read-only root is beneath them."""
    exposed: str = ""
    """Why no command runs at all; empty if they do."""
    repositories: tuple[str, ...] = ()
    """Repositories outside the roots, which git alone uses."""
    trees: tuple[str, ...] = ()
    """Work trees of which roots are folders."""
    roots: tuple[str, ...] = ()
    """The roots, and the repositories and work trees that git alone uses."""

    @classmethod
    def of(cls, policy: ConfinementPolicy, roots: Roots) -> Self:
        """Build the restrictions of commands in these roots."""
        repositories = tuple(root.path for root in roots.for_git if root.only_git)
        trees = tuple(root.path for root in roots.for_git if root.is_above)
        paths = tuple(root.path for root in roots.for_git)
        parents = directories_above_read_only_roots(roots, policy)
        return cls(policy, parents, exposed(roots.own_places), repositories, trees, paths)

    def state(self, tier: str | None) -> str:
        """List what is denied in one line; empty if nothing is."""
        if tier != "landlock":
            return ""
        if self.exposed:
            return f"all commands, since {self.exposed}"
        parts = [] if self.policy.network == "allow" else ["UDP and IPv6"]
        parts += ["abstract and datagram Unix sockets", "Unix sockets outside the roots and $TMPDIR"]
        parts += (
            [f"new entries directly in {_listed(self.read_only_parents)} (a read-only root lies beneath)"]
            if self.read_only_parents
            else []
        )
        parts += [
            f"changes of the repository {printable(path)} (git tools make them; as another root it is open to commands)"
            for path in self.repositories
        ]
        parts += [
            f"files of {printable(path)} outside the roots, which only the git tools read (git in commands takes them"
            " for changed)"
            for path in self.trees
        ]
        if self.policy.own_container:
            return ", ".join(parts)
        return ", ".join([*parts, "semaphores and shared memory (/dev/shm), /tmp, terminals that programs make"])

    def instruction(self, tier: str | None) -> str:
        """Return the instruction for models that connect; empty if nothing is denied or the tier is still unknown."""
        denied = self.state(tier)
        if not denied:
            return ""
        if self.exposed:
            return f"Commands are refused here (tier landlock): {self.exposed}."
        return (
            "Commands are confined in tier landlock: they can read every file beneath the roots, secrets too, which"
            f" get_diagnostics lists; denied to them: {denied}."
        )

    def explanations(self) -> tuple[Explanation, ...]:
        """Return one explanation for each cause."""
        udp = "" if self.policy.network == "allow" else " over IPv4 on loopback"
        open_places = "; there was no private one here: make a directory other than /tmp writable for the server"
        option = open_places if self.policy.own_container else f"; {OPTION}"
        return (
            _explained(
                _SOCKETS,
                f"in tier landlock commands have TCP{udp} and Unix stream sockets, and no other kind of socket: let a"
                " server listen on 127.0.0.1, such as `python3 -m http.server --bind 127.0.0.1`; the operator's option"
                " --network allow adds UDP and IPv6",
            ),
            _explained(
                _UNIX_SOCKET, "in tier landlock commands reach Unix sockets only beneath the roots and in $TMPDIR"
            ),
            _explained(
                _SHARED_MEMORY,
                f"semaphores and shared memory (/dev/shm) are closed to commands in tier landlock{option}",
            ),
            self._unless_in_a_root(
                _explained(
                    self._temporary,
                    f"the directory /tmp is closed to commands in tier landlock: use $TMPDIR{option}",
                    in_line=_CD_TEMPORARY,
                )
            ),
            self._unless_in_a_root(
                _explained(
                    _MISSING_TEMPORARY,
                    "commands have a /tmp and /var/tmp of their own, which have nothing of the machine's but roots: put"
                    " a file that a command is to read into a root",
                    tiers=("full",),
                )
            ),
            _explained(
                _TERMINALS,
                "programs can't make terminals in tier landlock: run_command gives one with its argument "
                f"`terminal`{option}",
            ),
            _explained(
                _SIGNALS,
                "a command can't signal processes of another run: stop_run ends a run",
                tiers=("full", "landlock"),
            ),
            self._parents_explanation,
            self._linked_explanation,
            self._folder_explanation,
            self._unreadable_explanation,
            *_repository_explanations(),
        )

    @property
    def _temporary(self) -> re.Pattern[str]:
        """The refusals in /tmp: from a root in it also those of `..`."""
        is_in_tmp = any(map(re.compile(_IN_TMP).match, self.roots))
        return _TEMPORARY_OR_ABOVE if is_in_tmp and not self.policy.own_container else _TEMPORARY

    def _unless_in_a_root(self, explain: Explanation) -> Explanation:
        """Leave out lines that name a place in a root: a refusal there has another cause."""

        def explanation(ending: CommandOutcome) -> str | None:
            lines = [line for line in ending.output.splitlines() if not self._names_a_root(line)]
            return explain(replace(ending, output="\n".join(lines)))

        return explanation

    def _names_a_root(self, line: str) -> bool:
        return any(is_beneath(path, root) for path in _ABSOLUTE.findall(line) for root in self.roots)

    def _parents_explanation(self, ending: CommandOutcome) -> str | None:
        """Explain a failed attempt to change the entries of a directory above a read-only root."""
        if not self.read_only_parents or ending.tier != "landlock" or not ending.may_have_failed:
            return None
        if not any(self._may_be_in_parent(line) for line in ending.output.splitlines() if _REFUSED.search(line)):
            return None
        parents = _listed(self.read_only_parents)
        return (
            f"in tier landlock commands can't create, delete or rename entries directly in {parents},"
            " since a read-only root lies beneath: change what is there, work elsewhere, or use the file tools"
        )

    def _linked_explanation(self, ending: CommandOutcome) -> str | None:
        """Explain a refused change in a repository that is shared with work trees outside the roots."""
        sign, part = (_REFUSED, "") if ending.tier == "landlock" else (_READ_ONLY, f"{WORKTREES}/")
        refused = [line for line in ending.output.splitlines() if sign.search(line)]
        path = next(
            (repository for repository in self.repositories if any(f"{repository}/{part}" in line for line in refused)),
            "",
        )
        if ending.tier == "full":
            path = path or self._shared_repository(ending)
            return path and (
                f"commands don't change HEAD, index and reflog of work trees outside the roots (in {printable(path)});"
                " git works in the roots. Where git renamed a branch that such a work tree has checked out,"
                " git branch -m NEW OLD takes it back"
            )
        if not path or ending.tier != "landlock":
            return None
        return (
            f"in tier landlock commands only read {printable(path)}, the repository of a root: the git tools"
            " change it (git_add, git_commit, git_branch, ...); for git in commands the operator adds"
            f" {printable(path)} as another root"
        )

    def _shared_repository(self, ending: CommandOutcome) -> str:
        """Return the repository whose main work tree a command could not change; "" if that was not the cause."""
        shared = [repository for repository in self.repositories if repository.rpartition("/")[0] not in self.trees]
        return shared[0] if shared and _OTHER_TREE.search(ending.output) else ""

    def _folder_explanation(self, ending: CommandOutcome) -> str | None:
        """Explain a refused change in the work tree above a root; git names its files from there, or relative."""
        refused = [line for line in ending.output.splitlines() if _READ_ONLY.search(line)]
        places = [_ABSOLUTE.findall(line) for line in refused]
        for tree in self.trees if ending.tier == "full" else ():
            if any(not paths or any(_is_of_tree(path, tree) for path in paths) for paths in places):
                back = (
                    ". A git switch, merge or reset --hard that met one has moved HEAD all the same: go back with git"
                    " symbolic-ref HEAD refs/heads/BRANCH (the branch before) && git reset, and git restore what it"
                    " changed here. A git stash has taken the changes here all the same: git restore"
                    " --source=stash@{0} -- . brings them back. The git tools (git_switch, git_stash, ...) leave what"
                    " is outside alone, or refuse the change before it begins"
                )
                what = f"of the work tree {printable(tree)} commands change only the roots, files outside are read-only"
                return what + (back if any(map(_WORK_TREE.search, refused)) else "")
        return None

    def _unreadable_explanation(self, ending: CommandOutcome) -> str | None:
        """Explain that git takes files of the work tree outside the roots for changed where it can't read them."""
        if not self.trees or ending.tier != "landlock" or "git" not in ending.program_names:
            return None
        if _OUTSIDE.search(ending.output) is None:
            return None
        trees = _listed(self.trees)
        return (
            f"in tier landlock commands can't read the files of {trees} outside the roots, and git in a command takes"
            " them for changed or deleted: git_status and git_diff tell what they are, `git status .` leaves them out"
        )

    def _may_be_in_parent(self, line: str) -> bool:
        """Whether a refusal concerns an entry of such a directory, or names no absolute path."""
        paths = _ABSOLUTE.findall(line)
        return not paths or any(path.rpartition("/")[0] in self.read_only_parents for path in paths)


def _is_of_tree(path: str, tree: str) -> bool:
    return is_beneath(path, tree) and not is_beneath(path, f"{tree}/{GIT}")


def _repository_explanations() -> tuple[Explanation, ...]:
    """Return the explanations in tier `full`. git exits with 0 after some (branch -u beneath a read-only root)."""
    causes = {
        _CONTROL_FILES: "commands can't replace .git/config and can't change .git/hooks of a repository, which decide"
        " what git runs: the change was not made; git config works, and delete_directory with_repositories=true deletes"
        " a whole repository",
        _SUBMODULES: "commands can't change, replace or delete the .git file of a submodule, which leads git to its"
        " repository: the work tree of a submodule is deleted by delete_directory with_repositories=true, and"
        " moved by the user",
        _SETTINGS: "commands can't change or delete existing settings on which editors and agents act when they open "
        f"the directory: {WAY_OUT}",
    }
    return tuple(_explained(sign, sentence, tiers=("full",), failed_only=False) for sign, sentence in causes.items())


def _listed(paths: tuple[str, ...]) -> str:
    return and_more(map(printable, paths[:MAX_LISTED]), len(paths))


def _explained(
    sign: re.Pattern[str],
    sentence: str,
    *,
    tiers: tuple[str, ...] = ("landlock",),
    failed_only: bool = True,
    in_line: re.Pattern[str] | None = None,
) -> Explanation:
    """Explain an output with a sign, or one with any refusal of a command that has the text `in_line`."""

    def explanation(ending: CommandOutcome) -> str | None:
        if ending.tier not in tiers or (failed_only and not ending.may_have_failed):
            return None
        if sign.search(ending.output):
            return sentence
        is_in_line = in_line is not None and any(map(in_line.search, ending.argv))
        return sentence if is_in_line and _REFUSED.search(ending.output) else None

    return explanation
