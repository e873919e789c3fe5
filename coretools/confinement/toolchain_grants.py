"""Grant commands the user's toolchains: those of the table, those on PATH, and what their links lead to.

Everything is read-only. What may hold credentials is never granted, however PATH or a link names it.
"""

import os
import pwd
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from stat import S_ISREG

from coretools.confinement.allowed_paths import Grant, outermost
from coretools.confinement.command_path import Programs, merged_path
from coretools.confinement.landlock import RUN
from coretools.confinement.toolchain_secrets import grantable_parts
from coretools.confinement.toolchains import (
    VENV_PARTS,
    FoundToolchain,
    find_toolchains,
    find_venvs,
    is_in,
    is_venv,
    names_in,
    python_prefix,
)
from coretools.reach import is_beneath

NEVER_GRANTED = frozenset({"/", "/home", "/root", "/proc", "/sys", "/dev", "/run", "/var", "/tmp", "/etc"})  # noqa: S108  # refused
"""Directories too broad to grant just because PATH names something in them."""

HOME_INDICATORS = (".ssh", ".aws", ".gnupg", ".netrc", ".bash_history", ".config")
"""Entries of a home. A directory with one of them is not taken for a toolchain."""

CREDENTIALS = (
    *HOME_INDICATORS,
    *(
        ".azure",
        ".docker",
        ".kube",
        ".gcloud",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        ".password-store",
        ".vault-token",
    ),
    *(".terraform.d", ".claude", ".codex", ".gemini", ".mozilla", ".thunderbird", ".local/share/keyrings", ".pki"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml", ".m2/settings-security.xml"),
    *(".gradle/gradle.properties", ".gem/credentials", ".bundle/config", ".nuget/NuGet", ".condarc"),
    *(".local/share/uv/credentials", ".dotnet/corefx"),
)
"""Paths in a home that hold credentials: neither they, nor what is beneath or above them, is granted."""

_SECRET_ENTRIES = (
    *(".git", ".env", ".npmrc", ".pypirc", ".netrc", ".condarc", "credentials", "credentials.toml", "credentials.json"),
    *("settings.xml", "gradle.properties", "auth.json", "id_rsa", "id_ed25519"),
)
"""Entries of a directory that keep it from being granted as a whole; its programs and libraries are."""

_OF_SYSTEM_USERS = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/games", "/usr/lib", "/usr", "/opt", "/dev"}
)
"""Homes of system users in /etc/passwd that are no homes."""

LIBRARIES = ("lib", "lib64", "libexec", "share", "include", "pyvenv.cfg")
"""Siblings of the `bin` directory of a toolchain."""

_DISTRIBUTIONS = (
    *(("bin/java", "release"), ("bin/mvn", "boot"), ("bin/gradle", "lib/plugins"), ("bin/go", "VERSION")),
    ("bin/node", "include/node"),
)
"""Files by which an unpacked distribution directly in the home is recognised. It is granted as a whole."""

