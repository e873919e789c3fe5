"""Draw which package imports which, from the source, for docs/architecture.md.

    python docs/architecture_picture.py            print the picture (Mermaid)
    python docs/architecture_picture.py --write    put it into docs/architecture.md

An arrow is left out where a longer way along other arrows leads to the same package.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).parent.parent
PAGE = TREE / "docs" / "architecture.md"
BLOCK = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)
ROOT = "coretools"


def packages() -> dict[str, str]:
    """Return each package with its docstring. The modules at the root count as one package."""
    modules = sorted(path.stem for path in (TREE / ROOT).glob("*.py") if path.stem != "__init__")
    found = {"servers": _docstring(TREE / "servers")}
    found |= {path.parent.name: _docstring(path.parent) for path in sorted((TREE / ROOT).glob("*/__init__.py"))}
    return found | {ROOT: ", ".join(modules)}


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, also inside functions."""
    known = set(packages()) - {ROOT, "servers"}
    found: dict[str, set[str]] = {name: set() for name in packages()}
    for top in ("servers", ROOT):
        for path in (TREE / top).rglob("*.py"):
            here = _package(".".join(path.relative_to(TREE).with_suffix("").parts), known)
            targets = {_package(name, known) for name in _imported(path)}
            found[here] |= targets - {here, ""}
    return found


def picture() -> str:
    """Return the Mermaid text."""
    graph = imports()
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {name}["<b>{name}</b><br/>{_label(text)}"]' for name, text in packages().items()]
    for name, targets in graph.items():
        indirect = set().union(*(_reachable(graph, target) for target in targets)) if targets else set()
        lines += [f"    {name} --> {target}" for target in sorted(targets - indirect)]
    return "\n".join([*lines, "```", ""])


def _package(module: str, known: set[str]) -> str:
    parts = module.split(".")
    if parts[0] == ROOT:
        return parts[1] if len(parts) > 1 and parts[1] in known else ROOT
    return parts[0] if parts[0] == "servers" else ""


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reachable(graph: dict[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = set(graph[name])
    while waiting:
        target = waiting.pop()
        found.add(target)
        waiting |= graph[target] - found
    return found


def _docstring(folder: Path) -> str:
    return (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").split("\n")[0]


def _label(text: str) -> str:
    """The docstring up to its details; the page has those in a table. Mermaid breaks the lines."""
    return re.split(r"[:;.](?:\s|$)", text)[0].replace("`", "").replace('"', "'")


def main() -> None:
    """Print the picture, or write it into its page."""
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(BLOCK.sub(lambda _: picture(), page, count=1), encoding="utf-8")
    else:
        print(picture(), end="")


if __name__ == "__main__":
    main()
