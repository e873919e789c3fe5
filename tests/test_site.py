"""The site of docs/ is built as in CI: strictly, and without a network (docs/specs/structure.md)."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.checkout import TREE

SECONDS = 300
"""For a build of ten seconds, on a machine that does much else."""

pytestmark = [
    pytest.mark.timeout(SECONDS),
    pytest.mark.skipif(
        shutil.which("sphinx-build", path=str(Path(sys.executable).parent)) is None, reason="sphinx is not installed"
    ),
]

FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "image": "href"}
"""Elements of a page for which a browser fetches something, with the attribute that says what."""


class Fetches(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in FETCHED and (address := named.get(FETCHED[tag])):
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where there is no network if this machine lets that be taken away."""
    place = tmp_path_factory.mktemp("site")
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    before = alone if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0 else []
    done = subprocess.run(
        [
            *(*before, sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-n", "-E"),
            *("-c", str(TREE / "docs"), "-d", str(place / "cache"), str(TREE), str(place / "site")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return place / "site"


def test_every_page_is_in_the_site_and_no_link_or_contents_are_missing(site: Path) -> None:
    """structure-13: the generator was strict, so each link, heading and place in the contents exists."""
    pages = [*(TREE / "docs").rglob("*.md"), TREE / "CHANGELOG.md", TREE / "CONTRIBUTING.md"]
    made = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {page.relative_to(TREE).with_suffix("") for page in pages} - made == set()
    assert "url=docs/index.html" in (site / "index.html").read_text(encoding="utf-8")
    git = (site / "docs" / "reference" / "git.html").read_text(encoding="utf-8")
    assert "git status --short" in git  # as it is typed, not with a dash and curly quotes
    assert "“" not in git


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    """structure-13: no script, style, font or picture of another host."""
    for page in site.rglob("*.html"):
        found = Fetches()
        found.feed(page.read_text(encoding="utf-8"))
        outside = [address for address in found.addresses if re.match(r"(?:[a-z]+:)?//", address)]
        missing = [
            address
            for address in found.addresses
            if not address.startswith(("data:", "#")) and not (page.parent / re.split("[?#]", address)[0]).exists()
        ]
        assert (outside, missing) == ([], []), page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", sheet.read_text(encoding="utf-8")) == [], (
            sheet
        )


def test_search_finds_a_page_by_its_words_without_a_server(site: Path) -> None:
    """structure-13: the index is a script of the site, which works from a file too."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    for word, page in (
        ("journal", "docs/specs/undo"),
        ("landlock", "docs/specs/confinement"),
        ("cursor", "docs/clients/cursor"),
    ):
        found = [index[where].get(word, []) for where in ("terms", "titleterms")]
        numbers = [number for one in found for number in (one if isinstance(one, list) else [one])]
        assert index["docnames"].index(page) in numbers, word
