"""Draw docs/tour.svg, a terminal in which `coretools try` runs: a real run, of which some steps are left out.

    python docs/terminal_picture.py            print the text of the picture
    python docs/terminal_picture.py --write    draw it

Needs tier full, which the picture shows. Names and times that differ in each run are replaced.
"""

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

TREE = Path(__file__).parent.parent
PICTURE = TREE / "docs" / "tour.svg"
TITLE = "coretools try"
WIDTH = 106
"""In characters: a line of the tour with its margin."""

STEPS = (2, 3, 4, 7, 9)
"""Steps of the tour that are shown."""

FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A session of coretools try</title>
<style>
.{unique_id}-matrix, .{unique_id}-title {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, but without fonts from another host."""


def run() -> str:
    """Return what the tour prints at a terminal, with its colours.

    Raises:
        CalledProcessError: it failed.
    """
    main, other = pty.openpty()
    words = [sys.executable, "-P", "-m", "coretools.cli.main", "try"]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        words, stdin=other, stdout=other, stderr=other, env={**environment, "TERM": "xterm", "PYTHONPATH": str(TREE)}
    ) as tour:
        os.close(other)
        with open(main, "rb", buffering=0) as output:
            data = b"".join(pieces(output))
    if tour.returncode != 0:
        raise subprocess.CalledProcessError(tour.returncode, words, data)
    return data.decode().replace("\r\n", "\n")


def pieces(terminal: io.RawIOBase) -> Iterator[bytes]:
    """Read a terminal until its last program has ended, which is an error of input (EIO)."""
    with suppress(OSError):
        while piece := terminal.read(65536):
            yield piece


def picked(text: str) -> str:
    """Return the steps that are shown, without what differs in each run."""
    steady = re.sub(r"/\S*/coretools-try-\w+", "/tmp/coretools-try", text)  # noqa: S108  # drawn, not opened
    introduction, *steps, _ = steady.split("\n\n")
    shown = [steps[number - 1] for number in STEPS]
    return "\n\n".join([introduction, *shown]).rstrip()


def picture(text: str) -> str:
    """Return the picture of a text with the colours of a terminal."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(text), soft_wrap=True)
    return console.export_svg(title=TITLE, theme=MONOKAI, code_format=FRAME, unique_id="tour")


def main() -> None:
    """Print the text, or draw the picture."""
    text = picked(run())
    if "in tier full" not in text:
        sys.exit("the picture shows tier full, which is not available here")
    if sys.argv[1:] == ["--write"]:
        PICTURE.write_text(picture(text), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
