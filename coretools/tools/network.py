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

_SIGNS = (
    # getaddrinfo(3), in the words of glibc, musl and macOS; curl, git, wget, apt, ssh, psql.
    r"Temporary failure (?:in name resolution|resolving)",
    r"Name (?:or service not known|does not resolve)",
    r"nodename nor servname provided",
    r"(?:Could not|Couldn't|unable to) resolve (?:host|proxy)",
    r"could not translate host name",
    # Node, Rust, Go, Java, Python's urllib3.
    r"\b(?:EAI_AGAIN|EAI_NONAME|ENOTFOUND|ENETUNREACH|EHOSTUNREACH)\b",
    r"failed to lookup address information|dns error:",
    r"dial (?:tcp|udp)\b.*(?:lookup|unreachable)|\bno such host\b",
    r"UnknownHostException|\bUnknown host\b|NoRouteToHostException",
    # pip says no more of an index that it did not reach, once it does not retry.
    r"NameResolutionError|\(from versions: none\)",
    # connect(2). What refuses a connection on loopback says "Connection refused" and is none of these.
    r"Network is unreachable|No route to host",
    r"Failed to connect to (?!localhost|127\.|\[?::1)\S+ port \d+",
    # Package managers that were told to do without the network: npm, pnpm, Yarn, cargo, go, uv, Maven, Gradle.
    r"\bENOTCACHED\b|ERR_PNPM_NO_OFFLINE|Can't make a request in offline mode|Network access have been disabled",
    r"--offline was specified|you're using offline mode \(--offline\)",
    r"(?:module lookup )?disabled by GOPROXY=off",
    r"because the network was disabled|Network connectivity is disabled",
    r"in offline mode and the artifact|No cached version of \S+ available for offline mode|No plugin found for prefix",
)
_SIGN = re.compile("|".join(_SIGNS), re.IGNORECASE)


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
        if not self.is_denied(ending.tier) or not ending.may_have_failed or not _SIGN.search(ending.output):
            return None
        return f"the network is {self.state(ending.tier or '')}"
