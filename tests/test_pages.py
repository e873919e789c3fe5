"""What pages name exists, and each specification begins with a paragraph for people (docs/specs/structure.md)."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import coretools
from coretools.cli.main import BUILT_IN
from coretools.config.policy_schema import PolicyFile, parse_policy
from coretools.errors import CoreError, exit_code_of
from coretools.web.common.config import VARIABLES, Config
from tests.checkout import TREE

DOCS = TREE / "docs"
README = TREE / "README.md"

CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
IDENTIFIER = re.compile(r"(?<![\w$])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?!\w)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
HISTORY = re.compile(r"^## Changes that users see\n.*", re.MULTILINE | re.DOTALL)
"""Names what was, which need not exist any more."""

DOCSTRING = re.compile(r"\"\"\".*?\"\"\"", re.DOTALL)

OTHERS_TABLES = frozenset({"rule", "mcp_servers"})
"""Top tables of TOML files that are neither the policy file nor the configuration of the HTTP server."""

INTRODUCTION_WORDS = 20
"""In the first paragraph of a specification, without names of tools, tests and files."""


@cache
def text(page: Path) -> str:
    return HISTORY.sub("", page.read_text(encoding="utf-8"))


def pages(*, with_decisions: bool = False) -> list[Path]:
    """Pages about the present; decisions also name what was rejected."""
    found = [README, TREE / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    return [page for page in found if with_decisions or page.parent.name != "adr" or page.name == "README.md"]


@cache
def source_words() -> frozenset[str]:
    """Every word of the source, its tests and the files for operators; names of test files too."""
    folders = ("coretools", "servers", "tests", "examples", "benchmarks", "docs")
    paths = [
        path
        for top in folders
        for path in (TREE / top).rglob("*")
        if path.suffix in {".py", ".toml", ".yaml", ".json", ".service"}
    ]
    others = [TREE / "pyproject.toml", TREE / "Dockerfile"]
    found: set[str] = set()
    for path in (*paths, *others):
        found.add(path.stem)
        if "node_modules" not in path.parts:
            found.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


@cache
def reference() -> str:
    """The generated pages, which another test compares with the declarations."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md")))


def lines_of_code() -> Iterator[tuple[str, str]]:
    """Command lines of coretools on the pages: in blocks for a shell, and in the text."""
    for page in pages():
        blocks = [body for language, body in BLOCK.findall(text(page)) if language in ("sh", "bash", "yaml")]
        lines = [line.strip() for body in blocks for line in body.replace("\\\n", " ").splitlines()]
        for line in (*lines, *CODE.findall(BLOCK.sub("", text(page)))):
            plain = re.split(r"\s#|\s\|\s|\s>|;|&&", line.removeprefix("- run: ").removeprefix("run: "))[0]
            if re.match(r"(?:\S*/)?coretools(?:-workstation|-http)?\s", plain):
                yield page.name, plain


def test_every_identifier_that_a_page_names_exists() -> None:
    """structure-14: tools, parameters, limits, keys, metrics, modules; none is left from before it was renamed."""
    known = source_words()
    named = {
        (page.name, word) for page in pages() for code in CODE.findall(text(page)) for word in IDENTIFIER.findall(code)
    }
    assert len(named) > 500
    derived = {"coretools_last_reload_successful", "coretools_last_reload_timestamp_seconds"}  # built by the library
    routes = set(re.findall(r"`\w+ ([a-z_]+)`\]\(", reference()))
    assert sorted((page, word) for page, word in named if word not in known | derived | routes) == []


def test_every_command_and_option_of_a_line_exists() -> None:
    """structure-14: a built-in command, a route or a tool; an option of coretools or of a command."""
    source = "".join(
        path.read_text(encoding="utf-8") for top in ("coretools", "servers") for path in (TREE / top).rglob("*.py")
    )
    parameters = {name.replace("_", "-") for name in re.findall(r"^\| `([a-z_]+)` \|", reference(), re.MULTILINE)}
    options = {*re.findall(r"['\"](--[a-z][a-z-]*)['\"]", source), "--help"}
    options |= {f"--{before}{name}" for name in parameters for before in ("", "no-")}
    routes = {words.split()[0] for words in re.findall(r"\[`([a-z_ {}]+)`\]\(\w+\.md#", reference())}
    commands = {*BUILT_IN, *routes, *(word.replace("_", "-") for word in routes)}
    lines = list(lines_of_code())
    assert len(lines) > 100
    wrong = [
        (page, line, option)
        for page, line in lines
        for option in OPTION.findall(line.split(" -- ")[0])
        if option not in options
    ]
    for page, line in lines:
        program, first, *_ = line.split()
        if program.endswith("coretools") and re.fullmatch(r"[a-z][a-z_-]*", first) and first not in commands:
            wrong.append((page, line, first))
    assert wrong == []


def test_every_variable_that_a_page_names_is_read() -> None:
    """structure-14: those of the HTTP server are the keys of its configuration."""
    keys = set()
    for name, field in Config.model_fields.items():
        keys |= {f"{VARIABLES}{name}__{key}".upper() for key in fields_of(field.annotation)} | {
            f"{VARIABLES}{name}".upper()
        }
    files = [*pages(), *(path for path in (DOCS / "deploy").rglob("*") if path.is_file())]
    for page in files:
        content = HISTORY.sub("", page.read_text(encoding="utf-8"))
        named = set(re.findall(r"\bCORETOOLS_[A-Z_]*[A-Z]", content))
        unknown = {name for name in named if name not in source_words() and not name.startswith("CORETOOLS_INPUT_")}
        assert {name for name in unknown if not any(key.startswith(name) for key in keys)} == set(), page


