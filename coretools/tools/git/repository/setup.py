"""What the git tools are given by the user and the operator: configuration, trailer, grants."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coretools.confinement.user_git import NO_USER_GIT, UserGit
from coretools.tools.git.repository.grants import RepositoryGrants

_TRAILER = re.compile(r"[A-Za-z0-9-]+: \S")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSetup:
    """Settings of the git tools that do not come from a repository."""

    user_git: UserGit = NO_USER_GIT
    grants: Mapping[str, RepositoryGrants] = field(default_factory=dict)
    """By the path of the root."""
    signing_environment: dict[str, str] = field(default_factory=dict)
    """Where signing programs find keys and agents of the server's user."""
    trailer: str = ""
    """Added to the message of each commit that a tool makes; empty: nothing."""

    def with_trailer(self, message: str) -> str:
        """Return a message with the trailer at its end, once, as git-interpret-trailers(1) puts it there."""
        if not self.trailer or not message.strip():
            return message
        paragraphs = message.rstrip().split("\n\n")
        lines = paragraphs[-1].split("\n")
        if len(paragraphs) == 1 or not all(map(_TRAILER.match, lines)):
            return f"{message.rstrip()}\n\n{self.trailer}\n"
        return message if self.trailer in lines else f"{message.rstrip()}\n{self.trailer}\n"


SIGNING_VARIABLES = ("HOME", "GNUPGHOME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""Variables of the server that signing programs get, and no command."""
