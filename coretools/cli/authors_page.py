"""The reference page of the names for authors, written from the source of what `coretools` exports."""

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise

import coretools
from coretools.operations.documentation import WRITTEN_BY

AUTHORS_PAGE = "authors.md"

_INTRODUCTION = """\
Every name that `coretools` exports, in alphabetical order: `from coretools import App, Effect`. Nothing else is public.
The [guide](../writing-commands.md) shows how they belong together."""

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def authors_page() -> str:
    """Return the page."""
    lines = [WRITTEN_BY, "", "# API for authors", "", _INTRODUCTION]
    for name in sorted(coretools.PUBLIC_NAMES, key=str.lower):
        getattr(coretools, name)  # loads its module
        body = ast.parse(inspect.getsource(sys.modules[coretools.PUBLIC_NAMES[name]])).body
        lines += ["", f"## `{name}`", ""]
        lines += _entry(name, body)
    return "\n".join(lines) + "\n"


def _entry(name: str, body: list[ast.stmt]) -> Iterator[str]:
    own_name = _aliases(body).get(name, name)
    for node, following in pairwise((*body, ast.Pass())):
        if isinstance(node, _Definition) and node.name == own_name:
            yield from _class(node) if isinstance(node, ast.ClassDef) else _function(node, name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            yield f"`{ast.unparse(node)}`"
            yield from ("", _text(_string(following)))


def _aliases(body: list[ast.stmt]) -> dict[str, str]:
    """Return what names stand for by assignments such as `split_command_line, join_command_line = split, join`."""
    pairs = [
        (node.targets[0].elts, node.value.elts)
        for node in body
        if isinstance(node, ast.Assign)
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    ]
    return {
        ast.unparse(name): ast.unparse(value)
        for names, values in pairs
        for name, value in zip(names, values, strict=True)
    }


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield _documentation(node)
    attributes = list(_attributes(node))
    if attributes:
        yield from ("", *attributes)
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            yield from ("", f"### `{node.name}.{method.name}`", "", *_function(method, method.name))


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for field, following in pairwise((*node.body, ast.Pass())):
        if isinstance(field, ast.AnnAssign | ast.Assign) and not ast.unparse(field).startswith("_"):
            said = _text(_string(following))
            yield f"- `{ast.unparse(field)}`" + (f": {said}" if said else "")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[str]:
    decorators = {ast.unparse(one) for one in node.decorator_list}
    if decorators & {"property", "cached_property"}:
        yield f"`{name}: {ast.unparse(node.returns) if node.returns else ''}`"
    else:
        given = [one for one in (*node.args.posonlyargs, *node.args.args) if one.arg != "self"]
        node.args.args, node.args.posonlyargs = given, []
        word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"`{word}{name}({ast.unparse(node.args)}){result}`"
    yield from ("", _documentation(node))


def _documentation(node: _Definition) -> str:
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    return "\n\n".join(map(_text, paragraphs))


def _string(node: ast.stmt) -> str:
    """Return the text of a string that stands alone; empty for anything else."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _text(paragraph: str) -> str:
    return " ".join(paragraph.split())
