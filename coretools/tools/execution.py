"""What the ci and command tools share: where and how long a program runs, how it ended, how its output is shown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Self

from pydantic import Field

from coretools.config.settings import Limits
from coretools.errors import InvalidArguments
from coretools.excerpt import Excerpt
from coretools.operations.content import Result
from coretools.process.runner import Completed
from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.roots.read import Directory, open_directory
from coretools.roots.root_set import Roots
from coretools.shell_words import join
from coretools.tools.explanations import NONE, Explanations, lines_of, made_text

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x1b\\|\x07|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"  # charset choices, and what stands alone after ESC
)
"""Complete escape sequences, ECMA-48 parts 5.3 to 5.6. No part can match across another ESC, so the work is linear.

An OSC without its end is no sequence: its ESC is made visible instead, or it would hide the rest of the output.
"""

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
"""C0 as its control picture (U+2400 to U+241F), DEL as U+2421, C1 as `\\x9b`."""


def plain(text: str) -> str:
    """The text without escape sequences; line ends become LF and control characters become visible."""
    return visible(without_escapes(text))


def printed(excerpt: Excerpt, redactor: Redactor | None) -> str:
    """What was kept of an output, as `plain` text; with a redactor without credentials, also those that were cut."""
    if redactor is None:
        return plain(excerpt.text())
    # After the escape sequences are gone: a colour in the middle of a token would hide it from the redactor only.
    return redactor.text(plain(drop_partial_lines(excerpt).text()))


def visible(text: str) -> str:
    """The text with its escape sequences to be read, not to be obeyed; line ends become LF."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def without_escapes(text: str) -> str:
    """The text without its complete escape sequences."""
    if "\x1b" not in text and not any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    return ESCAPES.sub("", text)


def shortened(text: str, most: int) -> str:
    """The start (a quarter) and the end of a text that is longer than `most` characters, cut at lines where it can."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most - most // 4) :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    return f"{head.rstrip()}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


def streams(stdout: str, stderr: str) -> str:
    """Both streams of a child as one text; what came on stderr is marked when both have something."""
    out, err = stdout.rstrip("\n"), stderr.rstrip("\n")
    if not err:
        return out
    return f"{out}\n[stderr]\n{err}" if out else f"[stderr]\n{err}"


_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escaped_name(name: str) -> str:
    """The name, with escapes for line breaks and terminal sequences: it could pass for several entries, or for none."""
    if name.isprintable():
        return name
    return _BREAKING.sub(lambda found: found[0].encode("unicode_escape").decode(), name)


SIGNAL_REASONS = {"SIGXFSZ": ": a file grew over the limit (file_bytes in the policy file)"}
"""What a signal means that our own limits send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSummary:
    """How one command, or several in a row, ended. A failure is a result, never an error."""

    command: str
    exit_code: int | None
    """None when a signal ended it."""
    signal: str | None
    timed_out: bool
    duration_seconds: float
    peak_memory_bytes: int
    stragglers_stopped: int
    tier: str | None
    """Tier of confinement."""
    stopped_for: str
    """Why it was ended before its deadline; empty when it was not."""
    made: tuple[str, ...]
    """Settings of editors and agents that came to be meanwhile."""
    output: str
    """Both streams, without terminal escapes."""
    dropped_bytes: int
    """Of what the runs printed, not kept."""
    notes: tuple[str, ...] = ()
    """What explains a failure that its own message does not name."""

    @classmethod
    def of(cls, runs: Sequence[Completed], output: str, explanations: Explanations = NONE) -> Self:
        """Several runs in a row as one; the last one decides."""
        last = runs[-1]
        notes = explanations.of(argv=last.argv, tier=last.tier, failed=not last.ok, output=output)
        return cls(
            command="; ".join(join(run.argv) for run in runs),
            exit_code=None if last.signal else last.exit_code,
            signal=last.signal,
            timed_out=last.timed_out,
            duration_seconds=round(sum(run.duration_seconds for run in runs), 3),
            peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
            stragglers_stopped=sum(run.stragglers_stopped for run in runs),
            tier=last.tier,
            stopped_for=last.stopped_for,
            made=tuple(path for run in runs for path in run.made),
            output=output,
            dropped_bytes=sum(run.stdout.dropped_bytes + run.stderr.dropped_bytes for run in runs),
            notes=(*notes, *chain.from_iterable(run.remarks for run in runs)),
        )

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by itself with exit code 0."""
        return self.exit_code != 0 or self.timed_out or bool(self.stopped_for)

    def verdict(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            remark = f"; {self.stopped_for}" if self.stopped_for else ""
            return f"timed out after {self.duration_seconds:.1f} s and was stopped{remark}"
        if self.stopped_for:
            return f"stopped: {self.stopped_for}"
        if self.signal is not None:
            return f"ended by {self.signal}{SIGNAL_REASONS.get(self.signal, '')}"
        return "ok" if self.exit_code == 0 else f"exit code {self.exit_code}"


class ExecutionResult(Result):
    """What every answer about a command that ran has in common."""

    summary: Annotated[ExecutionSummary, Field(exclude=True)]

    @property
    def failed(self) -> bool:
        """Whether the command failed."""
        return self.summary.failed

    def facts(self) -> dict[str, object]:
        """What a program may want beside the text."""
        facts: dict[str, object] = {
            "exit_code": self.summary.exit_code,
            "signal": self.summary.signal,
            "timed_out": self.summary.timed_out,
            "duration_seconds": self.summary.duration_seconds,
            "peak_memory_bytes": self.summary.peak_memory_bytes,
            "stragglers_stopped": self.summary.stragglers_stopped,
            "tier": self.summary.tier,
        }
        facts |= {"made": list(self.summary.made)} if self.summary.made else {}
        return facts | ({"notes": list(self.summary.notes)} if self.summary.notes else {})

    def remarks(self) -> list[str]:
        """Lines that stand between the first line and the output."""
        return lines_of([*self.summary.notes, *([made_text(self.summary.made)] if self.summary.made else [])])


# Where a program may be started, and for how long: the same for commands, builds and tests.


def open_to_start(roots: Roots, path: str) -> Directory:
    """The directory to start a program in. Blocking: for a worker thread."""
    return open_directory(roots, path)


def timeout(given: float | None, default: float, limits: Limits, *, name: str = "timeout_seconds") -> float:
    """The seconds that a call asked for under this name, or the default where it did not.

    Raises:
        InvalidArguments: more than a call may ask for.
    """
    most = limits.run_seconds_most
    if given is not None and given > most:
        raise InvalidArguments(f"{name}: at most {most:g} here, got {given:g}")
    return min(default, most) if given is None else float(given)
