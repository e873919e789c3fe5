"""The shell that runs a line: bash, or sh where bash is not on PATH.

A line without shell syntax needs none: its program is started directly.
"""

import re
import shutil
from collections.abc import Mapping
from types import MappingProxyType

from coretools.errors import CannotStart, Unsupported

ONLY_BASH: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "[[ ]]": re.compile(r"\[\["),
        "(( ))": re.compile(r"(?<!\$)\(\("),
        "process substitution": re.compile(r"[<>]\("),
        "<<<": re.compile(r"<<<"),
        "&> and |&": re.compile(r"&>|\|&"),
        "$'...'": re.compile(r"\$['\"]"),
        "arrays": re.compile(r"\w\+?=\(|\$\{\w+\["),
        "brace expansion": re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}"),
        "${name//...}": re.compile(r"\$\{!|\$\{\w+[/^,@:](?![-=?+])"),
        "its builtins": re.compile(
            r"\b(?:function|source|declare|typeset|local|shopt|mapfile|readarray|select|coproc|pipefail)\b"
        ),
    }
)
"""What bash has and a POSIX shell lacks, or reads differently. Found in text too: a line is refused once too often."""


def shell_argv(line: str, path: str) -> list[str]:
    """Return the argv that makes a shell on this PATH run a line, without a profile, rc file or history.

    Raises:
        CannotStart: there is no shell. Unsupported: the line needs bash, which is not there.
    """
    bash = shutil.which("bash", path=path)
    if bash is not None:
        return [bash, "--noprofile", "--norc", "-c", line]
    shell = shutil.which("sh", path=path)
    if shell is None:
        raise CannotStart(f"no bash and no sh on PATH ({path}); give a program and its words, without shell syntax")
    missing = [name for name, sign in ONLY_BASH.items() if sign.search(line)]
    if missing:
        what = ", ".join(missing)
        raise Unsupported(f"bash is not on PATH, and sh lacks {what}; install bash, or write the line without")
    return [shell, "-c", line]
