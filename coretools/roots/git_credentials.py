"""Credentials in the files that git reads: its configuration, copies of that, lists of remotes, reflogs. Pure.

Two questions with different answers. `without_credential` removes whatever could be a credential, for a text that is
shown in place of the file. `credentials_in` tells whether a file has to be hidden as a whole: a user name in a URL
(`https://bob@host`) or a credential helper that stores nothing itself is no reason for that.

The work is linear in the length of the content.
"""

import re
from collections.abc import Iterable

from coretools.errors import GitRefused
from coretools.redaction.names import is_credential_name
from coretools.redaction.patterns import find_credentials
from coretools.redaction.redactor import Redactor
from coretools.roots.git_config import Setting, parse

GIT_CREDENTIAL = "a credential for git"
"""What a hidden file holds, as the end of "it holds ..."."""
HOLDS_CREDENTIAL = f"it holds {GIT_CREDENTIAL}"

REMOVED = "[redacted]"
"""Stands for a subsection that contains a credential."""

_CREDENTIALS = frozenset({"extraheader", "cookie", "smtppass", "pass", "pw", "pat"})
"""Variables that are credentials by name, besides those that `redaction.names` knows."""
_NO_CREDENTIALS = frozenset({"signingkey", "sslkey", "sslcertpasswordprotected", "proxysslkey"})
"""Variables that only sound like credentials: names of keys and files."""
_STORE = re.compile(r"""--file(?:=|\s++)["']?([^\s"']++)""")
"""The file of a credential helper (git-credential-store(1))."""
_PLAIN = frozenset({"", "true", "false", "yes", "no", "on", "off", "0", "1"})

_SCHEME = r"(?P<scheme>(?<![a-z0-9+.-])[a-z0-9+.-]*+://)"
_USER = re.compile(rf"{_SCHEME}(?P<user>[^/\s]*)@", re.IGNORECASE)
_WHOLE_USER = re.compile(r"(?P<scheme>\s*+[a-z][a-z0-9+.:-]*+//)(?P<user>[^/]*)@", re.IGNORECASE)
"""User part of a value that is a URL as a whole: its password may contain blanks."""
_KEEPS_USER = frozenset({"ssh://", "git+ssh://", "ssh+git://"})
"""URL schemes whose user name alone is no credential."""
_TOKEN = re.compile(r"(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+")
"""A user name that is a token: shorter ones, and those without a digit, are names of people and organisations."""
_REFERENCE = re.compile(r"[$<{*].*", re.DOTALL)
"""A password that only stands for one."""
_PASSWORD_OPTION = re.compile(
    r"\bsshpass(?:\s++-(?:[evhV]++(?!\S)|[fdP]\s*+\S++)){0,9}\s++-[evhV]*+p\s*+(?P<sshpass>\S++)"
    r"|(?i:plink)(?:\.exe)?\b[^\n]{0,500}?\s-pw\s++(?P<plink>\S++)"
)
"""A password on the command line of ssh programs (sshpass(1), PuTTY); -p of ssh itself is a port."""

_COOKIE = re.compile(
    r"(?m)^(?:[^\t\n]++\t(?:TRUE|FALSE)\t[^\t\n]*+\t(?:TRUE|FALSE)\t\d++\t[^\t\n]|set-cookie:)", re.IGNORECASE
)
"""A line of a file of cookies: of Netscape's format, or a header (CURLOPT_COOKIEFILE(3))."""

_FILE_VARIABLES = frozenset({"cookiefile", "sslkey", "sslcert", "proxysslkey", "proxysslcert"})
"""Variables of the section `http` that name a file which may hold a credential."""

_REDACTOR = Redactor()

_SECTIONS = ("credential", "http", "remote", "url", "submodule", "lfs", "sendemail", "imap")
"""Sections in which git and git-lfs look for credentials, or for URLs that may contain one."""
_SECTION = re.compile(rb"\[(?i:" + "|".join(_SECTIONS).encode() + rb")[\] \t.]")


