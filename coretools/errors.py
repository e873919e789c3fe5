"""Expected errors: a kind for programs, an exit code for the command line, a sentence for the caller.

A `CoreError` is shown to the caller unchanged, so its sentence says what was refused and what would work. Any other
exception is a bug: it is logged once, and its text stays on the server. Exit codes are those of sysexits.h if one fits.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

AUTHOR_FAULTS = (
    ImportError,
    SyntaxError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that faulty code of an author raises: an imported module, an annotation, the schema of a type."""


class CoreError(Exception):
    """An expected error. Programs get `facts` in addition to the sentence; they must be JSON values."""

    kind: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.facts = facts


class InvalidArguments(CoreError):
    """The arguments of a call do not fit the schema of its tool."""

    kind = "invalid-arguments"
    exit_code = 64  # EX_USAGE


POLICY_APPLIES = "a restart of the server, or a reload of coretools-http"
"""What puts a change of the policy file into effect, for errors that name a key of it."""


class UnknownTool(CoreError):
    """No tool of this name is offered to this caller."""

    kind = "unknown-tool"
    exit_code = 64  # EX_USAGE


class UnknownPrompt(CoreError):
    """No prompt of this name is offered to this caller."""

    kind = "unknown-prompt"
    exit_code = 64  # EX_USAGE


class BadSetting(CoreError):
    """A flag, an environment variable or a root that the operator gave can't be used. Raised at start only."""

    kind = "bad-setting"
    exit_code = 78  # EX_CONFIG


class InvalidPath(CoreError):
    """The text is not a path: empty, too long, with a NUL or a lone surrogate."""

    kind = "invalid-path"
    exit_code = 64  # EX_USAGE


class OutsideRoot(CoreError):
    """A path led out of every root."""

    kind = "outside-root"
    exit_code = 77  # EX_NOPERM


class RootGone(CoreError):
    """A root was renamed, deleted or replaced while the server ran."""

    kind = "root-gone"
    exit_code = 69  # EX_UNAVAILABLE


class DeniedPath(CoreError):
    """The path is hidden: a deny glob covers it, or the file holds a secret."""

    kind = "denied-path"
    exit_code = 77  # EX_NOPERM


class DeniedCommand(CoreError):
    """The operator's policy refuses the argv, or requires a person's confirmation; `verdict` says which."""

    kind = "denied-command"
    exit_code = 77  # EX_NOPERM


class DeniedRemote(CoreError):
    """The operator's policy does not allow to reach this git remote."""

    kind = "denied-remote"
    exit_code = 77  # EX_NOPERM


class Unconfined(CoreError):
    """Commands cannot be confined as the operator requires; the sentence says what is missing."""

    kind = "unconfined"
    exit_code = 69  # EX_UNAVAILABLE


class ReadOnly(CoreError):
    """A change was requested beneath a read-only root, or of a read-only server."""

    kind = "read-only"
    exit_code = 77  # EX_NOPERM


class PermissionRefused(CoreError):
    """The operating system refused: permissions of the file or directory."""

    kind = "permission-refused"
    exit_code = 77  # EX_NOPERM


class NotFound(CoreError):
    """Nothing exists at the path, or the thing named does not exist."""

    kind = "not-found"
    exit_code = 66  # EX_NOINPUT


class AlreadyExists(CoreError):
    """Something already exists at the path."""

    kind = "already-exists"
    exit_code = 73  # EX_CANTCREAT


class WrongType(CoreError):
    """The path names another kind of thing than the tool works on (directory, FIFO, device, ...)."""

    kind = "wrong-type"
    exit_code = 65  # EX_DATAERR


class NotText(CoreError):
    """A file is binary, or its encoding cannot be determined or preserved."""

    kind = "not-text"
    exit_code = 65  # EX_DATAERR


class TooLarge(CoreError):
    """A stated limit in bytes, lines or entries is exceeded."""

    kind = "too-large"
    exit_code = 65  # EX_DATAERR


class EditRefused(CoreError):
    """An edit matched nothing, or more than once; the file is as it was."""

    kind = "edit-refused"
    exit_code = 65  # EX_DATAERR


class Conflict(CoreError):
    """Somebody else changed the thing in the meantime; nothing was written."""

    kind = "conflict"
    exit_code = 75  # EX_TEMPFAIL


