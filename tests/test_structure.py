"""Rules for the shape of the code: layers, cycles, sizes, seams (docs/specs/structure.md).

Reads the source with `ast`; imports and runs none of it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.checkout import TREE

FOLDERS = {"coretools": "coretools", "servers": "coretools.servers"}
"""The source, each folder with its name as a package."""

LAYERS = (
    "coretools",
    "coretools.services",
    "coretools.redaction",
    "coretools.egress",
    "coretools.config",
    "coretools.roots",
    "coretools.undo",
    "coretools.command_policy",
    "coretools.confinement",
    "coretools.process",
    "coretools.language_servers",
    "coretools.git_remotes",
    "coretools.questions",
    "coretools.operations",
    "coretools.client",
    "coretools.pipelines",
    "coretools.tools",
    "coretools.protocol",
    "coretools.app",
    "coretools.web",
    "coretools.hosting",
)
"""Lowest first: a layer imports itself and those before it. `coretools` stands for the modules at the root."""

TOP = ("coretools.servers", "coretools.cli")
"""Above every layer; they do not import each other."""

APPLICATION = "coretools.application"
"""Above the layers and the command line, which it gives to the application of an author."""

MCP = ("mcp", "mcp_types")
MCP_LAYERS = (
    "coretools.servers",
    "coretools.client",
    "coretools.pipelines",
    "coretools.protocol",
    "coretools.app",
    "coretools.web",
    "coretools.hosting",
    "coretools.cli",
    "coretools.application",
)
NO_FILES = frozenset({"os", "pathlib", "subprocess", "shutil", "tempfile", "glob", "io", "socket"})
"""Modules that `tools` must not import: it reaches files and processes through the objects that it is given."""

SEAM = "coretools/operations/dispatch.py"
"""The one module that may catch everything and pass on arbitrary keyword arguments."""

RULE = re.compile(r"^- ([a-z]+(?:-[a-z]+)*-\d+):", re.MULTILINE)

LINES_OF_A_MODULE = 500
LINES_OF_A_FUNCTION = 60
BRANCHES = 15
PARAMETERS = 6
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    lines: list[str]

    @property
    def folder(self) -> str:
        return self.path.parent.relative_to(TREE).as_posix()

    @property
    def layer(self) -> str:
        parts = self.name.split(".")
        folder = ".".join(parts[:2])
        return folder if folder in (*LAYERS, *TOP, APPLICATION) else parts[0]

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed modules; parsed on demand, because every worker collects all tests and runs some."""
        return ast.parse("\n".join(self.lines))

    @property
    def where(self) -> str:
        return self.path.relative_to(TREE).as_posix()

    @cached_property
    def imports(self) -> tuple[str, ...]:
        return tuple(self._imports())

    def _imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.where}:{node.lineno}: imports are absolute"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in names() else str(node.module)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        yield from (node for node in ast.walk(self.tree) if isinstance(node, FUNCTION))


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for folder, package in FOLDERS.items():
        for path in sorted((TREE / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            parts = path.relative_to(TREE / folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found.append(Module(path, name, text.splitlines()))
    return tuple(found)


@cache
def names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def branches(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Cyclomatic complexity (McCabe): one, and one more for each branch."""
    forks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, forks)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
    return count


def test_imports_point_down() -> None:
    """structure-1: a layer imports itself and lower ones; entry points and the client never import each other."""
    wrong = []
    by_name = {module.name: module for module in modules()}
    for module in modules():
        for target in module.imports:
            other = by_name.get(target)
            if other is None or other.layer == module.layer:
                continue
            if module.layer == APPLICATION:
                allowed = other.layer in (*LAYERS, "coretools.cli")
            elif module.layer in TOP:
                allowed = other.layer in LAYERS
            else:
                allowed = other.layer in LAYERS[: LAYERS.index(module.layer)]
            if not allowed:
                wrong.append(f"{module.where} imports {target}")
    assert wrong == []


def test_no_import_cycle_not_even_inside_functions() -> None:
    """structure-2: every import counts, also inside functions."""
    require_no_cycle({module.name: {name for name in module.imports if name in names()} for module in modules()})


def test_no_cycle_of_folders() -> None:
    """structure-10: at full depth, no folder reaches itself through the imports of others."""
    folders = {module.name: module.folder for module in modules()}
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for module in modules():
        graph[module.folder] |= {folders[name] for name in module.imports if name in folders} - {module.folder}
    require_no_cycle(graph)


def require_no_cycle(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for target in sorted(graph[name] - {name}):
            visit(target, (*path, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_only_the_upper_layers_know_the_protocol() -> None:
    """structure-3: declarations, registry and tools run without a server."""
    wrong = [
        f"{module.where} imports {target}"
        for module in modules()
        for target in module.imports
        if target.split(".")[0] in MCP and module.layer not in MCP_LAYERS
    ]
    assert wrong == []


def test_tools_reach_files_and_processes_only_through_what_they_are_given() -> None:
    """structure-4: the objects that they are given apply the policy."""
    wrong = []
    for module in modules():
        if module.layer != "coretools.tools":
            continue
        wrong += [f"{module.where} imports {name}" for name in module.imports if name.split(".")[0] in NO_FILES]
        wrong += [
            f"{module.where}:{node.lineno} calls open"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        ]
    assert wrong == []


def test_sizes_are_within_the_limits() -> None:
    """structure-5: lines of a module and of a function, branches, parameters."""
    for module in modules():
        wrong = []
        if len(module.lines) > LINES_OF_A_MODULE:
            wrong.append(f"{len(module.lines)} lines")
        for function in module.functions():
            arguments = function.args
            positional = [name for name in arguments.posonlyargs + arguments.args if name.arg not in ("self", "cls")]
            parameters = len(positional) + len(arguments.kwonlyargs)
            is_tool = any("tool" in ast.unparse(decorator) for decorator in function.decorator_list)
            figures = {
                "lines": (length(function), LINES_OF_A_FUNCTION),
                "branches": (branches(function), BRANCHES),
                # A tool's parameters are its schema; callers pass them by name.
                "parameters": (0 if is_tool else parameters, PARAMETERS),
            }
            wrong += [
                f"{function.name} (line {function.lineno}): {count} {what}, {most} at most"
                for what, (count, most) in figures.items()
                if count > most
            ]
        assert wrong == [], module


def test_everything_is_caught_and_passed_on_only_at_the_seam() -> None:
    """structure-6: no broad except and no **kwargs elsewhere, except typed ones."""
    for module in modules():
        wrong = []
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and module.where != SEAM:
                caught = ast.unparse(node.type) if node.type else "everything"
                reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                if caught in ("everything", "Exception", "BaseException") and not reraises:
                    wrong.append(f"line {node.lineno} catches {caught}")
            if isinstance(node, FUNCTION) and _takes_anything(node.args) and not node.name.startswith("_"):
                wrong.append(f"{node.name} (line {node.lineno}) takes **kwargs")
        assert wrong == [], module


def _takes_anything(arguments: ast.arguments) -> bool:
    """Whether it accepts names that its signature does not list, unlike `**hints: Unpack[Hints]`."""
    rest = arguments.kwarg
    return rest is not None and not (rest.annotation is not None and ast.unparse(rest.annotation).startswith("Unpack["))


def test_every_module_has_a_docstring_and_no_unfinished_work() -> None:
    """structure-7: a docstring first, and no markers of unfinished work."""
    for module in modules():
        assert ast.get_docstring(module.tree), module
        marks = [number for number, line in enumerate(module.lines, 1) if "TODO" in line or "FIXME" in line]
        assert marks == [], module


def test_package_files_contain_a_docstring_only() -> None:
    """structure-8: names are imported from the module that defines them; authors import theirs from the package."""
    for module in modules():
        if module.name == "coretools":
            functions = {node.name for node in module.tree.body if isinstance(node, FUNCTION)}
            assert functions == {"__getattr__", "__dir__"}
            assert set(module.imports) == {"importlib", "typing"}
        elif module.path.name == "__init__.py":
            assert module.tree.body[1:] == [], module.where


def test_every_rule_of_a_spec_is_named_by_a_test() -> None:
    """structure-9: every rule has a test, and no number is used twice."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (TREE / "tests").rglob("test_*.py"))
    named = set(re.findall(r"[a-z]+(?:-[a-z]+)*-\d+", tests))
    rules = [rule for path in (TREE / "docs" / "specs").glob("*.md") for rule in RULE.findall(path.read_text("utf-8"))]
    assert len(rules) > 100
    assert set(rules) - named == set()
    assert sorted(rules) == sorted(set(rules))
