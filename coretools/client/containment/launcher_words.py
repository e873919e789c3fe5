"""The words of an argv before its program ends: those in which a directory may stand for code.

`npx -y server /data` runs no code of /data, and `uv --directory /data run server` does. In doubt a word belongs to
them. Pure.
"""

import os
import re
from collections.abc import Sequence

_LAUNCHERS = re.compile(
    r"(?:python|pypy|node|nodejs|deno|bun|bunx|npm|npx|pnpm|pnpx|yarn|tsx|ts-node|nodemon|uv|uvx|pip|pipx|poetry|pdm"
    r"|hatch|rye|pixi|conda|mamba|go|cargo|dotnet|java|kotlin|scala|gradle|mvn|ruby|bundle|rake|perl|php|composer|lua"
    r"|Rscript|julia|elixir|mix|swift|make|just|task|mise|asdf|direnv|nix|(?:ba|da|z|k|fi|c|tc)?sh|env|sudo|doas|nice"
    r"|nohup|timeout|setsid|stdbuf|busybox|xargs)[0-9.]*"
)
"""Programs whose words name another program, or the place of one."""

_FLAGS = frozenset({"-y", "--yes", "-q", "--quiet", "-u", "-E", "-s", "-B", "-O", "-I", "-P", "-S", "--no-install"})
"""Options that no launcher gives a value. The word after any other one may be its value."""

_SUBCOMMANDS = re.compile(r"run|exec|dlx|x|tool|start|[0-9.]+[smhd]?|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
"""Words between a launcher and its program: `uv tool run X`, `timeout 10s X`, `env NAME=value X`."""

_BEFORE_PROGRAM = frozenset({"-m", "--"})
"""The word after these is the program."""


def launcher_words(argv: Sequence[str]) -> int:
    """Return how many words belong to launchers and the program that they start; the rest are its arguments."""
    is_program, may_be_value = True, False
    for at, word in enumerate(argv):
        if is_program or not (word.startswith("-") or may_be_value or _SUBCOMMANDS.fullmatch(word)):
            if _LAUNCHERS.fullmatch(os.path.basename(word)) is None:
                return at + 1
            is_program = may_be_value = False
            continue
        is_program = word in _BEFORE_PROGRAM
        may_be_value = word.startswith("-") and "=" not in word and word not in _FLAGS
    return len(argv)
