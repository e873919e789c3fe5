"""Words of a command line become arguments (docs/specs/client.md)."""

import pytest

from coretools.client.arguments import parse_arguments
from coretools.errors import InvalidArguments

SCHEMA = {
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        "kind": {"enum": ["a", "b"], "type": "string"},
    }
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["path=a=b"], {"path": "a=b"}),
        (["path="], {"path": ""}),
        (["path=5"], {"path": "5"}),
        (["path=null"], {"path": "null"}),
        (["path=@pytest.mark"], {"path": "@pytest.mark"}),
        (["limit=5"], {"limit": 5}),
        (["deep=true"], {"deep": True}),
        (["deep=false"], {"deep": False}),
        (["names=a"], {"names": ["a"]}),
        (["names=a", "names=b"], {"names": ["a", "b"]}),
        (["names:=[]"], {"names": []}),
        (["sizes=1", "sizes=2"], {"sizes": [1, 2]}),
        (['edits={"old":"a"}'], {"edits": [{"old": "a"}]}),
        (['path:="x"'], {"path": "x"}),
        (["unknown=x"], {"unknown": "x"}),
        (["kind=a"], {"kind": "a"}),
    ],
    ids=str,
)
def test_words_become_what_the_schema_asks_for(words: list[str], arguments: dict[str, object]) -> None:
    """client-2: text stays text unless the schema says otherwise."""
    assert parse_arguments(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    "words",
    [
        *(["path"], ["=x"], ["limit=x"], ["deep=yes"], ["path:={"], ["path=a", "path=b"], ["path@=/no/such/file"]),
        pytest.param(["path:=" + "[" * 20_000], id="brackets"),
        pytest.param(["limit=" + "9" * 5_000], id="digits"),
    ],
)
def test_words_that_do_not_fit_are_refused(words: list[str]) -> None:
    """client-2: the sentence names the argument."""
    with pytest.raises(InvalidArguments):
        parse_arguments(words, SCHEMA)
