"""Scripts are YAML without its dangers (docs/specs/pipelines.md)."""

import json

import pytest

from coretools.errors import BadSetting
from coretools.pipelines.script import load_script
from coretools.pipelines.yaml_file import MAX_BYTES, parse_yaml

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_values_are_those_of_json_with_their_lines() -> None:
    """pipelines-14: by the core schema of YAML 1.2, so that `no` and dates are text."""
    plain = 'yes, no, 010, 0x1F, -1.5, 1e3, null, ~, true, 2024-01-01, 1_000, "5", 1.2.3'
    text = f"a: &x [{plain}]\nb:\n  - *x\n  - |\n    text\n"
    document = parse_yaml(text.encode(), "f")
    expected = ["yes", "no", 10, 31, -1.5, 1000.0, None, None, True, "2024-01-01", "1_000", "5", "1.2.3"]
    assert document.value == {"a": expected, "b": [expected, "text\n"]}
    assert [document.line_of(path) for path in ((), ("a", 3), ("b",), ("b", 1), ("b", 1, "deeper"))] == [1, 1, 3, 4, 4]
    assert json.dumps(document.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: !!python/object/apply:os.system [id]", "f:1: the tag tag:yaml.org,2002:python/object/apply"),
        ("a:\n  b: !secret x", "f:2: the tag !secret is not accepted"),
        (LAUGHS, "f:5: more than 20000 values, those of aliases included"),
        ("x: &a\n  - *a", "f:2: the alias *a has no anchor before it"),
        ("x: {<<: {a: 1}}", "f:1: merge keys are not accepted"),
        ("a: 1\nb: 2\na: 3", "f:3: 'a' is there twice"),
        ("? [a]\n: 1", "f:1: a key must be text"),
        ("a: .nan", "f:1: .nan has no form in JSON"),
        ("%YAML 1.1\n---\na: yes", "f:2: directives"),
        ("a: 1\n---\nb: 1", "further documents are not accepted"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ("a:\n\t- b", "f:2: not valid YAML"),
        ("a: *b", "has no anchor"),
        ("{" * 5_000, "f:1: more than 500 brackets on one line"),
        ("[\n" * 5_000, "f:33: nested more than 32 levels deep"),
        ("- " * 5_000, "nested more than 32 levels deep"),
        ("-\n" * 30_000, "more than 20000 values"),
        ("#" * (MAX_BYTES + 1), "f: larger than 131072 bytes"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_what_could_harm_is_refused_with_its_line(text: str, reason: str) -> None:
    """pipelines-14: in bounded time."""
    with pytest.raises(BadSetting) as refused:
        parse_yaml(text.encode("utf-8", "surrogateescape"), "f")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a", "f:1: a script is a mapping with `steps`"),
        ("steps: []", "f:1: steps: needs at least one step"),
        ("steps:\n- {server: a, tool: b}\n- server: a\n  toool: b", "f:4: steps[2].toool: unknown key; did you mean"),
        ("steps:\n- server: a", "f:2: steps[1].tool: is missing"),
        ("steps:\n- {server: a, tool: b,\n   timeout: 0}", "f:3: steps[1].timeout: must be above 0"),
        ("steps:\n- {server: a, tool: b, retry: x}", "steps[1].retry: must be a whole number"),
        ("steps:\n- {server: a, tool: b, when: never}", "'never' is not valid; choose"),
        ("steps:\n- {server: a, tool: b, id: 1a}", "steps[1].id: must be"),
        (
            "steps:\n- {server: a, tool: b, id: x}\n- {server: a, tool: b, id: x}",
            "f:3: steps[2]: id 'x' is there twice",
        ),
        ("steps:\n- server: a\n  tool: b\n  arguments: {x: '${{ steps.y.result }}'}", "no earlier step has the id 'y'"),
        ("steps:\n- {server: a, tool: b, if: $.vars.x == 1}", "no variable 'x'"),
    ],
)
def test_a_script_with_a_mistake_is_refused_with_its_line(text: str, reason: str) -> None:
    """pipelines-15"""
    with pytest.raises(BadSetting) as refused:
        load_script(text.encode(), "f")
    assert reason in str(refused.value)
