"""One run of a program: how it starts, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from coretools.confinement.confined_thread import ConfinedThread
from coretools.confinement.trial_view import TrialView
from coretools.errors import CoreError
from coretools.process.children.streams import InputBuffer, OutputListener, OutputRecorder, TerminalSize
from coretools.redaction.argv import redacted_command_line
from coretools.shell_words import join
from coretools.truncation import Excerpt, cut_text

_MOST_OUTPUT = 2_000
"""Characters of output in the error of `require_ok`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of one run."""

    is_command: bool = False
    """A program of the project or of the caller: subject to the operator's command policy, and run in the sandbox."""
    line: str = ""
    """The shell line that the argv makes a shell run: judged and shown in place of it."""
    variables: tuple[str, ...] = ()
    """Names in `environment` that the caller chose; one that may start another program counts as code."""
    is_granted: bool = False
    """The operator granted this command by other means: the command policy is not asked."""
    trial: TrialView | None = None
    """Overlays over the roots that receive what a command changes; only in tier `full`, and for one run."""
    is_confirmed: bool = False
    """A person confirmed this command; needed where the policy says `ask`."""
    timeout_seconds: float | None = None
    """None: the default of the runner."""
    stdin: bytes | None = None
    """None: /dev/null."""
    input: InputBuffer | None = None
    """Standard input that is written while the program runs; takes precedence over `stdin`."""
    terminal: TerminalSize | None = None
    """Run in a pseudoterminal in place of three pipes; only where `Runner.has_terminals`."""
    files: tuple[int, int, int] | None = None
    """Descriptors that are input, output and error output of a command, in place of three pipes. The caller closes
    them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the runner; takes precedence over it."""
    inherit: bool = True
    """False: `environment` is the complete environment."""
    is_swept: bool = False
    """Look for processes that left the program's group after an ordinary end too, which reads all of /proc."""
    keep_bytes: int | None = None
    """Bytes kept of each output. None: the default of the runner."""
    connection: int | None = None
    """A socket that is standard input and output of the child, in place of pipes. The caller closes it."""
    passed: tuple[int, ...] = ()
    """Further descriptors that the child inherits under the same numbers."""
    confined_thread: ConfinedThread | None = None
    """The thread that starts the child, which inherits its restrictions. None: the child has none."""
    memory_bytes: int | None = None
    """Most memory for the data of each process of the child. None: not limited here."""
    on_stdout: OutputListener | None = None
    """Called on the event loop with every chunk of standard output. When it returns True the tree is stopped, and the
    run ends as if the child had exited, with `timed_out` False. Not called any more once the tree is being stopped."""
    recorder: OutputRecorder | None = None
    """Receives every chunk of both outputs, including what is written while the tree is being stopped."""
    halt: anyio.Event | None = None
    """When set, the tree is stopped as by `on_stdout`."""

    @property
    def must_sweep(self) -> bool:
        """Whether processes that left the program's group are looked for, although it ended before its deadline."""
        return self.is_swept or (self.halt is not None and self.halt.is_set())

    @property
    def feed(self) -> InputBuffer | None:
        """The source of standard input; None for /dev/null."""
        return self.input or (InputBuffer.of(self.stdin) if self.stdin is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Result of a run: how it ended, and what it wrote."""

    argv: tuple[str, ...]
    line: str = ""
    """The shell line that it ran, if it did."""
    exit_code: int | None
    """None when a signal terminated the program."""
    signal: str | None
    """Name of the signal that terminated the program ("SIGKILL")."""
    stdout: Excerpt
    stderr: Excerpt
    duration_seconds: float
    """From the start to the exit of the program itself, without its descendants."""
    timed_out: bool
    """The deadline passed before the program exited."""
    peak_memory_bytes: int
    """Peak resident memory of the largest process that was waited for. 0: unknown, because it stayed below the peak of
    the server, which the kernel passes on to every child."""
    stragglers_stopped: int
    """Processes that outlived the program and were stopped by the runner."""
    tier: str | None = None
    """Confinement tier of a command; None for a program that is no command, and without a sandbox pool."""
    stopped_for: str = ""
    """Why the supervisor stopped a command; empty if it did not."""
    changed_control_files: tuple[str, ...] = ()
    """Control files (of git, editors and agents) that were created or changed while a command ran."""
    remarks: tuple[str, ...] = ()
    """Sentences for the result: what the command did to git's configuration or outside the roots, what was refused."""
    change: int = 0
    """Id of what it changed, in the journal for undo; 0 if it changed nothing, or that was not recorded."""

    @property
    def command_line(self) -> str:
        """The command as text: its shell line, or its words."""
        return self.line or join(self.argv)

    @property
    def ok(self) -> bool:
        """Whether the program exited by itself, in time, with exit code 0."""
        return self.exit_code == 0 and not self.timed_out and not self.stopped_for

    def require_ok(self) -> "Completed":
        """Return the result of a program that exited in time with exit code 0.

        Raises:
            CoreError: it did not; with its error output, or its output if that is empty.
        """
        if self.ok:
            return self
        ending = f"ended by {self.signal}" if self.signal else f"exit code {self.exit_code}"
        reason = "its time was over" if self.timed_out else self.stopped_for
        output = self.stderr.text().strip() or self.stdout.text().strip()
        parts = (
            f"{redacted_command_line(self.argv)}: {ending}",
            reason and f"({reason})",
            cut_text(output, _MOST_OUTPUT),
        )
        raise CoreError(
            " ".join(filter(None, parts[:2])) + (f"\n{parts[2]}" if parts[2] else ""), exit_code=self.exit_code
        )
