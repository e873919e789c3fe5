"""Find credentials by the name before them: `DB_PASSWORD=x`, `"api_key": "x"`, `--token x`.

A name alone proves little: code is full of `token = parser.next()` and `password: str`. So the value decides too:
text that reads like code, a type, a path, a number or a reference is kept. In a command line the role of every word
is known, and the name alone decides (`is_credential_name`). The work is linear in the length of the text: at most 48
characters of a name are examined, and 80 of a value unless it is redacted.
"""

import re
from typing import NamedTuple

from coretools.redaction.spans import Span, compiled

_KEYWORDS = (
    r"(?P<strong>pass(?:word|wd|phrase|code)|sshpass|pwd)"
    r"|(?P<weak>secret|token|credential|api[_-]?key|(?<![a-z])(?:pass|auth)(?![a-z])"
    r"|(?:access|private|secret|signing|encryption|auth|master|account|shared|service|subscription|storage|session)"
    r"[_-]?(?:access[_-]?)?key)"
)
_HINTS = ("pass", "pwd", "secret", "token", "credential", "key", "auth")
"""Every name of a credential contains one of these, in lower case."""
_REST = r"(?P<rest>[\w.-]{0,48}+)"
_ASSIGNMENT = (
    rf"(?i:{_KEYWORDS}){_REST}"
    r"(?:(?P<before>\\?[\"'`]?\]?[ \t]*+)(?P<sign>:=|=>|=(?!=)|:(?!:))(?P<after>[ \t]*+)|(?P<blank>[ \t]++))"
    r"(?P<quote>\\?[\"'`])?"
)
_QUOTED = {
    '"': r"(?>(?:[^\"\\\n\r\x00]++|\\[^\n\r])*)",
    "'": r"(?>(?:[^'\\\n\r\x00]++|\\[^\n\r])*)",
    "`": r"[^`\n\r\x00]*+",
    "\\": r"[^\\\"\n\r\x00]*+",
}
"""Quoted text, by the first character of the opening quote."""
_RUN = r"[^\s\"'`\x00]"
_PLAIN = r"[^\s\"'`\x00,;&<>(){}|\\]"

_LAST_WORDS = """
    file path dir directory folder url uri name type count id ids length len limit endpoint expiry expires expiration
    ttl at size hint policy prompt field label regex pattern budget index kind class header version var cmd command
    helper store manager provider required enabled disabled min max usage source scope scopes status error errors
    message stdin fd format age rate cost costs host port user username login agent socket sock mode method service sid
    validator generator parser reset expired timeout strength
"""
_NOT_THE_SECRET = frozenset(_LAST_WORDS.split())
"""Last words of names that mention a secret without holding one: `token_file`, `password-stdin`, `secret_name`."""

_NO_VALUES = """
    none null nil true false undefined void any str string bytes bytearray int integer bool boolean float object self
    required optional hidden masked redacted changeme example placeholder uint8array secretstr
"""
_WORDS = frozenset(_NO_VALUES.split())
_REFERENCE = r"\$\w+|\$[({].*|\$\{\{.*|%\w+%|%\w|%\(\w+\)s|@\w+@"
_CODE = r"[A-Za-z_&*][\w.]*[\[(?!]|&|\*(?!\w{6})"
_CHAIN = r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+"
_IDENTIFIER = r"[A-Za-z_]\w*"
_LETTERS = r"[A-Za-z_./: -]*"
_NUMBER = r"[0-9][0-9._,]*[a-zA-Z%]{0,3}"
_DIGIT = r"[0-9]"
_PATH = r"(?:~|\.{1,2})?/[\w.@/+-]*|[A-Za-z]:\\.*"
_PARTS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_OPTION_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

_EXAMINED = 80
"""Characters of a value that are examined."""

_AWS_SECRET_LENGTH = 40
"""Length of an AWS secret key, in base64: it may begin with a slash and is not a path."""


class _CandidateValue(NamedTuple):
    """A value after the name of a credential, and its context."""

    value: str
    strong: str
    """The keyword of the name, if it can only mean a password."""
    is_quoted: bool
    is_tight: bool
    """`NAME=value`, without blanks around the equals sign."""
    is_upper: bool
    """The name is in upper case, as of environment variables."""
    behind: str
    """The character after the value."""


def is_credential_name(name: str) -> bool:
    """Whether a variable, option or field of this name holds a credential."""
    # `PWD` is the directory of a shell; `DB_PWD` and the `Pwd` of a connection string are passwords.
    if name in ("PWD", "OLDPWD") or not any(hint in name.lower() for hint in _HINTS):
        return False
    return any(map(_names_the_secret, compiled(rf"(?i:{_KEYWORDS}){_REST}").finditer(name[:200])))


def credential_kind(name: str) -> str:
    """The kind in the redaction marker for a value of this name."""
    small = name.lower()
    if "pass" in small or "pwd" in small:
        return "password"
    return next((kind for kind in ("token", "secret") if kind in small), "key")


def _names_the_secret(match: re.Match[str]) -> bool:
    """Whether the rest of the name still means the secret itself: `token2` and `apiKeys`, not `tokenizer`."""
    rest, keyword = match["rest"], match["strong"] or match["weak"]
    if not rest:
        return True
    # A letter of the same case continues the word; a plural is still the same word.
    same_case = str.isupper if keyword[-1].isupper() else str.islower
    follows = rest[1:2] if rest[0] in "sS" and same_case(rest[0]) else rest[0]
    if same_case(follows):
        return False
    return not any(part.lower() in _NOT_THE_SECRET for part in compiled(_PARTS).findall(rest)[-1:])


