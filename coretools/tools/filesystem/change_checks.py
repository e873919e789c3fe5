"""What is checked when text changes: its syntax before anything is written, and new errors afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coretools.language_servers.pool import LanguageServers
from coretools.roots.root import RootedPath
from coretools.tools.filesystem.new_errors import ChangedText, NewErrors, find_new_errors
from coretools.tools.filesystem.syntax_errors import SyntaxCheck, introduced_faults, refuse_faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeChecks:
    """The checks of a server's file tools."""

    refuses_syntax_errors: bool = False
    """A change that introduces some is refused, not only reported."""
    servers: LanguageServers | None = None
    """Running servers report new errors; without them no errors are reported."""
    errors_seconds: float = 1.0
    """Longest wait for them."""

    def syntax(self, display_path: str, before: str | None, after: str) -> SyntaxCheck:
        """The syntax errors that a change introduces; `before` is None for a new file.

        Raises:
            EditRefused: it introduces some, and the operator wants no such change.
        """
        check = SyntaxCheck() if before == after else introduced_faults(display_path, before, after)
        if self.refuses_syntax_errors:
            refuse_faults(check, display_path)
        return check

    def asks_about(self, place: RootedPath) -> bool:
        """Whether a server is ready to check a file."""
        return self.servers is not None and self.servers.ready(place) is not None

    def new_errors(self, changes: Sequence[ChangedText]) -> Mapping[RootedPath, NewErrors]:
        """The errors that changes introduced, once they are written. Called in a worker thread."""
        return {} if self.servers is None else find_new_errors(self.servers, changes, self.errors_seconds)
