"""Whether commands may use the network, in words: for the instructions, the diagnostics, the log and results.

A denied network looks to programs like a broken resolver or an unreachable host. `Network.explanation` recognises their
messages and names the cause and the operator's option.
"""

import re
from dataclasses import dataclass

from coretools.operator_policy import Access
from coretools.tools.explanations import Ending

OPTION = (
    'the operator allows it with --network allow (CORETOOLS_NETWORK=allow; network = "allow" in [confinement] of the'
    " policy file or in a role of the HTTP server)"
)
"""How the network is allowed, for people and models."""

_PHRASES = (
    # getaddrinfo(3), in the words of glibc, musl and macOS; curl, git, wget, apt, ssh, psql.
    *("temporary failure in name resolution", "temporary failure resolving", "name or service not known"),
    *("name does not resolve", "nodename nor servname provided", "could not resolve host", "couldn't resolve host"),
    *("could not resolve proxy", "unable to resolve host", "could not translate host name"),
    # Rust, Go, Java, Python's urllib3. pip says no more of an index that it did not reach, once it does not retry.
    *("failed to lookup address information", "dns error:", "no such host", "unknownhostexception", "unknown host"),
    *("noroutetohostexception", "nameresolutionerror", "(from versions: none)"),
    # connect(2). What refuses a connection on loopback says "connection refused" and is none of these.
    *("network is unreachable", "no route to host"),
    # Package managers that were told to do without the network: pnpm, Yarn, cargo, go, uv, Maven, Gradle.
    *("err_pnpm_no_offline", "can't make a request in offline mode", "network access have been disabled"),
    *("--offline was specified", "you're using offline mode (--offline)", "disabled by goproxy=off"),
    *("because the network was disabled", "network connectivity is disabled", "in offline mode and the artifact"),
    *("available for offline mode", "no plugin found for prefix"),
)
"""In lower case. Looked for one by one: an alternation takes 160 ms for 128 KiB, this takes 1 (CPython 3.11)."""

_CODES = ("EAI_AGAIN", "EAI_NONAME", "ENOTFOUND", "ENETUNREACH", "EHOSTUNREACH", "ENOTCACHED")
_CODE = re.compile(rf"\b(?:{'|'.join(_CODES)})\b")
"""Node and npm. A word of its own: ModuleNotFoundError is another matter."""

_CONNECT = "failed to connect to "
_ELSEWHERE = re.compile(rf"{_CONNECT}(?!localhost|127\.|\[?::1)\S+ port \d")
"""curl, of any server; one on loopback may just not be there."""


def is_network_failure(output: str) -> bool:
    """Whether a program says in this output that it could not resolve a name or reach an address."""
    lowered = output.lower()
    return (
        any(phrase in lowered for phrase in _PHRASES)
        or (any(code in output for code in _CODES) and _CODE.search(output) is not None)
        or (_CONNECT in lowered and _ELSEWHERE.search(lowered) is not None)
    )


@dataclass(frozen=True, slots=True)
class Network:
    """The operator's decision about the network of commands."""

    access: Access

    def is_denied(self, tier: str | None) -> bool:
        """Whether a command in this tier has no network. Nothing can deny it where nothing confines commands."""
        return self.access == "deny" and tier not in (None, "none")

    def state(self, tier: str) -> str:
        """The state in one line, with the operator's option."""
        if self.access == "allow":
            return "allowed to commands, by the operator"
        if tier == "none":
            return "not denied to commands: nothing confines them here"
        return f"denied to commands; {OPTION}"

    def instruction(self, tier: str | None) -> str:
        """What a model is told when it connects; the tier may not be known by then."""
        if self.access == "allow" or tier == "none":
            return "Commands, builds and tests may use the network."
        return (
            "Commands, builds and tests have no network: what must be fetched fails, so do not retry it; only the "
            "operator allows it (--network allow)."
        )

    def explanation(self, ending: Ending) -> str | None:
        """The cause, for a command that failed to resolve a name or to connect."""
        if not self.is_denied(ending.tier) or not ending.may_have_failed or not is_network_failure(ending.output):
            return None
        return f"the network is {self.state(ending.tier or '')}"
