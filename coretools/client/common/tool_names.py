"""Names of tools of several servers, unique among all of them. Pure."""

import hashlib
import re
from collections.abc import Container

MAX_NAME = 64
"""Characters of a tool's name that the APIs of models accept, beside letters, digits, `_` and `-` only."""


def qualified_name(server: str, tool: str, taken: Container[str]) -> str:
    """Return `server__tool`; a hash stands for what can't be part of a name, and tells it from those in `taken`."""
    plain = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    if name == plain and len(name) <= MAX_NAME and name not in taken:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"
