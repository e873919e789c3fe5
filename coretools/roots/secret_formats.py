"""Recognise secrets in the content of a file, for each format that a name suggests (`secret_names`). Pure.

`redaction.patterns` recognises tokens and private keys in text, and `redaction.names` names of credentials; this module
has what is specific to one file format. The work is linear in the length of the content: repeats are possessive or
bounded.
"""

import json
from collections.abc import Callable, Iterator

from coretools.redaction.names import is_credential_name
from coretools.redaction.patterns import find_credentials
from coretools.redaction.private_keys import find_private_keys
from coretools.redaction.spans import compiled
from coretools.roots.git_credentials import GIT_CREDENTIAL, credentials_in, is_configuration_with_credential
from coretools.roots.secret_names import ANY_CONFIGURATION, GIT_FORMAT

HEAD_BYTES = 64 * 1024
"""Bytes of a suspect file that are read first: nearly all are shorter."""

MAX_BYTES = 1024 * 1024
"""Bytes read of a longer one; if still undecided, it counts as a secret."""

_CREDENTIAL = "a token or password"


def secret_in(kind: str, data: bytes) -> str:
    """The secret in the content of a suspect file, as the end of "it holds ..."; "" for none."""
    if kind in _BYTE_FORMATS:
        return _BYTE_FORMATS[kind](data)
    text = _text(data)
    if kind == "account":
        is_account = "private_key" in text and compiled(_SERVICE_ACCOUNT).search(text) is not None
        return "the private key of a service account" if is_account and _has_private_key(text) else ""
    matches, secret = _FORMATS[kind]
    if matches(text):
        return secret
    if _has_private_key(text):
        return "a private key"
    # Credential files are short, and this check costs ten times as much as the others.
    return _CREDENTIAL if find_credentials(text[:HEAD_BYTES]) else ""


def is_settled(kind: str, head: bytes) -> bool:
    """Whether content after the first HEAD_BYTES cannot turn a file without a secret into one with a secret."""
    # Key stores and binary keys are known by their first bytes; the key file of an account has about 2,400 bytes.
    if kind == ANY_CONFIGURATION:  # a file of this size is rarely one, and parsing more of it would take long
        return True
    return kind in ("store", "account") or (kind == "key" and b"\0" in head and not _is_utf16(head))


def _is_utf16(data: bytes) -> bool:
    return data[:2] in (b"\xff\xfe", b"\xfe\xff")


def _text(data: bytes) -> str:
    """The content as programs read it: Windows editors and `>` of PowerShell write UTF-16, and lines may end in CR.

    Without NUL bytes, ASCII text in UTF-16 without a byte order mark, or in UTF-32, reads the same.
    """
    text = data.decode("utf-16" if _is_utf16(data) else "utf-8-sig", "replace")
    return text.replace("\0", "").replace("\r", "\n")


# Keys and key stores

