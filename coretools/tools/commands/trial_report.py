"""What a command on trial would change, as the answer shows it: counts, paths, and short diffs of text."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from coretools.errors import CoreError
from coretools.process.trials.description import Described
from coretools.roots.text import decode
from coretools.tools.answer_budget import cut_line, fitting
from coretools.tools.filesystem.edit_diff import foreign_diff

_DIFFED_FILES = 10

_WORDS = {"added": "add", "changed": "change", "replaced": "replace", "deleted": "delete", "touched": "touch"}


@dataclass(slots=True)
class TrialReport:
    """What one trial would change."""

    trial: str = ""
    """Its id; empty if it is over."""
    message: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    left_out: int = 0
    diffs: str = ""

    @classmethod
    def of(cls, every: Iterable[Described], *, size: int) -> "TrialReport":
        """Build the report, of about `size` bytes. Blocks while it reads files.

        Raises:
            TooLarge: the trial has more than it may.
        """
        report, diffs, groups, directories, left = cls(), list[str](), Counter[str](), 0, size // 2
        for one in every:
            if one.what == "touched" and one.is_directory:
                directories += 1  # of most because something in them changed
                continue
            report.counts[one.what] += 1
            if one.group:
                groups[one.group] += 1
                continue
            line = cut_line(one.line)
            left -= len(line.encode("utf-8", "replace")) + 1
            if left < 0:
                report.left_out += 1
            else:
                report.lines.append(line)
            if len(diffs) < _DIFFED_FILES:
                with suppress(CoreError, OSError):
                    diffs += [text] if (text := _diff(one)) else []
        if directories and not report.counts:
            report.counts["touched"] = directories
        report.lines += [f"[{number} {group}]" for group, number in groups.items()]
        report.diffs = "\n".join(fitting(diffs, size - size // 2))
        return report

    @property
    def counted(self) -> str:
        """How many entries are added, changed, ..., as in "add 2, delete 1"."""
        return ", ".join(f"{word} {self.counts[what]}" for what, word in _WORDS.items() if self.counts[what])

    def text(self) -> str:
        """What to do with the trial, the paths, and diffs."""
        more = [f"[{self.left_out} more paths]"] if self.left_out else []
        return "\n".join([f"[{self.message}]", *self.lines, *more, *([self.diffs] if self.diffs else [])])

    def facts(self) -> dict[str, object]:
        """The id of the trial, and how many entries it would change."""
        return {"trial": self.trial, "changes": dict(self.counts)}


def _diff(one: Described) -> str:
    """A short diff of a text file, if its content may be shown; "" for anything else."""
    contents = one.contents()
    if contents is None:
        return ""
    before, after = (decode(data, one.display_path).text if data else "" for data in contents)
    return foreign_diff(before, after, display_path=one.display_path)
