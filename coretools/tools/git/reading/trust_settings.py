"""What settings and attributes of a repository would run or reach under plain git. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.roots.git_config import Setting
from coretools.roots.git_credentials import may_hold_credential, without_credential
from coretools.tools.git.repository.policy import NEUTRAL_VALUES
from coretools.tools.git.repository.porcelain import single_line

VALUE_CHARACTERS = 200
"""Longest value shown."""

EXAMINED_CHARACTERS = 1_000
"""Characters of a value in which credentials are looked for; far more than are shown."""

HIDDEN = "[redacted]"

_NETWORK = "fetch, pull, push"
_CONVERTS = "checkout, switch, merge, reset, restore, stash"
_MERGES = "merge, rebase, cherry-pick, revert, stash apply"
_SHOWS = "diff, log -p, show, blame"
_COMMITS = "commit, merge, rebase"
_FILES = r"core\.(excludesfile|attributesfile)|commit\.template|mailmap\.(file|blob)|blame\.ignorerevsfile"
_TOOLS = r"(merge|diff|gui)tool\..+\.(cmd|path)|(merge|diff)\.(gui)?tool|(man|browser)\..+\.(cmd|path)|man\.viewer"
_BROWSERS = r"web\.browser|help\.(browser|htmlpath)|instaweb\..+"
_LISTS = r"(fetch\.|receive\.)?fsck\.skiplist|format\.(signaturefile|outputdirectory)"
_NAMED_REMOTES = r"branch\..+\.(remote|pushremote)|remote\.pushdefault|remotes\..+"
_STRATEGIES = r"pull\.(twohead|octopus)"

_SETTINGS: tuple[tuple[str, str, str], ...] = (
    (r"core\.fsmonitor", "program", "status, add, commit, diff and all that read the index"),
    (r"core\.hookspath", "hooks", "commit, merge, checkout, rebase, push"),
    (r"hook\..+", "hook", "what its event names"),
    (r"core\.(sshcommand|gitproxy)", "program", _NETWORK),
    (r"core\.askpass|credential\.(.+\.)?helper", "credential helper", f"{_NETWORK} over HTTP"),
    (r"core\.pager|pager\..+", "pager", "log, diff, show, branch on a terminal"),
    (r"core\.editor|sequence\.editor", "editor", "commit, merge, rebase --interactive"),
    (r"core\.alternaterefscommand", "program", "fetch, push"),
    (rf"{_FILES}|diff\.orderfile|gpg\.ssh\.(allowedsignersfile|revocationfile)", "file", "status, commit, log, blame"),
    (r"core\.worktree", "location", "every command"),
    (r"alias\..+", "alias", "git with its name"),
    (r"diff\.external|diff\..+\.command", "diff driver", _SHOWS),
    (r"diff\..+\.textconv", "text conversion", _SHOWS),
    (r"interactive\.difffilter", "program", "add --patch"),
    (r"filter\..+\.smudge", "filter", _CONVERTS),
    (r"filter\..+\.process", "filter", f"add, status, diff, {_CONVERTS}"),
    (r"filter\..+\.clean", "filter", "add, commit --all, status, diff"),
    (r"merge\..+\.driver", "merge driver", _MERGES),
    (_TOOLS, "program", "mergetool, difftool, gui, help"),
    (_BROWSERS, "program", "help --web, web--browse, instaweb"),
    (_STRATEGIES, "program", "pull, merge"),
    (r"branch\..+\.mergeoptions", "program", "merge, pull"),
    (r"gc\.recentobjectshook", "program", "gc, prune, repack"),
    (r"gitcvs\.(dbdriver|logfile)", "program", "cvsserver"),
    (r"init\.templatedir", "hooks", "init, clone"),
    (_LISTS, "file", "fsck, fetch, format-patch"),
    (r"fsmonitor\.socketdir", "location", "status and all that read the index"),
    (
        r"gpg\.(.+\.)?program|gpg\.ssh\.defaultkeycommand",
        "program",
        "commit --gpg-sign, tag --sign, log --show-signature",
    ),
    (r"commit\.gpgsign|user\.signingkey", "signing", _COMMITS),
    (r"(tag|push)\.gpgsign|log\.showsignature|merge\.verifysignatures", "signing", "tag, push, log, merge"),
    (r"include\.path|includeif\..+\.path", "include", "every command"),
    (
        r"remote\..+\.(promisor|partialclonefilter)|extensions\.partialclone",
        "promisor",
        "all that miss an object",
    ),
    (r"remote\..+\.(vcs|uploadpack|receivepack)", "program", _NETWORK),
    (rf"remote\..+\.(url|pushurl|proxy)|{_NAMED_REMOTES}", "remote", _NETWORK),
    (r"url\..+\.(insteadof|pushinsteadof)", "address", f"{_NETWORK}, submodule update"),
    (r"(fetch|transfer|bundle)\.(.+\.)?(bundle)?uri", "address", "fetch, clone"),
    (r"submodule\..+\.(url|update)", "submodule", "submodule update, clone --recurse-submodules"),
    (r"(http|protocol)\..+", "network", f"{_NETWORK} over HTTP"),
    (r"trailer\..+\.(command|cmd)", "program", "commit --trailer, interpret-trailers"),
    (r"tar\..+\.command", "program", "archive"),
    (r"(receive|uploadpack)\..*(hook|procreceiverefs)", "program", "push or fetch from this repository"),
    (r"(sendemail|imap)\..+", "program", "send-email, imap-send"),
    (r"lfs\..+", "lfs", "git lfs, filter lfs"),
)
_PROGRAM = "cmd|command|program|hook|helper|editor|pager|driver|viewer|browser"
_LATER = (
    (rf"[^.]+\.(.+\.)?[a-z-]*({_PROGRAM})", "program", "not known"),
    (r"(?!(.+\.)?fsck\.)[^.]+\.(.+\.)?[a-z-]*(file|path|dir|directory|template)", "file", "not known"),
    (r"[^.]+\.(.+\.)?[a-z-]*(url|uri|proxy|tunnel)", "address", "not known"),
)
"""Names that git uses for programs, files and addresses: keys of other versions, and of programs beside git."""
_COMPILED = [(re.compile(keys), kind, commands) for keys, kind, commands in (*_SETTINGS, *_LATER)]

_OFF = frozenset({"", "false", "no", "off", "0"})
_SWITCHES = re.compile(r"core\.fsmonitor|.+\.(gpgsign|showsignature|verifysignatures|promisor)")
"""Settings that mean nothing if they are off."""
_ONLY_SHELL = re.compile(r"alias\..+|submodule\..+\.update")
"""Settings that start a program only if the value begins with `!`."""
_ONLY_URL = re.compile(_NAMED_REMOTES)
"""Settings that name a remote, or have an address in its place."""
_ONLY_OTHER = re.compile(_STRATEGIES)
_BUILT_IN_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})
_NO_NAME = re.compile(r"true|false|yes|no|on|off|[0-9]*", re.IGNORECASE)
"""Values that name no program, file or address."""

_ATTRIBUTE = re.compile(rb"(?P<kind>filter|diff|merge)=(?P<name>\S+)")
_TRIGGERS = {"filter": f"add, status, {_CONVERTS}", "diff": _SHOWS, "merge": _MERGES}
_BUILT_IN = frozenset({"text", "binary", "union", "lockable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that plain git would run or reach."""

    kind: str
    name: str
    value: str
    where: str
    """The file and the line that say so."""
    triggered_by: str
    """git commands."""
    key: str = ""
    """For grants: the key of the setting, `hookfile.NAME`, or `filter.NAME.` and `merge.NAME.` of attributes."""


