"""What settings and attributes of a repository would run or reach under plain git. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.confinement.git_copies import has_credential, without_credential
from coretools.roots.git_config import Setting
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
_TOOLS = r"(merge|diff|gui)tool\..+\.(cmd|path)|man\..+\.(cmd|path)|browser\..+\.(cmd|path)|web\.browser"

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
    (
        r"gpg\.(.+\.)?program|gpg\.ssh\.defaultkeycommand",
        "program",
        "commit --gpg-sign, tag --sign, log --show-signature",
    ),
    (r"commit\.gpgsign", "signing", _COMMITS),
    (r"(tag|push)\.gpgsign|log\.showsignature|merge\.verifysignatures", "signing", "tag, push, log, merge"),
    (r"include\.path|includeif\..+\.path", "include", "every command"),
    (
        r"remote\..+\.(promisor|partialclonefilter)|extensions\.partialclone",
        "promisor",
        "all that miss an object",
    ),
    (r"remote\..+\.(vcs|uploadpack|receivepack)", "program", _NETWORK),
    (r"remote\..+\.(url|pushurl|proxy)", "remote", _NETWORK),
    (r"url\..+\.(insteadof|pushinsteadof)", "address", f"{_NETWORK}, submodule update"),
    (r"submodule\..+\.(url|update)", "submodule", "submodule update, clone --recurse-submodules"),
    (r"(http|protocol)\..+", "network", f"{_NETWORK} over HTTP"),
    (r"trailer\..+\.(command|cmd)", "program", "commit --trailer, interpret-trailers"),
    (r"tar\..+\.command", "program", "archive"),
    (r"(receive|uploadpack)\..*(hook|procreceiverefs)", "program", "push or fetch from this repository"),
    (r"(sendemail|imap)\..+", "program", "send-email, imap-send"),
    (r"lfs\..+", "lfs", "git lfs, filter lfs"),
)
_COMPILED = [(re.compile(keys), kind, commands) for keys, kind, commands in _SETTINGS]

_OFF = frozenset({"", "false", "no", "off", "0"})
_SWITCHES = re.compile(r"core\.fsmonitor|.+\.(gpgsign|showsignature|verifysignatures|promisor)")
"""Settings that mean nothing if they are off."""
_ONLY_SHELL = re.compile(r"alias\..+|submodule\..+\.update")
"""Settings that start a program only if the value begins with `!`."""

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
    if has_credential(name.encode("utf-8", "replace")):
        name = f"{setting.section}.{HIDDEN}.{setting.variable}"
    clean = without_credential(setting) if setting.section != "credential" else setting
    value = HIDDEN if clean is None else "true" if clean.value is None else clean.value
    if has_credential(value.encode("utf-8", "replace")):
        value = HIDDEN
    return cut(name), cut(value)


def cut(text: str) -> str:
    """Return text in one line, shortened."""
    line = single_line(text)
    return line if len(line) <= VALUE_CHARACTERS else f"{line[:VALUE_CHARACTERS]}..."


def _is_idle(setting: Setting) -> bool:
    value = "true" if setting.value is None else setting.value
    if _SWITCHES.fullmatch(setting.key):
        return value.lower() in _OFF
    return bool(_ONLY_SHELL.fullmatch(setting.key)) and not value.startswith("!")
