"""The network of commands: for the instructions, the diagnostics, the log and results.

A denied network looks to programs like a broken resolver or an unreachable host. `NetworkPolicy.explanation`
recognises their messages and names the cause and the operator's option.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from coretools.config.operator_policy import ConfinementPolicy, NetworkAccess
from coretools.config.remote_policy import RemoteRule, described
from coretools.tools.failure_explanations import CommandOutcome
from coretools.truncation import and_more

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
        *("cargo", "rustup", "mvn", "mvnw", "gradle", "gradlew", "dotnet", "nuget", "gem", "bundle"),
        *("composer", "deno", "apt", "apt-get", "apk", "dnf", "yum", "brew"),
        *("curl", "wget", "git", "ssh", "scp", "rsync", "docker"),
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
