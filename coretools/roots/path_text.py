"""Validate paths as text, before the kernel sees them. Pure.

Nothing is expanded, folded or trimmed: `~`, `$HOME`, `%2e` and `file:` are ordinary characters of a name.
"""

import re

from coretools.errors import InvalidPath

MAX_PATH_BYTES = 4096
"""Bytes of a whole path: PATH_MAX of Linux (limits.h)."""

MAX_NAME_BYTES = 255
"""Bytes of one component: NAME_MAX of every common file system."""

IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that are drawn as nothing (Default_Ignorable_Code_Point); file systems may ignore them in names (HFS+)."""

_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:[ .:].*)?", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")


def check_path(text: str) -> None:
    """Refuse text that cannot be the path of a file.

    Raises:
        InvalidPath: empty, NUL, a lone surrogate, too long as a whole or in one component.
    """
    if not text:
        raise InvalidPath("the path is empty; name a file or directory, or . for the root")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidPath("the path contains half of a surrogate pair, which no file name can") from None
    if "\0" in text:
        raise InvalidPath("the path contains a NUL character, which no file name can")
    if size > MAX_PATH_BYTES:
        raise InvalidPath(f"the path has {size} bytes; {MAX_PATH_BYTES} is the most", limit=MAX_PATH_BYTES)
    if size > MAX_NAME_BYTES and any(len(part.encode()) > MAX_NAME_BYTES for part in text.split("/")):
        raise InvalidPath(f"a name in the path has more than {MAX_NAME_BYTES} bytes", limit=MAX_NAME_BYTES)


def printable(name: str) -> str:
    """A name from the file system, with bytes that are not UTF-8 as backslash escapes in hexadecimal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return name


def windows_problem(text: str) -> str | None:
    """Why Windows would map this path to something else than the file it seems to name; None if it would not.

    Device namespaces, UNC, drive-relative paths, alternate data streams, reserved device names, and trailing dots and
    spaces that Windows drops (Microsoft, "Naming Files, Paths, and Namespaces").
    """
    path = text.replace("/", "\\")
    if path.startswith(("\\\\?\\", "\\\\.\\", "\\??\\")):
        return "a device namespace"
    if path.startswith("\\\\"):
        return "a network path"
    drive = _DRIVE.match(path)
    if drive and not path.startswith("\\", drive.end()):
        return "relative to the current directory of a drive"
    for name in path[drive.end() if drive else 0 :].split("\\"):
        problem = None if name in ("", ".", "..") else _windows_problem_of_name(name)
        if problem:
            return problem
    return None


def _windows_problem_of_name(name: str) -> str | None:
    if _DEVICE.fullmatch(name):
        return "a reserved device name"
    if ":" in name:
        return "an alternate data stream"
    if name[-1] in ". ":
        return "a trailing dot or blank, which Windows drops"
    if any(character < " " or character in '<>"|?*' for character in name):
        return "a character that no Windows name can hold"
    return None
