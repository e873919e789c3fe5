"""The pages for contributors agree with the tree: diagram, paths, indexes, links, numbers (docs/specs/structure.md)."""

import importlib
import inspect
import re
import runpy
from functools import cache
from itertools import chain
from pathlib import Path

from tests.checkout import TREE

DOCS = TREE / "docs"
ARCHITECTURE = DOCS / "architecture.md"
PATH = re.compile(r"`((?:coretools|servers|tests|docs|benchmarks|examples|\.ci)/[\w./-]*)`")
TEST = re.compile(r"`(test_\w+\.py)`")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s:]*)#([^)]+)\)")
HEADING = re.compile(r'^#+ (.+)$|<a (?:id|name)="([^"]+)"', re.MULTILINE)
DECISION = re.compile(r"\b(?:ADR |adr/)(\d{4})\b")
RULE = re.compile(r"(?<![\w/.-])[a-z]+(?:-[a-z]+)*-\d+\b")


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pages() -> list[Path]:
    return [page for page in [*TREE.glob("*.md"), *DOCS.rglob("*.md")] if page.name != "CHANGELOG.md"]


def test_the_diagram_agrees_with_the_imports() -> None:
    """structure-11: written by `python docs/architecture_picture.py --write`."""
    script = runpy.run_path(str(DOCS / "architecture_picture.py"))
    assert script["picture"]() in text(ARCHITECTURE), "run `python docs/architecture_picture.py --write`"
    rows = set(re.findall(r"^\| `(\w+)` \|", text(ARCHITECTURE), re.MULTILINE))
    assert rows == set(script["packages"]()) - {"coretools"}


def test_every_path_that_the_pages_name_exists() -> None:
    """structure-11"""
    named = {(page.name, path) for page in pages() for path in PATH.findall(text(page))}
    named.remove(("workstation.md", "coretools/error"))  # a key of `_meta`
    assert len(named) > 100
    assert [(page, path) for page, path in sorted(named) if not (TREE / path).exists()] == []


def test_decisions_are_numbered_without_gaps_and_indexed() -> None:
    """structure-12: each has the required sections."""
    decisions = sorted((DOCS / "adr").glob("[0-9]*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    index = text(DOCS / "adr" / "README.md")
    for path in decisions:
        number, title = re.match(r"# (\d{4}): (.+)", text(path)).groups()  # type: ignore[union-attr]
        assert path.name.startswith(number), path
        assert f"| {number} | [{title}]({path.name}) |" in index
        for part in ("Status: accepted", "## Context", "## Decision", "## Alternatives", "## Consequences"):
            assert part in text(path), (path.name, part)


def test_specifications_are_indexed() -> None:
    """structure-12"""
    listed = LINK.findall(text(DOCS / "specs" / "README.md"))
    assert sorted(listed) == sorted(path.name for path in (DOCS / "specs").glob("*.md") if path.name != "README.md")


def test_links_and_decisions_that_are_named_exist() -> None:
    """structure-12: in pages, in the source and in tests."""
    broken = [
        (page.name, link) for page in pages() for link in LINK.findall(text(page)) if not (page.parent / link).exists()
    ]
    assert broken == []
    known = {path.name[:4] for path in (DOCS / "adr").glob("[0-9]*.md")}
    source = chain.from_iterable((TREE / top).rglob("*.py") for top in ("coretools", "servers", "tests", "benchmarks"))
    named = {(path.name, number) for path in [*pages(), *source] for number in DECISION.findall(text(path))}
    assert len(named) > 10
    assert sorted((name, number) for name, number in named if number not in known) == []


def test_headings_that_links_name_exist() -> None:
    """structure-12: by GitHub's rules for the anchors of headings."""
    named = {
        (page.name, (page.parent / target).resolve() if target else page, anchor)
        for page in pages()
        for target, anchor in ANCHOR.findall(text(page))
    }
    assert len(named) > 5
    assert sorted((name, anchor) for name, page, anchor in named if anchor not in anchors(page)) == []


@cache
def anchors(page: Path) -> set[str]:
    return {
        name or re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading, name in HEADING.findall(text(page))
    }


def test_rules_that_tests_name_exist() -> None:
    """structure-9: a test that names a rule of a page names an existing one."""
    rules = set()
    for page in (DOCS / "specs").glob("*.md"):
        rules |= set(re.findall(r"^- ([a-z]+(?:-[a-z]+)*-\d+):", text(page), re.MULTILINE))
    areas = {rule.rpartition("-")[0] for rule in rules}
    named = {
        (path.name, rule)
        for path in (TREE / "tests").rglob("test_*.py")
        for docstring in re.findall(r'^    """([a-z][^"]*)', text(path), re.MULTILINE)
        for rule in RULE.findall(docstring)
        if rule.rpartition("-")[0] in areas
    }
    assert sorted((name, rule) for name, rule in named if rule not in rules) == []


def test_private_names_of_the_sdk_are_in_the_decision() -> None:
    """structure-3: what the classes override or use of those that they extend, and modules that are imported."""
    (table,) = re.findall(
        r"^  \| name \|.*?\n\n", text(next((DOCS / "adr").glob("0001-*.md"))), re.MULTILINE | re.DOTALL
    )
    listed = set(re.findall(r"`((?:mcp[\w.]*\.)?_\w+)`", table))
    used: set[str] = set()
    for path in (TREE / "coretools").rglob("*.py"):
        source = text(path)
        used |= {name for name in re.findall(r"^ *from (mcp[\w.]*) import", source, re.MULTILINE) if "._" in name}
        extends_sdk = re.search(r"^ *from mcp[\w.]* import", source, re.MULTILINE) and re.search(
            r"^class \w+\(", source, re.MULTILINE
        )
        if extends_sdk:
            module = importlib.import_module(".".join(path.relative_to(TREE).with_suffix("").parts))
            classes = [
                one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
            ]
            used |= set(chain.from_iterable(map(private_names, classes)))
    assert used == listed


def private_names(one: type) -> set[str]:
    """The private names of the SDK's base classes that occur in the source of a class."""
    bases = [base for base in one.__mro__[1:] if base.__module__.startswith("mcp.")]
    theirs = set(
        chain.from_iterable(re.findall(r"(?:self\.|def )(_[a-z]\w+)", inspect.getsource(base)) for base in bases)
    )
    return theirs & set(re.findall(r"\b_[a-z]\w+", inspect.getsource(one))) if bases else set()
