"""`coretools install`: add this server to the configuration of a client, show it first, and take it back."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from coretools.cli.common.global_options import OptionParser, option_names, split_options
from coretools.cli.common.terminal import TerminalCapabilities, for_terminal, print_error, print_text
from coretools.cli.installed_program import server_command
from coretools.client.common.secret_values import secret_parts
from coretools.client.configuration.server_entries import MAX_NAME
from coretools.client.installation.clients import (
    CLIENTS,
    TOKEN_VARIABLE,
    Address,
    Client,
    Program,
    Server,
    client_named,
)
from coretools.client.installation.config_file import ConfigFile, delete_config, drop_backup, open_config, write_config
from coretools.client.installation.links import install_link
from coretools.client.installation.plan import Change, plan_install, plan_undo
from coretools.config.agent_reach import files_of_installation, require_out_of_reach, split_root
from coretools.config.options import add_login_path_option, add_options, add_upstream_option, settings_from
from coretools.errors import BadSetting, Declined, InvalidArguments, NotFound
from coretools.redaction.redactor import Redactor

NAME = "coretools"
"""Usual name of the entry."""

PATH_OPTIONS = frozenset({"--policy", "--trust"})
"""Options of the server whose values are paths: a client starts the server in another directory."""

MAX_DIFF_CHARACTERS = 200
"""Of a line of a difference: some files are one line."""

CONTEXT_LINES = 2
"""Around a change; they are another server's, so few are shown, and without secrets."""