def kind_of(setting: Setting) -> tuple[str, str] | None:
    """Return the kind of what a setting would run or reach, and the git commands; None for a harmless one."""
    found = next(((kind, commands) for keys, kind, commands in _COMPILED if keys.fullmatch(setting.key)), None)
    if found is None and setting.variable in NEUTRAL_VALUES:
        found = ("program", "not known")
    return None if found is None or _is_idle(setting) else found


def finding_of(setting: Setting, found: tuple[str, str], data: bytes, display_path: str) -> Finding:
    """Return the finding for a setting of this kind, without credentials."""
    line = data.count(b"\n", 0, setting.span[0]) + 1
    name, value = shown(setting)
    return Finding(
        kind=found[0],
        name=name,
        value=value,
        where=f"{display_path}:{line}",
        triggered_by=found[1],
        key=setting.key,
    )


def attribute_findings(data: bytes, display_path: str) -> Iterator[Finding]:
    """Yield the attributes that would activate a filter, a driver or a text conversion."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.lstrip().startswith(b"#"):
            continue
        for found in _ATTRIBUTE.finditer(line):
            kind, name = found["kind"].decode(), found["name"].decode("utf-8", "replace")
            if name not in _BUILT_IN:
                yield Finding(
                    kind="attribute",
                    name=cut(f"{kind}={name}"),
                    value=cut(line.split(maxsplit=1)[0].decode("utf-8", "replace")),
                    where=f"{display_path}:{number}",
                    triggered_by=_TRIGGERS[kind],
                    key=f"{kind}.{name}.",
                )


def shown(setting: Setting) -> tuple[str, str]:
    """Return key and value as they may be shown."""
    short = None if setting.value is None else setting.value[:EXAMINED_CHARACTERS]
    setting = Setting(setting.key[:EXAMINED_CHARACTERS], short)
    name = setting.key
    if may_hold_credential(name.encode("utf-8", "replace")):
        name = f"{setting.section}.{HIDDEN}.{setting.variable}"
    clean = without_credential(setting) if setting.section != "credential" else setting
    value = HIDDEN if clean is None else "true" if clean.value is None else clean.value
    if may_hold_credential(value.encode("utf-8", "replace")):
        value = HIDDEN
    return cut(name), cut(value)


def cut(text: str) -> str:
    """Return text in one line, shortened."""
    line = single_line(text)
    return line if len(line) <= VALUE_CHARACTERS else f"{line[:VALUE_CHARACTERS]}..."


def without_secret(text: str) -> str:
    """Return a URL or a command as it may be shown."""
    return shown(Setting("remote..url", text))[1]


def _is_idle(setting: Setting) -> bool:
    value = "true" if setting.value is None else setting.value
    if _SWITCHES.fullmatch(setting.key):
        return value.lower() in _OFF
    if _ONLY_URL.fullmatch(setting.key):
        return not set(value) & set(":/")
    if _ONLY_OTHER.fullmatch(setting.key):
        return _BUILT_IN_STRATEGIES.issuperset(value.split())
    if any(keys.fullmatch(setting.key) for keys, _, _ in _COMPILED[-len(_LATER) :]) and _NO_NAME.fullmatch(value):
        return True
    return bool(_ONLY_SHELL.fullmatch(setting.key)) and not value.startswith("!")
