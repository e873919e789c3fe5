"""Results of the search tools, and their text."""

import re
from typing import Literal

from pydantic import BaseModel

from coretools.escapes import escape_controls
from coretools.operations.content import Result

Output = Literal["matches", "files", "counts"]
"""What a search returns: matching lines, files with a match, or files with their number of matching lines."""

_LIKE_A_LINE = re.compile(r"\d+[:-]")
"""How a line beneath a path begins. A path that begins so, as that of a dated file, is shown with `./`."""


class FoundLine(BaseModel):
    """A line of a result; `match` is False for a line of context."""

    number: int
    text: str
    match: bool

    @property
    def shown(self) -> str:
        """The line with its number, as in ripgrep: `:` for a match, `-` for context."""
        return f"{self.number}{':' if self.match else '-'}{self.text}"


class FoundFile(BaseModel):
    """The lines of one file, in groups of adjacent lines; none if only files or counts are wanted."""

    path: str
    groups: list[list[FoundLine]]
    matches: int
    """Matching lines; 1 if only files are wanted."""

    @property
    def has_one_line(self) -> bool:
        """Whether there is nothing to show but one line."""
        return sum(map(len, self.groups)) == 1

    @property
    def has_context(self) -> bool:
        """Whether there are lines that do not match."""
        return any(not line.match for group in self.groups for line in group)

    def counted(self, output: Output) -> str:
        """The path, and with `counts` the number of matching lines."""
        path = escape_controls(self.path)
        return f"{path}:{self.matches}" if output == "counts" else path

    def block(self, separator: list[str]) -> list[str]:
        """The path, and beneath it the lines, with the separator between groups."""
        path = escape_controls(self.path)
        block = [f"./{path}" if _LIKE_A_LINE.match(path) else path]
        for number, group in enumerate(self.groups):
            block += separator if number else []
            block += [line.shown for line in group]
        return block


class FoundText(Result):
    """Result of `search_text`."""

    files: list[FoundFile]
    matches: int
    """Matching lines shown."""
    notes: list[str]
    engine: str
    output: Output = "matches"

    def text(self) -> str:
        """Each path, and beneath it `line:text` for a match, `line-text` for a line of context, `--` between groups.

        `path:line:text` if that is as short, since no file has a second line. Or a path per line, with its count.
        """
        if self.output != "matches":
            lines = [file.counted(self.output) for file in self.files]
        elif all(file.has_one_line for file in self.files):
            lines = [f"{escape_controls(file.path)}:{file.groups[0][0].shown}" for file in self.files]
        else:
            separator = ["--"] if any(file.has_context for file in self.files) else []
            lines = [line for file in self.files for line in file.block(separator)]
        return "\n".join([*lines, *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Counts, and the engine that listed the files (none if the caller named a file)."""
        counts: dict[str, object] = {"matches": self.matches, "files": len(self.files)}
        return counts | ({"engine": self.engine} if self.engine else {})


class FoundNames(Result):
    """Result of `search_files`."""

    paths: list[str]
    total: int
    notes: list[str]

    def text(self) -> str:
        """One path per line."""
        return "\n".join([*map(escape_controls, self.paths), *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Number of paths shown, and the total."""
        return {"paths": len(self.paths), "total": self.total}
