"""The parameters of the command tools: type, bounds, description, and the names that other tools have for them."""

from typing import Annotated

from pydantic import Field

from coretools.config.limits import Limits
from coretools.errors import InvalidArguments
from coretools.operations.declare import Aliases

_TIMEOUT = "timeout"
"""Not an alias: milliseconds in some tools, seconds in others."""

_REMARKS = ("description", "explanation", "justification")
"""Parameters of other tools that only inform the user."""

_RUN_NAMES = Aliases("run_id", "session_id", "bash_id", "shell_id", "task_id", "id")

_Seconds = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]
_Lines = Annotated[int | None, Field(ge=1)]

CommandLine = Annotated[
    Annotated[str, Field(description="A bash line")]
    | Annotated[list[str], Field(description="Words of argv, without a shell")],
    Field(
        description="A bash line, such as 'make -j4 2>&1 | tail'; or a list of words that are started without a shell, "
        "each passed as it is: ['grep', '-n', 'a b', 'x.txt']"
    ),
    Aliases("cmd", "argv", "command_line", ignored=_REMARKS),
]
WorkingDirectory = Annotated[
    str,
    Field(description="Directory in which the command starts, as the file tools name it; by default the root"),
    Aliases("cwd", "workdir", "working_directory", "dir_path"),
]
CommandTimeout = Annotated[
    int | None,
    Field(
        ge=1,
        description="Seconds until the command is stopped with all it started: by default 120, with wait_seconds 3600",
    ),
    Aliases(milliseconds=("timeout_ms",), hints=(_TIMEOUT,)),
]
StandardInput = Annotated[
    str | None,
    Field(
        description="Text on standard input, which then ends; with wait_seconds it stays open for write_run, also when "
        "empty. Without it the command reads the end of input at once"
    ),
    Aliases("input"),
]
Variables = Annotated[
    dict[str, str] | None,
    Field(description="Environment variables of this command, in addition to those that every command has"),
    Aliases("environment", "env_vars", "environment_variables"),
]
WaitSeconds = Annotated[
    _Seconds,
    Field(
        description="Wait this many seconds at most for the end; then answer with the output so far and the id of a "
        "run, in which the command goes on. For servers, watchers and long work; 0 answers at once, without output"
    ),
    Aliases(
        milliseconds=("yield_time_ms", "wait_ms_before_async"),
        switches={name: {True: 0} for name in ("run_in_background", "is_background", "background")},
    ),
]
TerminalText = Annotated[
    str,
    Field(
        description="Run it on a terminal of this size, columns x rows, such as 80x24; the answer is then its screen"
    ),
    Aliases(hints=("tty",)),
]

RunId = Annotated[
    str,
    Field(description="Id of the run, as an answer of run_command or a ci tool, or list_runs, gives it"),
    _RUN_NAMES,
]
WaitLimit = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="Wait at most this many seconds; the run goes on after that"),
    Aliases("timeout_seconds", "wait_seconds", milliseconds=("timeout_ms", "yield_time_ms"), hints=(_TIMEOUT,)),
]
AwaitedText = Annotated[
    str,
    Field(
        description="Stop waiting when a line of new output contains a match of this regular expression (as in "
        "search_text; (?i) ignores case)"
    ),
    Aliases("regex"),
]
AwaitedPort = Annotated[
    int | None, Field(ge=1, le=65535, description="Stop waiting when a process of the run listens on this TCP port")
]
QuietSeconds = Annotated[
    _Seconds, Field(description="Stop waiting when the run has printed nothing for this many seconds of the wait")
]
MatchedFrom = Annotated[
    int | None,
    Field(
        ge=0,
        description="Search for `pattern` from this byte of the output on, 0 for all of it; by default only what no "
        "answer has shown yet",
    ),
]
FirstLine = Annotated[
    Annotated[int, Field(ge=1)] | str | None,
    Field(
        description="First line to show, counted from 1; or LINE@BYTE, a position in a long line that an answer named"
    ),
    Aliases("start_line", hints=("line",)),
]
LineCount = Annotated[
    _Lines,
    Field(description="Number of lines to show from `offset` on; by default as many as fit"),
    Aliases(hints=("end_line", "lines", "max_lines")),
]
TailLines = Annotated[_Lines, Field(description="Show the last lines, this many"), Aliases(hints=("head",))]
SoughtText = Annotated[
    str,
    Field(description="Show the lines with a match of this regular expression (as in search_text), with their numbers"),
    Aliases("regex", "filter", "query"),
]
ContextLines = Annotated[
    int,
    Field(ge=0, le=50, description="With `pattern`: lines to show above and below each match"),
    Aliases("-C", "context_lines"),
]
InputText = Annotated[
    str,
    Field(description=r"Text to give, unchanged: end a line with \n. \u0003 is Ctrl-C on a terminal"),
    Aliases("chars", "input"),
]
EndOfInput = Annotated[
    bool, Field(description="Close the input after the text, as Ctrl-D does: the program reads its end")
]
AnswerLimit = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="Wait at most this many seconds for the reply; 0 returns right after the input",
    ),
    Aliases("timeout_seconds", "wait_seconds", milliseconds=("timeout_ms", "yield_time_ms"), hints=(_TIMEOUT,)),
]
AnswerSilence = Annotated[
    _Seconds,
    Field(
        description="The reply is complete after so many seconds without output: by default 0.5; with `pattern`, never"
    ),
]


def timeout(given: float | None, default: float, limits: Limits, *, name: str = "timeout_seconds") -> float:
    """Return the seconds that a call requested, or the default.

    Raises:
        InvalidArguments: more than the limit.
    """
    most = limits.run_seconds_most
    if given is not None and given > most:
        raise InvalidArguments(f"{name}: at most {most:g} here, got {given:g}")
    return min(default, most) if given is None else float(given)
