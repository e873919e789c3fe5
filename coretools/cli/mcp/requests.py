"""What `coretools mcp` answers servers: questions, requests for a model, roots; and how it prints their messages."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import mcp_types as types

from coretools.cli.common.terminal import print_error
from coretools.cli.mcp.options import LOG_LEVELS, SAMPLING_VARIABLE, McpOptions
from coretools.cli.mcp.output import in_line, visible
from coretools.cli.mcp.screen import Screen
from coretools.client.configuration.launch import LocalLaunch, home_directory
from coretools.client.configuration.places import project_of
from coretools.client.connection.server_requests import Callbacks
from coretools.client.connection.stdio import ChildTracker
from coretools.client.containment.containment import NO_CHOICES
from coretools.client.questions.sampling import SamplingCommand, shown_messages
from coretools.config.options import working_directory
from coretools.errors import CoreError, NotFound
from coretools.shell_words import split
from coretools.truncation import cut_text

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext

DEFAULT_LEVEL: types.LoggingLevel = "warning"

MAX_LOG_LINES = 1_000
"""Log messages printed of one server."""

MAX_SHOWN = 4_000
"""Characters shown of a request for a model, and of a log message."""


@dataclass(slots=True, kw_only=True)
class Requests:
    """Answers the requests of all servers of a line."""

    screen: Screen
    answers: Sequence[str] = ()
    accepts_defaults: bool = False
    roots: Sequence[types.Root] = ()
    sampling: SamplingCommand | None = None
    approves_all: bool = False
    """Skip the approval of sampling requests."""
    log_level: types.LoggingLevel | None = None
    """Requested log level. None requests none, and prints messages of at least `DEFAULT_LEVEL`."""
    _approved: set[str] = field(default_factory=set)
    """Servers that may ask the model until the end of this process."""
    _printed: dict[str, int] = field(default_factory=dict)

    def callbacks(self, server: str) -> Callbacks:
        """Return what answers the server of this name."""

        async def elicit(
            context: "ClientRequestContext", params: types.ElicitRequestParams
        ) -> types.ElicitResult | types.ErrorData:
            del context  # a part of the SDK's signature
            from coretools.cli.mcp.elicitation import Elicitation  # imported late: most calls ask nothing

            return await Elicitation(server, self.screen, self.answers, self.accepts_defaults).answer(params)

        async def sample(
            context: "ClientRequestContext", params: types.CreateMessageRequestParams
        ) -> types.CreateMessageResult | types.ErrorData:
            del context
            return await self._sample(server, params)

        async def list_roots(context: "ClientRequestContext") -> types.ListRootsResult:
            del context
            return types.ListRootsResult(roots=list(self.roots))

        async def log(params: types.LoggingMessageNotificationParams) -> None:
            self._log(server, params)

        return Callbacks(
            elicitation=elicit,
            sampling=sample if self.sampling else None,
            roots=list_roots if self.roots else None,
            log=log,
            log_level=self.log_level,
        )

    async def _sample(
        self, server: str, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        if self.sampling is None or not await self._is_approved(server, params):
            # The code that the specification gives for a person's rejection.
            return types.ErrorData(code=-1, message="the user rejected the request for a model")
        try:
            return await self.sampling.answer(server, params)
        except CoreError as error:
            self.screen.say(f"server {server!r}: asked for a model: {error}")
            return types.ErrorData(code=types.INTERNAL_ERROR, message="the command that answers for a model failed")

    async def _is_approved(self, server: str, params: types.CreateMessageRequestParams) -> bool:
        if self.approves_all or server in self._approved:
            return True
        if not self.screen.terminal.can_ask or self.screen.is_at_prompt:
            self.screen.say(f"server {server!r} asks for a model: refused, nobody can be asked here; give --yes")
            return False
        # Imported late: only a terminal needs them, and they take 40 ms.
        from coretools.cli.common.call import CliCall
        from coretools.questions.kinds import AskChoice

        answer = "no"
        async with self.screen.asking():
            lines = "\n".join(f"  {in_line(line)}" for line in shown_messages(params))
            shown = visible(cut_text(lines, MAX_SHOWN, gap="\n  "))
            print_error(f"server {in_line(repr(server))} asks for a model:\n{shown}")
            question = AskChoice(key="sampling", message="Ask the model?", choices=("once", "always", "no"))
            try:
                answer = await CliCall(self.screen.terminal).ask(question)
            except CoreError:  # no valid answer is no approval
                answer = "no"
        if answer == "always":
            self._approved.add(server)
        return answer != "no"

    def _log(self, server: str, params: types.LoggingMessageNotificationParams) -> None:
        if LOG_LEVELS.index(params.level) < LOG_LEVELS.index(self.log_level or DEFAULT_LEVEL):
            return
        count = self._printed[server] = self._printed.get(server, 0) + 1
        if count > MAX_LOG_LINES:
            return
        data = params.data
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        self.screen.log(server, params.level, params.logger or "", text[:MAX_SHOWN])
        if count == MAX_LOG_LINES:
            self.screen.say(f"server {server!r}: {count} log messages were printed; further ones are not")


@contextmanager
def requests_of(options: McpOptions, environment: Mapping[str, str], screen: Screen) -> Iterator[Requests]:
    """Yield what answers the servers of one line.

    Raises:
        NotFound: a root is not there. InvalidArguments, CommandSyntax: the sampling command can't be split into words.
    """
    command = options.sampling or environment.get(SAMPLING_VARIABLE, "")
    argv = tuple(split(command)) if command else ()
    tracker = ChildTracker.create() if argv else None
    try:
        yield Requests(
            screen=screen,
            answers=options.answers,
            accepts_defaults=options.accepts_defaults,
            roots=roots_of(options.roots),
            sampling=None if tracker is None else _sampling_command(argv, environment, tracker),
            approves_all=options.yes,
            log_level=options.log_level,
        )
    finally:
        if tracker is not None:
            tracker.watchdog.close()


def _sampling_command(argv: tuple[str, ...], environment: Mapping[str, str], tracker: ChildTracker) -> SamplingCommand:
    """Return the command, started in no project and with nothing of this one in its search paths.

    A path that the line or the variable spells out is the user's own choice.
    """
    program = os.path.abspath(argv[0]) if "/" in argv[0] else argv[0]
    launch = LocalLaunch(
        argv=(program, *argv[1:]),
        environment=environment,
        cwd=home_directory(environment),
        secrets=(),
        user_environment=environment,
    )
    check = NO_CHOICES.check(project_of(working_directory(), environment.get("HOME", "")), environment)
    safe = check.without_reachable(check.outside(launch))
    return SamplingCommand(launch.argv, safe.environment, tracker, safe.cwd)


def roots_of(paths: Sequence[str]) -> list[types.Root]:
    """Return directories as the roots that servers are told.

    Raises:
        NotFound: a directory is not there.
    """
    roots = []
    for path in paths:
        place = Path(os.path.abspath(path))
        if not place.is_dir():
            raise NotFound(f"--root {path}: is no directory")
        roots.append(types.Root.model_validate({"uri": place.as_uri(), "name": place.name or "/"}))
    return roots
