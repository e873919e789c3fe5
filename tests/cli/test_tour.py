"""`coretools try`, and what a person sees who types `coretools` alone (docs/specs/cli.md)."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from coretools.cli.main import FIRST_CONTACT
from coretools.cli.tour import INTRODUCTION, TIERS
from tests.checkout import TREE
from tests.cli.terminal import terminal
from tests.docker_profile import under_profile
from tests.protocol.peer import processes_with

SECONDS = 60.0
"""The tour takes less than a minute, or has failed."""

MODES = {
    "any": [],
    "landlock": under_profile(),
    "none": [sys.executable, "-m", "tests.confinement.without_landlock"],
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tiers are those of Linux")


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home and a directory for temporary files, both empty; the latter with a path that fits into a line."""
    (tmp_path / "home").mkdir()
    state = {f"XDG_{kind}_HOME": str(tmp_path / "home" / kind) for kind in ("STATE", "CONFIG", "CACHE", "DATA")}
    return {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path_factory.mktemp("t")),
        "PYTHONPATH": str(TREE),
        **state,
    }


def left(home: dict[str, str]) -> list[str]:
    """Files of the user and temporary ones, and processes."""
    places = (Path(home["HOME"]), Path(home["TMPDIR"]))
    return [str(path) for place in places for path in place.rglob("*")] + processes_with(home["TMPDIR"])


def require_current_picture(printed: str) -> None:
    """cli-23: the text of the picture in the README is that of the tour, but for where lines are broken."""
    script = runpy.run_path(str(TREE / "docs" / "terminal_picture.py"))
    svg = ET.parse(script["PICTURE"])
    pieces = [text for text in svg.iter("{http://www.w3.org/2000/svg}text") if "title" not in text.get("class", "")]
    drawn = "".join("".join(text.itertext()) for text in pieces)
    marks = re.compile(r"[\s|]")
    expected = marks.sub("", script["picked"](printed))
    assert marks.sub("", drawn) == expected, "run `python docs/terminal_picture.py --write`"


@pytest.mark.parametrize("mode", MODES)
def test_the_tour_shows_what_happens_in_its_tier_and_leaves_nothing(mode: str, home: dict[str, str]) -> None:
    """cli-21: remarks follow the answers, so that no tier promises what it does not do."""
    done = subprocess.run(
        [*MODES[mode], sys.executable, "-P", "-m", "coretools.cli.main", "try"],
        cwd=TREE,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (tier,) = (tier for tier, text in TIERS.items() if text in done.stdout)
    assert mode in ("any", tier)
    assert "outside the roots" in done.stdout
    assert "Hidden: the file contains a secret." in done.stdout
    assert ("| API_TOKEN=" in done.stdout) == (tier == "landlock") == ("Not hidden from commands" in done.stdout)
    assert done.stdout.count("Refused: the command did not run.") == (2 if tier == "none" else 0)
    assert "took back 2 changes" in done.stdout
    assert "As it was." in done.stdout
    assert left(home) == []
    if tier == "full":
        require_current_picture(done.stdout)


def test_the_tour_leaves_nothing_when_it_is_interrupted(home: dict[str, str], tmp_path: Path) -> None:
    """cli-21, cli-8: Ctrl-C at a terminal, twice: an impatient person's second one changes nothing."""
    with terminal("-m", "coretools.cli.main", "try", cwd=tmp_path, environment=home) as person:
        person.wait_for("2. It edits")
        person.type("\x03\x03")
        assert person.end() == 130
        assert "Traceback" not in person.output
    assert left(home) == []


def test_the_tour_uses_neither_settings_nor_modules_of_where_it_is_started(
    home: dict[str, str], tmp_path: Path
) -> None:
    """cli-21: the user's policy and variables would change what it shows."""
    policy = tmp_path / "home" / "CONFIG" / "coretools" / "policy.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text('[tools]\nask = ["edit_file"]\n')
    planted = tmp_path / "elsewhere"
    planted.mkdir()
    (planted / "anyio.py").write_text("raise SystemExit('planted')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coretools.cli.main", "try"],
        cwd=planted,
        env={**os.environ, **home, "CORETOOLS_READ_ONLY": "1", "CORETOOLS_ROOTS": "/", "GIT_DIR": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_git_it_says_so(home: dict[str, str], tmp_path: Path) -> None:
    """cli-21"""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coretools.cli.main", "try"],
        env={**os.environ, **home, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == "coretools: the tour needs git; install it\n"


def test_what_ends_the_tour_early_is_said_in_a_sentence(home: dict[str, str], tmp_path: Path) -> None:
    """cli-21, cli-4: a git that fails, then a server that does not start."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    home |= {"PATH": f"{git.parent}:{os.environ['PATH']}"}
    for script, printed, expected in (
        ("echo broken >&2; exit 1", "", "coretools: the tour ended early: git init -q -b main: broken\n"),
        (
            'case "$*" in *commit*) rm -rf "$PWD";; esac',
            f"{INTRODUCTION}\n",
            "`coretools doctor` shows what is wrong\n",
        ),
    ):
        git.write_text(f"#!/bin/sh\n{script}\n")
        git.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "coretools.cli.main", "try"],
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout) == (69, printed), done.stderr
        assert done.stderr.endswith(expected)
        assert "Traceback" not in done.stderr
        assert left(home) == []


def test_a_person_who_types_coretools_alone_sees_what_it_is_and_three_steps(tmp_path: Path) -> None:
    """cli-22: at a terminal; a program gets the usage error (test_main)."""
    with terminal("-m", "coretools.cli.main", cwd=tmp_path) as person:
        assert person.end() == 0
        assert person.output.replace("\r\n", "\n").strip() == FIRST_CONTACT
    steps = [line.split("  ")[1] for line in FIRST_CONTACT.splitlines() if line.startswith("  ")]
    assert steps == ["coretools try", "coretools install CLIENT DIR", "coretools doctor"]
