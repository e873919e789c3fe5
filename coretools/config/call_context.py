"""The call under way, for what does not get it as an argument: the log, and the environment of programs.

Tasks and threads that a call starts have its context too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from coretools.config.commit_author import Author


@dataclass(frozen=True, slots=True)
class CallContext:
    """What is known everywhere of a call."""

    id: str
    """Its id in the log."""
    principal: str
    author: Author | None = None
    """Author of the caller's commits; None for that of the role or the server."""
    facts: dict[str, object] = field(default_factory=dict)
    """JSON values for the metadata of its result, however it ends."""


_CURRENT: ContextVar[CallContext | None] = ContextVar("coretools_call", default=None)


@contextmanager
def calling(context: CallContext) -> Iterator[None]:
    """Run the block as this call."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_call() -> CallContext | None:
    """The call under way; None outside calls."""
    return _CURRENT.get()


def caller_variables() -> Mapping[str, str]:
    """The variables of the current caller's author; empty if the caller has none."""
    context = _CURRENT.get()
    return {} if context is None or context.author is None else context.author.variables