def test_kinds_of_errors_have_the_exit_codes_that_pages_say() -> None:
    """structure-14"""
    kinds = {error.kind for error in every_error(CoreError)}
    found = 0
    for page in pages():
        for kind, code in re.findall(r"^\| `([a-z]+(?:-[a-z]+)*)` \| (\d+) \|", text(page), re.MULTILINE):
            if kind in kinds:
                found += 1
                assert exit_code_of(kind) == int(code), (page, kind)
    assert found > 10


def test_examples_of_configuration_are_valid() -> None:
    """structure-14: a policy file is read as the server does; of the HTTP configuration the keys exist."""
    policies = configurations = 0
    for page in pages():
        for language, body in BLOCK.findall(text(page)):
            if language != "toml":
                continue
            tables = tomllib.loads(body)
            if tables.keys() <= PolicyFile.model_fields.keys():
                parse_policy(body.encode(), page.name, {"HOME": "/home/you"})
                policies += 1
            elif tables.keys() <= Config.model_fields.keys():
                assert list(unknown_keys(Config, tables)) == [], page
                configurations += 1
            else:
                assert tables.keys() <= OTHERS_TABLES, (page, tables.keys())
    assert policies >= 4
    assert configurations >= 3


def test_sentences_that_count_are_right() -> None:
    """structure-14: the README's number of tool sets, and its length."""
    sets = re.findall(r"^\| (\w+) \| ", reference().partition("| set |")[2].partition("\n\n")[0], re.MULTILINE)
    numbers = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    assert f"Tools of {numbers[len(sets)]} sets" in text(README)
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
    assert [page.name for page in pages() if re.search(r"\b\d+ tools whose\b", text(page))] == []


def test_every_module_that_a_page_names_exists() -> None:
    """structure-14: with the names behind it, in the pages and in decisions."""
    named = {
        (page.name, name)
        for page in pages(with_decisions=True)
        for name in re.findall(r"`(coretools(?:\.\w+)+)`", text(page))
        if not name.endswith((".pem", ".toml", ".calls", ".requests"))  # files, and names of logs
    }
    assert len(named) > 40
    assert sorted((page, name) for page, name in named if not exists(name)) == []


@pytest.mark.parametrize("page", sorted((DOCS / "specs").glob("*.md")), ids=lambda page: page.stem)
def test_a_specification_begins_with_a_paragraph_for_people(page: Path) -> None:
    """structure-14: words about what it is for, before the names of tests, modules and tools."""
    title, first, *_ = text(page).split("\n\n")
    assert re.fullmatch(r"# \S.*", title)
    prose = re.split(r"(?:Proved|Tested|tested) by|The code is|Reasons:", first)[0]
    words = re.sub(r"`[^`]*`|\([^)]*\)", "", prose).split()
    assert not first.startswith(("- ", "#", "|"))
    assert len(words) >= INTRODUCTION_WORDS, prose


def every_error(base: type[CoreError]) -> list[type[CoreError]]:
    return [base, *chain.from_iterable(map(every_error, base.__subclasses__()))]


def exists(name: str) -> bool:
    parts = name.split(".")
    if len(parts) == 2 and parts[1] in coretools.PUBLIC_NAMES:
        return True
    for count in range(len(parts), 0, -1):
        path = TREE.joinpath(*parts[:count])
        if path.is_dir() and count == len(parts):
            return True
        if path.with_suffix(".py").is_file():
            source = path.with_suffix(".py").read_text(encoding="utf-8")
            return all(re.search(rf"\b{word}\b", source) for word in parts[count:])
    return False


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [*chain.from_iterable(map(models_in, get_args(annotation)))]


def fields_of(annotation: Any) -> set[str]:
    return {name for model in models_in(annotation) for name in model.model_fields}


def unknown_keys(model: type[BaseModel], table: dict[str, Any]) -> Iterator[str]:
    """Keys of a table, and of those in it, that the configuration does not have. Roles have any name."""
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            yield key
            continue
        inner = models_in(field.annotation)
        if inner and isinstance(value, dict):
            is_by_name = not set(value) & set(inner[0].model_fields) and all(
                isinstance(one, dict) for one in value.values()
            )
            for one in value.values() if is_by_name else [value]:
                yield from unknown_keys(inner[0], one)


def test_constants_that_docstrings_name_are_in_the_module_or_say_where() -> None:
    """structure-14: a reader looks for them in the same file."""
    modules = {
        path: path.read_text(encoding="utf-8")
        for top in ("coretools", "servers")
        for path in (TREE / top).rglob("*.py")
    }
    defined = {
        name
        for source in modules.values()
        for name in re.findall(r"^(_?[A-Z][A-Z0-9_]+)(?= *[:=])", source, re.MULTILINE)
    }
    wrong = []
    for path, source in modules.items():
        code = DOCSTRING.sub("", source)
        named = {
            name for text in DOCSTRING.findall(source) for name in re.findall(r"`(_?[A-Z][A-Z0-9]*_[A-Z0-9_]+)`", text)
        }
        wrong += [(path.name, name) for name in named & defined if not re.search(rf"\b{name}\b", code)]
    assert sorted(wrong) == []
