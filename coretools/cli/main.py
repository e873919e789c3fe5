"""The `coretools` command.

    coretools WORDS [options]              run a command by its route: coretools git log --limit 5
    coretools repl                         run commands line by line
    coretools call TOOL [name=value ...]   run a command by its tool name, with named arguments
    coretools tools [TOOL]                 list the tools, or show one
    coretools docs [--write DIRECTORY]     print or write the reference of all commands
    coretools serve --with MODULE:NAME     serve your own commands over stdio
    coretools new NAME                     write a small project of your own, with tests
    coretools try                          a tour of what an agent can do, on a repository made for it
    coretools doctor                       check this machine, and a real server on it
    coretools confine -- PROGRAM ...       run a program as commands of agents run: confined to its roots
    coretools init                         write a policy file for this machine and project
    coretools install CLIENT [ROOT ...]    add this server to a client, such as claude-code; --list, --undo
    coretools policy explain -- LINE       show which rule decides about a command, and why
    coretools policy check [FILE]          check the operator's policy file
    coretools token create|list|revoke     manage the bearer tokens of an HTTP server
    coretools mcp list|tools|call|...      use the MCP servers that are configured on this machine
    coretools run SCRIPT                   run the steps of a script: calls of tools, with assertions
    coretools completion bash|zsh|fish     print a shell's completion script

Exit codes: 0 success; 1 what was run failed (a test, a command); 64 wrong arguments or unknown tool; 65 the data is not
what the tool works on; 66 not found; 69 something required is missing; 70 internal error; 73 already exists; 74 input
or output failed; 75 try again; 77 not permitted; 78 wrong configuration; 127 a program can't be started; 128 plus the
number of the signal that ended the call. `coretools mcp --help` has those of `coretools mcp`.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from coretools.cli.common.global_options import (
    OptionParser,
    add_global_options,
    add_registry_option,
    global_parser,
    option_names,
    registries_named,
    split_options,
)
from coretools.cli.common.terminal import print_error, print_text
from coretools.cli.completion_scripts import SHELLS, script
from coretools.cli.serve import add_serve, serve
from coretools.config.agent_reach import files_of_policy, require_out_of_reach
from coretools.config.logs import configure_logging
from coretools.config.options import (
    add_containment_options,
    add_policy_options,
    policy_from,
    settings_from,
    with_login_path,
    with_upstreams,
    working_directory,
)
from coretools.config.settings import Settings
from coretools.errors import CoreError, InvalidArguments
from coretools.operations.loading import load

OVERVIEW = Path(__file__).with_name("overview.txt")
"""The commands of the catalog as `coretools --help` lists them, generated: loading the catalog takes half a second."""

_HINT = "See `coretools WORDS --help` for a command, and `coretools call --help` for the options for roots and rights."

FIRST_CONTACT = """\
coretools: developer tools for agents. It serves a directory to Claude Code, Cursor, VS Code and others by MCP,
lets them read, edit, build, test and use git in it, and keeps them out of everything else.

  coretools try                  a tour of what an agent can and cannot do; half a minute, and nothing stays
  coretools install CLIENT DIR   add it to your client for a directory: claude-code, cursor, vscode ...
  coretools doctor               what works on this machine, and what to do

`coretools --help` lists all commands."""
"""Shown to a person who types `coretools` and nothing more."""

COMPLETE = "__complete"
"""Called by the scripts of `coretools completion`; not shown in help."""

BUILT_IN = (
    *("call", "tools", "docs", "serve", "doctor", "init", "policy", "token", "mcp", "run", "repl", "completion"),
    *("confine", "install", "try", "new"),
)
"""First words that are coretools' own. A command with such a route is run by `coretools call NAME`, or in the REPL."""

TAKE_REGISTRIES = ("call", "docs", "repl", "serve")
"""Those that `--with` has an effect on."""


def main(words: Sequence[str] | None = None) -> None:
    """Entry point of `coretools`."""
    words = sys.argv[1:] if words is None else list(words)
    try:
        exit_code = _main(words)
    except CoreError as error:
        print_error(str(error))
        exit_code = error.exit_code
    except KeyboardInterrupt:  # while modules are imported, or at a question: nobody else handles the signal then
        exit_code = 128 + signal.SIGINT
    sys.exit(exit_code)


def _main(words: list[str]) -> int:
    own, rest = split_options(words, option_names(global_parser()), after_command=())
    if rest[:1] == [COMPLETE]:
        return _complete(rest[1:])
    _refuse_registries(own, rest)
    if rest[:1] in (["mcp"], ["run"]):
        return _mcp(own, rest[1:] if rest[0] == "mcp" else rest)
    if rest[:1] == ["confine"]:
        from coretools.cli.confine import confine_line  # imported late: it loads the sandbox

        return confine_line([*own, *rest[1:]], os.environ)
    if rest[:1] == ["install"]:
        from coretools.cli.install import install  # imported late: only this command needs it

        return install([*own, *rest[1:]], os.environ)
    if rest[:1] and rest[0] in BUILT_IN and not _names_tool(rest):
        return _built_in([rest[0], *own, *rest[1:]])
    if not words and sys.stdout.isatty():
        return print_text(FIRST_CONTACT)
    if not words:
        _parser().error("a command is missing")
    global_parser().parse_args(own)  # --version and a bad flag end it here
    if not rest and not registries_named(own):
        return print_text(general_help(OVERVIEW.read_text(encoding="utf-8").rstrip("\n")))
    # Imported late: the catalog takes half a second to load.
    import anyio

    from coretools.cli.command_line import run_command_line

    return anyio.run(run_command_line, own, rest, general_help)


