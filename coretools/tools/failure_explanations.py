"""Explain why a command failed if its own message does not name the cause.

Confinement makes ordinary programs fail in ways that look like faults of the machine. Each explanation examines how a
command ended and may add one sentence to its result. To add a cause, write an `Explanation` and pass it to
`Explanations` in `app/assembly.py`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Self

from coretools.config.operator_policy import ConfinementPolicy, NetworkAccess
from coretools.config.remote_policy import RemoteRule, described
from coretools.confinement.protected_paths import HiddenPath
from coretools.escapes import escape_unprintable
from coretools.roots.own_state import REASON
from coretools.roots.path_text import printable
from coretools.roots.root_set import Roots
from coretools.truncation import and_more

logger = logging.getLogger(__name__)

EXAMINED_CHARACTERS = 64 * 1024
"""Characters at each end of an output that explanations examine."""

MAX_LISTED = 5
"""Most paths listed; the rest is counted."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended, or its present state, and what it printed."""

    argv: tuple[str, ...]
    tier: str | None
    """Tier of confinement; None if commands are not confined."""
    failed: bool
    """Whether it did not end with exit code 0, or still runs."""
    output: str
    """Both streams, without terminal escapes; at most `EXAMINED_CHARACTERS` characters of each end."""
    timed_out: bool = False
    """Whether it was stopped at its deadline; what it would have printed about a cause may be missing."""

    @property
    def program_names(self) -> frozenset[str]:
        """The name of the program; of a shell also every word of its line, since one may be a program."""
        name = self.argv[0].rpartition("/")[2] if self.argv else ""
        return frozenset(re.findall(r"[\w.+-]+", self.argv[-1])) | {name} if name in _SHELLS else frozenset({name})

    @property
    def may_have_failed(self) -> bool:
        """Whether a part of it may have failed. A shell exits with the code of its last command: `curl x | tail`."""
        return self.failed or (bool(self.argv) and self.argv[0].rpartition("/")[2] in _SHELLS)


Explanation = Callable[[CommandOutcome], str | None]
"""Returns one sentence without a final stop, or None if it does not apply."""


class Explanations:
    """All explanations of a server, in the order of display."""

    def __init__(self, *explanations: Explanation) -> None:
        self._explanations = explanations

    def of(
        self, *, argv: Sequence[str], tier: str | None, failed: bool, output: str, timed_out: bool = False
    ) -> tuple[str, ...]:
        """Return the explanations that apply to one command."""
        shown = (
            output
            if len(output) <= 2 * EXAMINED_CHARACTERS
            else f"{output[:EXAMINED_CHARACTERS]}\n{output[-EXAMINED_CHARACTERS:]}"
        )
        ending = CommandOutcome(argv=tuple(argv), tier=tier, failed=failed, output=shown, timed_out=timed_out)
        sentences = tuple(filter(None, (explanation(ending) for explanation in self._explanations)))
        for sentence in sentences:
            logger.info("refused: %s: %s", ending.argv[0] if ending.argv else "a command", sentence)
        return sentences


NONE = Explanations()
"""For tools that run without confinement."""


def lines_of(notes: Sequence[str]) -> list[str]:
    """Format the explanations as lines of a result."""
    return [f"[{escape_unprintable(note)}]" for note in notes]


def changed_files_text(paths: Sequence[str]) -> str:
    """List what a command made or changed that git, an editor or an agent acts on. Nothing can prevent that."""
    shown = and_more((escape_unprintable(printable(path)) for path in paths[:MAX_LISTED]), len(paths))
    return f"made or changed while it ran, and git, editors or agents act on it: {shown}"


_NO_TERMINAL = re.compile(
    r"^(?!Pseudo-terminal).*\b(?:not (?:to |from )?a (?:terminal|tty)\b|terminal is required|failed tty get)",
    re.IGNORECASE | re.MULTILINE,
)


def terminal_explanation(ending: CommandOutcome) -> str | None:
    """Explain that a program waited for a terminal: vim, for instance, reads keys from anything else without end."""
    if not ending.failed or _NO_TERMINAL.search(ending.output) is None:
        return None
    return (
        'it expects a terminal: give run_command terminal="80x24" and wait_seconds, and answer with write_run; '
        "edit_file does the work of an editor"
    )


_GIT_CONFIG = re.compile(r"could not (?:lock|write) config file \S*(?:/\.gitconfig|-git/config|/\.git-user/)")


def git_config_explanation(ending: CommandOutcome) -> str | None:
    """Explain that a command can't change the git configuration of the user."""
    if not ending.may_have_failed or _GIT_CONFIG.search(ending.output) is None:
        return None
    return (
        "the git configuration of the user (--global) is read-only for commands: set it in the repository, with git"
        " config and no --global; a person can change it and restart or reload the server"
    )