MAX_LINKS = 512
"""Most links out of directories of programs and of versions that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToolchains:
    """What commands get of the user's toolchains."""

    path: str
    """PATH of commands."""
    grants: tuple[Grant, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that name toolchains their directories, since commands may have another home."""
    found: tuple[FoundToolchain, ...] = ()
    added: tuple[str, ...] = ()
    """Directories in `path` that neither the server nor the login shell has in its PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainSources:
    """Where toolchains are searched."""

    environment: Mapping[str, str]
    home: str
    login_path: Sequence[str] = ()
    """PATH of the user's login shell."""
    roots: Sequence[str] = ()
    """Real paths of the roots and of other paths that commands may write."""
    readable: Sequence[str] = ()
    """Paths that the operator grants."""
    prefixes: Sequence[str] = ()
    """The server's own installations of Python."""


class _PrivatePlaces:
    """What is never granted: homes and credentials, what is above them, and what is beneath credentials."""

    def __init__(self, home: str) -> None:
        homes = {os.path.realpath(home), *(os.path.realpath(one.pw_dir) for one in pwd.getpwall())} - {"/"}
        self._homes = homes - _OF_SYSTEM_USERS
        config = os.path.join(home, ".config")
        secrets = [os.path.join(home, name) for name in CREDENTIALS] if home else []
        self._config = {config, os.path.realpath(config)}
        self._secrets = {place for secret in secrets for place in (secret, os.path.realpath(secret))}
        self._existing = [secret for secret in self._secrets if os.path.lexists(secret)]

    def contains(self, path: str, *, is_listed: bool = False) -> bool:
        """Whether a path is private: `~/bin` in PATH must not open `~`.

        `is_listed`: it is in the table, which knows what is in `~/.config`.
        """
        if path in NEVER_GRANTED or any(is_beneath(one, path) for one in (*self._homes, *self._existing)):
            return True
        secrets = self._secrets - self._config if is_listed else self._secrets
        is_secret = any(is_beneath(path, one) for one in secrets)
        return is_secret or any(os.path.lexists(f"{path}/{name}") for name in HOME_INDICATORS)

    def without(self, one: FoundToolchain) -> FoundToolchain | None:
        """Return a toolchain with the parts that may be granted; None if there are none."""
        granted = tuple(part for part in one.granted if not self.contains(part, is_listed=True))
        return one._replace(granted=granted) if granted else None


def user_toolchains(sources: ToolchainSources) -> UserToolchains:
    """Find the user's toolchains. Reads directories; done once, before the first command."""
    environment, home = sources.environment, sources.home
    private = _PrivatePlaces(home)
    toolchains = tuple(filter(None, map(private.without, find_toolchains(environment, home))))
    programs = Programs(
        tuple(path for one in toolchains if one.is_chosen for path in one.programs),
        tuple(path for one in toolchains if not one.is_chosen for path in one.programs),
    )
    server = environment.get("PATH", "")
    given = merged_path(server, sources.login_path, Programs(), roots=sources.roots, home=home).split(os.pathsep)
    path = merged_path(server, sources.login_path, programs, roots=sources.roots, home=home)
    variables = {name: value for one in reversed(toolchains) for name, value in one.variables.items()}
    return UserToolchains(
        path=path,
        grants=tuple(Grant(one, RUN) for one in _granted_paths(sources, path, toolchains, private)),
        variables={name: value for name, value in variables.items() if not environment.get(name)},
        found=toolchains,
        added=tuple(entry for entry in path.split(os.pathsep) if entry not in given),
    )


def _granted_paths(
    sources: ToolchainSources, path: str, toolchains: Sequence[FoundToolchain], private: _PrivatePlaces
) -> list[str]:
    """Return the paths to grant: of the table, on this PATH, and where their links and virtual environments lead."""
    listed = [part for one in toolchains for part in one.granted]
    others = [*map(os.path.realpath, sources.prefixes), *_paths_on(path, sources, {one.place for one in toolchains})]
    others += _linked_versions(listed)
    venvs = find_venvs(sources.environment, sources.home, sources.roots)
    others += [os.path.realpath(f"{venv}/{part}") for venv in venvs for part in VENV_PARTS]
    all_venvs = [*venvs, *_venvs_in([*listed, *others, *map(os.path.realpath, sources.readable)])]
    others += filter(None, map(python_prefix, dict.fromkeys(all_venvs)))
    granted = [*listed, *(one for one in others if not private.contains(one))]
    # Beneath a root there is nothing to grant, and a mount there would make it read-only. A directory above a root may
    # be on PATH, and be split into parts because of a secret in the root.
    parts = grantable_parts(outermost(one for one in granted if not is_in(one, sources.roots)))
    return [part for part in parts if not is_in(part, sources.roots)]


def _paths_on(path: str, sources: ToolchainSources, places: Collection[str]) -> Iterator[str]:
    """Yield the toolchains on a PATH, and what links there lead to. `places` are known in the table."""
    # Not what is in a root: commands can make links there.
    folders = [one for one in path.split(os.pathsep) if one and not is_in(one, sources.roots)]
    for folder in map(os.path.realpath, folders):
        if folder not in places:
            yield from _toolchain_paths(folder, sources.home)
    yield from _linked_programs(folders, sources.home)


def _toolchain_paths(folder: str, home: str) -> Iterator[str]:
    """Yield a directory of programs, or the whole toolchain that it belongs to."""
    above = os.path.dirname(folder)
    yield folder
    if os.path.basename(folder) not in ("bin", "sbin") or above in (home, *NEVER_GRANTED):
        return
    is_in_home = bool(home) and os.path.dirname(above) == home
    if is_in_home and not _is_distribution(above):  # ~/.local and the like contain more than a toolchain
        yield from (os.path.join(above, name) for name in ("lib", "libexec"))
    else:
        yield from _whole(above)


def _is_distribution(path: str) -> bool:
    return any(all(os.path.exists(f"{path}/{name}") for name in names) for names in _DISTRIBUTIONS)


def _whole(chain: str) -> Iterator[str]:
    """Yield a toolchain, or only its programs and libraries if there may be credentials beside them."""
    if not any(os.path.exists(f"{chain}/{name}") for name in LIBRARIES):
        return
    if any(os.path.lexists(f"{chain}/{name}") for name in _SECRET_ENTRIES):
        yield from (f"{chain}/{name}" for name in ("bin", "sbin", *LIBRARIES))
    else:
        yield chain


def _linked_programs(folders: Iterable[str], home: str) -> Iterator[str]:
    """Yield what links in PATH directories lead to (`~/.local/bin/x`): a toolchain, or the program alone."""
    targets: dict[str, None] = {}
    for folder in folders:
        if os.path.isabs(folder) and not folder.startswith(("/usr/", "/bin", "/sbin")):
            links = (f"{folder}/{name}" for name in names_in(folder) if os.path.islink(f"{folder}/{name}"))
            targets |= dict.fromkeys(map(os.path.realpath, links))
    for target in list(targets)[:MAX_LINKS]:
        above = os.path.dirname(target)
        chain = os.path.dirname(above)
        # A working copy is a project, not a toolchain, although it may have a `bin` too.
        if os.path.basename(above) == "bin" and chain != home and not os.path.lexists(f"{chain}/.git"):
            yield from _whole(chain)
        if _is_program(target):
            yield target


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return S_ISREG(mode) and bool(mode & 0o111)


def _linked_versions(listed: Iterable[str]) -> Iterator[str]:
    """Yield the toolchains that links among the versions of another lead to (`candidates/java/17`)."""
    left = MAX_LINKS
    for top in listed:
        for path in (f"{top}/{name}" for name in names_in(top)):
            for entry in (path, *(f"{path}/{name}" for name in names_in(path) if left > 0)):
                if left > 0 and os.path.islink(entry):
                    left -= 1
                    target = os.path.realpath(entry)
                    if os.path.isdir(f"{target}/bin") and not is_beneath(target, top):
                        yield from _whole(target)


def _venvs_in(paths: Iterable[str]) -> Iterator[str]:
    """Yield the virtual environments among these directories and directly in them."""
    for path in paths:
        inner = (f"{path}/{name}" for name in names_in(path)) if os.path.basename(path) != "bin" else ()
        yield from filter(is_venv, (path, *inner))


def path_links(path: str, within: Iterable[str]) -> list[tuple[str, str]]:
    """Return the directories of a PATH that are links, with their real paths, but none beneath `within`."""
    links = []
    seen = list(within)
    for folder in path.split(os.pathsep):
        place = folder.rstrip("/")
        is_link = os.path.isabs(place) and os.path.isdir(place) and os.path.realpath(place) != place
        if is_link and not any(is_beneath(place, one) for one in seen):
            links.append((place, os.path.realpath(place)))
    return links
