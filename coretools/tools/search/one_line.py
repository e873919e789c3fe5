"""A name or path as it stands in an answer that has one entry a line. Pure."""

import re

_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(name: str) -> str:
    """The name, with escapes for line breaks and terminal sequences: it could pass for several entries, or for none."""
    if name.isprintable():
        return name
    return _BREAKING.sub(lambda found: found[0].encode("unicode_escape").decode(), name)