_STORES = (
    *(b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x03\xd9\xa2\x9a"),
    *(b"\0\0\0\1\0\0\0\x14", b"\0\0\0\2\0\0\0\x14"),
)
"""First bytes: JKS, JCEKS, KeePass; BKS by version and length of the salt."""

_PASSWORD_BASED = (b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05", b"\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01")
"""Object identifiers at the start of an encrypted PKCS #8 key: PKCS #5 and PKCS #12 (RFC 8018, RFC 7292)."""

_OTHER_KEYS = (
    r"(?m)^PuTTY-User-Key-File-[123]:|^AGE-SECRET-KEY-1|^-----BEGIN OpenVPN Static key V1-----"
    r"|^---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|^(?:Key: )?\((?:[0-9]{1,4}:)?(?:protected-)?private-key"
)
_OTHER_MARKS = ("PuTTY-User-Key", "AGE-SECRET-KEY-1", "OpenVPN Static key", "SSH2 ENCRYPTED", "private-key")
_HEX_KEY = r"\s*+(?:[0-9a-f]{32}|[0-9a-f]{64})\s*+"
"""Keys of 16 or 32 bytes in hexadecimal and nothing else, such as `master.key` of Rails."""
_HEX_KEY_BYTES = 80
_VERSIONS = (3, 4, 5, 6)
"""Versions of OpenPGP secret keys (RFC 9580, part 5.5)."""


def _key_in(data: bytes) -> str:
    if data.startswith(_STORES):
        return "a key store"
    if len(data) <= _HEX_KEY_BYTES and compiled(_HEX_KEY).fullmatch(_text(data)):
        return "a key"
    if data[:1] == b"\x30":
        return _der(data)
    if _is_openpgp_secret(data):
        return "a private key"
    text = _text(data)
    has_other = any(mark in text for mark in _OTHER_MARKS) and compiled(_OTHER_KEYS).search(text)
    return "a private key" if has_other or _has_private_key(text) else ""


def _has_private_key(text: str) -> bool:
    return "PRIVATE KEY" in text and any(True for _ in find_private_keys(text))


def _der(data: bytes) -> str:
    """Recognise DER (X.690) by the first fields of its sequence; certificates, requests and public keys differ."""
    first = _content(data, 0)
    inner = data[first : first + 4]
    if inner[:3] == b"\x02\x01\x03" and inner[3:] == b"\x30":
        return "a key store"  # PKCS #12, version 3
    # Version 0 or 1, then an algorithm (PKCS #8), a modulus (PKCS #1, DSA), or the octets of an EC key (SEC 1).
    if inner[:3] in (b"\x02\x01\x00", b"\x02\x01\x01") and inner[3:] in (b"\x30", b"\x02", b"\x04"):
        return "a private key"
    if inner[:1] == b"\x30" and data[_content(data, first) :].startswith(_PASSWORD_BASED):
        return "a private key"
    return ""


def _content(data: bytes, at: int) -> int:
    """Where the content of the value at `at` begins."""
    length = data[at + 1] if len(data) > at + 1 else 0
    return at + 2 + (length & 0x7F if length & 0x80 else 0)


def _is_openpgp_secret(data: bytes) -> bool:
    """Whether the first packet is a secret key, tag 5, with a length in either form (RFC 9580, 4.2)."""
    if len(data) < 64:
        return False
    if 0x94 <= data[0] <= 0x97:
        at = 1 + (1, 2, 4, 0)[data[0] & 3]
    elif data[0] == 0xC5:
        at = 2 if data[1] < 192 else 3 if data[1] < 224 else 6
    else:
        return False
    return data[at] in _VERSIONS


# Text formats

_SERVICE_ACCOUNT = r'"type"\s{0,8}+:\s{0,8}+"service_account"'

_NO_LITERAL = (
    r"\$.*|<.*>|<%.*|\{\{.*|%\w{1,80}%|x{3,}+|\*{3,}+|\.{3,}+|(?i:(?:your|change|replace|insert)[ _-].*|changeme|"
    r"null|none|true|false|~)"
)
"""A reference or a placeholder."""

_ENVIRONMENT = (
    r"(?m)^(?![^\S\n]*+#)(?:[^\n]*?(?<![\w.$?/%+\"'-])([\"']?)[\w.-]++\1[ \t]*+[:+?]?="
    r"|[^\S\n]*+(?:export[ \t]++)?([\"']?)[\w.-]++\2[ \t]*+:(?=\s))([^\n]*+)"
)
"""The first assignment in a line, and the rest: shell, Docker, PowerShell, or dotenv's `NAME: value`."""
_UNSET = (
    r"[ \t]*+(?:(?P<quote>[\"'])(?P=quote)|(?P<mark>[\"']?)(?:\$\w++|\$\{\w++(?::?-)?\}|\$\([^)]*+\))(?P=mark))?"
    r"[ \t;]*+(?:(?<=[\s;])#.*+)?"
)
"""No value, or only a reference."""
_ECHOED = (
    r"\b(?:echo|printf)"
    r"(?>(?:[ \t]++(?:-\w++|[\"']?(?:\$\w++|\$\{[^}\n]{0,80}+\}|%[\w.]++)(?:\\n)?[\"']?)(?=[\s|)])){0,20})"
    r"[ \t]++(?![$%-])[\"']?(?=[^\s$|)&;<>\"'])|<<<[ \t]*+[\"']?[^\s$\"']"
)
"""A command substitution that prints a literal word."""
_NPM = r"(?:_authToken|_auth|_password|npmAuthToken|npmAuthIdent)[\"']?[ \t]*+[=:][ \t]*+([^\n]*+)"
_NETRC = r"\bpassword\s++(\S{1,200})"
_ADDRESS = r"://[A-Za-z0-9_-]{20,256}@"
_LINES = r"(?m)^[^#\s]"
_NPM_REFERENCE = r"\$(?:\w++|\{\w++(?:\?|:?-(?P<default>[^}\n]*+))?\})"
_NPM_FRAME = r"[\s\"']*+(?:(?i:bearer|basic)|[^\s\"':]++:)?[\s\"':]*+(?:[#;].*+)?"
"""Text that may surround references without being part of a secret."""
_DOCKER_NAMES = r"auth|identitytoken|registrytoken|password"
_DOCKER = rf'"(?:{_DOCKER_NAMES})"\s*+:\s*+"([^"\n]*+)"'
_KUBE_NAMES = r"token|password|client-key-data|client-secret|id-token|refresh-token|access-token"
_KUBE = (
    rf"(?m)(?:^|(?<=[{{,]))[ \t-]*+[\"']?(?:{_KUBE_NAMES})[\"']?[ \t]*+:[ \t]*+"
    r"(\"[^\"\n]*+\"|'[^'\n]*+'|[^\n,}]*+)"
)
_STATE = r'"resources"\s{0,80}+:\s{0,80}+\[\s{0,80}+\{|"(?:outputs|modules)"\s{0,80}+:\s{0,80}+[\[{]\s{0,80}+["{]'
_MAVEN = (
    r"<(?:password|passphrase|privateKey|master)(?:\s[^<>]*+)?>"
    r"(?>(?:\s++|<!--(?>(?:[^-]|-(?!->)){0,200})-->)*)(?:<!\[CDATA\[\s*+([^\]\n]++)|([^<\n]++))"
)
_BUNDLE = (
    r"(?m)^BUNDLE_(?!(?:WITH|WITHOUT|ONLY):|(?:BUILD|LOCAL|MIRROR|PATH)__|GEM__[A-Z]{1,40}+(?:_[A-Z]{1,40})?:)"
    r"(?:(?:HTTPS?://)?(?=[^\s\":]*?[A-Z0-9]__[A-Z0-9])[^\s\":]++:[ \t]*+([^\n]++)"
    r"|[A-Z0-9_]++:[ \t]*+[\"']?([^\s\"':]++:(?![/\\])[^\s\"']++))"
)
"""For a host, whose name has two underscores for a dot: any value. For other names: `user:password`."""
_SETTING = (
    r"(?<![\w.-])(?P<name>[\w.-]{1,80}+)[\"']?[ \t]*+[=:][ \t]*+"
    r"(?:(?:\"{3}|'{3})[\s\\]*+(?P<lines>[^\n\"']*+)"
    r"|\"(?P<double>[^\"\n]*+)\"|'(?P<single>[^'\n]*+)'|(?P<bare>[^\s,;#\"'{\[]++))"
)
_PROPERTY = (
    r"(?m)^[ \t\f]*+(?![#!])(?P<name>(?>(?:[^\s=:\\]|\\[^\n])+))"
    r"(?:[ \t\f]*+[=:]|[ \t\f])(?>(?:[ \t\f]|\\\n)*)(?P<value>[^\n]*+)"
)
"""As java.util.Properties.load reads it: a space separates too, and a backslash before a line break joins lines."""
_NUGET = (
    r"<add\s(?=[^<>]*?\bkey\s*+=\s*+[\"'](?i:(?:ClearText|http_proxy\.)?Password)[\"'])"
    r"[^<>]*?\bvalue\s*+=\s*+(?:\"([^\"<>]*+)\"|'([^'<>]*+)')"
)
_ADDED = r"<add\s[^<>]*?\bvalue\s*+=\s*+(?:\"([^\"<>]*+)\"|'([^'<>]*+)')"
_OAUTH = r'"(?:github-oauth|gitlab-oauth|gitlab-token|bearer)"\s{0,80}+:\s{0,80}+\{\s{0,80}+"[^"\n]{1,200}"\s{0,80}+:'
"""Composer's auth.json: a host and its token."""


def _values(expression: str, text: str) -> Iterator[str]:
    """The participating group of each match."""
    return (match[match.lastindex or 0] for match in compiled(expression).finditer(text))


def _members(text: str) -> list[tuple[str, str]] | None:
    """Names and values of all string members in a JSON text, repeated names too; None if it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    found: list[tuple[str, str]] = []

    def note(members: list[tuple[str, object]]) -> None:
        found.extend((name, value) for name, value in members if isinstance(value, str))

    try:
        json.loads(text, object_pairs_hook=note, parse_int=float, strict=False)
    except (ValueError, RecursionError):
        return None
    return found


def _has_member(names: str, expression: str) -> Callable[[str], bool]:
    """Whether one of these names has a literal value, in JSON, or by an expression in any other text."""

    def matches(text: str) -> bool:
        members = _members(text)
        if members is None:
            return any(map(_is_literal, _values(expression, text)))
        return any(_is_literal(value) for name, value in members if compiled(names).fullmatch(name))

    return matches


def _has_literal(expression: str) -> Callable[[str], bool]:
    """Whether the group of an expression matches a literal value, not a reference."""
    return lambda text: any(map(_is_literal, _values(expression, text)))


def _has(expression: str) -> Callable[[str], bool]:
    return lambda text: compiled(expression).search(text) is not None


def _is_literal(value: str) -> bool:
    bare = value.strip(" \t\r\"',;")
    return bool(bare) and bare[0] != "#" and compiled(_NO_LITERAL).fullmatch(bare) is None


def _sets_a_variable(text: str) -> bool:
    """Whether any assignment has a value, whatever its name: in such a file any value may be secret."""
    values = (match[3] for match in compiled(_ENVIRONMENT).finditer(text))
    return any(compiled(_UNSET).fullmatch(value) is None or _prints_a_word(value) for value in values)


def _prints_a_word(value: str) -> bool:
    return "$(" in value and compiled(_ECHOED).search(value) is not None


def _has_npm_token(text: str) -> bool:
    return any(map(_is_npm_token, _values(_NPM, text)))


def _is_npm_token(value: str) -> bool:
    """Whether it is more than references: `${NAME}` alone is not, `${NAME}x` and `${NAME-default}` are."""
    rest, count = compiled(_NPM_REFERENCE).subn(lambda match: match["default"] or "", value)
    return compiled(_NPM_FRAME).fullmatch(rest) is None if count else _is_literal(value)


def _has_nuget_secret(text: str) -> bool:
    """Whether a package source has a password, plain or encrypted, or an API key."""
    keys = text.partition("<apikeys")[2].rpartition("</apikeys")[0]
    return any(map(_is_literal, (*_values(_NUGET, text), *_values(_ADDED, keys))))


def _sets_a_secret(text: str) -> bool:
    """Whether a setting with the name of a credential has a literal value."""
    members = _members(text)
    pairs = _settings(text) if members is None else members
    return any(_is_secret(*pair) for pair in pairs) or compiled(_OAUTH).search(text) is not None


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for match in compiled(_SETTING).finditer(text):
        yield match["name"], match["lines"] or match["double"] or match["single"] or match["bare"] or ""


def _sets_a_secret_property(text: str) -> bool:
    return any(_is_secret(match["name"], match["value"]) for match in compiled(_PROPERTY).finditer(text))


def _is_secret(name: str, value: str) -> bool:
    return (is_credential_name(name) or "connectionstring" in name.lower()) and _is_literal(value)


_FORMATS: dict[str, tuple[Callable[[str], bool], str]] = {
    "environment": (_sets_a_variable, "values of environment variables"),
    "npm": (_has_npm_token, _CREDENTIAL),
    "netrc": (_has_literal(_NETRC), _CREDENTIAL),
    "address": (_has(_ADDRESS), _CREDENTIAL),
    "lines": (_has(_LINES), _CREDENTIAL),
    "docker": (_has_member(_DOCKER_NAMES, _DOCKER), _CREDENTIAL),
    "kube": (_has_member(_KUBE_NAMES, _KUBE), _CREDENTIAL),
    "maven": (_has_literal(_MAVEN), _CREDENTIAL),
    "nuget": (_has_nuget_secret, _CREDENTIAL),
    "any": (lambda text: bool(text.strip()), _CREDENTIAL),
    "bundle": (_has_literal(_BUNDLE), _CREDENTIAL),
    "settings": (_sets_a_secret, _CREDENTIAL),
    "properties": (_sets_a_secret_property, _CREDENTIAL),
    "state": (_has(_STATE), "the state of a deployment"),
}
"""How a secret in a text format is recognised and described. Tokens and private keys count in every format."""


def _git_credential(data: bytes) -> str:
    return "" if credentials_in(data) is None else GIT_CREDENTIAL


def _stored_git_credential(data: bytes) -> str:
    return GIT_CREDENTIAL if secret_in("address", data) else ""


def _git_configuration(data: bytes) -> str:
    whole_lines = data[: data.rfind(b"\n") + 1] if len(data) >= HEAD_BYTES else data
    return GIT_CREDENTIAL if is_configuration_with_credential(whole_lines) else ""


_BYTE_FORMATS: dict[str, Callable[[bytes], str]] = {
    **dict.fromkeys(("key", "store"), _key_in),
    GIT_FORMAT: _git_credential,
    "git-credentials": _stored_git_credential,
    ANY_CONFIGURATION: _git_configuration,
}
"""Formats that are not recognised in text as `_text` decodes it."""
