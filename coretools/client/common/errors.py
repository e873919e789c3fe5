"""What can fail between this client and a server of somebody else. Exit codes are part of docs/specs/client.md."""

from coretools.errors import CoreError


class AuthenticationRequired(CoreError):
    """A remote server refused the credentials, or requires some."""

    kind = "authentication-required"
    exit_code = 67  # EX_NOUSER


class LoginRequired(AuthenticationRequired):
    """`coretools mcp login` would get the credentials that are missing."""


class NotTrusted(CoreError):
    """A file of the project names the server, and nobody has approved the entry yet."""

    kind = "not-trusted"
    exit_code = 77  # EX_NOPERM


class NotApproved(CoreError):
    """Nobody approved the call."""

    kind = "not-approved"
    exit_code = 77  # EX_NOPERM


class RefusedByPolicy(CoreError):
    """The operator's policy refuses the call; the sentence names the file and the rule."""

    kind = "refused-by-policy"
    exit_code = 77  # EX_NOPERM


class SchemaMismatch(CoreError):
    """The arguments or the result do not fit the schema of the tool, or the schema is invalid."""

    kind = "schema-mismatch"
    exit_code = 65  # EX_DATAERR


class ProtocolViolation(CoreError):
    """The server sent what the protocol does not allow, or refused a request."""

    kind = "protocol-violation"
    exit_code = 76  # EX_PROTOCOL


class ToolFailed(CoreError):
    """The tool ran and reported an error."""

    kind = "tool-failed"
    exit_code = 1
