"""`coretools serve`: serve your own registries over stdio, with or without the built-in tools.

The code that `--with` loads runs inside the server with the user's rights and is not confined. What it runs through the
built-in tools, with `--own`, is confined as usual.
"""

import argparse
import contextlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from coretools.cli.common.global_options import OptionParser, add_global_options, add_registry_option
from coretools.config.agent_reach import files_of_plugins, require_out_of_reach
from coretools.config.logs import configure_logging
from coretools.config.options import add_upstream_option, settings_from, with_login_path, with_upstreams
from coretools.config.settings import Settings
from coretools.errors import BadSetting
from coretools.operations.loading import load
from coretools.standard_fds import ensure_standard_error, require_standard_streams

if TYPE_CHECKING:
    from coretools.operations.registry import Registry

NAME = "coretools"

_OWN_TOOLS_ONLY = (
    "root",
    "deny",
    "no_default_deny",
    "no_undo",
    "pass_env",
    "redact_output",
    "network",
    "require_tier",
    "allow_unconfined",
    "allow_git_credentials",
    "allow_editor_settings",
    "refuse_syntax_errors",
    "git_above",
    "own_container",
    "author",
)
"""Options that apply only to the built-in tools."""

_FOR_UPSTREAMS = ("redact_output",)
"""Of these, options that apply to tools of other servers too."""


def add_serve(commands: "argparse._SubParsersAction[OptionParser]") -> None:
    """Add the subcommand."""
    serve = commands.add_parser(
        "serve",
        help="serve commands of your own over stdio",
        description="Serve registries over stdio. Their code runs in the server and is not confined: load only code "
        "that you trust. The default profile is all, with --own dev.",
    )
    add_registry_option(serve, "a coretools Registry in a module that Python finds")
    serve.add_argument("--own", action="store_true", help="also serve coretools' own tools")
    serve.add_argument(
        "--name", help=f"name that a server without --own reports to clients [that of the application, or {NAME}]"
    )
    add_upstream_option(serve)
    add_global_options(serve)
    serve.set_defaults(default_log_level="info")


def serve(options: argparse.Namespace, environment: Mapping[str, str], directory: str) -> int:
    """Serve until the client closes its end or a signal arrives; return the exit code.

    Raises:
        BadSetting: nothing to serve, no such registry, or two commands of one name.
    """
    ensure_standard_error()
    require_standard_streams()
    if options.own:
        options.default_profile = "dev"
    else:
        _require_no_own_options(options)
    settings = settings_from(options, options.root or (), environment, directory if options.own else None)
    settings = with_login_path(settings, environment, is_off=not options.own)
    settings = with_upstreams(settings, environment, options)
    configure_logging(settings.log_level, environment)
    # Covers also what a thread of a loaded module prints before the protocol's streams are moved.
    with contextlib.redirect_stdout(sys.stderr):
        require_out_of_reach(files_of_plugins(options.registries), [settings])
        registries = [load(text) for text in options.registries]
        if options.own:
            return _serve_with_own_tools(settings, registries, environment)
        return _serve_alone(settings, registries, options.name, environment)


def _serve_with_own_tools(settings: Settings, registries: "list[Registry]", environment: Mapping[str, str]) -> int:
    # Imported late: the SDK takes half a second to load, too long for reporting a bad flag.
    import anyio

    from coretools.app.stdio_service import serve_stdio
    from coretools.protocol.process_exit import exit_process

    exit_process(anyio.run(serve_stdio, settings, dict(environment), registries))


def _serve_alone(
    settings: Settings, registries: "list[Registry]", name: str | None, environment: Mapping[str, str]
) -> int:
    # Imported late: as above.
    from coretools.app.upstreams import loop_guard
    from coretools.app.upstreams import with_upstreams as with_upstreams_of
    from coretools.hosting.serve import ServeOptions, serve_stdio
    from coretools.operations.catalog import selection_of, surfaces_of
    from coretools.operations.registry import Registry, merge_registries
    from coretools.protocol.process_exit import exit_process

    # Not validated against the tools: the operator's file may name built-in tools, which are absent here.
    merged = merge_registries(Registry(policy=settings.policy.tools), registries)
    identity = merged.identity
    options = ServeOptions(
        info=identity if name is None else replace(identity, name=name),
        selection=selection_of(settings),
        surfaces=surfaces_of(settings),
        asking=settings.asking,
        threads=settings.limits.threads,
        line_bytes=settings.limits.line_bytes,
        middleware=loop_guard(settings),
    )
    # Exit here, while prints of a module's threads still go to standard error: fd 1 is the protocol's stream again.
    upstreams = with_upstreams_of(settings, environment, [merged], has_own_tools=False) if settings.upstream else None
    exit_process(serve_stdio(merged, options=options, upstreams=upstreams))


def _require_no_own_options(options: argparse.Namespace) -> None:
    if not options.registries and not options.upstream:
        raise BadSetting(
            "nothing to serve: name a registry (--with MODULE:NAME), a configured server (--upstream NAME), or --own"
            " for coretools' own tools"
        )
    own_only = [name for name in _OWN_TOOLS_ONLY if not (options.upstream and name in _FOR_UPSTREAMS)]
    given = [f"--{name.replace('_', '-')}" for name in own_only if getattr(options, name) is not None]
    if given:
        raise BadSetting(f"{', '.join(given)}: for coretools' own tools only; add --own")
