"""The surfaces and names of commands, and who may call them (docs/specs/catalog.md)."""

from typing import Any

import pytest

from coretools.errors import BadSetting, UnknownPrompt, UnknownTool
from coretools.operations.call import Call
from coretools.operations.catalog import Catalog, Selection, Surfaces, build_catalog
from coretools.operations.content import Message, Text
from coretools.operations.declare import (
    Effect,
    Function,
    at,
    channels,
    details,
    hidden,
    metadata,
    prompt,
    raw_schema,
    resource,
    tool,
)
from coretools.operations.registry import Registry
from coretools.operations.route import name_of_route, route_in, route_parameters
from coretools.operations.uri_template import template_shape, template_variables

ALL = Selection(profile="all")
PROMOTED = Surfaces(promote_read_only=True)
AS_TOOLS = Surfaces(resources_as_tools=True, prompts_as_tools=True)


def made(name: str, *decorators: Any, doc: str = "Do it.") -> Any:
    """Create a function of this name with these declarations."""

    def function() -> str:
        return name

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    for decorator in decorators:
        function = decorator(function)
    return function


def registry_with(*functions: Any) -> Registry:
    registry = Registry()
    for function in functions:
        registry.add(function)
    return registry


def catalog_of(registry: Registry, selection: Selection = ALL, surfaces: Surfaces | None = None) -> Catalog:
    return build_catalog(registry, selection, surfaces)


# Routes and names


@pytest.mark.parametrize(
    ("context", "name", "route"),
    [
        ((), "read_file", ("read_file",)),
        (("git",), "git_log", ("git", "log")),
        (("git",), "log", ("git", "log")),
        (("git", "remote"), "git_remote_add", ("git", "remote", "add")),
        (("git",), "gitlog", ("git", "gitlog")),
    ],
)
def test_the_route_of_a_function_is_its_context_and_its_name(
    context: tuple[str, ...], name: str, route: tuple[str, ...]
) -> None:
    """catalog-1: `git_log` in the context `git` is `git log`."""
    assert route_in(context, name) == route


def test_the_name_of_a_tool_is_its_route_without_parameters() -> None:
    """catalog-1: parameters of the route are not part of the name."""

    @tool(Effect.READ)
    @at("contact", "{number}", "show")
    def show(number: int) -> str:
        """Show."""
        return str(number)

    registry = registry_with(show)
    assert list(catalog_of(registry).tools) == ["contact_show"]
    assert route_parameters(next(iter(registry)).route) == ("number",)
    assert name_of_route(("a", "{b}", "c")) == "a_c"


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        (("{number}",), "needs at least one word"),
        (("Show",), "not valid in a route"),
        (("show me",), "not valid in a route"),
        (("show", "{other}"), "an unknown parameter: other"),
    ],
)
def test_a_route_that_cannot_be_typed_is_refused_by_its_source(route: tuple[str, ...], fault: str) -> None:
    """catalog-1: words of a to z, 0 to 9, _ and -; braces hold a parameter of the function."""

    @tool(Effect.READ)
    @at(*route)
    def look(number: int = 0) -> str:
        """Look."""
        return str(number)

    with pytest.raises(BadSetting, match=fault) as caught:
        Registry().add(look)
    assert "look" in str(caught.value)


def test_contexts_contain_commands_and_descriptions() -> None:
    """catalog-1: a nested context; both are described."""
    registry = Registry()
    remote = registry.context("git", summary="Repositories").context("remote", details="Other copies of it.")

    @remote.tool(Effect.READ)
    def add(name: str) -> str:
        """Add one."""
        return name

    assert next(iter(registry)).route == ("git", "remote", "add")
    remote.add(made("git_remote_list", tool(Effect.READ)))
    assert [command.route for command in registry][1] == ("git", "remote", "list")
    assert [(context.words, context.summary, context.details) for context in registry.contexts] == [
        (("git",), "Repositories", ""),
        (("git", "remote"), "", "Other copies of it."),
    ]


# Surfaces


def test_one_declaration_can_name_several_surfaces() -> None:
    """catalog-2: all three for one function; a prompt or a resource alone is no tool."""
    registry = registry_with(
        made("all_three", tool(Effect.READ), resource("x://all"), prompt()),
        made("only_read", resource("x://only")),
        made("only_asked", prompt()),
    )
    catalog = catalog_of(registry)
    assert list(catalog.tools) == ["all_three"]
    assert list(catalog.resources) == ["x://all", "x://only"]
    assert list(catalog.prompts) == ["all_three", "only_asked"]
    with pytest.raises(UnknownTool):
        catalog.get("only_read")
    with pytest.raises(UnknownPrompt, match="unknown prompt"):
        catalog.prompt("only_read")


