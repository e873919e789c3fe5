"""Command-line options and environment variables of every entry point, parsed into `Settings` at start.

An option overrides its variable, a variable the default. An unusable value is a `BadSetting` that names it.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from coretools.config.agent_reach import files_of_policy, require_out_of_reach, split_root
from coretools.config.commit_author import Author, read_author
from coretools.config.limits import Limits
from coretools.config.operator_policy import (
    ACCESSES,
    TIERS,
    FilePolicy,
    NetworkAccess,
    OperatorPolicy,
    expand_home,
    network_access,
)
from coretools.config.policy_file import policy_path, read_policy
from coretools.config.settings import ASK_MODES, LOG_LEVELS, PROFILES, Settings, require_profile
from coretools.errors import BadSetting

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"", "0", "false", "no", "off"})

Choice = TypeVar("Choice", bound=str)

MAX_UMASK = 0o077
"""The owner keeps all permissions: without them the server could not use the files it creates."""

LIST_SEPARATOR = ","
"""Separates the items of a list in every CORETOOLS_* and CORETOOLS_HTTP_* variable."""

VARIABLES = (
    *("CORETOOLS_ROOTS", "CORETOOLS_PROFILE", "CORETOOLS_READ_ONLY", "CORETOOLS_DENY", "CORETOOLS_NO_DEFAULT_DENY"),
    "CORETOOLS_NO_UNDO",
    *("CORETOOLS_LIMITS", "CORETOOLS_PASS_ENV", "CORETOOLS_AUTHOR", "CORETOOLS_UMASK"),
    *("CORETOOLS_REDACT_OUTPUT", "CORETOOLS_ASK", "CORETOOLS_POLICY", "CORETOOLS_OWN_CONTAINER", "CORETOOLS_NETWORK"),
    *("CORETOOLS_REQUIRE_TIER", "CORETOOLS_ALLOW_UNCONFINED", "CORETOOLS_ALLOW_GIT_CREDENTIALS"),
    *("CORETOOLS_ALLOW_EDITOR_SETTINGS", "CORETOOLS_REFUSE_SYNTAX_ERRORS", "CORETOOLS_GIT_ABOVE"),
    *("CORETOOLS_LOGIN_PATH", "CORETOOLS_LOG_LEVEL"),
    *("CORETOOLS_UPSTREAM", "CORETOOLS_CONFINE", "CORETOOLS_UNCONFINED", "CORETOOLS_TRUST"),
)
"""The environment variables that are read here, in the order of the options."""


def add_options(parser: argparse.ArgumentParser, *, profile: str, log_level: str) -> None:
    """Add the options that decide what is served; `profile` and `log_level` are the defaults."""
    parser.add_argument(
        "--profile", type=_profile, metavar=f"{{{','.join(PROFILES)}}}", help=f"which tools are served [{profile}]"
    )
    _add_switch(parser, "--read-only", "serve only tools that change nothing")
    parser.add_argument(
        "--deny", action="append", metavar="GLOB", help="hide paths that match; !GLOB shows them (repeatable)"
    )
    _add_switch(parser, "--no-default-deny", "hide only what --deny names, no file by its content")
    _add_switch(
        parser, "--no-undo", "keep no journal of changes by tools and commands, so that nothing can be taken back"
    )
    parser.add_argument(
        "--limit", action="append", metavar="NAME=VALUE", help="set a limit, such as run_seconds=600 (repeatable)"
    )
    parser.add_argument(
        "--pass-env", action="append", metavar="NAME", help="pass an environment variable to commands (repeatable)"
    )
    parser.add_argument("--author", metavar="'NAME <ADDRESS>'", help="author of commits [from the git configuration]")
    parser.add_argument("--umask", metavar="MODE", help="umask of tools and commands, such as 002 [unchanged]")
    _add_switch(parser, "--redact-output", "redact credentials in the output of commands")
    parser.add_argument("--ask", choices=ASK_MODES, help="who may answer the questions of tools [elicitation]")
    add_policy_options(parser)
    parser.add_argument(
        "--trust",
        action="append",
        metavar="PATH",
        help="a file or directory in a writable root whose programs and settings are used all the same (repeatable)",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, help=f"lowest level that is logged to stderr [{log_level}]")
    parser.set_defaults(default_profile=profile, default_log_level=log_level)


def _add_switch(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option without a value; where it is not given, its variable decides."""
    parser.add_argument(name, action="store_true", default=None, help=text)


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the policy file and override its values."""
    parser.add_argument("--policy", metavar="FILE", help="the policy file [~/.config/coretools/policy.toml]")
    _add_switch(
        parser, "--own-container", "the server is alone in its container: commands get its /tmp, /dev/shm and terminals"
    )
    parser.add_argument(
        "--network", metavar="ACCESS", help="network of commands: allow, deny, or hosts, such as pypi,github.com [deny]"
    )
    parser.add_argument("--require-tier", choices=TIERS, help="weakest confinement in which commands may run")
    _add_switch(parser, "--allow-unconfined", "let commands run where they can't be confined")
    _add_switch(
        parser,
        "--allow-git-credentials",
        "let commands run where they can read git's credentials beneath the roots (tier landlock)",
    )
    _add_switch(
        parser,
        "--allow-editor-settings",
        "let tools and commands change existing settings of editors and agents, such as .vscode",
    )
    _add_switch(parser, "--refuse-syntax-errors", "refuse changes by file tools that introduce syntax errors")
    _add_switch(
        parser,
        "--git-above",
        "a root that is a folder of a repository has git; it reads the whole repository and changes the root only",
    )


def add_login_path_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of servers that desktop clients start."""
    _add_switch(parser, "--no-login-path", "don't add the PATH of your login shell to that of commands")


