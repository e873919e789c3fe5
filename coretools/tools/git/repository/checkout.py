"""A work tree whose repository was examined, and the paths of its names."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coretools.confinement.confined_thread import ConfinedThread
from coretools.confinement.landlock import Rule
from coretools.roots.editor_settings import SettingsSnapshot
from coretools.roots.git_layout import entry_exists
from coretools.roots.index_copy import IndexCopy
from coretools.roots.root import Directory
from coretools.tools.git.repository.grants import RepositoryGrants
from coretools.tools.git.repository.policy import GitPolicy
from coretools.tools.git.repository.porcelain import as_text, decoded, encoded, quoted


@dataclass(frozen=True, slots=True)
class Checkout:
    """A work tree whose repository was examined. It stays open while the call runs."""

    directory: Directory
    """The work tree; git runs in it."""
    rules: tuple[Rule, ...]
    """What git may access, as Landlock rules."""
    confined_thread: ConfinedThread | None
    """These rules in force. None: not here, or configuration outside the roots has to be settled first."""
    is_confined: Callable[[], bool]
    """Whether git runs in a confined thread at all, as far as is known."""
    environment: Mapping[str, str]
    """Variables that tell git every location, so that it searches for none."""
    git_handle: int
    """The git directory, open."""
    git_path: str
    """Absolute path of the git directory."""
    common_handle: int
    """The directory that all work trees of the repository share, open."""
    common_path: str
    """Absolute path of the directory that all work trees of the repository share."""
    policy: GitPolicy
    hooks: tuple[str, ...]
    """Installed hooks. They never run here; they are listed only before a change."""
    grants: RepositoryGrants
    """What the operator lets git run here."""
    in_progress: str
    """The unfinished operation ("merge", "rebase", ...); usually empty."""
    folder: str = ""
    """The folder of the work tree that is the caller's root, if the work tree begins above it: only files in it may
    change."""
    folder_path: str = ""
    """That folder as callers write it."""
    is_changing: bool = False
    """Whether the call may change anything."""
    settings: SettingsSnapshot | None = None
    """The settings of editors and agents before the call, if it may write the work tree."""
    index_copy: IndexCopy | None = None
    """The copy of the index that git uses and refreshes, in a call that compares it with the work tree."""

    @property
    def tier(self) -> str:
        """The tier in which git ran; a confined thread is tier `landlock` (no namespaces)."""
        return "landlock" if self.confined_thread is not None and self.is_confined() else "none"

    @property
    def is_linked(self) -> bool:
        """Whether this is a linked work tree, whose git directory is not that of the repository."""
        return self.git_path != self.common_path

    @property
    def is_partial(self) -> bool:
        """Whether this is a partial clone, which lacks objects that git would fetch; here nothing is fetched."""
        return self.policy.is_partial

    def to_root(self, name: str) -> str:
        """Return the path, relative to the root, of a name in the work tree."""
        top = self.directory.place.relative
        return name if top == "." else f"{top}/{name}"


def prefix(checkout: Checkout) -> str:
    """Return the prefix that makes one of git's names a path: empty if the work tree is the first root."""
    display_path = checkout.directory.display_path
    return "" if display_path == "." else f"{display_path}/"


def beginnings(checkout: Checkout) -> list[tuple[bytes, bytes]]:
    """Return how git's names begin, and the paths of those from the root; the first that fits counts."""
    top = (b"", encoded(prefix(checkout)))
    if not checkout.folder:
        return [top]
    parts = encoded(checkout.folder).split(b"/")
    if checkout.folder_path != ".":
        return [(b"/".join((*parts, b"")), encoded(checkout.folder_path) + b"/"), top]
    depths = range(len(parts), -1, -1)
    return [(b"".join(part + b"/" for part in parts[:depth]), b"../" * (len(parts) - depth)) for depth in depths]


def path_of(checkout: Checkout, name: bytes) -> bytes:
    """Return the path, from the root, of a name that git printed."""
    if checkout.folder and name.rstrip(b"/") == encoded(checkout.folder):
        return encoded(checkout.folder_path)
    return next(path + name[len(start) :] for start, path in beginnings(checkout) if name.startswith(start))


def shown_path(checkout: Checkout, name: str) -> str:
    """Return the path, from the root, of a name that `git_names` returned."""
    return as_text(path_of(checkout, b"" if name == "." else encoded(name))).rstrip("/") or "."


def display_paths(checkout: Checkout, names: Iterable[bytes]) -> list[str]:
    """Return the paths of names that git printed, for a line of text."""
    return [quoted(path_of(checkout, name)) for name in names]


def folder_names(checkout: Checkout) -> list[str]:
    """Return the names that a call is about which names none: those in the caller's folder, or no restriction."""
    return [checkout.folder] if checkout.folder else []


def is_outside(checkout: Checkout, name: bytes) -> bool:
    """Whether a name is not in the folder of the work tree that is the caller's root."""
    return bool(checkout.folder) and not is_beneath(name, checkout.folder)


def exists(checkout: Checkout, name: bytes) -> bool:
    """Whether there is anything of this name in the work tree."""
    return entry_exists(checkout.directory.fd, decoded(name))


def is_beneath(listed: bytes, name: str) -> bool:
    """Whether a name that git listed is this name or lies beneath it."""
    wanted = encoded(name)
    return listed == wanted or listed.startswith(wanted + b"/")