def without_credentials(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings without anything that could be a credential."""
    cleaned = (without_credential(one) for one in settings)
    return [one for one in cleaned if one is not None]


def without_credential(one: Setting) -> Setting | None:
    """Return the setting without its credential; None when it is one as a whole."""
    if one.section == "credential" or _may_contain_credential(_section_of(one)):
        return None
    if one.value is None:
        return one
    if _is_credential_name(one.variable):
        return one if one.value.lower() in _PLAIN else None
    value = without_users(one.value)
    if _REDACTOR.text(value) != value or _has_password_option(value):
        return None
    return one if value == one.value else Setting(one.key, value)


def without_users(text: str) -> str:
    """Return the text without the user parts of its URLs; of `ssh://` without the password only."""
    return _USER.sub(_without_user, _WHOLE_USER.sub(_without_user, text, count=1) if _WHOLE_USER.match(text) else text)


def credential_files(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the files in which these settings let git keep credentials, seen from the directory of the configuration.

    git looks for them from the top of the work tree, the directory above `.git`.
    """
    named = [one.value for one in settings if one.section == "http" and one.variable in _FILE_VARIABLES and one.value]
    for one in settings:
        if one.section == "credential" and one.variable == "helper" and one.value:
            named += _STORE.findall(one.value)
    return tuple(path for name in named for path in (name, f"../{name}") if path == name or name[0] not in "/~")


def may_hold_credential(data: bytes) -> bool:
    """Whether anything in these bytes could be a credential, in comments too."""
    return _may_contain_credential(data.decode("utf-8", "replace"))


def credentials_in(data: bytes) -> tuple[Setting, ...] | None:
    """Return the settings that hold a credential, without it and fit to be shown; None if nothing in the file is one.

    The value is what would be left; None if the value as a whole, or the key, is the credential. An empty result: the
    credential is not in a setting but in a comment, or the file is no valid configuration.
    """
    text = data.decode("utf-8", "replace").replace("\0", "")
    try:
        settings = parse(data, "config")
    except GitRefused:
        is_one = _is_credential_in(text) or _COOKIE.search(text) is not None or _REDACTOR.text(text) != text
        return () if is_one else None
    credentials = tuple(dict.fromkeys(_without_secret(one) for one in settings if holds_credential(one)))
    return credentials if credentials or _is_credential_in(text) else None


def is_configuration_with_credential(data: bytes) -> bool:
    """Whether a file anywhere is a configuration of git in which one of git's own settings holds a credential."""
    if not may_be_configuration(data):
        return False
    try:
        settings = parse(data, "config")
    except GitRefused:
        return False
    return any(one.section in _SECTIONS and holds_credential(one) for one in settings)


def may_be_configuration(data: bytes) -> bool:
    """Whether a file may be a configuration of git that holds a credential; False for nearly all, at little cost."""
    return _SECTION.search(data) is not None


def holds_credential(one: Setting) -> bool:
    """Whether a setting is more than likely to hold a credential."""
    value = one.value or ""
    if _is_named_credential(one, value) or _is_credential_in(_section_of(one)):
        return True
    whole = _WHOLE_USER.match(value)
    is_address = whole is not None and _is_secret_user(whole["user"])
    return is_address or _is_credential_in(value) or _REDACTOR.text(value) != value


def _is_named_credential(one: Setting, value: str) -> bool:
    """Whether a value is a credential because of its name."""
    if one.section == "credential":  # a helper that prints a password: `!f() { echo password=...; }`
        is_token = one.variable == "username" and _TOKEN.fullmatch(value) is not None
        return is_token or (one.variable == "helper" and "password" in value.lower())
    is_literal = value.lower() not in _PLAIN and _REFERENCE.fullmatch(value) is None
    return is_literal and _is_credential_name(one.variable)


def _without_secret(one: Setting) -> Setting:
    if _may_contain_credential(_section_of(one)):
        return Setting(f"{one.section}.{REMOVED}.{one.variable}", None)
    return without_credential(one) or Setting(one.key, None)


def _section_of(one: Setting) -> str:
    return one.key.rpartition(".")[0]


def _is_credential_name(name: str) -> bool:
    return name in _CREDENTIALS or (is_credential_name(name) and name not in _NO_CREDENTIALS)


def _may_contain_credential(text: str) -> bool:
    return _USER.sub(_without_user, text) != text or _REDACTOR.text(text) != text or _has_password_option(text)


def _is_credential_in(text: str) -> bool:
    """Whether a text contains a credential by its format alone, or a URL or command line with one."""
    has_address = any(_is_secret_user(match["user"]) for match in _USER.finditer(text))
    return has_address or _has_password_option(text) or bool(find_credentials(text))


def _has_password_option(text: str) -> bool:
    passwords = (match["sshpass"] or match["plink"] for match in _PASSWORD_OPTION.finditer(text))
    return any(_REFERENCE.fullmatch(password.lstrip("\\\"'")) is None for password in passwords)


def _is_secret_user(user: str) -> bool:
    name, _, password = user.partition(":")
    if password:
        return _REFERENCE.fullmatch(password) is None
    return _TOKEN.fullmatch(name) is not None


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match["scheme"], match["user"]
    if scheme.strip().lower() in _KEEPS_USER:
        return f"{scheme}{user.partition(':')[0]}@"
    return scheme
