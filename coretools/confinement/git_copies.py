"""Copies of git configurations for the namespaces of commands: credentials removed, and changes read back.

Commands can change a copy in any way, so reading it back trusts nothing: regular files only, no links, limited length,
and nothing is written to a directory that commands could write to.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex

from coretools.confinement import namespaces
from coretools.confinement.protected_paths import MaskedGitConfig, Masks
from coretools.errors import GitRefused
from coretools.regular_file import read_regular
from coretools.roots.directory_access import DIRECTORY
from coretools.roots.file_version import Version, version_of
from coretools.roots.git_config import NotWritable, Setting, Value, Values, parse, serialize, values_of
from coretools.roots.git_credentials import without_credential
from coretools.roots.root import identity_of

MAX_CONFIG_BYTES = 256 * 1024
"""Longest configuration that is copied; a longer one is hidden. Ordinary ones have a few hundred bytes."""

_FIXED = "fixed"
"""Subdirectory of the copies that commands may not change."""
_FORMAT = "core.repositoryformatversion"
"""Key that the configuration of every repository has."""


@dataclass(slots=True)
class ConfigCopy:
    """A copy, as it was when it was last read back."""

    repository: MaskedGitConfig
    name: str
    """Name of its directory."""
    base: Values
    version: Version


class ConfigCopies:
    """The copies for one set of namespaces."""

    def __init__(self, path: str, masks: Masks) -> None:
        """Write them to a new directory.

        Raises:
            OSError: they cannot be written.
        """
        self.path = path
        self.files: list[ConfigCopy] = []
        self.links: list[tuple[str, str]] = []
        self.originals: dict[str, MaskedGitConfig] = {}
        """The original of each copy, by the target of the link to it."""
        for directory in (path, f"{path}/{_FIXED}"):
            os.mkdir(directory, 0o700)
        self._identities = {one: identity_of(os.lstat(one)) for one in (path, f"{path}/{_FIXED}")}
        for one in masks.git_configs:
            self._add(one)

    def added_to(self, plan: namespaces.NamespacePlan) -> namespaces.NamespacePlan:
        """Return the namespace plan extended by these copies."""
        fixed = f"{self.path}/{_FIXED}"
        binds = [
            namespaces.BindMount(
                namespaces.CONFIG_COPIES, writable=True, source=self.path, identity=self._identities[self.path]
            ),
            namespaces.BindMount(
                f"{namespaces.CONFIG_COPIES}/{_FIXED}", writable=False, source=fixed, identity=self._identities[fixed]
            ),
        ]
        return plan._replace(binds=[*plan.binds, *binds], linked=self.links)

    def _add(self, one: MaskedGitConfig) -> None:
        name = token_hex(8)  # unguessable, so that a copied link is dangling later
        inside = name if one.is_writable else f"{_FIXED}/{name}"
        os.mkdir(f"{self.path}/{inside}", 0o700)
        with open(f"{self.path}/{inside}/config", "xb") as file:
            file.write(one.text)
            version = version_of(os.fstat(file.fileno()))
        self.links.append((one.path, f"{namespaces.CONFIG_COPIES}/{inside}/config"))
        self.originals[self.links[-1][1]] = one
        if one.is_writable:
            self.files.append(ConfigCopy(one, name, values_of(parse(one.text, "config")), version))


def read_changes(path: str, copy: ConfigCopy) -> dict[str, tuple[str | None, ...]]:
    """Return the keys that changed in a copy since the last call, with their new values.

    Raises:
        GitRefused, OSError: the copy is no longer the configuration of a repository.
    """
    top = os.open(path, DIRECTORY)
    try:
        handle = os.open(copy.name, DIRECTORY, dir_fd=top)
    finally:
        os.close(top)
    try:
        version = version_of(os.stat("config", dir_fd=handle, follow_symlinks=False))
        if version == copy.version:
            return {}
        settings = parse(read_regular("config", MAX_CONFIG_BYTES, directory=handle)[0], "config")
        serialize(settings)
    except NotWritable as error:
        raise GitRefused(str(error)) from error
    finally:
        os.close(handle)
    now = values_of(settings)
    if _FORMAT in copy.base and _FORMAT not in now:  # emptied or replaced
        raise GitRefused(f"{_FORMAT} is not set any more")
    changes = {key: now.get(key, ()) for key in {**copy.base, **now} if now.get(key) != copy.base.get(key)}
    copy.version, copy.base = version, now
    return changes


# Commands see every setting but credentials. Their changes are applied to the repository's own file only if neither key
# nor value can start a program: an allow-list. A change of any other key stays in the copy. Everything below is pure.

_INCLUDE = ("include", "includeif")
_BOOLEAN = r"(?i:true|false|yes|no|on|off|[01]?)"
_PART = r"[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*"
"""Name of a branch, remote or submodule (git-check-ref-format(1)) that cannot be taken for an option."""
_REFSPEC = r"\+?refs/[^\x00-\x20\x7f~^:?\[\\]+:refs/[^\x00-\x20\x7f~^:?\[\\]+"
_LINE = r"[^\x00-\x1f\x7f]{0,256}"
_NETWORK = r"(?:https?|ftps?|git)://(?!-)[^\s/@\x00-\x1f\x7f]+(?:/[^\s\x00-\x1f\x7f]*)?"
_SSH = r"(?:ssh|git\+ssh|ssh\+git)://(?:[\w.-]+@)?(?!-)[^\s/@\x00-\x1f\x7f]+(?:/[^\s\x00-\x1f\x7f]*)?"
_SCP = r"(?:[\w.][\w.-]*@)?[\w.][\w.-]*:(?![:/]{2}|:)[^\s\x00-\x1f\x7f]+"
_REMOTE_URL = rf"{_NETWORK}|{_SSH}|{_SCP}"
"""URL of another machine. Pushing to a local path would run the hooks there, `NAME::` a program `git-remote-NAME`."""
_REMOTE = "remote"
"""Value: the name of a remote that has a URL in the file."""

_ALLOWED: Sequence[tuple[str, str]] = (
    (rf"branch\.{_PART}\.(?:remote|pushremote)|remote\.pushdefault", _REMOTE),
    (rf"branch\.{_PART}\.merge", rf"refs/{_PART}"),
    (rf"branch\.{_PART}\.rebase", rf"{_BOOLEAN}|merges|m|interactive|i"),
    (rf"branch\.{_PART}\.(?:description|gh-merge-base|vscode-merge-base)", r"[^\x00-\x08\x0b-\x1f\x7f]{0,4096}"),
    (rf"remote\.{_PART}\.(?:url|pushurl)|submodule\.{_PART}\.url", _REMOTE_URL),
    (rf"remote\.{_PART}\.fetch", _REFSPEC),
    (rf"remote\.{_PART}\.tagopt", r"--(?:no-)?tags"),
    (rf"remote\.{_PART}\.(?:prune|prunetags|skipdefaultupdate|skipfetchall)", _BOOLEAN),
    (rf"remote\.{_PART}\.gh-resolved", r"base|[\w.-]+/[\w.-]+"),
    (rf"submodule\.{_PART}\.active", _BOOLEAN),
    (rf"submodule\.{_PART}\.branch", _PART),
    (r"user\.(?:name|email)|(?:author|committer)\.(?:name|email)", _LINE),
    (r"core\.(?:autocrlf|safecrlf)", rf"{_BOOLEAN}|input|warn"),
    (r"core\.eol", r"lf|crlf|native"),
    (r"core\.(?:filemode|ignorecase|quotepath|longpaths|sparsecheckout|sparsecheckoutcone)|index\.sparse", _BOOLEAN),
    (r"pull\.(?:rebase|ff)|merge\.ff", rf"{_BOOLEAN}|only|merges|interactive"),
    (r"push\.default", r"nothing|current|upstream|tracking|simple|matching"),
    (r"(?:push\.(?:autosetupremote|followtags)|fetch\.prune(?:tags)?|rebase\.auto(?:stash|squash))", _BOOLEAN),
    (r"merge\.conflictstyle", r"merge|diff3|zdiff3"),
    (r"init\.defaultbranch", _PART),
)
_COMPILED = tuple((re.compile(keys), re.compile(values), values == _REMOTE) for keys, values in _ALLOWED)
_URL = re.compile(r"remote\..*\.(?:url|pushurl)|submodule\..*\.url", re.DOTALL)
_TOGETHER = re.compile(r"(?:branch|remote|submodule)\..*\.")
_SERVER = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_USES = re.compile(r"branch\..*\.(?:remote|pushremote)|remote\.pushdefault", re.DOTALL)
_NAMED = re.compile(r"remote\.(?P<name>.*)\.url", re.DOTALL)


def restore_credentials(settings: Iterable[Setting], changes: Values) -> dict[str, tuple[Value, ...]]:
    """Return the changes of commands with the credentials of the file put back.

    A value that a command did not change keeps its credential, and values that commands do not see stay. A URL that
    moves to another remote keeps its credential, since it leads to the same server.
    """
    visible = [(one, without_credential(one)) for one in settings]
    whole: dict[str, tuple[Value, ...]] = {}
    for key, values in changes.items():
        own = [(one.value, seen) for one, seen in visible if one.key == key]
        unseen = [value for value, seen in own if seen is None]
        as_seen = [(seen.value, value) for value, seen in own if seen is not None]
        known = _original_urls(visible, key)
        whole[key] = (*unseen, *(_restored(value, as_seen, known) for value in values))
    return whole


def _original_urls(visible: Iterable[tuple[Setting, Setting | None]], key: str) -> dict[Value, Value]:
    """Map the URLs that commands see in keys of this kind to the originals; empty for a key that holds no URL."""
    if not _URL.fullmatch(key):
        return {}
    name = key.rpartition(".")[2]
    return {seen.value: one.value for one, seen in visible if seen and _URL.fullmatch(one.key) and one.variable == name}


def _restored(value: Value, as_seen: list[tuple[Value, Value]], addresses: Mapping[Value, Value]) -> Value:
    """Return the original of a value that commands see: one of the key's own values, each once, or a URL."""
    for pair in as_seen:
        if pair[0] == value:
            as_seen.remove(pair)
            return pair[1]
    return addresses.get(value, value)


