"""`App`: an application of typed commands, which runs as an MCP server, over HTTP, as a command line or as a REPL.

It holds what its author decided and owns a registry; serving is done by `coretools.hosting` and `coretools.cli`.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack

from coretools.config.settings import Asking
from coretools.errors import BadSetting
from coretools.operations.application import Application, Lifespan
from coretools.operations.declare import CHANNELS, Channel, Decorator, Effect, Function, Hints, Labels, prompt, resource
from coretools.operations.registry import Group, Registry
from coretools.operations.server_info import Icon, ServerInfo
from coretools.services.interface import Services

# Imported late: the SDK and the web stack take most of a second to load, and a command line needs neither.
if TYPE_CHECKING:
    from mcp import Client, StdioServerParameters
    from mcp.client import Transport
    from mcp.server import MCPServer, Server
    from mcp.server.context import ServerMiddleware
    from mcp.server.extension import Extension
    from starlette.applications import Starlette

    from coretools.hosting.prepared_answers import Answers
    from coretools.hosting.serve import HttpOptions, ServeOptions
    from coretools.protocol.stdio.streams import Incoming, Outgoing

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(eq=False)
class App:
    """An application: a name, commands, and what they share."""

    name: str
    """Its name for clients, and that of its command line."""
    _: KW_ONLY
    version: str = "0"
    title: str = ""
    """A name for people; the first line of its help."""
    website: str = ""
    icons: tuple[Icon, ...] = ()
    instructions: str = ""
    """Instructions for the model, sent when a client connects."""
    lifespan: Lifespan | None = None
    """Starts and closes what commands share; they take what it yields by type."""
    roots: "tuple[str | PathLike[str], ...]" = ()
    """Directories of the `Workspace` that commands take; a server that has roots gives its own instead."""
    services: Services | str | None = None
    """State that commands share: the URL of a store (`redis://...`, `nats://...`), or services that are open already.
    None: those of the server, or in the memory of the process."""
    asking: Asking = field(default_factory=Asking)
    """Whom a command may ask, and how long it waits for an answer."""
    extensions: "tuple[Extension, ...]" = ()
    """Protocol extensions (the SDK's class)."""
    middleware: "tuple[ServerMiddleware[Any], ...]" = ()
    """Wraps the handling of each message (the SDK's type)."""
    threads: int = 32
    """Plain `def` commands that run at once."""
    line_bytes: int = 16 * 1024 * 1024
    """Longest message accepted from a client on stdio and on streams."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise BadSetting(f"App({self.name!r:.80}): a name has letters, digits, '.', '_' and '-', at most 64")
        if isinstance(self.roots, str):
            raise BadSetting(f"App({self.name!r}): roots is a tuple of directories, such as ({self.roots!r},)")

    @cached_property
    def registry(self) -> Registry:
        """Its commands."""
        own: Lifespan | None = None
        if self.roots:  # imported late: it takes a third of a second, and few commands run programs
            from coretools.app.command_sandbox import open_workspace

            own = partial(open_workspace, *self.roots)
        application = Application(self._info, services=self.services, lifespan=self.lifespan, own=own)
        return Registry(application=application)

    def tool(self, effect: Effect, **hints: Unpack[Hints]) -> Decorator:
        """Declare a function as a tool and add it. Stands above all other decorators."""
        return self.registry.tool(effect, **hints)

    def resource(
        self,
        uri: str,
        *,
        mime_type: str = "",
        version: Callable[..., object] | str | None = None,
        **labels: Unpack[Labels],
    ) -> Decorator:
        """Declare a function as a resource and add it. Stands above all other decorators."""
        declared = resource(uri, mime_type=mime_type, version=version, **labels)

        def added(function: Function) -> Function:
            return self.registry.add(declared(function))

        return added

    def prompt(self, **labels: Unpack[Labels]) -> Decorator:
        """Declare a function as a prompt and add it. Stands above all other decorators."""
        declared = prompt(**labels)

        def added(function: Function) -> Function:
            return self.registry.add(declared(function))

        return added

    def add(self, function: Function) -> Function:
        """Add a function or method that is declared with `tool`, `resource` or `prompt`."""
        return self.registry.add(function)

    def context(
        self, *words: str, summary: str = "", details: str = "", channels: Sequence[Channel] = CHANNELS
    ) -> Group:
        """Describe a context and return a group that adds commands to it. They exist in these channels only."""
        return self.registry.context(*words, summary=summary, details=details, channels=channels)

    def mount(
        self,
        name: str,
        other: "App | Server[Any] | MCPServer | Transport | StdioServerParameters | str | Sequence[str]",
        *,
        mode: Literal["auto", "legacy"] = "auto",
    ) -> None:
        """Add the commands of another application, or of another MCP server, in a context: `NAME_...`.

        A server is an object of the SDK, a URL, a program as the list of its words, or a transport. It is connected
        when this application starts; its hints, schemas, resources, prompts, questions and progress are passed on.
        `legacy` is the handshake era, for servers that ask while a call waits.

        Raises:
            BadSetting: two commands have one name, the name can't be typed, or the application contains this one.
        """
        if isinstance(other, App):
            self.registry.mount(other.registry, name, summary=other.title)
            return
        from coretools.client.upstream.mounted_server import MountedServer

        self.registry.mount(MountedServer(name, other, mode).registry, name)

    def remove(self, *route: str) -> None:
        """Remove the command of a route.

        Raises:
            KeyError: no command has this route.
        """
        self.registry.remove(*route)

    def announce(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed. Callable from any thread."""
        self.registry.announce(uri)

    def stdio(self) -> int:
        """Serve on the standard streams until the client closes its end or a signal arrives. POSIX only.

        Returns:
            The exit code for the process: 0, or 128 plus the signal's number.

        Raises:
            BadSetting: the commands can't be served, the lifespan failed, or a standard stream is closed.
        """
        from coretools.hosting.serve import serve_stdio

        return serve_stdio(self.registry, options=self._options)

    async def streams(self, read: "Incoming", write: "Outgoing") -> None:
        """Serve one client on a pair of anyio streams until it closes its end; then close both.

        Raises:
            BadSetting: the commands can't be served, or the lifespan failed.
        """
        from coretools.hosting.serve import serve_streams

        await serve_streams(self.registry, read, write, options=self._options)

    def http(self, options: "HttpOptions | None" = None) -> "Starlette":
        """Return an ASGI application that serves both protocol eras. Its lifespan must be run, once.

        Raises:
            BadSetting: the commands can't be served.
        """
        from coretools.hosting.serve import http_app

        return http_app(self.registry, options=self._options, http=options)

    def cli(self, words: Sequence[str] | None = None) -> int:
        """Run one command line; None: the arguments of this process. Prints errors and help.

        Besides the commands it has the words `repl`, `serve` (as `stdio()`) and `completion`, unless commands have
        these names, and the options `--help`, `--version`, `--json`, `--answer` and `--traceback`.

        Returns:
            The exit code for the process.
        """
        from coretools.cli.application_line import ApplicationLine

        return ApplicationLine(self.registry, self._info, self.stdio, self.threads, self.asking.mode).run(words)

    def repl(self) -> int:
        """Read commands from the terminal or a pipe until the input ends; return the exit code for the process."""
        return self.cli(["repl"])

    @asynccontextmanager
    async def test_client(
        self, mode: Literal["auto", "legacy"] = "auto", *, answers: "Answers | None" = None
    ) -> "AsyncIterator[Client]":
        """Yield the SDK's client, connected in memory while the lifespan runs. `legacy` is the handshake era.

        `answers` are those to the questions of commands, by their keys, or a function of the question; None declines.
        With them, a question without a valid answer fails the call with an `MCPError`, and a warning names answers
        that were never asked for. Without them nobody can be asked.

        Raises:
            BadSetting: the commands can't be served, or the lifespan failed.
        """
        from mcp import Client

        from coretools.hosting.prepared_answers import PreparedAnswers
        from coretools.hosting.serve import running_server

        prepared = None if answers is None else PreparedAnswers(self.asking, answers)
        callbacks = {} if prepared is None else prepared.callbacks
        async with (
            running_server(self.registry, self._options, prepared) as server,
            Client(server, mode=mode, **callbacks) as client,
        ):
            yield client
        if prepared is not None:
            prepared.warn_of_unused()

    @property
    def _info(self) -> ServerInfo:
        return ServerInfo(
            name=self.name,
            version=self.version,
            title=self.title,
            website=self.website,
            icons=self.icons,
            instructions=self.instructions,
        )

    @property
    def _options(self) -> "ServeOptions":
        from coretools.hosting.serve import ServeOptions

        return ServeOptions(
            info=self._info,
            asking=self.asking,
            extensions=self.extensions,
            middleware=self.middleware,
            threads=self.threads,
            line_bytes=self.line_bytes,
        )
