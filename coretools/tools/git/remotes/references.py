"""References of a remote, the refspecs that map them to tracking branches, and what a transfer did to each. Pure.

Names come from a remote that may be hostile: only those that git itself would accept are considered.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coretools.tools.git.reading.references import HEADS
from coretools.tools.git.repository.porcelain import as_text

TRACKING = "refs/remotes/"

MAX_REFERENCES = 50_000
"""Most references of a remote that are considered."""

_LINE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\t(refs/[^\n]+?)(\^\{\})?")
_HEAD = re.compile(rb"ref: (refs/heads/[^\n\t]+)\tHEAD")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[/.]$")
"""git-check-ref-format(1)."""

NEW, FAST_FORWARD, FORCED, PRUNED, REJECTED, UPDATED, DELETED = (
    *("new", "fast-forward", "forced", "pruned", "rejected", "updated", "deleted"),
)


@dataclass(frozen=True, slots=True)
class Advertised:
    """The references that a remote offers."""

    objects: Mapping[str, str]
    """Object of each reference, by its full name."""
    peeled: Mapping[str, str] = field(default_factory=dict)
    """What an annotated tag points to."""
    head: str = ""
    """The default branch, by its full name."""


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """One reference, before and after."""

    reference: str
    old: str
    new: str
    kind: str
    reason: str = ""

    def fields(self) -> dict[str, str]:
        """The fields of the structured answer; those that are empty are left out."""
        fields = {"reference": self.reference, "old": self.old, "new": self.new, "kind": self.kind}
        return {key: value for key, value in {**fields, "reason": self.reason}.items() if value}

    def line(self) -> str:
        """A line of text."""
        ends = " -> ".join(name[:10] for name in (self.old, self.new) if name)
        return f"{self.kind}: {self.reference} {ends}{f' ({self.reason})' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Refspec:
    """`+source:destination`, with at most one `*` on each side. A destination lies beneath `refs/remotes/`."""

    source: str
    destination: str
    is_forced: bool = True

    def destination_of(self, reference: str) -> str:
        """Return the tracking reference for a reference of the remote, or ""."""
        before, star, after = self.source.partition("*")
        if not star:
            return self.destination if reference == self.source else ""
        if len(reference) <= len(before) + len(after) or not reference.startswith(before):
            return ""
        if not reference.endswith(after):
            return ""
        return self.destination.replace("*", reference[len(before) : len(reference) - len(after)])


def default_refspec(remote: str) -> Refspec:
    """Return the refspec that git itself gives a new remote."""
    return Refspec(f"{HEADS}*", f"{TRACKING}{remote}/*")


def parse_refspec(text: str) -> Refspec | None:
    """Return a refspec of the configuration; None if it is not used here: it would change other references."""
    source, _, destination = text.removeprefix("+").partition(":")
    stars = (source.count("*"), destination.count("*"))
    plain = is_reference(source.replace("*", "x")) and is_reference(destination.replace("*", "x"))
    if not plain or stars not in ((0, 0), (1, 1)) or not destination.startswith(TRACKING):
        return None
    return Refspec(source, destination, text.startswith("+"))


def is_reference(name: str) -> bool:
    """Whether git would accept a name for a reference beneath `refs/`."""
    return name.startswith("refs/") and not _FORBIDDEN.search(name)


def read_advertised(output: bytes) -> Advertised:
    """Read the output of `git ls-remote --symref`. Lines that no honest remote causes are ignored."""
    objects: dict[str, str] = {}
    peeled: dict[str, str] = {}
    head = ""
    for line in output.split(b"\n"):
        if match := _HEAD.fullmatch(line):
            head = as_text(match[1])
        elif (match := _LINE.fullmatch(line)) and len(objects) < MAX_REFERENCES:
            name, target = as_text(match[2]), match[1].decode("ascii")
            if is_reference(name):
                (peeled if match[3] else objects)[name] = target
    return Advertised(objects, peeled, head if head in objects else "")


def tracked(refspecs: Iterable[Refspec], advertised: Advertised) -> dict[str, tuple[str, bool]]:
    """Return source and whether it may be forced, by tracking reference."""
    sources: dict[str, tuple[str, bool]] = {}
    for refspec in refspecs:
        for name in advertised.objects:
            destination = refspec.destination_of(name)
            if destination and is_reference(destination):
                sources.setdefault(destination, (name, refspec.is_forced))
    return sources
