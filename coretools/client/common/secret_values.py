"""Which values of an entry may be secrets: by the name before them, or because they look random. Pure.

Such a value is not shown when somebody approves the entry, and no message repeats it. One too many costs little there;
in the output of commands, which `coretools.redaction` treats, it would hide what people need.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlsplit

from coretools.redaction.names import is_credential_name

_LAST_WORDS = frozenset(
    {
        *("key", "keys", "pat", "token", "tokens", "secret", "secrets", "pass", "passwd", "password", "passphrase"),
        *("pwd", "pw", "auth", "credential", "credentials", "cred", "creds", "dsn", "cookie", "jwt", "bearer", "sas"),
        *("sk", "otp", "pin", "apikey"),
    }
)
"""Last words of names of credentials."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPEN = re.compile(r"~?/|\.{1,2}/|\$\{(?:env:|input:)?\w+\}$")
"""Begins a path, or is nothing but a reference: what it names is secret, and not the text."""

_RUN = re.compile(r"[A-Za-z0-9_-]{16,}")


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable, option or parameter may be a secret."""
    return _names_secret(name, value) or any(_random_parts(value))


def _names_secret(name: str, value: str) -> bool:
    words = _PARTS.findall(name)
    is_named = bool(words) and words[-1].lower() in _LAST_WORDS
    return is_credential_name(name) or (is_named and _OPEN.match(value) is None)


def secret_words(words: Iterable[str]) -> Iterator[str]:
    """Yield what may be secret in the words of a command line."""
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if "://" in word:
            yield from secret_parts(word)
        if equals and not name.endswith("?"):
            yield from [value] if _names_secret(name, value) else ()
        elif option and not word.startswith("-") and _names_secret(option, word):
            yield word
        yield from _random_parts(word)
        option = word if word.startswith("-") and not equals else ""


def secret_parts(url: str) -> Iterator[str]:
    """Yield what may be secret in a URL: parts of its path, and values of its query."""
    try:
        address = urlsplit(url)
    except ValueError:
        return
    for part in address.path.split("/"):
        yield from _random_parts(part)
    yield from (value for name, value in parse_qsl(address.query) if is_secret(name, value))


def _random_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text that look random, unless the text is a path or a reference.

    They have 16 letters and digits in a row, which is more than words, dates and the parts of a UUID have.
    """
    if _OPEN.match(text):
        return
    for run in _RUN.findall(text):
        if any(len(part) >= 16 and not part.isalpha() and not part.isdigit() for part in re.split("[_-]", run)):
            yield run
