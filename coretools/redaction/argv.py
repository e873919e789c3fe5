"""Format a command as one line for the log: quoted as for a shell, without credentials.

The role of every word is known here, so more is redacted than in free text: whatever follows `--password`, the value of
every `NAME=value` with the name of a credential, and short options by which programs take a password.
"""

from collections.abc import Callable, Sequence

from coretools.escapes import escape_unprintable
from coretools.redaction.names import credential_kind, is_credential_name
from coretools.redaction.redactor import Redactor
from coretools.shell_words import join
from coretools.truncation import cut_text

MAX_WORDS = 100
"""Words that are printed."""

MAX_WORD_CHARACTERS = 300
"""Characters of one word that are printed."""

MAX_LINE_CHARACTERS = 2_000
"""Characters of the line that are printed."""

_EXAMINED = 16 * 1024
"""Characters of a word that are examined; far fewer are printed."""

_MYSQL = ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlshow", "mariadb", "mariadb-dump", "mariadb-admin")
_ATTACHED = dict.fromkeys((*_MYSQL, "sshpass", "7z", "7za"), "-p") | {"plink": "-pw"}
"""Options with the password in the same word (`-pSECRET`)."""
_SEPARATE = {
    **dict.fromkeys(("sshpass", "docker", "podman", "nerdctl", "helm", "az", "oc", "argocd", "vsql"), ("-p",)),
    **dict.fromkeys(("redis-cli", "valkey-cli"), ("-a",)),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldappasswd"), ("-w", "-s")),
    **dict.fromkeys(("zip", "unzip", "sqlcmd", "bcp"), ("-P",)),
    **dict.fromkeys(("openssl",), ("-k", "-K", "-pass", "-passin", "-passout")),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "cqlsh"), ("-p",)),
    **dict.fromkeys(("plink", "pscp"), ("-pw",)),
}
"""Options whose next word is the password. Other meanings of them (`docker run -p 80:80`) have no letters."""
_PAIRS = {
    **dict.fromkeys(("curl", "curlie", "xh"), ("-u", "--user", "-U", "--proxy-user")),
    **dict.fromkeys(("http", "https"), ("-a", "--auth")),
    **dict.fromkeys(("ab", "wrk"), ("-A", "-P")),
    **dict.fromkeys(("smbclient", "rpcclient", "net"), ("-U", "--user")),
}
"""Options whose next word is `user:password` or `user%password`."""
_HEADERS = frozenset({"-H", "--header", "--proxy-header"})
_SECRET_FIELDS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
_NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
_PROGRAMS = frozenset({*_ATTACHED, *_SEPARATE, *_PAIRS})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})


def redacted_command_line(argv: Sequence[str], redactor: Redactor | None = None) -> str:
    """The command as one printable line of at most `MAX_LINE_CHARACTERS` characters; omitted ones are counted."""
    redactor = redactor or Redactor()
    words = _Words(redactor).redacted([word[:_EXAMINED] for word in argv[:MAX_WORDS]])
    display_words = [_cut(shorter, len(whole)) for shorter, whole in zip(words, argv, strict=False)]
    line = escape_unprintable(join([word.replace("\0", "\\x00") for word in display_words]))
    if len(argv) > MAX_WORDS:
        line += f" [... {len(argv) - MAX_WORDS} more words ...]"
    return cut_text(line, MAX_LINE_CHARACTERS)


class _Words:
    """One pass over the words of a command; what a word means depends on those before it."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._program = ""
        """The last word that named a program with known options, also after `env` or `sudo`."""
        self._is_shell = False
        self._next: Callable[[str], str] | None = None
        """How to redact the next word, because of the option before it."""

    def redacted(self, argv: Sequence[str]) -> list[str]:
        return [self._word(word) for word in argv]

    def _word(self, word: str) -> str:
        treat, self._next = self._next, None
        if treat is not None:
            return treat(word)
        name = word.rpartition("/")[2]
        if name in _PROGRAMS or name in _SHELLS:
            self._program, self._is_shell = name, name in _SHELLS
        elif word.startswith("-"):
            return self._option(word)
        return self._assigned(word)

    def _option(self, word: str) -> str:
        name, equals, rest = word.partition("=")
        attached = _ATTACHED.get(self._program)
        if attached and word.startswith(attached) and len(word) > len(attached):
            return f"{attached}[redacted:password]"
        treat = self._treatment(name)
        if treat is None:
            return self._assigned(word)
        if equals:
            return f"{name}={treat(rest)}"
        self._next = treat
        return word

    def _treatment(self, name: str) -> Callable[[str], str] | None:
        """How to redact the value of an option; None if the option is unknown."""
        if self._is_shell and not name.startswith("--") and name.endswith("c"):
            return self._script
        if name in _SEPARATE.get(self._program, ()):
            return _secret_unless_number
        if name in _PAIRS.get(self._program, ()):
            return self._pair
        if name in _HEADERS:
            return self._header
        return _hidden(credential_kind(name)) if is_credential_name(name) else None

    def _assigned(self, word: str) -> str:
        """Redact `NAME=value` and `//host/:_authToken=value`; anything else as free text."""
        name, equals, value = word.partition("=")
        tail = name[len(name.rstrip(_NAME_LETTERS)) :]
        if equals and value and "?" not in name and is_credential_name(tail):
            return f"{self._redactor.text(name)}={_hidden(credential_kind(tail))(value)}"
        return self._redactor.text(word)

    def _header(self, word: str) -> str:
        """Redact `Name: value`; the scheme of an Authorization header is kept."""
        name, colon, value = word.partition(":")
        small = name.strip().lower()
        if not colon or not (small in _SECRET_FIELDS or is_credential_name(small)):
            return self._redactor.text(word)
        scheme, blank, _ = value.strip().partition(" ")
        return f"{name}: {scheme if blank and small.endswith('authorization') else ''}{blank}[redacted:header]"

    def _pair(self, word: str) -> str:
        """Redact `user:password`, or `user%password` as in Samba."""
        user, sign, password = word.partition(":" if ":" in word else "%")
        if not password:
            return self._redactor.text(word)
        return f"{self._redactor.text(user)}{sign}[redacted:password]"

    def _script(self, text: str) -> str:
        """Redact a shell script: word by word, then as free text."""
        lines = [" ".join(_Words(self._redactor).redacted(line.split(" "))) for line in text.split("\n")]
        return self._redactor.text("\n".join(lines))


def _hidden(kind: str) -> Callable[[str], str]:
    return lambda word: word if word.startswith(("--", "[redacted:")) else f"[redacted:{kind}]"


def _secret_unless_number(word: str) -> str:
    """Redact a password, but not ports: `docker run -p 8080:80`."""
    return word if word and not word.strip("0123456789.:-/tcpud") else "[redacted:password]"


def _cut(word: str, whole: int) -> str:
    if len(word) <= MAX_WORD_CHARACTERS:
        return word
    return f"{word[:MAX_WORD_CHARACTERS]}[... {max(whole, len(word)) - MAX_WORD_CHARACTERS} more characters ...]"
