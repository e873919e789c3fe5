"""The limits of a server: sizes, times and counts. Those of HTTP are in `coretools/web/common/config.py`."""

from dataclasses import dataclass, fields, replace
from typing import Any

from coretools.errors import BadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one call, or of the whole server. Sizes in bytes, times in seconds."""

    answer_bytes: int = 20_000
    """Most bytes of text in the answer of a tool: about 5,000 tokens, what a model reads in one turn."""
    read_bytes: int = 256 * 1024
    """Most bytes of a file, or of the output of a run, in one read of a resource."""
    file_bytes: int = 64 * 1024 * 1024
    """Largest file that is read into memory to find lines in it or to edit it."""
    write_bytes: int = 16 * 1024 * 1024
    """Largest content that is written in one call; the line limit of the protocol has the same value."""
    list_entries: int = 2_000
    """Most entries in one listing."""
    search_results: int = 500
    """Most matches, or names, in one answer, whatever the call requests."""
    search_line_bytes: int = 500
    """A longer matching line is cut in the answer."""
    search_seconds: float = 30.0
    """Deadline of one search."""
    output_bytes: int = 64 * 1024
    """Kept of each output stream of a child process."""
    run_seconds: float = 120.0
    """Default deadline of a command."""
    run_seconds_most: float = 3_600.0
    """Longest deadline that a call may request."""
    build_seconds: float = 600.0
    """Default deadline of a build, a test run or a restore, which take longer than other commands."""
    report_bytes: int = 2 * 1024 * 1024
    """Kept of each stream of a build or test run to find its report in; only a small part is shown."""
    git_seconds: float = 60.0
    """Deadline of one git process."""
    git_output_bytes: int = 4 * 1024 * 1024
    """Most output of git that is parsed; longer output is an error, or is cut and counted."""
    transfer_seconds: float = 600.0
    """Deadline of one connection to a git remote."""
    transfer_idle_seconds: float = 120.0
    """Longest silence of a git remote over HTTP. git's own services send something every 5 s while they work."""
    transfer_bytes: int = 4 * 1024 * 1024 * 1024
    """Most bytes that a git remote may send in one connection."""
    grace_seconds: float = 2.0
    """Between TERM and KILL."""
    linger_seconds: float = 0.2
    """How long to wait for output of grandchildren after the child has exited."""
    runs: int = 32
    """Concurrent runs of one caller."""
    runs_kept: int = 64
    """Finished runs of one caller whose output is kept; the oldest is dropped."""
    run_idle_seconds: float = 1_800.0
    """A run that no call uses for this long is stopped, or dropped if it has ended."""
    run_output_bytes: int = 64 * 1024 * 1024
    """Kept of the output of one run, on disk; the oldest is dropped."""
    ask_seconds: float = 300.0
    """How long to wait for the answer to one question; none by then counts as no."""
    undo_bytes: int = 2 * 1024 * 1024 * 1024
    """Most bytes of former contents in the journal for undo, of all roots and servers of the user together."""
    undo_days: float = 14.0
    """A change is forgotten after these days."""
    undo_changes: int = 10_000
    """Most changes in the journal; the oldest are forgotten."""
    trials: int = 4
    """Commands on trial that wait to be kept or discarded; a further one is refused."""
    trial_bytes: int = 1024 * 1024 * 1024
    """Most bytes on the disk of what one trial wrote; one that wrote more is discarded."""
    trial_entries: int = 20_000
    """Most entries that one trial may have changed; one with more is discarded."""
    trial_seconds: float = 3_600.0
    """A trial is discarded after this long."""
    language_servers: int = 4
    """Language servers at once; for a further one that of the longest pause is ended."""
    language_server_bytes: int = 4 * 1024 * 1024 * 1024
    """Most memory for the data of one process of a language server."""
    language_server_cpu_seconds: int = 3_600
    """Most processor time of one process of a language server; then it is ended, and started anew on need."""
    language_server_idle_seconds: float = 600.0
    """A language server that no call used for this long is ended."""
    language_answer_seconds: float = 30.0
    """Longest wait for an answer of a language server, and for it to have read the project."""
    edit_errors_seconds: float = 1.0
    """Longest wait, after an edit, for a language server that runs already to name the errors that are new."""
    processes: int = 256
    """Concurrent child processes; a further call is refused."""
    threads: int = 32
    """Worker threads for file work."""
    upstream_seconds: float = 300.0
    """Longest time of a call of another server's tool (`--upstream`)."""
    upstream_calls: int = 8
    """Concurrent calls of one other server; further ones wait."""
    line_bytes: int = 16 * 1024 * 1024
    """Longest JSON-RPC line accepted from a client."""

    def replaced(self, assignments: dict[str, str]) -> "Limits":
        """A copy with some limits replaced by values in text form (`{"run_seconds": "300"}`).

        Raises:
            BadSetting: no such limit, not a number, or not above 0.
        """
        known = {field.name for field in fields(self)}
        values: dict[str, Any] = {}
        for name, text in assignments.items():
            if name not in known:
                raise BadSetting(f"limit {name}: no such limit; there are {', '.join(sorted(known))}")
            try:
                value = float(text) if isinstance(getattr(self, name), float) else int(text)
            except ValueError:
                raise BadSetting(f"limit {name}={text}: not a number") from None
            if not value > 0:
                raise BadSetting(f"limit {name}={text}: must be above 0")
            values[name] = value
        return replace(self, **values)