def test_the_description_for_agents_is_separate_from_the_summary() -> None:
    """catalog-2: details and metadata are part of the declaration, whatever the surface."""
    one = made("one", tool(Effect.READ), details("At length."), metadata({"org.example/x": 1}))
    command = registry_with(one).command_of(one)
    assert command.summary == "Do it."
    assert "At length." in command.description
    assert command.declaration.metadata == {"org.example/x": 1}


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        ("nothing", "is not a URI"),
        ("x://{broken", "is not a URI"),
        ("x://{name}/{other}", "an unknown parameter: other"),
        ("x://fixed", "lacks a required parameter: name"),
    ],
)
def test_a_uri_that_does_not_fit_the_signature_is_refused(uri: str, fault: str) -> None:
    """catalog-3: every variable is a parameter, every required parameter a variable."""

    @resource(uri)
    def config(name: str, section: str = "") -> str:
        """Read."""
        return name + section

    with pytest.raises(BadSetting, match=fault) as caught:
        Registry().add(config)
    assert "config" in str(caught.value)


def test_a_version_that_is_not_a_method_is_refused() -> None:
    """catalog-3: at the start, not when the first client subscribes."""
    with pytest.raises(BadSetting, match="its version names 'nothing'"):
        Registry().add(made("read", resource("x://read", version="nothing")))


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("x://fixed", ()),
        ("x://{a}/{+b}{?c,d*}{&e:3}", ("a", "b", "c", "d", "e")),
    ],
)
def test_the_variables_of_a_template_are_found(template: str, names: tuple[str, ...]) -> None:
    """catalog-3: with all operators and modifiers of RFC 6570."""
    assert template_variables(template) == names


def test_a_call_parameter_is_not_a_variable() -> None:
    """catalog-3: a parameter of type Call is filled by the dispatcher."""

    @resource("x://{name}")
    async def config(name: str, call: Call) -> str:
        """Read."""
        return name + call.principal

    assert list(catalog_of(registry_with(config)).resources) == ["x://{name}"]


def test_a_resource_may_only_read() -> None:
    """catalog-4: one that changes something ends the start."""
    with pytest.raises(BadSetting, match="a resource only reads"):
        Registry().add(made("change", tool(Effect.CHANGE), resource("x://change")))


def test_promotion_and_fallbacks_are_off_by_default() -> None:
    """catalog-5: a tool is a tool, a resource a resource, a prompt a prompt."""
    registry = registry_with(
        made("look", tool(Effect.READ)), made("read", resource("x://read")), made("plan", prompt())
    )
    catalog = catalog_of(registry)
    assert (list(catalog.tools), list(catalog.resources), list(catalog.prompts)) == (["look"], ["x://read"], ["plan"])


def test_read_only_commands_are_promoted_to_the_uri_of_their_route() -> None:
    """catalog-5: required arguments in the path, the others behind `?`; what does not fit a URI is left out."""

    @tool(Effect.READ)
    @at("contact", "{number}", "show")
    def show(number: int, full: bool = False) -> str:
        """Show."""
        return f"{number}{full}"

    @tool(Effect.READ)
    def look_up(name: str, call: Call) -> str:
        """Look up."""
        return name

    @tool(Effect.READ)
    def many(names: list[str]) -> str:
        """Look at many."""
        return ",".join(names)

    @tool(Effect.READ)
    @raw_schema({"type": "object"})
    def raw(given: dict[str, Any]) -> str:
        """Take what comes."""
        return str(given)

    registry = registry_with(show, look_up, many, raw, made("change", tool(Effect.CHANGE)))
    assert list(catalog_of(registry, surfaces=PROMOTED).resources) == [
        "coretools://contact/{number}/show{?full}",
        "coretools://look_up/{name}",
    ]
    named = Surfaces(promote_read_only=True, scheme="mine")
    assert next(iter(catalog_of(registry, surfaces=named).resources)) == "mine://contact/{number}/show{?full}"


