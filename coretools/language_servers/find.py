"""Find the language server for a file: in its project, on PATH, and in what the extra installs; and its project.

A program in the project is code of the project. It is looked for by name only, and started in the sandbox like the
others.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape as glob_escape
from glob import glob

from coretools.language_servers.kinds import KINDS, ServerKind, kinds_for
from coretools.roots.root import Root, RootedPath

PROJECT_PROGRAMS = ("node_modules/.bin", ".venv/bin", "venv/bin")
"""Directories of a project that hold programs."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A language server for a file."""

    kind: ServerKind
    program: str
    origin: str
    """Where it was found: the project, PATH, the extra."""
    project: RootedPath
    """The directory that it is to know."""
    has_project: bool
    """Whether this directory has a project file."""
    search_path: str
    """PATH of commands."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it another server."""
        return self.program, self.project.path

    @property
    def variables(self) -> dict[str, str]:
        """Variables that it needs, by what is on PATH.

        A shim of pyenv, asdf or mise leads to no libraries. ty would then take those of its own installation: ours.
        """
        if not self.kind.reads_interpreter:
            return {}
        directories = self.search_path.split(os.pathsep)
        return {"PATH": os.pathsep.join(one for one in directories if os.path.basename(one) != "shims")}

    @property
    def limitation(self) -> str:
        """What it can't know here; empty if nothing."""
        if self.kind.needs_project and not self.has_project:
            return f"no {' or '.join(self.kind.project_files)}: {self.kind.name} knows only what this file imports"
        missing = [name for name in self.kind.needed_files if not _has_any(self.project.path, (name,))]
        return "; ".join(f"no {name}: {self.kind.needed_files[name]}" for name in missing)


def find_server(place: RootedPath, path: str) -> FoundServer | None:
    """Return the first server for a file that is found; `path` is PATH of commands."""
    kinds = kinds_for(place.relative)
    if not kinds:
        return None
    project, has_project = _project_of(place, kinds[0])
    for directories, origin in (
        ([f"{above.path}/{name}" for above in _upwards(project) for name in PROJECT_PROGRAMS], "the project"),
        (path.split(os.pathsep), "PATH"),
        ([os.path.dirname(sys.executable)], "the extra"),
    ):
        for kind in kinds:
            for directory in directories:
                program = shutil.which(kind.argv[0], path=directory)
                if program is not None and not _lacks_component(program):
                    return FoundServer(kind, program, origin, project, has_project, path)
    return None


def missing_server(place: RootedPath) -> str:
    """Say which server would know a file, and how to get it; empty if none is known."""
    kinds = kinds_for(place.relative)
    ways = "; or ".join(f"{kind.name}: {kind.get}" for kind in kinds)
    return f"no language server for {kinds[0].language} is installed ({ways})" if kinds else ""


def servers_by_language(root: Root, path: str) -> tuple[list[str], list[str]]:
    """Say for each language which server files directly in a root get, and for the others how to get one."""
    found: list[str] = []
    missing: list[str] = []
    for language in dict.fromkeys(kind.language for kind in KINDS):
        kind = next(one for one in KINDS if one.language == language)
        server = find_server(RootedPath(root, f"a.{next(iter(kind.languages))}"), path)
        if server is None:
            missing.append(f"{language} ({kind.name}: {kind.get})")
        else:
            found.append(f"{language}: {server.kind.name} from {server.origin}")
    return found, missing


def _project_of(place: RootedPath, kind: ServerKind) -> tuple[RootedPath, bool]:
    """The nearest directory with a file of a workspace, else of a project, beneath the root; else the root."""
    directory = RootedPath(place.root, os.path.dirname(place.relative) or ".")
    for names in (kind.workspace_files, kind.project_files):
        for above in _upwards(directory):
            if _has_any(above.path, names):
                return above, True
    return RootedPath(place.root, "."), False


def _lacks_component(program: str) -> bool:
    """Whether a program is rustup, which starts one of the same name of a toolchain, and no toolchain has that.

    rustup makes such a link for every component, installed or not.
    """
    place = os.path.realpath(program)
    if os.path.basename(place) != "rustup":
        return False
    toolchains = f"{os.path.dirname(os.path.dirname(os.path.dirname(place)))}/.rustup/toolchains"
    is_usual = os.path.isdir(toolchains)
    return is_usual and not glob(f"{glob_escape(toolchains)}/*/bin/{os.path.basename(program)}")


def _has_any(directory: str, names: Sequence[str]) -> bool:
    return any(os.path.lexists(f"{directory}/{name}") for name in names)


def _upwards(place: RootedPath) -> Iterator[RootedPath]:
    """The directory and those above it, up to the root."""
    relative = place.relative
    while relative not in (".", ""):
        yield RootedPath(place.root, relative)
        relative = os.path.dirname(relative)
    yield RootedPath(place.root, ".")


def file_uri(path: str) -> str:
    """Return the URI of an absolute path."""
    from urllib.parse import quote  # imported here: before the first question nothing needs it

    return f"file://{quote(path)}"


def path_of_uri(uri: str) -> str | None:
    """Return the absolute path of a URI of a file; None for any other."""
    from urllib.parse import unquote, urlsplit  # imported here: see above

    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    return path if parts.scheme == "file" and path.startswith("/") and "\0" not in path else None
