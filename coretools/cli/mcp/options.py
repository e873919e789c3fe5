"""`coretools mcp`: list, check and call the tools of any MCP server that is configured on this machine.

    coretools mcp list                        all servers: state, tools, and the file that names each
    coretools mcp tools [SERVER [TOOL]]       the tools of one server or all; with a name, its arguments
                                              --signatures: the arguments and types of all
    coretools mcp call SERVER TOOL [ARG ...]  call a tool: name=value, name:=JSON, name@=FILE, or --args JSON
    coretools mcp resources [SERVER]          the resources of one server or all, and their templates
    coretools mcp read SERVER URI             print a resource
    coretools mcp prompts [SERVER]            the prompts of one server or all
    coretools mcp prompt SERVER NAME [ARG..]  print the messages of a prompt: name=value
    coretools mcp complete SERVER prompt|resource NAME ARGUMENT [VALUE]
                                              how the server would complete a value
    coretools mcp start [SERVER ...]          keep servers connected in the background; other lines use them
    coretools mcp stop [SERVER ...]           end them; without a name all, and the background process
    coretools mcp restart [SERVER ...]        end them and start them again
    coretools mcp refresh [SERVER ...]        follow a changed configuration
    coretools mcp logs [SERVER]               what servers wrote to standard error, and their log messages
    coretools mcp ping [SERVER ...]           whether the servers answer
    coretools mcp trust [SERVER ...]          approve servers that files of this project name; --revoke undoes it
    coretools mcp approvals [revoke WHAT ...] what was decided for good, and how to undo it
    coretools mcp approve SERVER [TOOL ...]   approve tools as they are declared now, for `serve --upstream`
    coretools mcp login SERVER                log in to a remote server, in a browser
    coretools mcp logout SERVER               delete the tokens of a remote server
    coretools mcp doctor                      what is wrong with files, entries and servers
    coretools mcp run SCRIPT                  run the steps of a script; the same as `coretools run`

Exit codes: 0 success; 1 the tool reported an error; 3 an assertion does not hold; 4 a replay differs; 64 wrong usage,
unknown server or tool; 65 arguments or result do not fit the tool's schema; 66 a file of an argument, a prompt or a
decision is not there; 67 a remote server wants a login, or refuses the credentials; 69 a server can't be reached, or
ended; 74 a file can't be written; 76 a server broke the protocol, or refused the request; 77 not trusted, not approved
or refused by policy; 78 wrong configuration; 124 no answer in time; 127 a program can't be started; 128 plus the
number of the signal that ended it (Ctrl-C: 130).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from coretools.cli.common.global_options import OptionParser, option_names, split_options
from coretools.cli.common.terminal import print_text
from coretools.cli.mcp.pipeline_options import RUN_PAGE, PipelineOptions, add_pipeline_options, pipeline_options
from coretools.client.configuration.places import typed_name
from coretools.config.options import add_containment_options
from coretools.errors import InvalidArguments
from coretools.operations.argument_words import split_word

MOST = 1_000_000

SAMPLING_VARIABLE = "CORETOOLS_MCP_SAMPLING"
"""The command that answers for a model, if no option names one."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""Log levels of the protocol, least severe first."""

ACTIONS: dict[str, tuple[int, int]] = {
    "list": (0, 0),
    "tools": (0, 2),
    "call": (2, MOST),
    "resources": (0, 1),
    "read": (2, 2),
    "prompts": (0, 1),
    "prompt": (2, MOST),
    "complete": (4, 5),
    "start": (0, MOST),
    "stop": (0, MOST),
    "restart": (0, MOST),
    "refresh": (0, MOST),
    "logs": (0, 1),
    "ping": (0, MOST),
    "trust": (0, MOST),
    "approve": (1, MOST),
    "approvals": (0, MOST),
    "login": (1, 1),
    "logout": (1, 1),
    "doctor": (0, 0),
    "run": (0, 1),
}
"""How many words may follow each action."""


OF_ONE_SERVER = (
    *("tools", "call", "resources", "read", "prompts", "prompt", "complete", "approve", "login", "logout", "logs"),
    "ping",
)
"""Actions whose first word is a server, which `--url` replaces."""


@dataclass(frozen=True, slots=True)
class McpOptions:
    """One line."""

    action: str
    words: list[str]
    config: str | None
    url: str | None
    inputs: dict[str, str]
    trust_project: bool
    policy: str | None
    revoke: bool
    yes: bool
    pipeline: PipelineOptions
    connects: bool
    connect_seconds: float | None
    call_seconds: float | None
    answers: list[str]
    """`name=value` for the questions of servers."""
    accepts_defaults: bool
    sampling: str | None
    roots: list[str]
    confined: list[str]
    unconfined: list[str]
    log_level: LogLevel | None
    idle_seconds: float | None
    follow: bool
    lines: int | None

    @property
    def as_json(self) -> bool:
        """Whether the result is to be one JSON value."""
        return self.pipeline.output == "json"