_GIT_REMOTE = re.compile(
    r"fatal: unable to (?:access|connect|look up)|fatal: Could not read from remote repository|does not appear to be a "
    r"git repository|fatal: repository '[^']*' does not exist"
)


def git_remote_explanation(ending: CommandOutcome) -> str | None:
    """Explain that git in a command has no remote, and which tool and key of the operator would do."""
    if not ending.may_have_failed or "git" not in ending.program_names or not _GIT_REMOTE.search(ending.output):
        return None
    return (
        "git in a command has no credentials, and a remote only as far as its network goes: use git_push, git_fetch,"
        ' git_pull or git_clone; the operator allows a remote to them with [[remote]] url = "..." in the policy file'
    )


_NO_REPOSITORY = re.compile(r"fatal: (?:not a git repository|invalid gitfile)")


def no_repository_explanation(refusals: Mapping[str, str]) -> Explanation:
    """Explain that git finds no repository; `refusals` are the reasons by the path of the root."""
    reason = "; ".join(f"no git in {printable(path)}: {why}" for path, why in list(refusals.items())[:MAX_LISTED])

    def explanation(ending: CommandOutcome) -> str | None:
        return reason if reason and ending.may_have_failed and _NO_REPOSITORY.search(ending.output) else None

    return explanation


# Hidden files: for the diagnostics, and for the result of a command that met one.
#
# A hidden file looks to programs like a file without permissions; some, such as npm, ignore it silently. Neither the
# kernel nor the namespace reports which file a command tried to read, so the explanation relies on the output and the
# name of the program.


_LONGEST_SHOWN = 400

_DENIAL = re.compile(
    r"permission denied|permissionerror|\bEACCES\b|\bEPERM\b|\bEBUSY\b|device or resource busy|operation not permitted"
    r"|invalid cross-device link|\bEXDEV\b|access is denied|can(?:'t|not) open|unable to (?:index|read)",
    re.IGNORECASE,
)
"""Messages of programs about a file that they can't read, replace or move."""

_SILENT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("npm", "npx", "pnpm", "yarn"), frozenset({".npmrc", ".yarnrc", ".yarnrc.yml"})),
        **dict.fromkeys(("pip", "pip3", "twine"), frozenset({"pip.conf", ".pypirc"})),
        **dict.fromkeys(("docker", "docker-compose"), frozenset({".env"})),
        **dict.fromkeys(("gradle", "gradlew"), frozenset({"gradle.properties"})),
        **dict.fromkeys(("cargo",), frozenset({"credentials", "credentials.toml"})),
        **dict.fromkeys(("bundle",), frozenset({"config"})),
    }
)
"""Files that programs read on their own account, and skip silently if they can't."""