def _refuse_registries(own: list[str], rest: list[str]) -> None:
    """Refuse `--with` for a command of ours that it has no effect on: a tool of its name may be meant."""
    word = rest[0] if rest and rest[0] in BUILT_IN else ""
    named = registries_named(own) if word and word not in TAKE_REGISTRIES else []
    if named:
        tool = f"`coretools --with {named[0]} call {word}` runs a tool of this name"
        raise InvalidArguments(f"--with has no effect on `coretools {word}`, a command of its own; {tool}")


def _names_tool(rest: list[str]) -> bool:
    """Whether this is `coretools call TOOL`, not the help of `call` or a line without a tool."""
    return rest[0] == "call" and bool(split_options(rest[1:], option_names(global_parser()), after_command=())[1])


def general_help(commands: str) -> str:
    """Return the page of `coretools --help`; `commands` is the overview of the catalog."""
    summary, built_in, _ = (__doc__ or "\n\n\n\n").split("\n\n")
    return f"{summary}\n\n{built_in}\n\n{commands}\n\n{_HINT}"


def _built_in(words: list[str]) -> int:
    # `policy explain -- LINE` is split by hand: which `--` argparse removes differs between versions of Python.
    at = words.index("--") if words[:1] == ["policy"] and "--" in words else len(words)
    options = _parser().parse_args(words[:at])
    if options.command == "policy":
        return _policy(options, words[at + 1 :])
    if options.command == "token":
        from coretools.cli.tokens import token  # imported late: only this command needs it

        return token(options, os.environ)
    if options.command == "completion":
        return print_text(script(options.shell))
    if options.command == "init":
        return _init(options)
    if options.command == "new":
        from coretools.cli.new import new  # imported late: only this command needs it

        return new(options.name)
    if options.command == "try":
        from coretools.cli.tour import tour  # imported late: the SDK takes a second to load

        return tour(os.environ)
    if options.command == "serve":
        return serve(options, os.environ, working_directory())
    settings = settings_from(options, options.root or (), os.environ, working_directory())
    configure_logging(settings.log_level, os.environ)
    return _run(options, settings)


def _run(options: argparse.Namespace, settings: Settings) -> int:
    # Imported late: the SDK takes a second to load, too long for --help and for reporting a bad flag.
    import anyio

    if options.command == "repl":
        from coretools.cli.repl import repl

        settings = with_upstreams(settings, os.environ, options)
        return anyio.run(repl, settings, [load(text) for text in options.registries])
    if options.command == "docs":
        from coretools.cli.docs import DocsOptions, docs

        docs_options = DocsOptions(directory=options.write, page=options.page, as_json=options.json)
        return anyio.run(docs, settings, [load(text) for text in options.registries], docs_options)
    from coretools.cli.common import list_tools

    if options.command == "tools":
        return anyio.run(list_tools.tools, settings, options.tool, options.json)
    from coretools.cli.doctor import doctor
    from coretools.cli.toolchain_report import PROGRAMS

    names = () if options.no_versions else PROGRAMS
    return anyio.run(doctor, with_login_path(settings, os.environ), os.environ, names)


def _init(options: argparse.Namespace) -> int:
    from coretools.cli.init import init  # imported late: as above

    roots = options.root or (working_directory(),)
    settings = with_login_path(Settings(roots=tuple(roots), profile="all"), os.environ)
    return init(settings, os.environ, options.policy)


def _mcp(own: Sequence[str], words: Sequence[str]) -> int:
    from coretools.cli.mcp.options import parse_line  # imported late, as below

    if own:
        raise InvalidArguments(f"{own[0]}: has no effect on `coretools mcp`; write its options after `mcp`")
    options = parse_line(words)
    if options is None:
        return 0
    from coretools.cli.mcp.main import mcp  # the SDK takes a second to load

    return mcp(options)


def _complete(words: list[str]) -> int:
    typed = words[1:] if words[:1] == ["--"] else words
    if typed[:1] in (["mcp"], ["run"]) and len(typed) > 1:
        from coretools.cli.mcp.completion import complete_line  # imported late, as below

        return complete_line(typed)
    import anyio  # imported late: only this needs it here

    from coretools.cli.command_line import complete_command_line

    return anyio.run(complete_command_line, words, BUILT_IN)