def add_upstream_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of servers that offer tools of other servers."""
    parser.add_argument(
        "--upstream",
        action="append",
        metavar="NAME[:TOOL,...]",
        help="also offer the approved tools of a configured MCP server, all or those named (repeatable)",
    )
    add_containment_options(parser)


def add_containment_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how local servers of others run."""
    parser.add_argument(
        "--confine",
        action="append",
        default=[],
        metavar="NAME[=ACCESS]",
        help="run a configured server as commands of agents run; ACCESS is its network, as for --network (repeatable)",
    )
    parser.add_argument(
        "--unconfined",
        action="append",
        default=[],
        metavar="NAME",
        help="let a server run with all your rights although the project names it, or it the project (repeatable)",
    )


def with_upstreams(
    settings: Settings, environment: Mapping[str, str], options: argparse.Namespace | None = None
) -> Settings:
    """The settings with the other servers that the options or the variables name, and how they run."""
    named = {} if options is None else vars(options)

    def listed(option: str) -> tuple[str, ...]:
        text = environment.get(f"CORETOOLS_{option.upper()}", "")
        return tuple(named.get(option) or (item.strip() for item in text.split(";") if item.strip()))

    return replace(settings, upstream=listed("upstream"), confine=listed("confine"), unconfined=listed("unconfined"))


def with_login_path(settings: Settings, environment: Mapping[str, str], *, is_off: bool | None = None) -> Settings:
    """The settings of a server that reads the PATH of the login shell, unless the option or the variable says no.

    Raises:
        BadSetting: the variable is neither 1 nor 0.
    """
    is_read = _switch(None, environment, "CORETOOLS_LOGIN_PATH", default=True)
    return replace(settings, reads_login_path=is_read and not is_off)


