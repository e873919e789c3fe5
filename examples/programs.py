"""A subprocess tool: an agent runs programs of a project and reads what they wrote, beneath one directory.

python -m examples.programs run_program 'ls -l'    # a command line
python -m examples.programs serve                  # over stdio
"""

import sys
from dataclasses import dataclass

from coretools import App, Effect, Workspace, split_command_line

app = App("programs", version="1.0", title="Run programs of a project", roots=(".",))


@dataclass(frozen=True)
class Run:
    """How a program ended."""

    exit_code: int | None
    output: str
    timed_out: bool
    confinement: str | None


@app.tool(Effect.CHANGE, open_world=True)
async def run_program(command: str, workspace: Workspace, directory: str = ".", seconds: float = 60.0) -> Run:
    """Run a program with its arguments. No shell reads the line: pipes and redirections are refused."""
    done = await workspace.run(split_command_line(command), directory=directory, timeout_seconds=seconds)
    return Run(done.exit_code, done.stdout.text() + done.stderr.text(), done.timed_out, done.tier)


@app.tool(Effect.READ)
def files(workspace: Workspace, directory: str = ".") -> list[str]:
    """List the files of a directory."""
    return [entry.name for entry in workspace.list_directory(directory) if entry.kind == "file"]


@app.tool(Effect.READ)
def show(path: str, workspace: Workspace) -> str:
    """Show a text file."""
    return workspace.read_text(path)


if __name__ == "__main__":
    sys.exit(app.stdio() if sys.argv[1:2] == ["serve"] else app.cli())