def sends_credentials_to_any_server(settings: Iterable[Setting]) -> bool:
    """Whether the file holds a credential that git sends to any server."""
    helpers = (one.value or "" for one in settings if one.key == "credential.helper")
    return any("password" in value.lower() for value in helpers) or any(
        one.key == "http.extraheader" for one in settings
    )


def allowed_changes(
    changes: Values, before: Mapping[str, tuple[Value, ...]], *, is_bound: bool = False
) -> dict[str, tuple[Value, ...]]:
    """Return the changes to apply to a file with the values `before`. `is_bound` excludes URLs of new servers."""
    servers = _servers(before) if is_bound else None
    allowed = {key: values for key, values in changes.items() if _is_allowed(key, values, None)}
    allowed = {key: values for key, values in allowed.items() if servers is None or _servers({key: values}) <= servers}
    allowed = _without_partial_groups(allowed, changes)
    after = {**before, **allowed}
    remotes = {match["name"] for key, values in after.items() if values and (match := _NAMED.fullmatch(key))}
    allowed = _without_partial_groups(
        {key: values for key, values in allowed.items() if _is_allowed(key, values, remotes)}, changes
    )
    # Branches or `remote.pushDefault` name these remotes.
    used = {value for key, values in {**before, **allowed}.items() if _USES.fullmatch(key) for value in values}
    return _without_partial_groups(
        {key: values for key, values in allowed.items() if values or not _is_url_of(key, used)}, changes
    )


