"""Complete the last word of `coretools mcp ...` and `coretools run ...`. No server is started for it.

Servers come from the files of the configuration. Tools are those of a server that runs in the background, else those
that were approved for good.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from coretools.cli.common.candidates import Candidate, print_candidates
from coretools.cli.common.global_options import option_names, split_options
from coretools.cli.mcp.options import ACTIONS, LOG_LEVELS, MOST, OF_ONE_SERVER, mcp_parser
from coretools.cli.mcp.pipeline_options import FORMATS, OTHER_FORMATS
from coretools.client.approval.decisions import Decisions
from coretools.client.configuration.server_entries import ServerEntry, load_configuration
from coretools.config.options import working_directory
from coretools.errors import BadSetting, CoreError, Unreachable
from coretools.operations.completion import with_prefix

_TOOLS = {"tools": 1, "call": 1, "approve": MOST}
"""Actions whose server is followed by tools, and after how many words the last one may stand."""

_FIXED = {("approvals", 0): ("revoke",), ("complete", 1): ("prompt", "resource")}
"""Words of an action, by the number of words before."""

LIST_SECONDS = 3.0
"""For the list of tools of a server in the background."""

MAX_FILES = 1_000
"""Names of files that are examined."""

_PATHS = ("--config", "--policy", "--root", "--record", "--replay")
"""Options whose value is a path."""

_SERVERS = ("start", "stop", "restart", "refresh", "ping", "trust")
"""Actions whose words are all servers."""


def complete_line(words: Sequence[str]) -> int:
    """Print the completions of the last word; nothing if the line can't be understood."""
    before = list(words[1:-1] if words[0] == "mcp" else words[:-1])
    try:
        return print_candidates(mcp_candidates(before, words[-1], os.environ))
    except (CoreError, OSError):  # an unfinished line may be wrong
        return 0


def mcp_candidates(before: Sequence[str], current: str, environment: Mapping[str, str]) -> list[Candidate]:
    """Return the completions of `current`, which follows the words of `before`; these follow `mcp`.

    Raises:
        BadSetting: a file can't be read.
    """
    options = option_names(mcp_parser())
    own, rest = split_options(before, options, after_command=options)
    choices: Iterable[str]
    if own and options.get(own[-1]) and before[-1] == own[-1]:
        choices = _option_values(own[-1], rest, current)
    elif current.startswith("-"):
        choices = [name for name in options if name.startswith("--")]
    else:
        choices = ACTIONS if not rest else _words(own, rest, current, environment)
    return [Candidate(word) for word in with_prefix(current, choices)]


def _words(own: Sequence[str], rest: Sequence[str], current: str, environment: Mapping[str, str]) -> Iterable[str]:
    """Return what may follow the words of `rest`, which begin with the action."""
    action, *given = rest
    if action == "run":
        return _paths(current)
    if (action, len(given)) in _FIXED:
        return _FIXED[action, len(given)]
    configuration = load_configuration(working_directory(), environment, file=_value(own, "--config"))
    choices: Iterable[str] = ()
    if action in _SERVERS or (action in OF_ONE_SERVER and not given):
        choices = [entry.name for entry in configuration.effective]
    elif 0 < len(given) <= _TOOLS.get(action, 0):
        choices = _tools(configuration.find(given[0]), environment)
    return [name for name in choices if name not in given]


def _value(own: Sequence[str], option: str) -> str | None:
    last = None
    for at, word in enumerate(own):
        name, equals, value = word.partition("=")
        if name == option:
            last = value if equals else "".join(own[at + 1 : at + 2])
    return last


def _option_values(option: str, rest: Sequence[str], current: str) -> Iterable[str]:
    if option in _PATHS:
        return _paths(current)
    forms = FORMATS.get(rest[0], OTHER_FORMATS) if rest else FORMATS["call"]
    return {"--log-level": LOG_LEVELS, "--output": forms}.get(option, ())


def _tools(entry: ServerEntry | None, environment: Mapping[str, str]) -> list[str]:
    from coretools.client.background.client import attach

    if entry is None:
        return []
    launch = None
    with suppress(BadSetting, Unreachable):  # no place for the socket, or nobody there
        launch = attach(environment, entry)
    if launch is None:
        approved = Decisions(environment).all()["approved_tools"].values()
        return sorted({str(name).partition(": ")[2] for name in approved if str(name).startswith(f"{entry.name}: ")})
    # Imported late: the SDK takes a second to load.
    import anyio

    from coretools.client.connection.options import ConnectionOptions
    from coretools.client.hub import open_hub

    async def listed() -> list[str]:
        options = ConnectionOptions(connect_seconds=LIST_SECONDS)
        async with open_hub([entry], environment, options=options, attached={entry.name: launch}) as connections:
            connection = connections[entry.name]
            await connection.wait_settled()
            return [tool.name for tool in await connection.tools()]

    return anyio.run(listed)


def _paths(current: str) -> Iterator[str]:
    """Yield the paths that begin with `current`, directories with a slash."""
    start = current.rpartition("/")[2]
    prefix = current[: len(current) - len(start)]
    with os.scandir(os.path.expanduser(prefix) or ".") as entries:
        for _, one in zip(range(MAX_FILES), entries, strict=False):
            if one.name.startswith(start) and (start or not one.name.startswith(".")):
                yield f"{prefix}{one.name}/" if one.is_dir() else f"{prefix}{one.name}"
