"""The `coretools` command.

    coretools call TOOL [name=value ...]   call a tool and print its result
    coretools tools [TOOL]                 list the tools, or show one
    coretools doctor                       check this machine, and a real server on it
    coretools policy explain -- ARGV       which rule decides about a command, and why
    coretools policy check [FILE]          whether the operator's file can be used

Exit codes: 0 done; 1 the thing that was run failed (a test, a command); 64 wrong arguments or no such tool; 65 the data
is not what the tool works on; 66 not found; 69 something needed is missing; 70 a bug of ours; 73 exists already; 74
input or output failed; 75 try again; 77 not permitted; 78 wrong configuration; 127 a program can't be started; 128 and
the number of a signal that ended the call.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from coretools import __version__
from coretools.errors import CoreError
from coretools.options import add_options, add_policy_options, configure_logging, policy_from, settings_from
from coretools.settings import Settings


def main(words: Sequence[str] | None = None) -> None:
    """Entry point of `coretools`."""
    # Cut by hand: which `--` argparse takes away differs between versions of Python.
    before, argv = _cut(sys.argv[1:] if words is None else list(words))
    options = _parser().parse_args(before)
    try:
        if options.command == "policy":
            exit_code = _policy(options, argv)
        else:
            settings = settings_from(options, options.root or (), os.environ, os.getcwd())
            configure_logging(settings.log_level, os.environ)
            exit_code = _run(options, settings)
    except CoreError as error:
        print(f"coretools: {error}", file=sys.stderr)  # noqa: T201  # the command line's own output
        exit_code = error.exit_code
    sys.exit(exit_code)


def _cut(words: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--` of `policy explain`, and what stands behind it."""
    at = words.index("--") if words[:1] == ["policy"] and "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _policy(options: argparse.Namespace, argv: list[str]) -> int:
    from coretools.client import policy  # imported late: only this command needs it

    found = policy_from(options, os.environ, options.root or ())
    if options.action == "check":
        return policy.check(found)
    return policy.explain(found, [*options.word, *argv], as_json=options.json)


def _run(options: argparse.Namespace, settings: Settings) -> int:
    # Imported late: the SDK takes half a second, which --help and a bad flag should not cost.
    import anyio

    from coretools.client import commands

    if options.command == "call":
        return anyio.run(
            commands.call, settings, commands.Request(options.tool, options.argument, as_json=options.json)
        )
    if options.command == "tools":
        return anyio.run(commands.tools, settings, options.tool, options.json)
    from coretools.client.doctor import doctor

    return anyio.run(doctor, settings)


def _parser() -> argparse.ArgumentParser:
    summary, *_, exit_codes = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="coretools", description=summary, epilog=exit_codes)
    parser.add_argument("--version", action="version", version=f"coretools {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    call = commands.add_parser("call", help="call a tool and print its result")
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("argument", nargs="*", metavar="name=value", help="also name:=JSON, name@=FILE, name@=- (stdin)")
    call.add_argument("--json", action="store_true", help="print the result as JSON")
    tools = commands.add_parser("tools", help="list the tools, or show one")
    tools.add_argument("tool", nargs="?", metavar="TOOL")
    tools.add_argument("--json", action="store_true", help="print the tools as clients get them")
    doctor = commands.add_parser("doctor", help="check this machine, and a real server on it")
    _add_policy(commands.add_parser("policy", help="what the operator's file says of a command"))
    for command in (call, tools, doctor):
        command.add_argument(
            "--root", action="append", metavar="DIRECTORY[:ro]", help="what the tools may touch [the current directory]"
        )
        add_options(command, profile="all", log_level="warning")
    return parser


def _add_policy(policy: argparse.ArgumentParser) -> None:
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    explain = actions.add_parser("explain", help="which rule decides about a command, and why; 0 allow, 77 ask or deny")
    explain.add_argument("word", nargs="*", metavar="-- ARGV", help="the command, after --")
    explain.add_argument("--json", action="store_true", help="print the decision as JSON")
    check = actions.add_parser("check", help="whether the file can be used, and what it does not do; 0 or 78")
    check.add_argument("policy", nargs="?", metavar="FILE")
    add_policy_options(explain)
    check.set_defaults(network=None, require_tier=None, allow_unconfined=None)
    for action in (explain, check):
        action.add_argument("--root", action="append", metavar="DIRECTORY", help="a root that must not hold the file")
        action.set_defaults(redact_output=None)


if __name__ == "__main__":
    main()
