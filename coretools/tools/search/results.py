"""Results of the search tools, and their text."""

from typing import Literal

from pydantic import BaseModel

from coretools.escapes import escape_controls
from coretools.operations.content import Result

Output = Literal["matches", "files", "counts"]
"""What a search returns: matching lines, files with a match, or files with their number of matching lines."""


class FoundLine(BaseModel):
    """A line of a result; `match` is False for a line of context."""

    number: int
    text: str
    match: bool


class FoundFile(BaseModel):
    """The lines of one file, in groups of adjacent lines; none if only files or counts are wanted."""

    path: str
    groups: list[list[FoundLine]]
    matches: int
    """Matching lines; 1 if only files are wanted."""


class FoundText(Result):
    """Result of `search_text`."""

    files: list[FoundFile]
    matches: int
    notes: list[str]
    engine: str
    output: Output = "matches"

    def text(self) -> str:
        """`path:line:text` for a match, `path-line-text` for a line of context, `--` between groups.

        Or a path per line, with its count.
        """
        if self.output != "matches":
            ends = [f":{file.matches}" if self.output == "counts" else "" for file in self.files]
            lines = [f"{escape_controls(file.path)}{end}" for file, end in zip(self.files, ends, strict=True)]
            return "\n".join([*lines, *(f"[{note}]" for note in self.notes)])
        groups = [self._group(file.path, group) for file in self.files for group in file.groups]
        around = any(not line.match for file in self.files for group in file.groups for line in group)
        body = ("\n--\n" if around else "\n").join(groups)
        return "\n".join([*([body] if body else []), *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Counts, and the engine that listed the files (none if the caller named a file)."""
        counts: dict[str, object] = {"matches": self.matches, "files": len(self.files)}
        return counts | ({"engine": self.engine} if self.engine else {})

    def _group(self, path: str, group: list[FoundLine]) -> str:
        name = escape_controls(path)
        return "\n".join(
            f"{name}:{line.number}:{line.text}" if line.match else f"{name}-{line.number}-{line.text}" for line in group
        )


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
