"""What a program printed, made fit to be shown: short, no terminal escapes, every other control character visible.

Pure: text in, text out, in time that grows with the length of the text only.
"""

import re

from coretools.config.settings import Limits
from coretools.errors import InvalidArguments
from coretools.excerpt import Excerpt
from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.roots.read import Directory, open_directory
from coretools.roots.root_set import Roots

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x1b\\|\x07|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"  # charset choices, and what stands alone after ESC
)
"""Complete escape sequences, ECMA-48 parts 5.3 to 5.6. No part can match across another ESC, so the work is linear.

An OSC without its end is no sequence: its ESC is made visible instead, or it would hide the rest of the output.
"""

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
"""C0 as its control picture (U+2400 to U+241F), DEL as U+2421, C1 as `\\x9b`."""


def plain(text: str) -> str:
    """The text without escape sequences; line ends become LF and control characters become visible."""
    return visible(without_escapes(text))


def printed(excerpt: Excerpt, redactor: Redactor | None) -> str:
    """What was kept of an output, as `plain` text; with a redactor without credentials, also those that were cut."""
    if redactor is None:
        return plain(excerpt.text())
    # After the escape sequences are gone: a colour in the middle of a token would hide it from the redactor only.
    return redactor.text(plain(drop_partial_lines(excerpt).text()))


def visible(text: str) -> str:
    """The text with its escape sequences to be read, not to be obeyed; line ends become LF."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def without_escapes(text: str) -> str:
    """The text without its complete escape sequences."""
    if "\x1b" not in text and not any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    return ESCAPES.sub("", text)


def shortened(text: str, most: int) -> str:
    """The start (a quarter) and the end of a text that is longer than `most` characters, cut at lines where it can."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most - most // 4) :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    return f"{head.rstrip()}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


def streams(stdout: str, stderr: str) -> str:
    """Both streams of a child as one text; what came on stderr is marked when both have something."""
    out, err = stdout.rstrip("\n"), stderr.rstrip("\n")
    if not err:
        return out
    return f"{out}\n[stderr]\n{err}" if out else f"[stderr]\n{err}"


# Where a program may be started, and for how long: the same for commands, builds and tests.


def open_to_start(roots: Roots, path: str) -> Directory:
    """The directory to start a program in. Blocking: for a worker thread."""
    return open_directory(roots, path)


def timeout(given: float | None, default: float, limits: Limits, *, name: str = "timeout_seconds") -> float:
    """The seconds that a call asked for under this name, or the default where it did not.

    Raises:
        InvalidArguments: more than a call may ask for.
    """
    most = limits.run_seconds_most
    if given is not None and given > most:
        raise InvalidArguments(f"{name}: at most {most:g} here, got {given:g}")
    return min(default, most) if given is None else float(given)