FIRST_USE = {
    ("claude-code", "project"): "Claude Code asks before it starts a server of a project",
    **dict.fromkeys(
        (("gemini", "user"), ("gemini", "project")),
        "Gemini CLI starts servers in trusted folders only: start it in the project and trust that folder, or it lists"
        " this server as disabled",
    ),
    ("codex", "project"): "Codex reads the file of a project that you trust only",
}
"""What a client wants before it starts the server, by client and scope."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_EPILOG = """\
Clients: {clients}.
Options of the server, such as --read-only, --profile or --network, are written into the entry as they are given here;
`coretools-workstation --help` lists them.
"""


def install(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the line behind `coretools install`. Returns the exit code.

    Raises:
        CoreError: it can't be done; the files are as they were.
    """
    flags, rest = split_options(words, _server_options(), after_command=_server_options())
    options = _parser().parse_args(rest)
    if options.list:
        if options.client or flags:
            raise InvalidArguments("install --list: takes neither a client nor options of the server")
        from coretools.cli.install_listing import listing  # imported late: the SDK takes half a second to load

        return listing(options.root, environment)
    if options.client is None:
        raise InvalidArguments(f"install: name a client: {', '.join(one.name for one in CLIENTS)}; or give --list")
    line = _Line(options, flags, environment)
    if options.undo:
        return line.undo()
    if options.link:
        return print_text(install_link(line.client, line.server(), options.name))
    return line.install()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is about one client."""

    options: argparse.Namespace
    flags: Sequence[str]
    environment: Mapping[str, str]

    @property
    def client(self) -> Client:
        """The client that is named."""
        return client_named(self.options.client)

    @property
    def project(self) -> str:
        """The project of --scope project: the first root, or where the line runs."""
        roots = self.options.root
        return os.path.realpath(split_root(roots[0])[0] if roots else os.getcwd())

    def server(self) -> Server:
        """Return what the entry is to start or reach."""
        if self.options.url is not None:
            if self.options.root or self.flags:
                raise InvalidArguments("install --url: roots and rights are those of that server; leave them out")
            return Address(url=_address(self.options.url), has_token=not self.options.no_token)
        if self.options.no_token:
            raise InvalidArguments("install --no-token: has an effect with --url only")
        roots = list(dict.fromkeys(_absolute_root(root) for root in self.options.root or [os.getcwd()]))
        parsed = _server_parser().parse_args(self.flags)
        settings = settings_from(parsed, roots, self.environment, os.getcwd())
        require_out_of_reach(files_of_installation(), [settings])  # what the server would refuse is refused here
        command, args = server_command(self.environment)
        words = (*args, *_with_absolute_paths(self.flags), *roots)
        if any(_is_no_text(word) for word in (command, *words)):
            raise BadSetting("a path has bytes that are not UTF-8, which no configuration can hold; use another path")
        return Program(command=command, args=words)

    def install(self) -> int:
        """Add the entry, after showing it."""
        client, server, name = self.client, self.server(), self.options.name
        change = self._planned(lambda file: plan_install(file, client, name, server, force=self.options.force))
        if not change.is_needed:
            return print_text(f"{change.file.path}: has this entry already")
        if not self._may(change, f"Write {change.file.path}?"):
            return 0
        backup = change.file.backup_path(name) if change.file.data is not None else None
        write_config(change.file, change.data or b"", backup=backup)
        print_text(f"wrote {change.file.path}" + (f"; the earlier content is in {backup}" if backup else ""))
        for note in _notes(client, server, self.options.scope):
            print_error(note)
        return 0

    def undo(self) -> int:
        """Remove the entry, after showing that."""
        client, name = self.client, self.options.name
        if self.flags or self.options.url:
            raise InvalidArguments("install --undo: takes no options of the server")
        change = self._planned(lambda file: plan_undo(file, client, name, force=self.options.force))
        if not self._may(change, f"Write {change.file.path}?"):
            return 0
        if change.data is None:
            delete_config(change.file)
            return print_text(f"deleted {change.file.path}, which was written for this entry")
        write_config(change.file, change.data, backup=None)
        if change.is_restored:
            drop_backup(change.file, name)
            return print_text(f"{change.file.path}: is as it was before")
        done = f"put the earlier entry {name} back into" if change.has_earlier else f"removed {name} from"
        backup = change.file.backup_path(name)
        before = f"; the content from before is in {backup}" if os.path.exists(backup) else ""
        return print_text(f"{done} {change.file.path}; what else was changed in it since is kept{before}")

    def _planned(self, plan: Callable[[ConfigFile], Change]) -> Change:
        scope, project = self.options.scope, self.project
        if scope == "project" and not os.path.isdir(project):
            raise NotFound(f"{project}: is no directory")
        path = self.client.path(scope, project, self.environment, sys.platform)
        return plan(open_config(path, within=project if scope == "project" else None))

    def _may(self, change: Change, question: str) -> bool:
        """Show a change, and ask; False where nothing is to be written."""
        print_text(_difference(change))
        if change.file.target != os.path.abspath(change.file.path):
            print_error(f"{change.file.path} is a link: {change.file.target} is written, and the link stays")
        if self.options.dry_run:
            print_error("nothing was written (--dry-run)")
            return False
        if self.options.yes:
            return True
        if not TerminalCapabilities.of(self.environment).can_ask:
            raise Declined("nobody can be asked here; look at the change above and give --yes")
        sys.stderr.write(f"{for_terminal(question)} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_error("nothing was written")
            return False
        return True


def _difference(change: Change) -> str:
    """Return a unified difference without secrets of the lines around it."""
    path = for_terminal(change.file.path)
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (change.file.data, change.data))
    origin = "/dev/null" if change.file.data is None else path
    goal = "/dev/null" if change.data is None else path
    lines = difflib.unified_diff(before, after, origin, goal, n=CONTEXT_LINES, lineterm="")
    text = for_terminal(Redactor().text("\n".join(lines)))
    return "\n".join(_cut(line) for line in text.split("\n"))


def _cut(line: str) -> str:
    return line if len(line) <= MAX_DIFF_CHARACTERS else f"{line[:MAX_DIFF_CHARACTERS]} ..."


def _notes(client: Client, server: Server, scope: str) -> list[str]:
    notes = [f"restart {client.title} to use it"]
    notes += [FIRST_USE[client.name, scope]] if (client.name, scope) in FIRST_USE else []
    if isinstance(server, Address) and server.has_token:
        where = {
            "vscode": "VS Code asks for the token once and keeps it",
            "goose": f"goose keeps the token as the secret {TOKEN_VARIABLE}; set it with `goose configure`",
        }
        notes.append(where.get(client.name, f"set {TOKEN_VARIABLE} to the token in the environment of {client.title}"))
    if isinstance(server, Program) and scope == "project":
        notes.append(
            "the entry has paths of this machine: keep the file, and the earlier content beside it, out of commits"
        )
    return notes


def _absolute_root(root: str) -> str:
    """Return a root as an absolute path, with its rights.

    Raises:
        NotFound: it is no directory.
    """
    path, _ = split_root(root)
    rights = root[len(path) :]
    if not os.path.isdir(path):
        raise NotFound(f"{path}: is no directory")
    return os.path.abspath(path) + rights


def _is_no_text(word: str) -> bool:
    """Whether a word from the command line has bytes that are not UTF-8."""
    return os.fsencode(word) != word.encode("utf-8", "replace")


def _with_absolute_paths(flags: Sequence[str]) -> list[str]:
    words = list(flags)
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in PATH_OPTIONS and equals:
            words[at] = f"{name}={os.path.abspath(os.path.expanduser(value))}"
        elif name in PATH_OPTIONS and at + 1 < len(words):
            words[at + 1] = os.path.abspath(os.path.expanduser(words[at + 1]))
    return words


def _address(url: str) -> str:
    """Check the address of a server.

    Raises:
        BadSetting: it is none, contains what may be a secret, or would carry the token unencrypted.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise BadSetting("--url: is no URL") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", url):
        raise BadSetting("--url: must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None or any(secret_parts(url)):
        raise BadSetting("--url: contains what may be a secret; leave it out: the client sends the token in a header")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise BadSetting("--url: http:// sends the token unencrypted; use https://, or a server on this machine")
    return url


def _name(text: str) -> str:
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no name; use letters, digits, - and _")
    return text


def _server_parser() -> argparse.ArgumentParser:
    parser = OptionParser(prog="coretools install", add_help=False, allow_abbrev=False)
    add_options(parser, profile="dev", log_level="info")
    add_login_path_option(parser)
    add_upstream_option(parser)
    return parser


def _server_options() -> dict[str, bool]:
    return option_names(_server_parser())


def _parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        prog="coretools install",
        usage="coretools install CLIENT [ROOT ...] [options] [options of the server]\n       coretools install --list",
        description="Add this server to the configuration of a client. The change is shown before it is written.",
        epilog=_EPILOG.format(clients=", ".join(one.name for one in CLIENTS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("client", nargs="?", metavar="CLIENT", help="whose configuration")
    parser.add_argument("root", nargs="*", metavar="ROOT", help="directory, or DIRECTORY:ro [the current directory]")
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="whose file: yours for all projects, or that in the first ROOT [user]",
    )
    parser.add_argument("--name", type=_name, default=NAME, help=f"name of the entry [{NAME}]")
    parser.add_argument("--url", help="address of a running server, in place of a program; never with a token in it")
    parser.add_argument(
        "--no-token", action="store_true", help="with --url: send no token (the client logs in by OAuth)"
    )
    parser.add_argument("--link", action="store_true", help="print a link that adds it (cursor, vscode); write nothing")
    parser.add_argument(
        "--undo", action="store_true", help="remove the entry; the file as it was, if nobody changed it"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the change and write nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--force", action="store_true", help="replace or remove an entry of this name that is another one"
    )
    parser.add_argument(
        "--list", action="store_true", help="list the clients that are here, and whether the entries start"
    )
    return parser