def working_directory() -> str:
    """The directory that the process was started in.

    Raises:
        BadSetting: it was deleted since, or a parent directory cannot be read.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise BadSetting(
            f"the working directory cannot be found ({error.strerror}); start it in another one"
        ) from error


def settings_from(
    options: argparse.Namespace, roots: Sequence[str], environment: Mapping[str, str], directory: str | None
) -> Settings:
    """The settings from options and environment; the default root is `directory`, if given.

    Raises:
        BadSetting: an unusable value, an unintended default root (/, the home directory), or a policy file, or a file
            that it names, that tools or commands could change.
    """
    limits = dict(_assignment(text) for text in _listed(environment, "CORETOOLS_LIMITS", options.limit))
    roots = tuple(roots) or _listed(environment, "CORETOOLS_ROOTS")
    if not roots and directory is not None:
        roots = (_default_root(directory, environment),)
    read_only = _switch(options.read_only, environment, "CORETOOLS_READ_ONLY")
    policy = policy_from(options, environment)
    settings = Settings(
        roots=roots,
        profile=options.profile or _profile_in(environment) or options.default_profile,
        read_only=read_only,
        deny=_listed(environment, "CORETOOLS_DENY", options.deny),
        default_deny=not _switch(options.no_default_deny, environment, "CORETOOLS_NO_DEFAULT_DENY"),
        has_undo=not _switch(options.no_undo, environment, "CORETOOLS_NO_UNDO"),
        limits=Limits().replaced(limits),
        pass_environment=_passed(policy, _listed(environment, "CORETOOLS_PASS_ENV", options.pass_env)),
        author=_author(options.author, environment),
        umask=_umask(options.umask, environment),
        policy=policy,
        redact_output=policy.redact_output,
        ask=_one_of(ASK_MODES, options.ask, environment, "CORETOOLS_ASK") or "elicitation",
        log_level=_one_of(LOG_LEVELS, options.log_level, environment, "CORETOOLS_LOG_LEVEL")
        or options.default_log_level,
        trusted=_trusted(_listed(environment, "CORETOOLS_TRUST", options.trust), environment),
    )
    require_out_of_reach(files_of_policy(policy), [settings])
    return settings


def policy_from(options: argparse.Namespace, environment: Mapping[str, str]) -> OperatorPolicy:
    """The policy file, if there is one, with the overrides from options and variables.

    Raises:
        BadSetting: the file cannot be used.
    """
    path = policy_path(options.policy, environment)
    policy = OperatorPolicy() if path is None else read_policy(path, environment)

    def switch(name: str, default: bool) -> bool:
        return _switch(getattr(options, name), environment, f"CORETOOLS_{name.upper()}", default=default)

    confinement = policy.confinement
    changes_settings = switch("allow_editor_settings", policy.files.changes_settings)
    refuses_errors = switch("refuse_syntax_errors", policy.files.refuses_syntax_errors)
    return replace(
        policy,
        confinement=replace(
            confinement,
            network=_network(options.network, environment) or confinement.network,
            require=_one_of(TIERS, options.require_tier, environment, "CORETOOLS_REQUIRE_TIER") or confinement.require,
            allow_unconfined=switch("allow_unconfined", confinement.allow_unconfined),
            allow_git_credentials=switch("allow_git_credentials", confinement.allow_git_credentials),
            own_container=switch("own_container", confinement.own_container),
        ),
        git=replace(policy.git, above=switch("git_above", policy.git.above)),
        files=FilePolicy(
            editor_settings="allow" if changes_settings else "deny",
            syntax_errors="deny" if refuses_errors else "allow",
        ),
        redact_output=switch("redact_output", policy.redact_output),
    )


def _default_root(directory: str, environment: Mapping[str, str]) -> str:
    """The directory that the server was started in, unless it is one that nobody means to expose to an agent."""
    if PurePath(directory) == PurePath("/"):
        raise BadSetting("no root named, and the server was started in /; name a directory, e.g. /home/you/project")
    if environment.get("HOME") and PurePath(directory) == PurePath(environment["HOME"]):
        raise BadSetting(
            "no root named, and the server was started in the home directory; name the project's directory"
        )
    # A directory may be named `x:rw`, which would be read as the root `x`.
    return directory if split_root(directory)[0] == directory else f"{directory}:rw"


def _listed(environment: Mapping[str, str], name: str, flags: Sequence[str] | None = None) -> tuple[str, ...]:
    """The items of a variable, then those of the options.

    Raises:
        BadSetting: the items are separated by colons, as in earlier versions.
    """
    items = [item.strip() for item in environment.get(name, "").split(LIST_SEPARATOR) if item.strip()]
    for item in items:
        before = _divided_by_colons(name, item)
        if len(before) > 1:
            raise BadSetting(f"{name}: items of a list have commas between them: {name}={LIST_SEPARATOR.join(before)}")
    return (*items, *(flags or ()))


def _trusted(paths: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(os.path.abspath(expand_home(path, environment)) for path in paths)


def _passed(policy: OperatorPolicy, named: Sequence[str]) -> tuple[str, ...]:
    """The variables that commands get.

    Raises:
        BadSetting: one holds a token for a git remote.
    """
    passed = (*policy.environment_pass, *named)
    for rule in policy.remote:
        if rule.token_env in passed:
            raise BadSetting(f"remote.token_env = {rule.token_env!r}: is passed to commands, which would see the token")
    return passed


def _divided_by_colons(name: str, item: str) -> list[str]:
    """An item split at colons. `PATH:ro` is one root; in other variables no item contains a colon."""
    parts = re.split(r":(?=/)", item) if name == "CORETOOLS_ROOTS" else item.split(":")
    return [part for part in parts if part]


def _author(flag: str | None, environment: Mapping[str, str]) -> Author | None:
    text = flag or environment.get("CORETOOLS_AUTHOR")
    return read_author(text, "--author (CORETOOLS_AUTHOR)") if text else None


def _umask(flag: str | None, environment: Mapping[str, str]) -> int | None:
    text = flag or environment.get("CORETOOLS_UMASK")
    if not text:
        return None
    if not re.fullmatch("[0-7]{1,4}", text) or int(text, 8) > MAX_UMASK:
        raise BadSetting(f"--umask {text} (CORETOOLS_UMASK): write an octal number up to 077, such as 022 or 002")
    return int(text, 8)


def _profile(text: str) -> str:
    try:
        return require_profile(text)
    except BadSetting as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _profile_in(environment: Mapping[str, str]) -> str | None:
    try:
        named = environment.get("CORETOOLS_PROFILE")
        return require_profile(named) if named else None
    except BadSetting as error:
        raise BadSetting(f"CORETOOLS_PROFILE: {error}") from error


def _one_of(choices: Sequence[Choice], flag: str | None, environment: Mapping[str, str], name: str) -> Choice | None:
    value = flag or environment.get(name) or None
    for choice in choices:
        if value == choice:
            return choice
    if value is None:
        return None
    raise BadSetting(f"{name}={value}: choose {', '.join(choices[:-1])} or {choices[-1]}")


def _network(flag: str | None, environment: Mapping[str, str]) -> NetworkAccess | None:
    name = "CORETOOLS_NETWORK" if flag is None else "--network"
    text = environment.get(name, "") if flag is None else flag
    if text in ("", *ACCESSES):
        return network_access(text) if text else None
    try:
        return network_access([entry.strip() for entry in text.split(",")])
    except ValueError as error:
        raise BadSetting(f"{name}={text[:200]}: choose allow or deny, or list hosts: {error}") from error


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadSetting(f"limit {text!r}: write NAME=VALUE")
    return name, value


def _switch(flag: bool | None, environment: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    if flag is not None:
        return flag
    if not environment.get(name):
        return default
    text = environment.get(name, "").lower()
    if text not in TRUE | FALSE:
        raise BadSetting(f"{name}={text}: write 1 or 0")
    return text in TRUE