class Busy(CoreError):
    """A limit of concurrent things is reached; the same call may work later."""

    kind = "busy"
    exit_code = 75  # EX_TEMPFAIL


class Unreachable(CoreError):
    """The server cannot reach what it needs for an answer: another server, or an engine. It may work later."""

    kind = "unreachable"
    exit_code = 69  # EX_UNAVAILABLE


class MissingExtra(CoreError):
    """The request needs a package that an extra installs."""

    kind = "missing-extra"
    exit_code = 69  # EX_UNAVAILABLE


class DeadlinePassed(CoreError):
    """The deadline passed before the work was done, and a partial result is of no use."""

    kind = "deadline-passed"
    exit_code = 124  # as in timeout(1)


class InputOutput(CoreError):
    """The operating system failed: disk full, input/output error, too many descriptors."""

    kind = "input-output"
    exit_code = 74  # EX_IOERR


class CommandSyntax(CoreError):
    """A command line cannot be split into words; `position` is the offset of the offending character."""

    kind = "command-syntax"
    exit_code = 64  # EX_USAGE

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, position=position)
        self.position = position


class CannotStart(CoreError):
    """A program could not be started: not found, not executable, argument list too long."""

    kind = "cannot-start"
    exit_code = 127  # as in a shell


class AnswerNeeded(CoreError):
    """A question could not be asked; `question` is its key, and the sentence says which answer to send beforehand."""

    kind = "answer-needed"
    exit_code = 75  # EX_TEMPFAIL

    def __init__(self, message: str, *, question: str, hint: str = "") -> None:
        super().__init__(message, question=question)
        self.hint = hint
        """The end of the sentence: why nobody was asked, and what to send."""


class Declined(CoreError):
    """Somebody declined, or gave no answer; nothing was done."""

    kind = "declined"
    exit_code = 77  # EX_NOPERM


class InputNeeded(CoreError):
    """The call ends here, and the client repeats it with the answers: no failure, but how the stateless era asks.

    `requests` have the form of the surface that raised it, by the key of their question; the client returns `state`
    with the answers.
    """

    kind = "input-needed"
    exit_code = 75  # EX_TEMPFAIL

    def __init__(self, requests: Mapping[str, Any], state: str) -> None:
        super().__init__(f"answers are needed: {', '.join(requests)}")
        self.requests = requests
        self.state = state


class RequestRefused(CoreError):
    """An error of the request, not of the command: `code` and `data` become a protocol error."""

    kind = "request-refused"
    exit_code = 64  # EX_USAGE

    def __init__(self, message: str, *, code: int, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class CapabilityMissing(CoreError):
    """The client lacks a capability that the command cannot do without."""

    kind = "capability-missing"
    exit_code = 69  # EX_UNAVAILABLE

    def __init__(self, capability: str, message: str = "", *, hint: str = "") -> None:
        # The code and data of the protocol's MissingRequiredClientCapabilityError (2026-07-28, basic/index).
        needed: dict[str, object] = {capability: {}}
        super().__init__(message or f"the client does not offer {capability}, which this needs")
        self.code = -32021
        self.data: object = {"requiredCapabilities": {"extensions": needed} if "/" in capability else needed}
        self.capability = capability
        self.hint = hint
        """As in `AnswerNeeded`, if a question could not be asked."""


RequestError = RequestRefused | CapabilityMissing
"""Errors with the `code` and `data` of a protocol error."""


class InternalFailure(CoreError):
    """A bug in the server or a command. The text of the exception stays in the server's log, under the call id."""

    kind = "internal"
    exit_code = 70  # EX_SOFTWARE

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """What happened, for a person on a command line of the process itself; clients do not get it."""


class Unsupported(CoreError):
    """This platform or project lacks what the call needs."""

    kind = "unsupported"
    exit_code = 69  # EX_UNAVAILABLE


class GitRefused(CoreError):
    """git ended with an error, or the repository is refused."""

    kind = "git-refused"
    exit_code = 65  # EX_DATAERR


def exit_code_of(kind: str) -> int:
    """The exit code for a kind of error; 1 for an unknown kind."""
    return next((error.exit_code for error in _all_errors(CoreError) if error.kind == kind), CoreError.exit_code)


def _all_errors(base: type[CoreError]) -> list[type[CoreError]]:
    return [base, *(error for child in base.__subclasses__() for error in _all_errors(child))]
