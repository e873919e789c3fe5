"""What `run_command` answers about a command that has ended."""

from coretools.tools.ci.results import EndedResult


class CommandResult(EndedResult):
    """How a command ended, and what it printed."""

    run: str = ""
    """The handle to the whole output, when it was cut."""
    note: str = ""
    """How to get at what was cut."""

    def facts(self) -> dict[str, object]:
        """How it ended, and the handle if there is one."""
        return super().facts() | ({"run": self.run, "running": False} if self.run else {})

    def text(self) -> str:
        """Output; before it, unless the exit code is 0, how the command ended; behind it, what was cut."""
        lines = [f"[{self.ended.verdict()}]"] if self.failed else []
        if not self.failed and not self.ended.output:
            lines.append("[exit code 0, no output]")
        if self.ended.stragglers_stopped:
            lines.append(f"[{self.ended.stragglers_stopped} left-over processes stopped]")
        lines += self.remarks()
        if self.ended.output:
            lines.append(self.ended.output)
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)
