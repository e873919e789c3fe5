"""The parameters of the command tools: type, bounds, description, and the names that other tools have for them."""

from typing import Annotated

from pydantic import Field

from coretools.operations.declare import Aliases, Rare

_TIMEOUT = "timeout"
"""Not an alias: milliseconds in some tools, seconds in others."""

_REMARKS = ("description", "explanation", "justification")
"""What other tools take to show it to the user."""

_RUN_NAMES = Aliases("run_id", "session_id", "bash_id", "shell_id", "task_id", "id")

_Seconds = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]
_Lines = Annotated[int | None, Field(ge=1)]

CommandLine = Annotated[
    str | list[str],
    Field(description="Bash line, or a list for exact argv"),
    Aliases("cmd", "argv", "command_line", ignored=_REMARKS),
]
WorkingDirectory = Annotated[
    str,
    Field(description="Starts there"),
    Aliases("cwd", "workdir", "working_directory", "dir_path"),
]
CommandTimeout = Annotated[
    int | None,
    Field(ge=1, description="Default 120, runs 3600"),
    Aliases(milliseconds=("timeout_ms",), hints=(_TIMEOUT,)),
]
StandardInput = Annotated[str | None, Field(description="Its input"), Aliases("input")]
Variables = Annotated[
    dict[str, str] | None,
    Field(description="More variables"),
    Aliases("environment", "env_vars", "environment_variables"),
]
WaitSeconds = Annotated[
    _Seconds,
    Field(description="Then go on as a run"),
    Aliases(
        milliseconds=("yield_time_ms", "wait_ms_before_async"),
        switches={name: {True: 0} for name in ("run_in_background", "is_background", "background")},
    ),
]
TerminalText = Annotated[str, Field(description="Size of one, as 80x24"), Aliases(hints=("tty",)), Rare()]

RunId = Annotated[str, Field(description="Its id"), _RUN_NAMES]
WaitLimit = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="At most"),
    Aliases("timeout_seconds", "wait_seconds", milliseconds=("timeout_ms", "yield_time_ms"), hints=(_TIMEOUT,)),
]
AwaitedText = Annotated[str, Field(description="Or prints this regex"), Aliases("regex")]
AwaitedPort = Annotated[int | None, Field(ge=1, le=65535, description="Or listens there")]
QuietSeconds = Annotated[_Seconds, Field(description="Or is quiet so long"), Rare()]
FirstLine = Annotated[_Lines, Field(description="First line"), Aliases(hints=("line",))]
LastLine = Annotated[_Lines, Field(description="Last line"), Aliases(hints=("limit", "lines"))]
TailLines = Annotated[_Lines, Field(description="Last lines"), Aliases(hints=("head", "max_lines"))]
SoughtText = Annotated[str, Field(description="Lines with this regex"), Aliases("regex", "filter", "query")]
ContextLines = Annotated[
    int, Field(ge=0, le=50, description="Lines around them"), Aliases("-C", "context_lines"), Rare()
]
ByteOffset = Annotated[int | None, Field(ge=0, description="From this byte")]
InputText = Annotated[str, Field(description=r"\u0003: Ctrl-C"), Aliases("chars", "input")]
EndOfInput = Annotated[bool, Field(description="Then close it")]