def find_assignments(text: str) -> list[Span]:
    """Every value in the text that follows the name of a credential and looks like one; sorted."""
    small = text.lower()
    if not any(hint in small for hint in _HINTS):
        return []
    spans, at, pattern = [], 0, compiled(_ASSIGNMENT)
    while match := pattern.search(text, at):
        at = match.end()
        is_assigned = match["sign"] or _is_option(text, match)
        span = _value(text, match) if is_assigned and _names_the_secret(match) else None
        if span is not None:
            spans.append(span)
            at = span.end
    return spans


def _is_option(text: str, match: re.Match[str]) -> bool:
    """Whether the name belongs to a command-line option: only those take a value after a blank."""
    at = match.start()
    if text.startswith("-", match.end()):
        return False
    before = text[max(0, at - 48) : at]
    rest = before.rstrip(_OPTION_LETTERS)
    return before.startswith("-", len(rest)) and (not rest or rest[-1] in " \t\n\r\"'`=")


def _value(text: str, match: re.Match[str]) -> Span | None:
    start, quote = match.end(), match["quote"]
    name = match["strong"] or match["weak"]
    is_upper = (name + match["rest"]).isupper()
    is_tight = match["sign"] == "=" and not match["before"].strip("\"'`\\") and not match["after"]
    whole = _RUN if is_upper and is_tight else _PLAIN
    end = _end(_QUOTED[quote[0]] if quote else f"{whole}{{0,{_EXAMINED}}}+", text, start)
    value = text[start : min(end, start + _EXAMINED)]
    candidate = _CandidateValue(
        value.strip(), match["strong"] or "", bool(quote), is_tight, is_upper, text[end : end + 1]
    )
    if not _is_secret(candidate):
        return None
    return Span(start, end if quote else _end(f"{whole}*+", text, start), credential_kind(name))


def _end(expression: str, text: str, start: int) -> int:
    match = compiled(expression).match(text, start)
    return match.end() if match else start


def _is_secret(candidate: _CandidateValue) -> bool:
    value = candidate.value
    if not value or value[0] in "<{[(%" or set(value) <= set("*xX.-_#\u2022"):
        return False
    if value.lower() in _WORDS or compiled(_REFERENCE).fullmatch(value):
        return False
    if candidate.strong.lower() == "pwd" and compiled(_PATH).fullmatch(value):
        return False
    return _is_quoted_secret(candidate) if candidate.is_quoted else _is_bare_secret(candidate)


def _is_quoted_secret(candidate: _CandidateValue) -> bool:
    value = candidate.value
    if candidate.strong:
        return True
    if " " in value or len(value) < 8 or _is_path(value) or compiled(_NUMBER).fullmatch(value):
        return False
    return not (compiled(_LETTERS).fullmatch(value) and len(value) < 20)


def _is_bare_secret(candidate: _CandidateValue) -> bool:
    value = candidate.value
    if candidate.is_upper and candidate.is_tight:
        return _is_variable_secret(candidate)
    if candidate.behind in ("(", "{", "<") or _is_code(value):
        return False
    is_argument = candidate.behind in (",", ")")
    if candidate.strong:
        return len(value) >= 4 and not _is_word(value, is_argument=is_argument, is_tight=candidate.is_tight)
    if compiled(_NUMBER).fullmatch(value) or _is_path(value) or compiled(_LETTERS).fullmatch(value):
        return False
    if candidate.is_tight:
        return len(value) >= 6 and not (is_argument and compiled(_IDENTIFIER).fullmatch(value) and len(value) < 16)
    return len(value) >= 10


def _is_code(value: str) -> bool:
    is_chain = compiled(_CHAIN).fullmatch(value) is not None and len(value) < 32
    return is_chain or compiled(_CODE).match(value) is not None or _is_placeholder(value)


def _is_word(value: str, *, is_argument: bool, is_tight: bool) -> bool:
    """Whether a value after the name of a password reads like a variable: `password = prompt`, `f(password=given2)`."""
    if is_argument:
        return compiled(_IDENTIFIER).fullmatch(value) is not None
    return not is_tight and compiled(_LETTERS).fullmatch(value) is not None


def _is_variable_secret(candidate: _CandidateValue) -> bool:
    """For `NAME=value`: output of `env`, a line of a `.env` file, a shell assignment."""
    value = candidate.value
    if candidate.strong:
        return len(value) >= 3 and not (_is_placeholder(value) and value.isupper())
    return len(value) >= 6 and not (compiled(_NUMBER).fullmatch(value) or _is_path(value) or _is_placeholder(value))


def _is_placeholder(value: str) -> bool:
    """Whether it is a variable or a placeholder, such as `args.token` or `your-api-key`: without a digit."""
    return compiled(f"(?i:{_KEYWORDS})").search(value) is not None and not compiled(_DIGIT).search(value)


def _is_path(value: str) -> bool:
    return compiled(_PATH).fullmatch(value) is not None and len(value) != _AWS_SECRET_LENGTH
