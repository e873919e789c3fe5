"""The workstation server: started by a desktop client, speaks MCP over stdio, logs to standard error.

    coretools-workstation [ROOT ...] [--profile P] [--read-only]

Exits with 0 when the client closes its end, and with 128 plus the signal's number on SIGTERM and SIGINT; no child
process remains.
"""

import argparse
import gc
import os
import sys

from coretools.config.logs import configure_logging
from coretools.config.options import (
    VARIABLES,
    add_login_path_option,
    add_options,
    add_upstream_option,
    settings_from,
    with_login_path,
    with_upstreams,
    working_directory,
)
from coretools.config.settings import Settings
from coretools.distribution import VERSION
from coretools.errors import CoreError
from coretools.standard_fds import ensure_standard_error, require_standard_streams


def main() -> None:
    """Entry point of `coretools-workstation`."""
    options = _parser().parse_args()
    if sys.platform == "win32":
        sys.exit("coretools-workstation: Windows is not supported yet; it runs in WSL")
    ensure_standard_error()
    try:
        require_standard_streams()
        settings = settings_from(options, options.root, os.environ, working_directory())
        settings = with_login_path(settings, os.environ, is_off=options.no_login_path)
        settings = with_upstreams(settings, os.environ, options)
        configure_logging(settings.log_level, os.environ)
        run(settings)
    except CoreError as error:
        print(f"coretools-workstation: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(settings: Settings) -> None:
    """Serve until the client closes its end or a signal arrives; does not return."""
    # Imported late: the SDK takes half a second to load, too long for reporting a bad flag. Without collections
    # meanwhile: they find nothing and took a tenth of that time (CPython 3.11).
    gc.disable()
    import anyio

    from coretools.app.stdio_service import serve_stdio
    from coretools.protocol.process_exit import exit_process

    gc.freeze()
    gc.enable()
    exit_process(anyio.run(serve_stdio, settings, dict(os.environ)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coretools-workstation",
        description="MCP server over stdio: filesystem, search, git and CI tools beneath the given directories.",
        epilog=f"Every flag can also be set by a variable: {', '.join(VARIABLES)}. Separate items of a list by commas.",
    )
    parser.add_argument("root", nargs="*", metavar="ROOT", help="directory, or DIRECTORY:ro [the current directory]")
    parser.add_argument("--version", action="version", version=f"coretools {VERSION}")
    add_options(parser, profile="dev", log_level="info")
    add_login_path_option(parser)
    add_upstream_option(parser)
    return parser


if __name__ == "__main__":
    main()