_MISSING_VARIABLE = re.compile(
    r"KeyError: '[A-Z][A-Z0-9_]+'|ImproperlyConfigured"
    r"|\b(?:environment|env) variables?\b[^\n]{0,80}(?:required|missing|must|not (?:set|defined|found|provided))"
    r"|(?:missing|required|undefined|set the) (?:required )?(?:environment|env) variables?"
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b[^\n]{0,40}\b(?:(?:is|was|are) (?:required|missing|undefined|unset|empty)"
    r"|not (?:set|defined|provided)|must be (?:set|defined))"
)
"""What programs say that lack a variable: most readers of `.env` pass over a file that they can't read in silence."""


class HiddenFileExplanations:
    """Explains failures by the files that are hidden from commands."""

    def __init__(self, roots: Roots, hidden: Callable[[], Sequence[HiddenPath]]) -> None:
        """`hidden` returns the hidden files of the newest namespace, none without one."""
        self._roots = roots
        self._hidden = hidden

    def explanation(self, ending: CommandOutcome) -> str | None:
        """Name the hidden files that a command met, judging by its output and its program."""
        hidden = self._hidden() if ending.tier == "full" else ()
        silent = frozenset(chain.from_iterable(_SILENT.get(name, ()) for name in ending.program_names))
        refusals = "\n".join(line for line in ending.output.splitlines() if _DENIAL.search(line)) if hidden else ""
        lacks_variable = bool(hidden) and ending.may_have_failed and _MISSING_VARIABLE.search(ending.output) is not None
        met = [
            file
            for file in hidden
            if _name(file) in silent
            or _is_in(_name(file), refusals)
            or (lacks_variable and _name(file).startswith(".env"))
        ]
        return f"hidden from commands: {self._listed(met)}{_what_works(met)}" if met else None

    def _listed(self, hidden: Sequence[HiddenPath]) -> str:
        return and_more((hidden_file_text(self._roots, file) for file in hidden[:MAX_LISTED]), len(hidden))


def hidden_file_text(roots: Roots, hidden: HiddenPath) -> str:
    """Return the path of a hidden file as tools accept it, and why it is hidden."""
    # Not validated: a command can create paths that no tool accepts, too long or in no encoding.
    place = roots.split(hidden.path)
    shown = printable(hidden.path) if place is None else roots.display_path(place)
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[: _LONGEST_SHOWN // 2]}...{shown[-_LONGEST_SHOWN // 2 :]}"
    return f"{shown} ({hidden.reason})"


def _name(hidden: HiddenPath) -> str:
    return hidden.path.rpartition("/")[2]


def _is_in(name: str, output: str) -> bool:
    """Whether the output contains the name as a whole: `.env.example` does not contain `.env`."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])(?!\.\w)", output) is not None


def _what_works(hidden: Sequence[HiddenPath]) -> str:
    others = [file for file in hidden if file.reason != REASON]
    if not others:
        return ""
    return (
        "; a command can't read, rename or delete a hidden file, delete_directory deletes the directory it lies in; "
        f"the operator can open one with --deny '!{_name(others[0])}'"
    )


# The network of commands: for the instructions, the diagnostics, the log and results.
#
# A denied network looks to programs like a broken resolver or an unreachable host. `NetworkPolicy.explanation`
# recognises their messages and names the cause and the operator's option.


OPTION = (
    'the operator allows it with --network allow (CORETOOLS_NETWORK=allow; network = "allow" in [confinement] of the'
    " policy file or in a role of the HTTP server)"
)
"""How to allow the network."""

HOSTS_OPTION = "or some hosts by name, with --network pypi,github.com"
"""How to allow a part of it, in tier `full`."""

_PHRASES = (
    # getaddrinfo(3), in the words of glibc, musl and macOS; curl, git, wget, apt, ssh, psql.
    *("temporary failure in name resolution", "temporary failure resolving", "name or service not known"),
    *("name does not resolve", "nodename nor servname provided", "could not resolve host", "couldn't resolve host"),
    *("could not resolve proxy", "unable to resolve host", "could not translate host name"),
    # Rust, Go, Java, Python's urllib3. Without retries pip prints nothing more about an index that it did not reach.
    *("failed to lookup address information", "dns error:", "no such host", "unknownhostexception", "unknown host"),
    *("noroutetohostexception", "nameresolutionerror", "(from versions: none)"),
    # connect(2). A refused connection on loopback is "connection refused" and matches none of these.
    *("network is unreachable", "no route to host"),
    # Package managers in offline mode: pnpm, Yarn, cargo, go, uv, Maven, Gradle.
    *("err_pnpm_no_offline", "can't make a request in offline mode", "network access have been disabled"),
    *("--offline was specified", "you're using offline mode (--offline)", "disabled by goproxy=off"),
    *("because the network was disabled", "network connectivity is disabled", "in offline mode and the artifact"),
    *("available for offline mode", "no plugin found for prefix"),
)
"""In lower case. Searched one by one: an alternation takes 160 ms for 128 KiB, this takes 1 ms (CPython 3.11)."""

_FETCHING = frozenset(
    {
        *("npm", "npx", "pnpm", "yarn", "bun", "node-gyp", "pip", "pip3", "uv", "uvx", "poetry", "pdm", "conda", "go"),
        *(
            "cargo",
            "rustup",
            "mvn",
            "mvnw",
            "gradle",
            "gradlew",
            "dotnet",
            "nuget",
            "gem",
            "bundle",
            "composer",
            "deno",
        ),
        *("apt", "apt-get", "apk", "dnf", "yum", "brew", "curl", "wget", "git", "ssh", "scp", "rsync", "docker"),
    }
)
"""Programs that fetch something, and try again silently for minutes: `npm install | tail` prints nothing until then."""

_CODES = ("EAI_AGAIN", "EAI_NONAME", "ENOTFOUND", "ENETUNREACH", "EHOSTUNREACH", "ENOTCACHED")
_CODE = re.compile(rf"\b(?:{'|'.join(_CODES)})\b")
"""Node and npm. Matched as whole words: ModuleNotFoundError is unrelated."""

_CONNECT = "failed to connect to "
_ELSEWHERE = re.compile(rf"{_CONNECT}(?!localhost|127\.|\[?::1)\S+ port \d")
"""curl, for any server that is not on loopback: one there may just not be running."""


def is_network_failure(output: str) -> bool:
    """Whether the output reports that a name could not be resolved or an address not reached."""
    lowered = output.lower()
    return (
        any(phrase in lowered for phrase in _PHRASES)
        or (any(code in output for code in _CODES) and _CODE.search(output) is not None)
        or (_CONNECT in lowered and _ELSEWHERE.search(lowered) is not None)
    )


LIST_NEEDS_FULL = (
    "the operator's list of hosts needs tier full: without a network of their own nothing keeps the connections of"
    " commands to the proxy that compares them with the list"
)
"""Why a list of hosts gives commands no network in tier `landlock`, and does not hold them in tier `none`."""

MAX_HOSTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The operator's setting for the network of commands."""

    access: NetworkAccess
    expose: tuple[int, ...] = ()
    """Ports of commands that the machine's loopback leads to."""
    remotes: tuple[str, ...] = ()
    """What the git tools may reach, whatever commands may."""

    @classmethod
    def of(cls, policy: ConfinementPolicy, remotes: Iterable[RemoteRule] = ()) -> Self:
        """Return the setting in a policy."""
        return cls(policy.network, policy.expose, tuple(described(remotes)))

    @property
    def has_list(self) -> bool:
        """Whether commands reach listed hosts only."""
        return not isinstance(self.access, str)

    def is_denied(self, tier: str | None) -> bool:
        """Whether a command in this tier has no network at all. It can't be denied to unconfined commands."""
        if self.has_list and tier == "full":
            return False
        return self.access != "allow" and tier not in (None, "none")

    def state(self, tier: str) -> str:
        """Describe the state in one line, with the operator's option."""
        return self._state(tier) + (f"; exposed on loopback: {self._ports()}" if self._exposes(tier) else "")

    def _state(self, tier: str) -> str:
        if self.access == "allow":
            return "allowed to commands, by the operator"
        reason = f" ({LIST_NEEDS_FULL})" if self.has_list else ""
        if tier == "none":
            return f"not denied to commands: nothing confines them here{reason}"
        if self.has_list and tier == "full":
            return f"commands reach only {self._hosts()}, through a proxy, by the operator's list of hosts"
        return f"denied to commands{reason}; {OPTION}{f', {HOSTS_OPTION}' if tier == 'full' else ''}"

    def instruction(self, tier: str | None) -> str:
        """Return the instruction for models that connect; the tier may still be unknown then."""
        reached = f"user's browser reaches a command's server at http://localhost, on port {self._ports()} only."
        ports = f" {'The' if tier else 'In tier full the'} {reached}"
        return self._instruction(tier) + (ports if self._exposes(tier) else "")

    def _instruction(self, tier: str | None) -> str:
        if self.access == "allow" or tier == "none":
            return "Commands, builds and tests may use the network."
        if self.has_list and tier == "full":
            return (
                f"Commands, builds and tests reach only {self._hosts()}, through the proxy in their environment; any "
                "other host is refused, and the result says what would allow it."
            )
        if self.has_list and tier is None:
            return (
                "The network of commands, builds and tests depends on the tier, see get_diagnostics: none in tier "
                f"landlock; in tier full they reach only {self._hosts()}, through the proxy in their environment."
            )
        exception = "" if tier else " (unless get_diagnostics names tier none)"
        return (
            f"Commands, builds and tests have no network{exception}: what must be fetched fails, so do not retry it; "
            "only the operator allows it (--network allow)."
        )

    def explanation(self, ending: CommandOutcome) -> str | None:
        """Explain a failure to resolve a name or to connect."""
        is_limited = self.is_denied(ending.tier) or (self.has_list and ending.tier == "full")
        if not is_limited or not ending.may_have_failed:
            return None
        if not is_network_failure(ending.output):
            may_have_waited = ending.timed_out and self.is_denied(ending.tier) and ending.program_names & _FETCHING
            return (
                f"it may have waited for the network, which is {self._state(ending.tier or '')}"
                if may_have_waited
                else None
            )
        if not self.is_denied(ending.tier):
            return (
                f"{self._state('full')}; a program that does not use the proxy of the variables https_proxy and"
                " http_proxy has no network"
            )
        return f"the network is {self._state(ending.tier or '')}"

    def _exposes(self, tier: str | None) -> bool:
        return bool(self.expose) and self.access != "allow" and tier in ("full", None)

    def _ports(self) -> str:
        return ", ".join(map(str, self.expose))

    def _hosts(self) -> str:
        entries = () if isinstance(self.access, str) else self.access
        return and_more(entries[:MAX_HOSTS_SHOWN], len(entries))
