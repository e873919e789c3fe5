"""`coretools repl`: run commands line by line, with one assembly for the whole session.

A line is run as by `coretools WORDS`. After an error the loop continues; Ctrl-C ends the running command and everything
that it started. Input from a pipe has no prompt, and the exit code is that of the last failure.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coretools.app.assembly import Assembly, open_assembly
from coretools.cli.command_runner import CommandContext, CommandRunner
from coretools.cli.common.terminal import TerminalCapabilities
from coretools.cli.read_loop import ReadLoop
from coretools.cli.repl_lines import PipedLines, PromptedLines
from coretools.client.configuration.server_entries import load_configuration
from coretools.config.options import working_directory
from coretools.config.settings import Settings
from coretools.operations.registry import Registry
from coretools.protocol.process_exit import ProcessExit, cancel_on_signal

if TYPE_CHECKING:
    from coretools.cli.repl_servers import ReplServers


async def repl(settings: Settings, registries: Sequence[Registry]) -> int:
    """Run lines until the input ends; `registries` are served in addition to the built-in commands.

    Raises:
        BadSetting: a root or another setting can't be used.
    """
    process_exit = ProcessExit()
    exit_code = 0
    environment = dict(os.environ)
    async with (
        open_assembly(settings, environment, registries) as assembly,
        cancel_on_signal(process_exit),
        _servers(assembly, settings, environment) as servers,
    ):
        terminal = TerminalCapabilities.of(os.environ)
        runner = CommandRunner(CommandContext.of(assembly, settings, "repl"), terminal, program="")
        if terminal.can_ask:
            lines = PromptedLines(runner, os.environ, servers)
            await ReadLoop(runner, lines, servers=servers).run_interrupted()
        else:
            exit_code = await ReadLoop(runner, PipedLines(), servers=servers).run()
    return process_exit.exit_code or exit_code


@asynccontextmanager
async def _servers(
    assembly: Assembly, settings: Settings, environment: Mapping[str, str]
) -> "AsyncIterator[ReplServers | None]":
    """Yield the servers that are configured; None if there are none: the SDK is not loaded then."""
    if not load_configuration(working_directory(), environment).entries:
        yield None
        return
    from coretools.cli.repl_servers import open_repl_servers

    async with open_repl_servers(assembly, settings, environment) as servers:
        yield servers
