"""The output of a program as text that is safe to show: without escape sequences, credentials, or what is too much."""

import re

from coretools.redaction.redactor import Redactor, drop_partial_lines
from coretools.truncation import Excerpt

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x1b\\|\x07|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"  # charset choices, and what stands alone after ESC
)
"""Complete escape sequences (ECMA-48, 5.3 to 5.6). No part can match across another ESC, so matching is linear.

An OSC without its terminator does not match: it would hide the rest of the output. Its ESC is made visible instead.
"""

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
"""C0 as control pictures (U+2400 to U+241F), DEL as U+2421, C1 as `\\x9b`."""


def plain(text: str) -> str:
    """Remove escape sequences; convert line ends to LF and make control characters visible."""
    return visible(without_escapes(text))


def printed(excerpt: Excerpt, redactor: Redactor | None) -> str:
    """Return the kept output as `plain` text. A redactor removes credentials, also truncated ones."""
    if redactor is None:
        return plain(excerpt.text())
    # Redact after escape sequences are removed: a colour within a token would hide it from the redactor.
    return redactor.text(plain(drop_partial_lines(excerpt).text()))


def visible(text: str) -> str:
    """Make escape sequences readable instead of effective; convert line ends to LF."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def without_escapes(text: str) -> str:
    """Remove complete escape sequences."""
    if "\x1b" not in text and not any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    return ESCAPES.sub("", text)


def shortened(text: str, most: int) -> str:
    """Shorten a text over `most` bytes to its start (a quarter) and its end, in whole lines if possible."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    head = data[: most // 4].decode("utf-8", "ignore")
    tail = data[-(most - most // 4) :].decode("utf-8", "ignore")
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    return f"{head.rstrip()}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


def streams(stdout: str, stderr: str) -> str:
    """Join both streams of a child; standard error is marked."""
    out, err = stdout.rstrip("\n"), stderr.rstrip("\n")
    if not err:
        return out
    return f"{out}\n[stderr]\n{err}" if out else f"[stderr]\n{err}"
