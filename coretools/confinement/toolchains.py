"""The toolchains of the user: where they are installed, what of them commands may read, and how programs find them.

One table. A toolchain is granted by the parts of its directory that hold programs and libraries, never as a whole where
credentials may lie beside them (`~/.cargo/credentials.toml`). `toolchain_grants` turns what was found into grants.
"""

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from coretools.confinement.inotify import LOCAL, MountTable
from coretools.reach import is_beneath

MAX_MATCHES = 64
"""Most entries that one pattern of the table stands for."""

MAX_LISTED = 4096
"""Most entries of a directory that are looked at."""

VENV_FILE = "pyvenv.cfg"
"""Marks the directory of a virtual environment (PEP 405)."""

VENV_PARTS = ("bin", "lib", "lib64", "include", "share", VENV_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """One row of the table. Parts and programs are relative to the place; a component may be a pattern."""

    name: str
    places: tuple[str, ...]
    """Usual directories, relative to the home."""
    granted: tuple[str, ...]
    """Parts that commands may read and execute; `.` is the whole directory."""
    programs: tuple[str, ...] = ()
    """Directories of programs, added to PATH."""
    default: str = ""
    """A part that exists when the user chose a default version, which precedes the system's programs then."""
    variable: str = ""
    """Names the directory; set for commands, since they may have another home."""
    locator: str = ""
    """Names the directory, and is not set for commands."""
    sets: tuple[tuple[str, str], ...] = ()
    """Further variables for commands, with the parts that they name."""


TOOLCHAINS = (
    Toolchain(
        name="pyenv",
        places=(".pyenv",),
        granted=("bin", "libexec", "shims", "versions", "plugins", "pyenv.d", "completions", "version"),
        programs=("shims", "bin"),
        default="version",
        variable="PYENV_ROOT",
    ),
    Toolchain(name="uv Pythons", places=(".local/share/uv/python",), granted=(".",), variable="UV_PYTHON_INSTALL_DIR"),
    Toolchain(name="uv tools", places=(".local/share/uv/tools",), granted=(".",), locator="UV_TOOL_DIR"),
    Toolchain(
        name="pipx",
        places=(".local/share/pipx", ".local/pipx"),
        granted=("venvs", "shared", "py"),
        locator="PIPX_HOME",
    ),
    Toolchain(
        name="poetry",
        places=(".local/share/pypoetry",),
        granted=("venv",),
        programs=("venv/bin",),
        locator="POETRY_HOME",
    ),
    Toolchain(
        name="conda",
        places=("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda"),
        # Not `pkgs`, whose list of addresses may contain tokens, nor `.condarc`.
        granted=(
            *("bin", "condabin", "lib", "libexec", "include", "share", "ssl", "conda-meta", "envs", "etc/profile.d"),
            *("compiler_compat", "*-conda-linux-gnu"),
        ),
        programs=("condabin", "bin"),
        locator="MAMBA_ROOT_PREFIX",
    ),
    Toolchain(
        name="nvm",
        places=(".nvm", ".config/nvm"),
        granted=("versions", "alias", "nvm.sh", "nvm-exec", "bash_completion"),
        default="alias/default",
        variable="NVM_DIR",
    ),
    Toolchain(
        name="fnm",
        places=(".local/share/fnm", ".fnm"),
        granted=("fnm", "node-versions", "aliases"),
        programs=("aliases/default/bin",),
        default="aliases/default",
        variable="FNM_DIR",
    ),
    Toolchain(
        name="volta",
        places=(".volta",),
        granted=("bin", "tools", "layout.v*"),
        programs=("bin",),
        default="tools/user/platform.json",
        variable="VOLTA_HOME",
    ),
    Toolchain(
        name="pnpm",
        places=(".local/share/pnpm",),
        granted=("pnpm", "pnpx", "pn", "pnx", "bin", "global", "nodejs", ".tools", "package.json"),
        programs=(".",),
        variable="PNPM_HOME",
    ),
    Toolchain(
        name="npm global",
        places=(".npm-global", ".npm-packages"),
        granted=("bin", "lib"),
        programs=("bin",),
    ),
    Toolchain(
        name="bun", places=(".bun",), granted=("bin", "install/global"), programs=("bin",), variable="BUN_INSTALL"
    ),
    Toolchain(name="deno", places=(".deno",), granted=("bin",), programs=("bin",), variable="DENO_INSTALL"),
    Toolchain(name="rustup", places=(".rustup",), granted=(".",), variable="RUSTUP_HOME"),
    Toolchain(
        name="cargo",
        places=(".cargo",),
        granted=("bin", "env", "registry", "git"),
        programs=("bin",),
        variable="CARGO_HOME",
    ),
    Toolchain(name="go", places=("go",), granted=("bin", "pkg"), programs=("bin",), variable="GOPATH"),
    Toolchain(name="go releases", places=("sdk",), granted=("go[0-9]*",), programs=("go[0-9]*/bin",)),
    Toolchain(name="go release", places=(".local/go",), granted=(".",), programs=("bin",)),
    Toolchain(
        name="sdkman",
        places=(".sdkman",),
        granted=("candidates",),
        programs=("candidates/*/current/bin",),
        default="candidates",
        variable="SDKMAN_DIR",
        sets=(("JAVA_HOME", "candidates/java/current"),),
    ),
    Toolchain(name="JDKs", places=(".jdks",), granted=(".",)),
    Toolchain(name="maven", places=(".m2",), granted=("repository", "wrapper")),
    Toolchain(name="gradle", places=(".gradle",), granted=("wrapper/dists", "jdks")),
    Toolchain(
        name="asdf",
        places=(".asdf",),
        granted=("bin", "libexec", "lib", "shims", "installs", "plugins", "completions", "asdf.sh", "*.txt"),
        programs=("shims", "bin"),
        variable="ASDF_DATA_DIR",
    ),
    Toolchain(
        name="mise",
        places=(".local/share/mise",),
        granted=("installs", "shims", "plugins"),
        programs=("shims",),
        variable="MISE_DATA_DIR",
    ),
    Toolchain(
        name="rbenv",
        places=(".rbenv",),
        granted=("bin", "libexec", "shims", "versions", "plugins", "rbenv.d", "completions", "version"),
        programs=("shims", "bin"),
        default="version",
        variable="RBENV_ROOT",
    ),
    Toolchain(
        name=".NET",
        places=(".dotnet",),
        # Not `corefx`, which holds private keys of certificates.
        granted=(
            *("dotnet", "host", "sdk", "shared", "packs", "sdk-manifests", "metadata", "templates", "tools"),
            "library-packs",
        ),
        programs=(".", "tools"),
        variable="DOTNET_ROOT",
    ),
    Toolchain(
        name="Homebrew",
        places=("/home/linuxbrew/.linuxbrew", ".linuxbrew"),
        granted=("bin", "sbin", "lib", "libexec", "include", "share", "opt", "Cellar", "Homebrew/Library"),
        programs=("bin", "sbin"),
    ),
    Toolchain(name="programs of the user", places=(".local",), granted=("bin", "lib", "libexec"), programs=("bin",)),
)

VENV_DIRECTORIES = (
    *(".virtualenvs", "venvs", ".venvs", "envs", ".local/share/virtualenvs", ".cache/pypoetry/virtualenvs"),
    ".local/share/hatch/env/virtual/*/*",
)
"""Directories of the home that contain virtual environments."""


class FoundToolchain(NamedTuple):
    """A toolchain that is installed here. All paths have their links resolved."""

    name: str
    place: str
    granted: tuple[str, ...]
    """Paths that exist; still to be checked for what may never be granted."""
    programs: tuple[str, ...]
    is_chosen: bool
    """Whether the user chose a default version."""
    variables: Mapping[str, str]


def home_of(environment: Mapping[str, str]) -> str:
    """Return the real path of the home in which toolchains are searched."""
    return os.path.realpath(environment.get("HOME") or home_of_user())


def home_of_user() -> str:
    """Return the home of the server's user in the user database."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def find_toolchains(environment: Mapping[str, str], home: str) -> tuple[FoundToolchain, ...]:
    """Return the toolchains of the table that are installed, in its order."""
    toolchains = [_found_at(row, place) for row in TOOLCHAINS for place in _places(row, environment, home)]
    return tuple(one for one in toolchains if one is not None)


def _places(row: Toolchain, environment: Mapping[str, str], home: str) -> list[str]:
    """Return the existing directories of a row: the one that its variable names, or the usual ones."""
    named = environment.get(row.variable or row.locator, "")
    places = [named] if os.path.isabs(named) else [os.path.join(home, place) for place in row.places if home]
    return [place for place in dict.fromkeys(map(os.path.realpath, places)) if os.path.isdir(place)]


def _found_at(row: Toolchain, place: str) -> FoundToolchain | None:
    granted = tuple(dict.fromkeys(os.path.realpath(path) for part in row.granted for path in _matches(place, part)))
    if not granted:
        return None
    programs = [path for part in row.programs for path in sorted(_matches(place, part), key=_version, reverse=True)]
    if row.name == "nvm":
        programs += _default_node(place)
    variables = {row.variable: place} if row.variable else {}
    variables |= {name: path for name, part in row.sets for path in _matches(place, part)}
    is_chosen = bool(row.default) and os.path.exists(f"{place}/{row.default}")
    return FoundToolchain(row.name, place, granted, tuple(filter(os.path.isdir, programs)), is_chosen, variables)


def _matches(place: str, part: str) -> list[str]:
    """Return the existing paths that a part of the table stands for."""
    paths = [place]
    for component in part.split("/") if part != "." else ():
        if re.search(r"[*?\[]", component) is None:
            paths = [f"{path}/{component}" for path in paths]
        else:
            paths = [f"{path}/{name}" for path in paths for name in names_in(path) if fnmatchcase(name, component)]
        paths = [path for path in paths[:MAX_MATCHES] if os.path.exists(path)]
    return paths


def names_in(directory: str) -> list[str]:
    """Return the names in a directory, sorted, at most `MAX_LISTED`; none if it can't be read."""
    names: list[str] = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) == MAX_LISTED:
                break
    return sorted(names)


