"""One line of `coretools mcp`: which servers it may start, and the connections to them."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from coretools.cli.common.terminal import TerminalCapabilities, print_error
from coretools.cli.mcp.options import MOST, SAMPLING_VARIABLE, McpOptions
from coretools.cli.mcp.output import in_line
from coretools.cli.mcp.requests import requests_of
from coretools.cli.mcp.screen import Screen
from coretools.client.approval.approvals import Approvals
from coretools.client.approval.call_policy import find_policy
from coretools.client.approval.decisions import Decisions
from coretools.client.approval.trust import Trust
from coretools.client.background.client import attach
from coretools.client.configuration.launch import BackgroundLaunch
from coretools.client.configuration.server_entries import (
    Configuration,
    ServerEntry,
    load_configuration,
    typed_configuration,
)
from coretools.client.configuration.variables import given_input, inputs_of
from coretools.client.connection.options import Authorize, ConnectionOptions
from coretools.client.connection.server_connection import Connection
from coretools.client.connection.server_log import LogDirectory
from coretools.client.containment.containment import Containment
from coretools.client.hub import open_hub
from coretools.config.options import working_directory
from coretools.errors import BadSetting, CoreError, InvalidArguments, Unreachable


@dataclass(slots=True)
class Line:
    """One invocation of `coretools mcp`: its options, and what it works with."""

    options: McpOptions
    environment: Mapping[str, str]
    configuration: Configuration
    decisions: Decisions
    trust: Trust
    approvals: Approvals
    terminal: TerminalCapabilities
    screen: Screen
    containment: Containment

    @classmethod
    def of(cls, options: McpOptions, environment: Mapping[str, str]) -> "Line":
        """Read the configuration for a line.

        Raises:
            BadSetting: the file that it names, or the policy, can't be used. InvalidArguments: `--confine` or
                `--unconfined` names no server.
        """
        decisions = Decisions(environment)
        directory = working_directory()
        if options.url is not None:
            configuration = typed_configuration(options.url, directory, environment)
        else:
            configuration = load_configuration(directory, environment, file=options.config)
        policy = find_policy(options.policy, directory, environment, trusts_project=options.trust_project)
        terminal = TerminalCapabilities.of(environment)
        line = cls(
            options=options,
            environment=environment,
            configuration=configuration,
            decisions=decisions,
            trust=Trust(decisions, environment, everything=options.trust_project),
            approvals=Approvals(decisions, policy),
            terminal=terminal,
            screen=Screen(terminal, logs_events=options.pipeline.output == "ndjson"),
            containment=Containment.of(options.confined, options.unconfined, environment),
        )
        line.require_servers()
        return line

    @property
    def width(self) -> int:
        """Columns of a table; a pipe has no limit."""
        return shutil.get_terminal_size((100, 24)).columns if self.terminal.is_stdout_terminal else MOST

    @property
    def samples(self) -> bool:
        """Whether it answers for a model."""
        return bool(self.options.sampling or self.environment.get(SAMPLING_VARIABLE))

    def entry(self, name: str) -> ServerEntry:
        """Return the entry of this name.

        Raises:
            InvalidArguments: there is none.
        """
        entry = self.configuration.find(name)
        if entry is None:
            names = [one.name for one in self.configuration.effective]
            near = get_close_matches(name, names, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(names[:20]) or 'none'}"
            raise InvalidArguments(f"no server {name!r} is configured{meant}")
        return entry

    def require_servers(self) -> None:
        """Check that each server is configured whose confinement the line chooses.

        Raises:
            InvalidArguments: one is not; names similar ones.
        """
        for name in self.containment.named_by_options:
            self.entry(name)

    def startable(self, name: str) -> ServerEntry:
        """Return the entry if it may be started.

        Raises:
            InvalidArguments: there is none. BadSetting: it can't be used. NotTrusted: it must be approved first.
        """
        entry = self.entry(name)
        if error := self.trust.why_not(entry):
            raise error
        return entry


@asynccontextmanager
async def connected(
    line: Line,
    entries: Sequence[ServerEntry],
    *,
    authorization: Authorize | None = None,
    connect_seconds: float | None = None,
) -> AsyncIterator[Mapping[str, Connection]]:
    """Connect to those entries that may be started, after asking for the inputs that they need."""
    chosen = [entry for entry in entries if line.trust.why_not(entry) is None]
    attached = {entry.name: launch for entry in chosen if (launch := _attached(line, entry)) is not None}
    for entry in chosen:
        if entry.name not in attached:
            await ask_inputs(line, entry)
    with requests_of(line.options, line.environment, line.screen) as requests:
        options = ConnectionOptions(
            connect_seconds=connect_seconds or line.options.connect_seconds,
            call_seconds=line.options.call_seconds,
            server_requests=requests,
            authorization=authorization,
            logs=LogDirectory(line.environment),
            containment=line.containment,
        )
        async with open_hub(
            chosen, line.environment, inputs=line.options.inputs, options=options, attached=attached
        ) as connections:
            yield connections


def _attached(line: Line, entry: ServerEntry) -> BackgroundLaunch | None:
    """Use the server if it runs in the background, unless the line gives it inputs, roots or a login of its own."""
    has_inputs = any(one.id in line.options.inputs for one in inputs_of(entry))
    # Roots are declared in the handshake, which was done without any.
    if has_inputs or line.options.roots or line.options.action == "login":
        return None
    try:
        return attach(line.environment, entry, line.containment.choice(entry.name), samples=line.samples)
    except (BadSetting, Unreachable):  # no place for a socket, or somebody else's
        return None


async def confirm(line: Line, key: str, message: str, *, default: bool | None = None) -> bool:
    """Ask yes or no at the terminal; an empty answer is the default, if there is one."""
    # Imported late: only a terminal needs them, and they take 40 ms.
    from coretools.cli.common.call import CliCall
    from coretools.questions.kinds import AskConfirmation

    more: dict[str, Any] = {} if default is None else {"default": default}
    return await CliCall(line.terminal).ask(AskConfirmation(key=key, message=message, **more))


async def ask_inputs(line: Line, entry: ServerEntry) -> None:
    """Ask at the terminal for the inputs of an entry that were not given."""
    if not line.terminal.can_ask:
        return
    # Imported late: only a terminal needs them, and they take 40 ms.
    from coretools.cli.common.call import CliCall
    from coretools.questions.kinds import AskChoice, AskSecret, AskText, Question

    for one in inputs_of(entry):
        if given_input(one, line.environment, line.options.inputs) is not None:
            continue
        message = in_line(f"{entry.name}: {one.description or one.id}")
        more: dict[str, Any] = {} if one.default is None else {"default": one.default}
        question: Question[str]
        if one.options:
            question = AskChoice(key=one.id, message=message, choices=one.options, **more)
        elif one.is_secret:
            question = AskSecret(key=one.id, message=message)
        else:
            question = AskText(key=one.id, message=message, **more)
        line.options.inputs[one.id] = await CliCall(line.terminal).ask(question)


async def from_each(line: Line, fetch: Callable[[Connection], Awaitable[list[Any]]]) -> dict[str, list[Any]]:
    """Fetch a list from the server that the first word names, or from all that answer; others are reported.

    Raises:
        CoreError: the server that is named gives none.
    """
    named = line.options.words[:1]
    lists: dict[str, list[Any]] = {}
    async with connected(line, [line.startable(*named)] if named else line.configuration.effective) as connections:
        for name, connection in connections.items():
            await connection.wait_settled()
            try:
                lists[name] = await fetch(connection)
            except CoreError as error:
                if named:
                    raise
                print_error(in_line(str(error)))
    return lists
