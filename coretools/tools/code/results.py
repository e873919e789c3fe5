"""Result of `code_symbols`, and its text."""

from pydantic import BaseModel

from coretools.escapes import escape_controls
from coretools.operations.content import Result


class FoundSymbol(BaseModel):
    """A definition. `text` is empty in an outline."""

    path: str
    kind: str
    name: str
    """With the names of what it is defined in: `Class.method`."""
    line: int
    end_line: int
    signature: str
    text: str = ""

    @property
    def lines(self) -> str:
        """The first and the last line."""
        return f"{self.line}-{self.end_line}" if self.end_line > self.line else str(self.line)

    @property
    def shown(self) -> str:
        """The symbol with its text, or its line in an outline."""
        if self.text:
            return f"{escape_controls(self.path)}:{self.lines} {self.kind} {self.name}\n{self.text}"
        return f"{'  ' * self.name.count('.')}{self.lines} {escape_controls(self.signature)}"


class FoundSymbols(Result):
    """Result of `code_symbols`."""

    symbols: list[FoundSymbol]
    more: bool
    """Whether there are more than are shown."""
    notes: list[str]

    def text(self) -> str:
        """Each path once, and beneath it `lines signature`, indented by what it is in; or whole texts."""
        shown, path = list[str](), ""
        for symbol in self.symbols:
            if symbol.path != path and not symbol.text:
                path = symbol.path
                shown.append(escape_controls(path))
            shown.append(symbol.shown)
        return "\n".join([*shown, *(f"[{note}]" for note in self.notes)])

    def facts(self) -> dict[str, object]:
        """Number of symbols shown."""
        return {"symbols": len(self.symbols), "more": self.more}
