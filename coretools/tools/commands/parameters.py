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
        description='A bash line, such as "make -j4 2>&1 | tail"; or a list of words that are started '
        'without a shell, each passed as it is: ["grep", "-n", "a b", "x.txt"]'
    ),
    Aliases("cmd", "argv", "command_line", ignored=_REMARKS),
]
WorkingDirectory = Annotated[
    str,
    Field(description="Directory in which the command starts, named as in the file tools; default the first root"),
    Aliases("cwd", "workdir", "working_directory", "dir_path"),
]
CommandTimeout = Annotated[
    int | None,
    Field(
        ge=1,
        description="Seconds until the command is stopped with all that it started, at most 3,600; default "
        "120, with `wait_seconds` 3,600",
    ),
    Aliases(milliseconds=("timeout_ms",), hints=(_TIMEOUT,)),
]
StandardInput = Annotated[
    str | None,
    Field(
        description="Text on standard input, which then ends; with `wait_seconds` it stays open for "
        "write_run, also when the text is empty. Default: the command reads the end of input at "
        "once"
    ),
    Aliases("input"),
]
Variables = Annotated[
    dict[str, str] | None,
    Field(
        description="Environment variables of this command, names and values, in addition to those that "
        "every command has"
    ),
    Aliases("environment", "env_vars", "environment_variables"),
]
WaitSeconds = Annotated[
    _Seconds,
    Field(
        description="Wait at most this many seconds for the end; then answer with the output so far and the "
        "id of a run, in which the command goes on. 0 answers at once, without output. Default: "
        "wait to the end, and leave no run"
    ),
    Aliases(
        milliseconds=("yield_time_ms", "wait_ms_before_async"),
        switches={name: {True: 0} for name in ("run_in_background", "is_background", "background")},
    ),
]
TerminalText = Annotated[
    str,
    Field(
        description="Run it on a terminal of this size, columns x rows, such as 80x24, for programs that "
        "draw or ask for one; the answer is then the screen. Default: no terminal"
    ),
    Aliases(hints=("tty",)),
]

OnTrial = Annotated[
    bool,
    Field(
        description="Change nothing in the roots: the answer lists what the command would change, and end_trial keeps "
        "or discards it; default false. Not together with `wait_seconds`; needs tier full"
    ),
    Aliases("dry_run", "preview"),
]

RunId = Annotated[
    str,
    Field(description="Id of the run, such as run-86d70446, from the answer of run_command or of a ci tool"),
    _RUN_NAMES,
]
WaitLimit = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="Wait at most this many seconds, up to 3,600; default 30. The run goes on after that",
    ),
    Aliases("timeout_seconds", "wait_seconds", milliseconds=("timeout_ms", "yield_time_ms"), hints=(_TIMEOUT,)),
]
AwaitedText = Annotated[
    str,
    Field(
        description="Stop waiting when a new line matches this regular expression (as in search_text; (?i) "
        "ignores case); default: no line ends the wait"
    ),
    Aliases("regex"),
]
AwaitedPort = Annotated[
    int | None,
    Field(ge=1, le=65535, description="Stop waiting when a process of the run listens on this TCP port, 1 to 65,535"),
]
QuietSeconds = Annotated[
    _Seconds, Field(description="Stop waiting when the run has printed nothing for this many seconds of the wait")
]
MatchedFrom = Annotated[
    int | None,
    Field(
        ge=0,
        description="Search for `pattern` from this byte of the output on, 0 for all of it; default only "
        "what no answer has shown yet",
    ),
]
FirstLine = Annotated[
    str | Annotated[int, Field(ge=1)] | None,
    Field(
        description="First line to show: its number, from 1; or LINE@BYTE, a position that an answer named. "
        "Default: what is new. Excludes `tail` and `pattern`"
    ),
    Aliases("start_line", hints=("line",)),
]
LineCount = Annotated[
    _Lines,
    Field(description="Most lines to show, from `offset` on; default as many as fit. Excludes `tail` and `pattern`"),
    Aliases(hints=("end_line", "lines", "max_lines")),
]
TailLines = Annotated[
    _Lines,
    Field(description="Show only the last lines, this many. Excludes `offset`, `limit` and `pattern`"),
    Aliases(hints=("head",)),
]
SoughtText = Annotated[
    str,
    Field(
        description="Show the lines that match this regular expression (as in search_text), with their "
        "numbers. Excludes `offset`, `limit` and `tail`"
    ),
    Aliases("regex", "filter", "query"),
]
ContextLines = Annotated[
    int,
    Field(ge=0, le=50, description="With `pattern`: lines to show above and below each match, 0 to 50; default 0"),
    Aliases("-C", "context_lines"),
]
InputText = Annotated[
    str,
    Field(
        description="Text to give, unchanged: end a line with \\n. On a terminal \\u0003 is Ctrl-C, \\u001b[A arrow up"
    ),
    Aliases("chars", "input"),
]
EndOfInput = Annotated[
    bool,
    Field(
        description="Close the input after the text, as Ctrl-D does, so that the program reads its end; default false"
    ),
]
AnswerLimit = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="Wait at most this many seconds for the reply, up to 3,600; default 5. 0 returns right "
        "after the input",
    ),
    Aliases("timeout_seconds", "wait_seconds", milliseconds=("timeout_ms", "yield_time_ms"), hints=(_TIMEOUT,)),
]
AnswerSilence = Annotated[
    _Seconds,
    Field(description="The reply is complete after so many seconds without output; default 0.5, with `pattern` never"),
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