def _policy(options: argparse.Namespace, argv: list[str]) -> int:
    from coretools.cli import policy  # imported late: only this command needs it

    operator_policy = policy_from(options, os.environ)
    require_out_of_reach(
        files_of_policy(operator_policy), [Settings(roots=tuple(options.root or ()), policy=operator_policy)]
    )
    if options.action == "check":
        return policy.check(operator_policy)
    return policy.explain(operator_policy, [*options.word, *argv], as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    summary, _, exit_codes = (__doc__ or "\n\n\n\n").split("\n\n")
    parser = OptionParser(prog="coretools", description=summary, epilog=exit_codes.strip())
    list_tools = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    call = list_tools.add_parser("call", help="call a tool by its name and print its result")  # for its help alone
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("argument", nargs="*", metavar="name=value", help="also name:=JSON, name@=FILE, name@=- (stdin)")
    call.add_argument("--json", action="store_true", help="print the result as JSON")
    call.add_argument("--answer", action="append", metavar="KEY=VALUE", help="answer a question in advance")
    tools = list_tools.add_parser("tools", help="list the tools, or show one")
    tools.add_argument("tool", nargs="?", metavar="TOOL")
    tools.add_argument("--json", action="store_true", help="print the tools as clients get them")
    list_tools.add_parser("try", help="a tour of what an agent can do, on a repository made for it; nothing stays")
    doctor = list_tools.add_parser("doctor", help="check this machine, and a real server on it")
    doctor.add_argument(
        "--no-versions", action="store_true", help="do not ask compilers and the like for their versions"
    )
    init = list_tools.add_parser("init", help="write a policy file for this machine and project")
    init.add_argument("--root", action="append", metavar="DIRECTORY", help="the project [the current directory]")
    init.add_argument("--policy", metavar="FILE", help="the file to write [~/.config/coretools/policy.toml]")
    repl = list_tools.add_parser("repl", help="run commands line by line, with history and completion")
    add_containment_options(repl)
    add_serve(list_tools)
    new = list_tools.add_parser("new", help="write a small project of your own: server, command line, tests and CI")
    new.add_argument("name", metavar="NAME", help="of the project, its program and its directory")
    docs = list_tools.add_parser("docs", help="print or write the reference of all commands")
    docs.add_argument("--write", metavar="DIRECTORY", help="write the reference pages to this directory")
    docs.add_argument("--page", metavar="FILE", help="update the table of tools in this page")
    docs.add_argument("--json", action="store_true", help="print the reference as JSON")
    completion = list_tools.add_parser("completion", help="print a script that completes commands in a shell")
    completion.add_argument("shell", choices=SHELLS)
    _add_policy(list_tools.add_parser("policy", help="explain and check the operator's policy file"))
    _add_token(list_tools.add_parser("token", help="manage the bearer tokens of an HTTP server"))
    for command in (repl, docs):
        add_registry_option(command)
    for command in (call, tools, repl, docs):
        add_global_options(command)
    add_global_options(doctor, profile="dev")  # as clients start the server
    return parser


def _add_policy(policy: argparse.ArgumentParser) -> None:
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    explain = actions.add_parser("explain", help="show the rule for a command; exits with 0 for allow, else 77")
    explain.add_argument("word", nargs="*", metavar="-- LINE", help="the command, after --: one line, or its words")
    explain.add_argument("--json", action="store_true", help="print the decision as JSON")
    check = actions.add_parser("check", help="check whether the file can be used; exits with 0 or 78")
    check.add_argument("policy", nargs="?", metavar="FILE")
    add_policy_options(explain)
    check.set_defaults(network=None, require_tier=None, allow_unconfined=None, own_container=None)
    check.set_defaults(allow_git_credentials=None, allow_editor_settings=None, git_above=None)
    check.set_defaults(refuse_syntax_errors=None)
    for action in (explain, check):
        action.add_argument("--root", action="append", metavar="DIRECTORY", help="root that must not contain the file")
        action.set_defaults(redact_output=None)


def _add_token(token: argparse.ArgumentParser) -> None:
    actions = token.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a token and print it once")
    create.add_argument("--name", required=True, help="name of the owner, who may have several tokens")
    create.add_argument("--role", default="default", help="role of the owner: a [roles.NAME] of the server [default]")
    create.add_argument(
        "--author", metavar="'NAME <ADDRESS>'", help="author of the owner's commits [that of the role or the server]"
    )
    create.add_argument("--expires", metavar="DURATION", help="time until it expires, such as 12h, 90d or 8w [never]")
    listing = actions.add_parser("list", help="list the tokens, without the secrets")
    listing.add_argument("--json", action="store_true", help="print them as JSON")
    revoke = actions.add_parser("revoke", help="revoke tokens; they are refused from the next request on")
    revoke.add_argument("which", metavar="ID|NAME", help="one token, or all tokens of an owner")
    for action in (create, listing, revoke):
        action.add_argument("--file", metavar="FILE", help="the token file [CORETOOLS_HTTP_AUTH__TOKENS]")


if __name__ == "__main__":
    main()
