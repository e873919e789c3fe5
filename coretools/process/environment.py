"""The environment of children: an allow-list of the server's variables, so that no secret leaks into a command.

A deny-list would miss the next token's name: a variable that neither this list nor the operator names is not passed.
Pure.

A child of the server inherits these (`app.command_sandbox.inherited_environment`), and the trace context of its caller.
A command gets more, each winning over those before:

1. what its confinement needs (`confinement.command_variables`): the toolchains, caches, git's settings, the proxy
2. what keeps it from waiting for anybody (`command_defaults`); for a build or test run `CI` and `OFFLINE_ENVIRONMENT`
3. what its caller sets

`Runner` puts them together, and adds the marker by which the watchdog finds the process.
"""

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from coretools.errors import BadSetting

NAMES = frozenset(
    {
        # What programs may expect according to POSIX (XBD 8.3).
        *("PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"),
        # The locale categories of POSIX and glibc, each by name: ssh servers accept any LC_* from clients, so people
        # use LC_SOMETHING to send tokens.
        *("LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "LC_ADDRESS"),
        *("LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_NAME", "LC_PAPER", "LC_TELEPHONE"),
        # Trusted certificates: build tools behind a company's proxy fail without them.
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),
        # Directories only. XDG_RUNTIME_DIR is left out: it contains the sockets of agents.
        *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"),
        # Locations of tool chains and their caches. No options (GOFLAGS, NODE_OPTIONS, MAVEN_OPTS run code or
        # load it) and no addresses (GOPROXY, PIP_INDEX_URL may hold a password).
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "UV_CACHE_DIR"),
        *("NVM_DIR", "NVM_BIN", "PNPM_HOME", "VOLTA_HOME", "FNM_DIR"),
        *("CARGO_HOME", "RUSTUP_HOME"),
        *("GOPATH", "GOROOT", "GOBIN", "GOCACHE", "GOMODCACHE"),
        *("DOTNET_ROOT", "DOTNET_CLI_HOME", "NUGET_PACKAGES"),
        *("JAVA_HOME", "JDK_HOME", "M2_HOME", "MAVEN_HOME", "GRADLE_HOME", "GRADLE_USER_HOME"),
        *("GEM_HOME", "RBENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "SDKMAN_DIR", "HOMEBREW_PREFIX"),
    }
)
"""Variables of the server that every child inherits."""

HANDED_ON = "CORETOOLS_CONFINE_VARIABLES"
"""Variable with a JSON object of further variables for the program that `coretools confine` runs. They must not be
variables of `coretools confine` itself, which runs outside the sandbox: one could load code into it."""

OFFLINE_ENVIRONMENT = {
    "PIP_RETRIES": "0",
    "UV_OFFLINE": "1",
    "POETRY_REQUESTS_MAX_RETRIES": "0",
    "npm_config_offline": "true",
    "YARN_ENABLE_NETWORK": "false",
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
    "MAVEN_ARGS": "--offline",
}
"""Set if the network is denied: each tool uses what is available locally (vendored, cached) or fails at once.

Only the tool knows whether it needs the network. Without these variables it would retry for 10 to 60 s before it fails.
"""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names that shells can set (POSIX, XBD 3.216 "Name")."""


def _no_editor(what: str) -> str:
    """Return a command that opens nothing and prints the reason. Programs start it as `sh -c "$EDITOR file"`."""
    return f"echo 'no terminal, so {what}' >&2; :"


WITHOUT_TERMINAL: Mapping[str, str] = MappingProxyType(
    {
        "PYTHONUNBUFFERED": "1",
        "GIT_EDITOR": _no_editor("git opened no editor and the text stays as it is; -m or -F gives another"),
        "GIT_SEQUENCE_EDITOR": _no_editor("git opened no editor and the list of commits stays as it is"),
        **dict.fromkeys(("EDITOR", "VISUAL"), _no_editor("no editor was opened and the text stays as it is")),
        **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER", "GH_PAGER"), "cat"),
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
    }
)
"""For a command without a terminal: its output comes at once, and no editor, pager or prompt waits for anybody."""

WITH_TERMINAL: Mapping[str, str] = MappingProxyType({"TERM": "linux", "PYTHONUNBUFFERED": "1"})
"""For a command with a terminal, whose type is what the emulator of `read_run` implements."""


def login_variables() -> dict[str, str]:
    """USER and LOGNAME of the user of the server: without a login session they are unset, but programs expect them."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return {}
    return {"USER": name, "LOGNAME": name}


def child_environment(server: Mapping[str, str], *, passed: Sequence[str]) -> dict[str, str]:
    """The variables that children inherit: those of the allow-list, and the names in `passed`.

    `passed` contains exact names, configured by the operator; any variable may be named. Relative entries of PATH are
    dropped: an empty one or `.` means the working directory, where a hostile repository could place its own `git`.

    Raises:
        BadSetting: an entry of `passed` is not a valid name.
    """
    for name in passed:
        if not NAME.fullmatch(name):
            raise BadSetting(
                f"CORETOOLS_PASS_ENV: {name[:80]!r} is not the name of a variable (letters, digits and _); give names "
                "only, without values, with commas between them: CORETOOLS_PASS_ENV=CI,GOPROXY"
            )
    wanted = NAMES.union(passed)
    chosen = {name: value for name, value in server.items() if name in wanted}
    if "PATH" in chosen:
        entries = chosen["PATH"].split(os.pathsep)
        chosen["PATH"] = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
    return chosen


def command_defaults(inherited: Mapping[str, str], *, has_terminal: bool = False) -> dict[str, str]:
    """Variables for a command; without a terminal, what the operator passes takes precedence."""
    if has_terminal:
        return dict(WITH_TERMINAL)
    return {name: value for name, value in WITHOUT_TERMINAL.items() if name not in inherited}