def _servers(found: Values) -> set[str]:
    """Return the HTTP servers of the URLs in these values; only these receive headers."""
    values = (value for key, values in found.items() if _URL.fullmatch(key) for value in values if value)
    return {match[0].lower() for value in values if (match := _SERVER.match(value))}


def _is_url_of(key: str, used: set[Value]) -> bool:
    """Whether a key is the URL of one of these remotes. Without its URL, git takes the name for a path."""
    match = _NAMED.fullmatch(key)
    return match is not None and match["name"] in used


def _without_partial_groups(allowed: Values, changes: Values) -> dict[str, tuple[Value, ...]]:
    """Leave out changes to a branch, remote or submodule of which another change is refused: all or none."""
    broken = {key.rpartition(".")[0] for key in changes if key not in allowed}
    return {
        key: values
        for key, values in allowed.items()
        if not _TOGETHER.match(key) or key.rpartition(".")[0] not in broken
    }


def _is_allowed(key: str, values: Sequence[Value], remotes: set[str] | None) -> bool:
    """Whether a key may have these values. Without `remotes`, any remote name is accepted."""
    for keys, pattern, is_remote in _COMPILED:
        if keys.fullmatch(key):
            if is_remote:
                return remotes is None or all(value in (".", *remotes) for value in values)
            return all(pattern.fullmatch("" if value is None else value) for value in values)
    return False


def included_paths(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the paths of the files that these settings include."""
    return tuple(one.value for one in settings if one.value and one.section in _INCLUDE and one.variable == "path")