def test_resources_and_prompts_become_tools_if_enabled() -> None:
    """catalog-5: each with its own setting; what is a tool already is one once."""
    registry = registry_with(
        made("read", resource("x://read")), made("both", tool(Effect.READ), prompt()), made("plan", prompt())
    )
    assert list(catalog_of(registry).tools) == ["both"]
    assert list(catalog_of(registry, surfaces=Surfaces(resources_as_tools=True)).tools) == ["read", "both"]
    assert list(catalog_of(registry, surfaces=Surfaces(prompts_as_tools=True)).tools) == ["both", "plan"]
    assert list(catalog_of(registry, surfaces=AS_TOOLS).tools) == ["read", "both", "plan"]


def test_an_overriding_prompt_is_the_one_that_becomes_a_tool() -> None:
    """catalog-5, catalog-6: also if it overrides nothing; a tool of its name stays the tool."""
    registry = registry_with(made("plan", prompt()), made("both", tool(Effect.READ), prompt()))
    for name in ("plan", "both", "fresh"):
        registry.add(made(name, prompt(), doc="Another."), overrides=True)
    tools = catalog_of(registry, surfaces=AS_TOOLS).tools
    assert {name: command.overrides for name, command in tools.items()} == {
        "both": False,
        "plan": True,
        "fresh": True,
    }


# Collisions


