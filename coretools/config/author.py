"""Who commits: one name and one address, from the operator's settings or from the token of whoever calls.

Written as git writes it, `Ada Lovelace <ada@example.com>`. Git tools and `git` inside commands get it by the same four
variables, which git puts before every configuration file (git-commit(1), "Commit Information").
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from coretools.errors import BadSetting

VARIABLES = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")

LONGEST = 256
"""Characters of a name and of an address; RFC 5321, 4.5.3.1 has 254 for an address."""

_STRIPPED = " \t.,:;<>\"\\'"
"""What git takes away from both ends (strbuf_addstr_without_crud in its ident.c); it refuses a name of nothing else."""


@dataclass(frozen=True, slots=True)
class Author:
    """Author and committer of a commit."""

    name: str
    email: str

    @property
    def variables(self) -> dict[str, str]:
        """What a child's environment has for git."""
        return dict(zip(VARIABLES, (self.name, self.email) * 2, strict=True))

    def __str__(self) -> str:
        """As git writes it."""
        return f"{self.name} <{self.email}>"


def author_from(name: str, email: str) -> Author | None:
    """The author of these two; None where git would not write them in a commit as they are."""
    both = (name.strip(), email.strip())
    is_good = all(_is_usable(text) for text in both) and not any(one.isspace() for one in both[1])
    return Author(*both) if is_good else None


def read_author(text: str, where: str) -> Author:
    """The author in a text such as `Ada Lovelace <ada@example.com>`; `where` is the setting that holds it.

    Raises:
        BadSetting: no name, no address, or a character that can't stand in a commit.
    """
    name, bracket, rest = text.strip().partition("<")
    author = author_from(name, rest[:-1]) if bracket and rest.endswith(">") else None
    if author is None:
        raise BadSetting(
            f"{where}: write a name and an address as git does, such as 'Ada Lovelace <ada@example.com>', on one line"
        )
    return author


def _is_usable(text: str) -> bool:
    is_plain = text.isprintable() and not any(one in text for one in "<>")
    return is_plain and 0 < len(text) <= LONGEST and bool(text.strip(_STRIPPED))


_caller: ContextVar[Author | None] = ContextVar("who commits in the call under way", default=None)


@contextmanager
def acting_as(author: Author | None) -> Iterator[None]:
    """Whatever the block starts, also in tasks and threads of its own, commits as this author; None changes nothing."""
    token = _caller.set(author)
    try:
        yield
    finally:
        _caller.reset(token)


def caller_variables() -> Mapping[str, str]:
    """The four variables of whoever's call is under way; empty where he has no author of his own."""
    author = _caller.get()
    return {} if author is None else author.variables
