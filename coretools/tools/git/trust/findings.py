"""What settings and attributes of a repository would run or reach under plain git. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coretools.roots.git_config import Setting
from coretools.roots.git_credentials import may_hold_credential, without_credential
from coretools.roots.git_programs import CONVERTS, MERGES, SHOWS
from coretools.tools.git.repository.porcelain import single_line

VALUE_CHARACTERS = 200
"""Longest value shown."""

EXAMINED_CHARACTERS = 1_000
"""Characters of a value in which credentials are looked for; far more than are shown."""

HIDDEN = "[redacted]"

_ATTRIBUTE = re.compile(rb"(?P<kind>filter|diff|merge)=(?P<name>\S+)")
_TRIGGERS = {"filter": f"add, status, {CONVERTS}", "diff": SHOWS, "merge": MERGES}
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


def finding_of(setting: Setting, kind: tuple[str, str], data: bytes, display_path: str) -> Finding:
    """Return the finding for a setting of this kind, without credentials."""
    line = data.count(b"\n", 0, setting.span[0]) + 1
    name, value = shown(setting)
    return Finding(
        kind=kind[0],
        name=name,
        value=value,
        where=f"{display_path}:{line}",
        triggered_by=kind[1],
        key=setting.key,
    )


def attribute_findings(data: bytes, display_path: str) -> Iterator[Finding]:
    """Yield the attributes that would activate a filter, a driver or a text conversion."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.lstrip().startswith(b"#"):
            continue
        for match in _ATTRIBUTE.finditer(line):
            kind, name = match["kind"].decode(), match["name"].decode("utf-8", "replace")
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
