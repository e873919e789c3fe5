"""Which changes of commands to git's configuration reach the repository's own file, credentials put back. Pure.

Commands see every setting but credentials. A change is applied only if neither key nor value can start a program: an
allow-list. A change of any other key stays in the copy.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from coretools.roots.git_config import Setting, Value, Values
from coretools.roots.git_credentials import without_credential

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
_URL = re.compile(r"remote\..*\.(?:url|pushurl)|submodule\..*\.url", re.DOTALL)
_TOGETHER = re.compile(r"(?:branch|remote|submodule)\..*\.")
_SERVER = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_USES = re.compile(r"branch\..*\.(?:remote|pushremote)|remote\.pushdefault", re.DOTALL)
_NAMED = re.compile(r"remote\.(?P<name>.*)\.url", re.DOTALL)


@cache
def _compiled() -> list[tuple[re.Pattern[str], re.Pattern[str], bool]]:
    """The patterns of keys and values, compiled when a command changed a setting for the first time."""
    return [(re.compile(keys), re.compile(values), values == _REMOTE) for keys, values in _ALLOWED]


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
    for keys, pattern, is_remote in _compiled():
        if keys.fullmatch(key):
            if is_remote:
                return remotes is None or all(value in (".", *remotes) for value in values)
            return all(pattern.fullmatch("" if value is None else value) for value in values)
    return False


def included_paths(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the paths of the files that these settings include."""
    return tuple(one.value for one in settings if one.value and one.section in _INCLUDE and one.variable == "path")
