"""The HTTP server: many principals, both protocol eras on one endpoint, Streamable HTTP.

    coretools-http [--root DIR ...] [--host H] [--port P] [--config FILE] [--check]

Reloads its files on SIGHUP. On SIGTERM and SIGINT it answers open requests and exits with 128 plus the signal's number;
no child process remains.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from coretools.config.agent_reach import files_of_plugins, require_out_of_reach
from coretools.config.logs import configure_logging
from coretools.config.options import add_options, add_upstream_option, working_directory
from coretools.distribution import VERSION, require_extra
from coretools.errors import BadSetting, CoreError
from coretools.operations.loading import load
from coretools.standard_fds import ensure_standard_error

if TYPE_CHECKING:
    from coretools.web.service import ServerConfig

GC_THRESHOLD = 20_000
"""Allocations before a collection of the youngest generation; a few megabytes."""

_FLAGS = {"host": "server.host", "port": "server.port", "log_level": "log.level"}


def main() -> None:
    """Entry point of `coretools-http`."""
    parser = _parser()
    options, unknown = parser.parse_known_args()
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (a directory is named with --root)")
    if sys.platform == "win32":
        sys.exit("coretools-http: Windows is not supported yet; it runs in WSL")
    ensure_standard_error()
    try:
        require_extra("http")
        if options.check:
            faults: list[str] = []
            check(_server_config(options, faults), faults)
            return
        run(_server_config(options))
    except CoreError as error:
        print(f"coretools-http: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(server_config: "ServerConfig") -> None:
    """Serve until a signal arrives; does not return."""
    # Imported late: as below.
    import anyio

    from coretools.protocol.process_exit import exit_process
    from coretools.web.service import serve

    gc.collect()
    gc.freeze()
    # A call allocates about a thousand objects, freed by reference counts; a collection every 700 costs 5 % of it.
    gc.set_threshold(GC_THRESHOLD)
    exit_process(anyio.run(serve, server_config))


def check(server_config: "ServerConfig", faults: Sequence[str] = ()) -> None:
    """Verify everything that the server would use without listening, and print the result; exit with 78 on a fault.

    `faults` were found earlier.
    """
    import anyio  # imported late: as below

    from coretools.web.config_check import check_config

    report = anyio.run(check_config, server_config)
    for line in report.lines:
        print(line)
    all_faults = [*faults, *report.faults]
    for fault in all_faults:
        print(f"coretools-http: {fault}", file=sys.stderr)
    if all_faults:
        sys.exit(BadSetting.exit_code)


def _server_config(options: argparse.Namespace, faults: list[str] | None = None) -> "ServerConfig":
    """Read the configuration. With `faults`, errors after reading it are appended there instead of raised.

    Raises:
        BadSetting: the configuration can't be read, or, without `faults`, can't be used.
    """
    # Imported late: the SDK and the web stack take a second to load, too long for reporting a bad flag.
    from coretools.web.common.config import read_config
    from coretools.web.reload import ConfigSource
    from coretools.web.roles import build_roles
    from coretools.web.service import ServerConfig

    environment, directory = dict(os.environ), working_directory()
    given = {key: getattr(options, name) for name, key in _FLAGS.items()}
    flags: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    source = ConfigSource(
        config=lambda: read_config(options.config, environment, flags),
        roles=lambda config: build_roles(config, options, environment, directory),
    )
    config = source.config()
    configure_logging(config.log.level, environment, config.log.format)

    def tried(make: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return make()
        except BadSetting as error:
            if faults is None:
                raise
            faults.append(str(error))
            return otherwise

    roles = tried(partial(source.roles, config), {})
    if roles:
        served = [role.settings for role in roles.values()]
        tried(partial(require_out_of_reach, files_of_plugins(options.registries), served), None)
    registries = [tried(partial(load, text), None) for text in options.registries]
    return ServerConfig(
        config=config,
        roles=roles,
        others=tuple(one for one in registries if one is not None),
        environment=environment,
        source=source,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coretools-http",
        description="MCP server over HTTP: filesystem, search, git and CI tools beneath the given directories.",
        epilog="Every key of the configuration file can also be set by a variable, such as CORETOOLS_HTTP_SERVER__PORT "
        "for [server] port; the other flags have the same variables as in coretools-workstation.",
    )
    parser.add_argument("--root", action="append", metavar="DIR", help="directory, or DIR:ro [the current directory]")
    parser.add_argument("--host", help="address to listen on [127.0.0.1]")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one [8765]")
    parser.add_argument("--config", metavar="FILE", help="TOML file: hosts, tokens, roles, limits and more")
    parser.add_argument("--check", action="store_true", help="verify the configuration and print what would be served")
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="registries",
        metavar="MODULE:NAME",
        help="also serve a coretools Registry of a module, or FILE.py:NAME; its code is not confined (repeatable)",
    )
    parser.add_argument("--version", action="version", version=f"coretools {VERSION}")
    add_options(parser, profile="dev", log_level="info")
    add_upstream_option(parser)
    return parser


if __name__ == "__main__":
    main()
