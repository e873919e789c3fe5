"""What `run_command` answers about a command that has ended."""

from coretools.tools.ci.results import ExecutionResult


class CommandResult(ExecutionResult):
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
        lines = [f"[{self.summary.verdict()}]"] if self.failed else []
        if not self.failed and not self.summary.output:
            lines.append("[exit code 0, no output]")
        if self.summary.stragglers_stopped:
            lines.append(f"[{self.summary.stragglers_stopped} left-over processes stopped]")
        lines += self.remarks()
        if self.summary.output:
            lines.append(self.summary.output)
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)
