"""JSON values as they are sent."""

import json

import pytest

from coretools.operations.content import compact_json, escape_surrogates


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"é": ["a\n", 1, None, True]}, {"é": ["a\n", 1, None, True]}),
        ({"a\udcff": ["é\udc80", {"x": "\ud800"}]}, {"a\\udcff": ["é\\udc80", {"x": "\\ud800"}]}),
        ("\udc80", "\\udc80"),
    ],
)
def test_lone_surrogates_are_escaped_and_nothing_else(value: object, sent: object) -> None:
    """Names of files may contain them. The size of a value is that of the text which is sent."""
    assert escape_surrogates(value) == sent
    assert compact_json(value) == json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