def parse_line(words: Sequence[str]) -> McpOptions | None:
    """Parse the words after `coretools mcp`; None if they ask for help, which is printed.

    Raises:
        InvalidArguments: the line is wrong.
    """
    parser = mcp_parser()
    names = option_names(parser)
    own, rest = split_options(words, names, after_command=names)
    parsed = parser.parse_args(own)
    if "--" in rest:
        rest.remove("--")
    if parsed.wants_help:
        page = RUN_PAGE if rest[:1] == ["run"] else __doc__ or ""
        print_text(f"{page.strip()}\n\n{parser.format_help()}")
        return None
    if not rest:
        raise InvalidArguments(f"mcp: an action is missing; choose {', '.join(ACTIONS)}")
    action, *arguments = rest
    if action not in ACTIONS:
        raise InvalidArguments(f"mcp: unknown action {action!r}; choose {', '.join(ACTIONS)}")
    if parsed.url is not None:
        if action not in OF_ONE_SERVER or parsed.config is not None:
            raise InvalidArguments(f"--url: has no effect {'beside --config' if parsed.config else f'on `{action}`'}")
        arguments = [typed_name(parsed.url), *arguments]
    least, most = ACTIONS[action]
    if not least <= len(arguments) <= most:
        raise InvalidArguments(f"mcp {action}: wrong number of words; see `coretools mcp --help`")
    return _options(parsed, action, arguments)


def _options(parsed: argparse.Namespace, action: str, words: list[str]) -> McpOptions:
    inputs = {}
    for text in parsed.input:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArguments(f"--input {text}: write ID=VALUE")
        inputs[name] = value
    return McpOptions(
        action=action,
        words=words,
        config=parsed.config,
        url=parsed.url,
        inputs=inputs,
        trust_project=parsed.trust_project,
        policy=parsed.policy,
        revoke=parsed.revoke,
        yes=parsed.yes,
        pipeline=pipeline_options(parsed, action),
        connects=not parsed.no_connect,
        connect_seconds=parsed.connect_timeout,
        call_seconds=parsed.timeout,
        answers=_answers(parsed.answer),
        accepts_defaults=parsed.accept_defaults,
        sampling=parsed.sampling,
        roots=parsed.root,
        confined=parsed.confine,
        unconfined=parsed.unconfined,
        log_level=parsed.log_level,
        idle_seconds=parsed.idle_timeout,
        follow=parsed.follow,
        lines=parsed.lines,
    )


def _answers(words: list[str]) -> list[str]:
    for word in words:
        name, form, text = split_word(word)
        if text is None or not name or form == "@":
            raise InvalidArguments(f"--answer {word[:80]}: write NAME=VALUE or NAME:=JSON")
    return words


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError("between 0 and 86400 seconds")
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MOST:
        raise argparse.ArgumentTypeError(f"between 0 and {MOST}")
    return count


def mcp_parser() -> argparse.ArgumentParser:
    """Return the parser of the options of `coretools mcp`."""
    parser = OptionParser(prog="coretools mcp", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    add = parser.add_argument
    add("-h", "--help", action="store_true", dest="wants_help", help="show this")
    add("--config", metavar="FILE", help="read this file instead of the usual ones")
    add("--url", metavar="URL", help="use the server at this address, and leave out its name")
    add("--input", action="append", default=[], metavar="ID=VALUE", help="a value for ${input:ID} (repeatable)")
    add("--trust-project", action="store_true", help="start what files of this project name (for CI)")
    add_containment_options(parser)
    add("--policy", metavar="FILE", help="which calls are allowed or refused [~/.config/coretools/mcp-policy.toml]")
    add("--revoke", action="store_true", help="trust: no longer start these servers")
    add("--yes", action="store_true", help="call, or trust, without asking")
    add("--no-connect", action="store_true", help="list: read the files only")
    add("--connect-timeout", type=_seconds, metavar="SECONDS", help="until a server must have answered [30]")
    add("--timeout", type=_seconds, metavar="SECONDS", help="for one call [300]")
    add("--answer", action="append", default=[], metavar="NAME=VALUE", help="answer a server's question (repeatable)")
    add("--accept-defaults", action="store_true", help="answer questions of servers with their defaults")
    add("--sampling", metavar="COMMAND", help=f"let servers ask a model through this command [{SAMPLING_VARIABLE}]")
    add("--root", action="append", default=[], metavar="DIRECTORY", help="declare this root to servers (repeatable)")
    add("--log-level", choices=LOG_LEVELS, help="ask servers for their log messages, and print them from this level on")
    add("--idle-timeout", type=_seconds, metavar="SECONDS", help="start: end the background if it is unused [28800]")
    add("--follow", action="store_true", help="logs: print new lines as they come")
    add("--lines", type=_count, metavar="N", help="logs: print the last N lines [100]")
    add_pipeline_options(parser)
    return parser