def _version(path: str) -> list[tuple[int, int | str]]:
    """Return a key that sorts names with version numbers: go1.9 before go1.22."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.findall(r"\d{1,9}|\D+", path)]


_MAX_ALIASES = 8
"""nvm's aliases that are followed: `default` is `lts/*`, which is `lts/jod`, which is `v22.11.0`."""


def _default_node(place: str) -> list[str]:
    """Return the programs of nvm's default version; of the newest one without a default."""
    installed = sorted((f"{place}/versions/node/{name}" for name in names_in(f"{place}/versions/node")), key=_version)
    wanted = "default"
    for _ in range(_MAX_ALIASES):
        named = _alias(place, wanted)
        if named is None:
            break
        wanted = named
    prefix = wanted if wanted.startswith("v") else f"v{wanted}"
    names = [path for path in installed if f"{os.path.basename(path)}.".startswith(f"{prefix}.")]
    return [f"{path}/bin" for path in (names or installed)[-1:]]


def _alias(place: str, name: str) -> str | None:
    """Return what an alias of nvm stands for; None if there is none of this name."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return None
    path = os.path.join(place, "alias", *parts)
    with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8", opener=_opened) as file:
        return file.readline(200).strip() or None
    return None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO does not block


def find_venvs(environment: Mapping[str, str], home: str, roots: Iterable[str]) -> list[str]:
    """Return the virtual environments in the usual directories of the home and beside the roots.

    Those inside a root are left out: commands reach them anyway, and could make others.
    """
    tops = [os.path.realpath(root) for root in roots]
    above = [environment.get("WORKON_HOME", ""), *(path for part in VENV_DIRECTORIES for path in _matches(home, part))]
    above = [path for path in above if os.path.isabs(path)]
    above += [os.path.dirname(top) for top in tops]
    venvs = [os.path.realpath(f"{path}/{name}") for path in dict.fromkeys(above) for name in _venv_names(path)]
    return [path for path in dict.fromkeys(venvs) if not any(is_beneath(path, top) for top in tops)][:MAX_MATCHES]


def _venv_names(directory: str) -> Iterator[str]:
    place = os.path.realpath(directory)
    if place == "/":
        return
    may_block = _mounted_from_elsewhere(place)
    for name in names_in(place):
        # Nor a link, which may lead to such a file system.
        if name in may_block or os.path.islink(f"{place}/{name}"):
            continue
        if is_venv(f"{directory}/{name}") and _is_own(f"{directory}/{name}"):
            yield name


def _mounted_from_elsewhere(directory: str) -> set[str]:
    """Return the names in a directory at which file systems are mounted that may not answer, such as those of servers.

    One beside a root may be dead, and would block every command for ever.
    """
    try:
        with closing(MountTable((directory,))) as table:
            table.changed()
            return {name for name in table.names.get(directory, ()) if table.kinds[f"{directory}/{name}"] not in LOCAL}
    except OSError:
        return set()


def _is_own(path: str) -> bool:
    """Whether a directory belongs to the server's user or to root: beside a root in /tmp there may be others."""
    try:
        return os.stat(path).st_uid in (0, os.geteuid())
    except OSError:
        return False


def is_venv(path: str) -> bool:
    """Whether a directory is a virtual environment, and no working copy."""
    is_marked = os.path.isfile(f"{path}/{VENV_FILE}") and os.path.lexists(f"{path}/bin/python")
    return is_marked and not os.path.lexists(f"{path}/.git")


def python_prefix(venv: str) -> str | None:
    """Return the installation of Python that a virtual environment uses, if there is one at the end of its link."""
    target = os.path.realpath(f"{venv}/bin/python")
    prefix = os.path.dirname(os.path.dirname(target))
    is_python = os.path.basename(os.path.dirname(target)) == "bin" and os.access(target, os.X_OK)
    has_library = any(
        os.path.isfile(f"{prefix}/lib/{name}/os.py") for name in names_in(f"{prefix}/lib") if name.startswith("python3")
    )
    return prefix if is_python and has_library else None


def is_in(path: str, directories: Iterable[str]) -> bool:
    """Whether a path, as it is written or with links followed, lies in one of these directories."""
    places = (os.path.normpath(path), os.path.realpath(path))
    return any(is_beneath(place, directory) for directory in directories for place in places)
