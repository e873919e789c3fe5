"""Registries of several authors served as one (docs/specs/api.md)."""

import logging
import threading

import pytest

from coretools.config.operator_policy import ToolPolicy
from coretools.errors import BadSetting
from coretools.operations.declare import Effect, prompt, tool
from coretools.operations.registry import Registry, merge_registries


@tool(Effect.READ)
def one() -> str:
    """One."""
    return "1"


@tool(Effect.READ)
def two() -> str:
    """Two."""
    return "2"


@tool(Effect.READ)
def three() -> str:
    """Three."""
    return "3"


def another(name: str) -> object:
    def function() -> str:
        """Another of that name."""
        return ""

    function.__name__ = function.__qualname__ = name
    return tool(Effect.READ)(function)


def of(*functions: object) -> Registry:
    registry = Registry()
    for function in functions:
        registry.add(function)  # type: ignore[arg-type]  # each is a declared function
    return registry


def names(registry: Registry) -> list[str]:
    return [command.name for command in registry]


def test_the_commands_of_all_registries_are_merged_in_order() -> None:
    """api-10: ours first if they are served too, then theirs in the order given."""
    target = of(one)
    assert names(merge_registries(target, [of(two), of(three)])) == ["one", "two", "three"]


def test_two_commands_of_one_name_end_the_start_with_both_sources() -> None:
    """api-10: from any registry; the same function twice is one command."""
    with pytest.raises(BadSetting, match=r"two commands are named one: .*one and .*one"):
        merge_registries(Registry(), [of(one), of(another("one"))])
    assert names(merge_registries(Registry(), [of(one), of(one)])) == ["one"]


def test_later_changes_show_in_the_merged_registry() -> None:
    """api-11: each source stays with its owner."""
    first, second = of(one), of(two)
    whole = merge_registries(Registry(), [first, second])
    versions: list[int] = []
    whole.on_change(lambda: versions.append(whole.version))
    second.add(three)
    assert names(whole) == ["one", "two", "three"]
    second.remove("two")
    assert names(whole) == ["one", "three"]
    first.remove("one")
    second.add(two)
    assert names(whole) == ["three", "two"]
    assert versions


def test_a_later_command_with_a_duplicate_name_is_logged_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """api-11: no command replaces another while a server runs."""
    first, second = of(one), of(two)
    whole = merge_registries(Registry(), [first, second])
    with caplog.at_level(logging.WARNING):
        second.add(another("one"))  # type: ignore[arg-type]  # a declared function
    assert "two commands are named one" in caplog.text
    assert names(whole) == ["one", "two"]
    assert next(iter(whole)).function is one
    second.remove("one")
    second.add(three)
    assert names(whole) == ["one", "two", "three"]


def test_changes_from_many_threads_all_show() -> None:
    """api-11: an owner may use any thread."""
    source = of(one)
    whole = merge_registries(Registry(), [source])

    def change(number: int) -> None:
        for turn in range(10):
            source.add(another(f"n{number}_{turn}"))  # type: ignore[arg-type]  # a declared function
            if turn % 2:
                source.remove(f"n{number}_{turn}")

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names(whole)) == sorted(names(source))
    assert len(names(whole)) == 41


def test_removing_an_overriding_prompt_restores_the_overridden_command() -> None:
    """api-11: a source removes its own commands only."""

    @prompt()
    def hello() -> str:
        """Say hello."""
        return "ours"

    def other() -> str:
        """Say hello otherwise."""
        return "theirs"

    other.__name__ = "hello"
    theirs = Registry()
    theirs.add(prompt()(other), overrides=True)
    whole = merge_registries(of(hello), [theirs])
    assert [command.overrides for command in whole] == [False, True]
    theirs.remove("hello")
    assert [command.overrides for command in whole] == [False]


def test_an_announced_resource_is_announced_by_the_merged_registry() -> None:
    """api-11: subscribers are notified whatever registry the command is from."""
    source = of(one)
    whole = merge_registries(Registry(), [source])
    announced: list[str] = []
    whole.on_announce(announced.append)
    source.announce("notes://1")
    assert announced == ["notes://1"]


def test_the_policy_applies_to_commands_of_other_registries() -> None:
    """api-12: a required confirmation comes before the command."""
    whole = merge_registries(Registry(policy=ToolPolicy(ask=("one",))), [of(one, two)])
    assert [command.declaration.needs_confirmation for command in whole] == [True, False]
