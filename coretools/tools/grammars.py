"""Which language a file is written in, by its name, the grammar of that language, and parsing by it.

A grammar is a package of its own, loaded when the first file of its language is parsed. None is downloaded: without its
package (the extra `code`) files of a language are not parsed.
"""

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from time import thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

FIRST_LINE_CHARACTERS = 200
"""Characters of the first line that are searched for an interpreter."""

_READ_BYTES = 64 * 1024
"""Given to the parser at once. It looks at the deadline only if it reads in parts (tree-sitter 0.26.1)."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar: a function in a package."""

    language: str
    """The name that facts have."""
    package: str
    function: str = "language"
    doubles_braces: bool = False
    """Whether `{{` is usual in the language itself, so that it is no mark of a template."""
    is_exact: bool = True
    """Whether it accepts correct files, so that what it rejects is worth a report. Those of C and C++ reject three of
    five correct files (docs/adr/0056): macros."""
    has_trailing_commas: bool = False
    """JSON as editors and compilers read it in their settings: with comments and a comma before the end."""


_PYTHON = Grammar("python", "tree_sitter_python")
_JAVASCRIPT = Grammar("javascript", "tree_sitter_javascript", doubles_braces=True)
_TYPESCRIPT = Grammar("typescript", "tree_sitter_typescript", "language_typescript", doubles_braces=True)
_TSX = Grammar("tsx", "tree_sitter_typescript", "language_tsx", doubles_braces=True)
_JSON = Grammar("json", "tree_sitter_json")
_JSONC = Grammar("json with comments", "tree_sitter_json", has_trailing_commas=True)
_YAML = Grammar("yaml", "tree_sitter_yaml")
_TOML = Grammar("toml", "tree_sitter_toml")
_BASH = Grammar("bash", "tree_sitter_bash")

_BY_ENDING: dict[str, Grammar] = {
    **dict.fromkeys(("py", "pyi", "pyw"), _PYTHON),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), _JAVASCRIPT),
    **dict.fromkeys(("ts", "mts", "cts"), _TYPESCRIPT),
    "tsx": _TSX,
    "json": _JSON,
    "jsonc": _JSONC,
    **dict.fromkeys(("yaml", "yml"), _YAML),
    "toml": _TOML,
    **dict.fromkeys(("sh", "bash"), _BASH),
    "go": Grammar("go", "tree_sitter_go", doubles_braces=True),
    "rs": Grammar("rust", "tree_sitter_rust", doubles_braces=True),
    "java": Grammar("java", "tree_sitter_java", doubles_braces=True),
    # The extra `code`.
    "css": Grammar("css", "tree_sitter_css"),
    "rb": Grammar("ruby", "tree_sitter_ruby"),
    "php": Grammar("php", "tree_sitter_php", "language_php"),
    "cs": Grammar("c#", "tree_sitter_c_sharp", doubles_braces=True),
    "c": Grammar("c", "tree_sitter_c", is_exact=False),
    **dict.fromkeys(("cc", "cpp", "cxx", "h", "hh", "hpp", "hxx"), Grammar("c++", "tree_sitter_cpp", is_exact=False)),
    **dict.fromkeys(("kt", "kts"), Grammar("kotlin", "tree_sitter_kotlin", is_exact=False)),
    "swift": Grammar("swift", "tree_sitter_swift", is_exact=False),
    **dict.fromkeys(("scala", "sc"), Grammar("scala", "tree_sitter_scala", is_exact=False)),
    "lua": Grammar("lua", "tree_sitter_lua", is_exact=False),
}
"""`is_exact` only where it was measured."""

_JSONC_NAMES = re.compile(r"([tj]sconfig\b.*|\.eslintrc|devcontainer|settings|launch|tasks|\.babelrc)\.json")
"""Files that their programs read as JSON with comments."""

_INTERPRETER = re.compile(r"#!.*\b(python|bash|sh)[0-9.]*(?:\s|$)")
_BY_INTERPRETER = {"python": _PYTHON, "bash": _BASH, "sh": _BASH}


def grammar_for(path: str, text: str) -> Grammar | None:
    """The grammar of a file, by the ending of its name, or by the interpreter that its first line names."""
    name = posixpath.basename(path).lower()
    stem, dot, ending = name.rpartition(".")
    shebang = text[:FIRST_LINE_CHARACTERS].partition("\n")[0] if text.startswith("#!") else ""
    if not dot or not stem or (shebang and ending == "sh"):
        interpreter = _INTERPRETER.match(shebang)
        return _BY_INTERPRETER[interpreter[1]] if interpreter else None
    if ending == "json" and _JSONC_NAMES.fullmatch(name):
        return _JSONC
    return _BY_ENDING.get(ending)


@lru_cache(maxsize=len(_BY_ENDING))
def load(grammar: Grammar) -> "Language | None":
    """Load a grammar once; None if its package is not installed."""
    # Imported here: most sessions edit files of one or two languages, and a grammar takes up to 1 MB.
    from importlib import import_module

    from tree_sitter import Language

    try:
        package = import_module(grammar.package)
    except ImportError:
        return None
    return Language(getattr(package, grammar.function)())


def parse(language: "Language", source: bytes, *, deadline: float) -> "Node":
    """Parse a text and return the root of its tree. `deadline` is one of `thread_time`, not of the clock.

    Raises:
        TimeoutError: the deadline has passed.
    """
    from tree_sitter import Parser  # imported here: see `load`

    try:
        tree = Parser(language).parse(
            lambda at, _point: source[at : at + _READ_BYTES],
            encoding="utf8",
            progress_callback=lambda _offset, _error: thread_time() > deadline,
        )
    except ValueError as error:
        raise TimeoutError from error
    return tree.root_node
