"""What the ci and command tools share: where and how long a program runs, how it ended, how its output is shown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

from coretools.config.settings import Limits
from coretools.errors import InvalidArguments
from coretools.process.run import Completed
from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.tools.answer_budget import cut_line
from coretools.tools.failure_explanations import NONE, Explanations, changed_files_text, lines_of
from coretools.truncation import Excerpt

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x1b\\|\x07|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"  # charset choices, and what stands alone after ESC
)
"""Complete escape sequences (ECMA-48, 5.3 to 5.6). No part can match across another ESC, so matching is linear.

An OSC without its terminator does not match: it would hide the rest of the output. Its ESC is made visible instead.
"""

COMMAND_CHARACTERS = 1_000
"""Characters shown of the command lines of a build or test run."""

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
"""C0 as control pictures (U+2400 to U+241F), DEL as U+2421, C1 as `\\x9b`."""


def plain(text: str) -> str:
    """Remove escape sequences; convert line ends to LF and make control characters visible."""
    return visible(without_escapes(text))


def printed(excerpt: Excerpt, redactor: Redactor | None) -> str:
    """Return the kept output as `plain` text. A redactor removes credentials, also truncated ones."""
    if redactor is None:
        return plain(excerpt.text())
    # Redact after escape sequences are removed: a colour within a token would hide it from the redactor.
    return redactor.text(plain(drop_partial_lines(excerpt).text()))


def visible(text: str) -> str:
    """Make escape sequences readable instead of effective; convert line ends to LF."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def without_escapes(text: str) -> str:
    """Remove complete escape sequences."""
    if "\x1b" not in text and not any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    return ESCAPES.sub("", text)


def shortened(text: str, most: int) -> str:
    """Shorten a text over `most` bytes to its start (a quarter) and its end, in whole lines if possible."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    head = data[: most // 4].decode("utf-8", "ignore")
    tail = data[-(most - most // 4) :].decode("utf-8", "ignore")
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    return f"{head.rstrip()}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


def streams(stdout: str, stderr: str) -> str:
    """Join both streams of a child; standard error is marked."""
    out, err = stdout.rstrip("\n"), stderr.rstrip("\n")
    if not err:
        return out
    return f"{out}\n[stderr]\n{err}" if out else f"[stderr]\n{err}"


SIGNAL_REASONS = {"SIGXFSZ": ": a file grew over the limit (file_bytes in the policy file)"}
"""Explanation of signals that our own limits cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSummary:
    """How one command, or a sequence of commands, ended. A failure is a result, not an error."""

    command: str
    exit_code: int | None
    """None if a signal ended it."""
    signal: str | None
    timed_out: bool
    duration_seconds: float
    peak_memory_bytes: int
    stragglers_stopped: int
    tier: str | None
    """Tier of confinement."""
    stopped_for: str
    """Why it was stopped before its deadline; empty if it was not."""
    changed_control_files: tuple[str, ...]
    """Settings of editors and agents that it created or changed."""
    output: str
    """Both streams, without terminal escapes."""
    dropped_bytes: int
    """Bytes of output that were not kept."""
    notes: tuple[str, ...] = ()
    """Explanations of a failure whose own message does not name the cause."""

    @classmethod
    def of(
        cls,
        runs: Sequence[Completed],
        output: str,
        explanations: Explanations = NONE,
        *,
        examined: str | None = None,
    ) -> Self:
        """Summarise a sequence of runs; the last one decides. `examined`: more of the output, for the explanations."""
        last = runs[-1]
        shown = examined or output
        notes = explanations.of(
            argv=last.argv, tier=last.tier, failed=not last.ok, output=shown, timed_out=last.timed_out
        )
        return cls(
            command=cut_line("; ".join(run.command_line for run in runs), longest=COMMAND_CHARACTERS),
            exit_code=None if last.signal else last.exit_code,
            signal=last.signal,
            timed_out=last.timed_out,
            duration_seconds=round(sum(run.duration_seconds for run in runs), 3),
            peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
            stragglers_stopped=sum(run.stragglers_stopped for run in runs),
            tier=last.tier,
            stopped_for=last.stopped_for,
            changed_control_files=tuple(path for run in runs for path in run.changed_control_files),
            output=output,
            dropped_bytes=sum(run.stdout.dropped_bytes + run.stderr.dropped_bytes for run in runs),
            notes=(*notes, *chain.from_iterable(run.remarks for run in runs)),
        )

    @property
    def failed(self) -> bool:
        """Whether it ended in any way but on its own with exit code 0."""
        return self.exit_code != 0 or self.timed_out or bool(self.stopped_for)

    def verdict(self) -> str:
        """Describe how it ended."""
        if self.timed_out:
            remark = f"; {self.stopped_for}" if self.stopped_for else ""
            return f"timed out after {self.duration_seconds:.1f} s and was stopped{remark}"
        if self.stopped_for:
            return f"stopped: {self.stopped_for}"
        if self.signal is not None:
            return f"ended by {self.signal}{SIGNAL_REASONS.get(self.signal, '')}"
        return "ok" if self.exit_code == 0 else f"exit code {self.exit_code}"

    def facts(self) -> dict[str, object]:
        """Machine-readable facts besides the text."""
        facts: dict[str, object] = {
            "exit_code": self.exit_code,
            "signal": self.signal,
            "timed_out": self.timed_out,
            "duration_seconds": self.duration_seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "stragglers_stopped": self.stragglers_stopped,
            "tier": self.tier,
        }
        facts |= {"made": list(self.changed_control_files)} if self.changed_control_files else {}
        return facts | ({"notes": list(self.notes)} if self.notes else {})

    def remarks(self) -> list[str]:
        """Lines between the first line and the output."""
        return lines_of(
            [*self.notes, *([changed_files_text(self.changed_control_files)] if self.changed_control_files else [])]
        )


def timeout(given: float | None, default: float, limits: Limits, *, name: str = "timeout_seconds") -> float:
    """Return the seconds that a call requested, or the default.

    Raises:
        InvalidArguments: more than the limit.
    """
    most = limits.run_seconds_most
    if given is not None and given > most:
        raise InvalidArguments(f"{name}: at most {most:g} here, got {given:g}")
    return min(default, most) if given is None else float(given)
