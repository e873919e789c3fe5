"""What the runner of GitHub Actions takes for commands in a log: both forms, and when they are stopped."""

import re

_NEW = re.compile(r"^\s*::([a-z-]+)(?: ([^:]*))?::(.*)$", re.DOTALL)
_OLD = re.compile(r"##\[([a-z-]+)([^\]]*)\](.*)$", re.DOTALL)


def commands(log: str) -> list[tuple[str, dict[str, str], str]]:
    """Return the commands of a log in order: name, properties, message."""
    found: list[tuple[str, dict[str, str], str]] = []
    end = ""
    for line in log.splitlines():
        if end:
            end = "" if line.strip() == f"::{end}::" else end
            continue
        match = _NEW.match(line) or _OLD.search(line)
        if match is None:
            continue
        given = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
        if match[1] == "stop-commands":
            end = match[3]
        found.append((match[1], {name.strip(): _plain(value) for name, _, value in given}, _plain(match[3])))
    assert not end, "commands stay stopped"
    return found


def _plain(text: str) -> str:
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def outputs(text: str) -> dict[str, str]:
    """Return the outputs that a file of GITHUB_OUTPUT sets."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    while lines and lines[0]:
        name, _, end = lines.pop(0).partition("<<")
        value = []
        while (line := lines.pop(0)) != end:
            value.append(line)
        found[name] = "\n".join(value)
    return found
