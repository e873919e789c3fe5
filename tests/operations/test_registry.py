"""Tools, profiles and hints (docs/specs/declarations.md)."""

import subprocess
import sys
from dataclasses import replace
from functools import wraps
from types import MethodType

import pytest

from coretools.errors import BadSetting, UnknownTool
from coretools.operations.catalog import Selection, build_catalog
from coretools.operations.declare import Effect, declaration_of, tool
from coretools.operations.registry import Registry


class One:
    @tool(Effect.READ)
    def look_at(self) -> str:
        """Look."""
        return "seen"

    @tool(Effect.CHANGE)
    def change_it(self) -> str:
        """Change."""
        return "changed"

    @tool(Effect.ADD, profiles=())
    def secret_thing(self) -> str:
        """Hide."""
        return "hidden"

    @tool(Effect.CHANGE, profiles=("ci",))
    def only_ci(self) -> str:
        """Run."""
        return "ran"

    def no_tool(self) -> str:
        return ""


class Two:
    @tool(Effect.READ)
    def look_at(self) -> str:
        """Look elsewhere."""
        return "seen"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.add_set("one", One())
    return registry


def test_two_tools_of_one_name_fail_at_start_with_both_sources_named(registry: Registry) -> None:
    """declarations-6: the second is not dropped silently."""
    with pytest.raises(BadSetting) as caught:
        registry.add_set("two", Two())
    assert "One.look_at" in str(caught.value)
    assert "Two.look_at" in str(caught.value)


def test_what_is_not_a_tool_is_refused_by_its_source() -> None:
    """declarations-1: it needs a declaration, a name that every client accepts and a docstring."""

    @tool(Effect.READ)
    def BadName() -> str:  # noqa: N802  # the name is what is tested
        """Say nothing."""
        return ""

    @tool(Effect.READ)
    def silent() -> str:
        return ""

    def undeclared() -> str:
        return ""

    for function, fault in ((BadName, "not a valid tool name"), (silent, "docstring"), (undeclared, "not declared")):
        with pytest.raises(BadSetting, match=fault):
            Registry().add(function, "set")


@pytest.mark.parametrize(
    ("profile", "read_only", "names"),
    [
        ("read", False, ["look_at"]),
        ("dev", False, ["look_at", "change_it"]),
        ("ci", False, ["look_at", "only_ci"]),
        ("all", False, ["look_at", "change_it", "only_ci"]),
        ("read", True, ["look_at"]),
        ("dev", True, ["look_at"]),
        ("ci", True, ["look_at"]),
        ("all", True, ["look_at"]),
    ],
)
def test_a_profile_has_its_tools_in_order_of_definition(
    registry: Registry, profile: str, read_only: bool, names: list[str]
) -> None:
    """declarations-7: read-only takes precedence; hidden tools are in none."""
    catalog = build_catalog(registry, Selection(profile=profile, read_only=read_only))
    assert [command.name for command in catalog] == names


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("change_it", "read-only"),
        ("secret_thing", "unknown tool"),
        ("lok_at", "did you mean look_at"),
        ("x" * 500, "unknown tool"),
    ],
)
def test_an_excluded_command_cannot_be_called_and_the_error_has_the_reason(
    registry: Registry, name: str, reason: str
) -> None:
    """declarations-8: lists and calls use the same catalog."""
    with pytest.raises(UnknownTool, match=reason) as caught:
        build_catalog(registry, Selection(profile="all", read_only=True)).get(name)
    assert len(str(caught.value)) < 250


def test_an_unknown_profile_is_refused(registry: Registry) -> None:
    """declarations-7: an invalid setting fails at start, by name."""
    with pytest.raises(BadSetting, match="profile 'root'"):
        build_catalog(registry, Selection(profile="root"))


def test_the_hints_follow_from_the_effect() -> None:
    """declarations-1: read-only is never destructive, and reading is idempotent."""
    look, change = declaration_of(One.look_at), declaration_of(One.change_it)
    assert look is not None
    assert change is not None
    assert (look.read_only, look.destructive, look.idempotent, look.open_world) == (True, False, True, False)
    assert (change.read_only, change.destructive, change.idempotent, change.open_world) == (False, True, False, False)


def test_the_registry_imports_neither_mcp_nor_git() -> None:
    """declarations-9: commands can be declared and called without a protocol."""
    unwanted = "('mcp', 'mcp_types', 'git')"
    code = (
        "import sys, coretools.operations.registry, coretools.operations.dispatch; "
        f"print([m for m in {unwanted} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_schemas_of_a_method_are_built_once_for_all_objects() -> None:
    """declarations-1: not for another name, other questions, or a wrapper with parameters of its own."""

    class Own:
        @tool(Effect.READ)
        def read_it(self, name: str) -> str:
            """Read."""
            return name

    first, second = Registry(), Registry()
    first.add_set("own", Own())
    second.add_set("own", Own())
    one, other = next(iter(first)), next(iter(second))
    assert one.arguments is other.arguments
    assert one.return_type is other.return_type
    assert replace(one, name="another").arguments is not one.arguments
    asking = replace(one, declaration=replace(one.declaration, asks=("key",)))
    assert "answers" in asking.arguments.schema()["properties"]
    assert "answers" not in other.arguments.schema()["properties"]

    @wraps(Own.read_it)
    def wrapper(self: Own, number: int) -> str:
        return str(number)

    del wrapper.__wrapped__  # type: ignore[attr-defined]
    assert replace(one, function=MethodType(wrapper, Own())).arguments.names == ("number",)
