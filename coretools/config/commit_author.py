"""The author of commits: a name and an email address, from the operator's settings or the caller's token.

Written as in git, `Ada Lovelace <ada@example.com>`. Git tools and `git` inside commands get it by the same four
environment variables, which override all git configuration (git-commit(1), "Commit Information").
"""

from dataclasses import dataclass

from coretools.errors import BadSetting

VARIABLES = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")

LONGEST = 256
"""Largest number of characters of a name or address; RFC 5321, 4.5.3.1 allows 254 for an address."""

_STRIPPED = " \t.,:;<>\"\\'"
"""Characters that git strips from both ends (strbuf_addstr_without_crud in ident.c); it refuses an empty rest."""


@dataclass(frozen=True, slots=True)
class Author:
    """Author and committer of a commit."""

    name: str
    email: str

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for git."""
        return dict(zip(VARIABLES, (self.name, self.email) * 2, strict=True))

    def __str__(self) -> str:
        """In git's form."""
        return f"{self.name} <{self.email}>"


def author_from(name: str, email: str) -> Author | None:
    """The author with this name and email; None if git would not write them unchanged into a commit."""
    both = (name.strip(), email.strip())
    is_good = all(_is_usable(text) for text in both) and not any(one.isspace() for one in both[1])
    return Author(*both) if is_good else None


def read_author(text: str, where: str) -> Author:
    """Parse an author such as `Ada Lovelace <ada@example.com>`; `where` names the setting in errors.

    Raises:
        BadSetting: no name, no address, or a character that a commit cannot contain.
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
