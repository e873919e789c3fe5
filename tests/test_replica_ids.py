"""Ids of runs and tasks, and the error for those of another replica (docs/specs/replicas.md)."""

import re

import pytest

from coretools.replica_ids import LOCAL_IDS, ReplicaScopedIds

ON_A = ReplicaScopedIds("a-1", frozenset({"a-1", "b", "b-2"}).__contains__)


def test_a_name_has_the_name_of_its_replica() -> None:
    """replicas-14: and no prefix if there is only one process."""
    assert re.fullmatch(r"run-a-1-[0-9a-f]{8}", ON_A.new_id("run", 4))
    assert re.fullmatch(r"task-a-1-[0-9a-f]{32}", ON_A.new_id("task", 16))
    assert re.fullmatch(r"run-[0-9a-f]{8}", LOCAL_IDS.new_id("run", 4))
    assert ON_A.new_id("run", 4) != ON_A.new_id("run", 4)


@pytest.mark.parametrize(
    ("handle", "sentence"),
    [
        ("run-b-00000000", "belongs to replica b, which was alive a moment ago, and this is a-1"),
        ("task-b-2-00000000", "belongs to replica b-2, which was alive a moment ago"),
        ("run-gone-00000000", "belonged to replica gone, which has ended"),
    ],
)
def test_a_name_of_another_replica_is_explained(handle: str, sentence: str) -> None:
    """replicas-14: whether that replica runs or not."""
    assert sentence in ON_A.explain_foreign(handle)


@pytest.mark.parametrize(
    "handle",
    [
        *("", "b", "run--", "run-b", "run-b-", "run-b-xyz", "run-00000000", "run-a-1-00000000", "run-B-00000000"),
        *("\n" * 99, f"run-{'b' * 33}-00000000", "run-b-00000000\n", "run-\u00e9-00000000", "../run-b-00000000"),
    ],
)
def test_any_other_text_is_of_no_replica(handle: str) -> None:
    """replicas-14: whatever text a model sends."""
    assert ON_A.explain_foreign(handle) == ""


def test_a_single_process_knows_no_other_replicas() -> None:
    """replicas-14: such an id is an unknown run there."""
    assert LOCAL_IDS.explain_foreign("run-b-00000000") == ""