def source(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


A_TOOL = made("a_b", tool(Effect.READ), doc="One.")
ROUTED_TOOL = made("routed_tool", tool(Effect.READ), at("a", "b"), doc="Two.")
A_PROMPT = made("a_b", prompt(), doc="Three.")
ROUTED_PROMPT = made("routed_prompt", prompt(), at("a", "b"), doc="Four.")
A_RESOURCE = made("read_one", resource("x://one"), at("a", "b"), doc="Five.")
SAME_ADDRESS = made("read_other", resource("x://one"), doc="Six.")


@resource("x://two/{name}")
def by_name(name: str) -> str:
    """Seven."""
    return name


@resource("x://two/{number}")
def by_number(number: int) -> str:
    """Eight."""
    return str(number)


@resource("coretools://a_b")
def at_promoted() -> str:
    """Nine."""
    return ""


@pytest.mark.parametrize(
    ("first", "second", "surfaces"),
    [
        pytest.param(A_TOOL, ROUTED_TOOL, None, id="tool-tool"),
        pytest.param(A_PROMPT, ROUTED_PROMPT, None, id="prompt-prompt"),
        pytest.param(A_RESOURCE, SAME_ADDRESS, None, id="resource-resource"),
        pytest.param(by_name, by_number, None, id="template-template"),
        pytest.param(A_TOOL, A_RESOURCE, AS_TOOLS, id="tool-resource-as-tool"),
        pytest.param(A_TOOL, ROUTED_PROMPT, AS_TOOLS, id="tool-prompt-as-tool"),
        pytest.param(A_RESOURCE, A_PROMPT, AS_TOOLS, id="resource-as-tool-prompt-as-tool"),
        pytest.param(at_promoted, A_TOOL, PROMOTED, id="resource-promoted-tool"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_two_commands_of_one_name_or_uri_fail_with_both_sources_named(
    first: Any, second: Any, surfaces: Surfaces | None, turned: bool
) -> None:
    """catalog-6: whatever gives them the name, and in any order."""
    registry = registry_with(*([second, first] if turned else [first, second]))
    with pytest.raises(BadSetting) as caught:
        catalog_of(registry, surfaces=surfaces)
    assert source(first) in str(caught.value)
    assert source(second) in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(A_TOOL, ROUTED_PROMPT, id="tool-prompt"),
        pytest.param(A_TOOL, A_RESOURCE, id="tool-resource"),
        pytest.param(A_RESOURCE, A_PROMPT, id="resource-prompt"),
    ],
)
def test_lists_of_different_kinds_do_not_collide(first: Any, second: Any) -> None:
    """catalog-6: a tool and a prompt may have one name if neither becomes the other."""
    catalog_of(registry_with(first, second)) if first.__name__ != "read_one" else catalog_of(
        registry_with(second, first)
    )


def test_one_route_is_one_command() -> None:
    """catalog-6: refused when it is added; the same function again changes nothing."""
    registry = registry_with(A_TOOL)
    before = registry.version
    assert registry.add(A_TOOL) is A_TOOL
    assert registry.version == before
    with pytest.raises(BadSetting) as caught:
        registry.add(made("a_b", tool(Effect.READ), doc="Another."))
    assert "a_b" in str(caught.value)


def test_an_overriding_prompt_replaces_the_other() -> None:
    """catalog-6: in any order; the tool of the other stays."""
    explicit = made("plan", prompt(), doc="Explicitly.")
    both = made("plan", tool(Effect.READ), prompt(), doc="By itself.")
    for first in (True, False):
        registry = Registry()
        if first:
            registry.add(explicit, overrides=True)
        registry.add(both)
        if not first:
            registry.add(explicit, overrides=True)
        catalog = catalog_of(registry)
        assert catalog.prompt("plan").summary == "Explicitly."
        assert catalog.get("plan").summary == "By itself."


def test_only_a_prompt_may_override() -> None:
    """catalog-6: a tool with an existing name is a collision."""
    with pytest.raises(BadSetting, match="only a prompt can override"):
        Registry().add(A_TOOL, overrides=True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x://{a}", "x://{b}", True),
        ("x://{a}", "x://{+b}", False),
        ("x://y{?a}", "x://y{?b}", False),
        ("x://{a,b}", "x://{c}", False),
    ],
)
def test_templates_are_compared_by_what_they_match(one: str, other: str, same: bool) -> None:
    """catalog-6: names of variables matter only if they are part of the URI."""
    assert (template_shape(one) == template_shape(other)) is same


# Selection


@pytest.fixture
def selected() -> Registry:
    registry = Registry()
    registry.add(made("read_it", tool(Effect.READ)), "files")
    registry.add(made("change_it", tool(Effect.CHANGE)), "files")
    registry.add(made("git_log", tool(Effect.READ), resource("x://log"), prompt()), "git")
    registry.add(made("ci_only", tool(Effect.CHANGE, profiles=("ci",))), "ci")
    return registry


@pytest.mark.parametrize(
    ("selection", "names", "refused", "reason"),
    [
        (Selection(profile="read"), ["read_it", "git_log"], "change_it", "profile read"),
        (Selection(profile="ci"), ["read_it", "git_log", "ci_only"], "change_it", "in profile all and dev, and .* ci"),
        (Selection(profile="dev", without=("ci_*",)), ["read_it", "change_it", "git_log"], "ci_only", "left it out"),
        (Selection(profile="all", read_only=True), ["read_it", "git_log"], "change_it", "read-only"),
        (Selection(profile="all", sets=("git",)), ["git_log"], "read_it", "tool set"),
        (Selection(profile="all", only=("*_it",)), ["read_it", "change_it"], "git_log", "left it out"),
        (Selection(profile="all", without=("git_*", "ci_*")), ["read_it", "change_it"], "git_log", "left it out"),
    ],
)
def test_a_selection_filters_lists_and_calls_alike(
    selected: Registry, selection: Selection, names: list[str], refused: str, reason: str
) -> None:
    """catalog-7: what is left out is refused, with the reason."""
    catalog = catalog_of(selected, selection)
    assert list(catalog.tools) == names
    with pytest.raises(UnknownTool, match=reason):
        catalog.get(refused)
    assert ("x://log" in catalog.resources) == ("git_log" in names) == ("git_log" in catalog.prompts)


UNLISTED: tuple[tuple[Selection, dict[str, bool]], ...] = (
    (Selection(profile="read"), {"rare_read": True, "rare_change": False, "ci_only": False}),
    (Selection(profile="ci"), {"rare_read": True, "rare_change": False}),
    (Selection(profile="dev"), {"rare_read": True, "rare_change": True, "ci_only": True}),
    (Selection(profile="dev", read_only=True), {"rare_read": True, "rare_change": False, "ci_only": False}),
    (Selection(profile="dev", without=("rare_*",)), {"rare_read": False, "rare_change": False, "ci_only": True}),
    (Selection(profile="dev", sets=("files",)), {"rare_read": False, "rare_change": False, "ci_only": False}),
)


@pytest.mark.parametrize(("selection", "is_callable"), UNLISTED, ids=lambda value: str(value)[:60])
def test_a_tool_outside_the_list_can_be_called_if_the_profile_permits_its_effect(
    selected: Registry, selection: Selection, is_callable: dict[str, bool]
) -> None:
    """catalog-7: the list is what a model reads; rights and the operator's patterns decide about calls."""
    selected.add(made("rare_read", tool(Effect.READ, profiles=("all",)), resource("x://rare")), "rare")
    selected.add(made("rare_change", tool(Effect.CHANGE, profiles=("all",))), "rare")
    catalog = catalog_of(selected, selection)
    for name, expected in is_callable.items():
        assert name not in catalog.tools
        assert (catalog.find(name) is not None) == expected, name
        assert (name in catalog.withheld) != expected, name
        if expected:
            assert catalog.get(name) in catalog.commands
    assert "x://rare" not in catalog.resources


@pytest.mark.parametrize("decorator", [channels("command-line", "repl"), hidden], ids=["for people", "hidden"])
def test_a_hidden_command_is_on_no_surface(decorator: Function) -> None:
    """catalog-8: neither listed nor callable for agents, not even as a fallback; and not mentioned."""
    one = made("secret", tool(Effect.READ), resource("x://secret"), prompt(), decorator)
    registry = registry_with(one)
    for surfaces in (None, PROMOTED, AS_TOOLS):
        catalog = catalog_of(registry, surfaces=surfaces)
        assert catalog.commands == ()
        with pytest.raises(UnknownTool, match="unknown tool"):
            catalog.get("secret")
    assert [command.name for command in registry] == ["secret"]


# Merging and removing


def test_a_merged_registry_brings_its_contexts() -> None:
    """catalog-10: ours stay first."""
    ours = registry_with(made("a_one", tool(Effect.READ), at("a", "one")))
    theirs = Registry()
    theirs.context("b", summary="Theirs").add(made("b_two", tool(Effect.READ)))
    ours.merge(theirs)
    assert list(catalog_of(ours).tools) == ["a_one", "b_two"]
    assert [context.summary for context in ours.contexts] == ["Theirs"]


def test_a_merge_that_collides_adds_nothing() -> None:
    """catalog-10: both sources are named; none of its commands is added."""
    ours = registry_with(made("taken", tool(Effect.READ), doc="Ours."))
    theirs = registry_with(made("fine", tool(Effect.READ)), made("taken", tool(Effect.READ), doc="Theirs."))
    with pytest.raises(BadSetting, match="two commands are named taken"):
        ours.merge(theirs)
    assert [command.name for command in ours] == ["taken"]


def test_merging_the_same_again_changes_nothing() -> None:
    """catalog-10: the same functions are the same commands."""
    ours, theirs = registry_with(A_TOOL), registry_with(A_TOOL, SAME_ADDRESS)
    ours.merge(theirs)
    ours.merge(theirs)
    assert [command.name for command in ours] == ["a_b", "read_other"]


def test_removing_an_unknown_command_is_an_error() -> None:
    """catalog-9: by its route."""
    registry = registry_with(A_TOOL)
    with pytest.raises(KeyError, match="no such"):
        registry.remove("no", "such")
    registry.remove("a_b")
    assert list(registry) == []


def test_a_signature_without_a_schema_is_reported_with_its_source() -> None:
    """catalog-9: found before the catalog is replaced, not by the first client that lists."""

    class Odd:
        pass

    def takes_odd(value: Odd) -> str:
        """Take it."""
        return str(value)

    takes_odd.__annotations__ = {"value": Odd, "return": str}
    registry = registry_with()
    command = registry.command_of(registry.add(tool(Effect.READ)(takes_odd)))
    with pytest.raises(BadSetting, match=r"takes_odd: parameter 'value' \(Odd\) has no JSON Schema"):
        command.validate()


def test_messages_and_text_are_results_of_a_prompt() -> None:
    """catalog-14: plain data, created without a protocol."""
    assert Message(Text("x")) == Message(Text("x"), role="user")


def test_hints_name_tools_that_are_not_offered() -> None:
    """catalog-7: a name as in a call; a file of this name is no tool."""
    registry = registry_with(made("git_push", tool(Effect.CHANGE)), made("git_log", tool(Effect.READ)))
    catalog = catalog_of(registry, Selection(profile="all", without=("git_push",)))
    assert "git_push" in catalog.not_offered("Undo: git_push branch='x'")
    assert "git_push" in catalog.not_offered("rejected; see git_push.")
    for hints in ("deleted work/git_push", "M git_push.py", "git_push/x", "git_log", "x-git_push", "my_git_push"):
        assert catalog.not_offered(hints) == "", hints
