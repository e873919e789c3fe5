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
