"""Syntax errors that a change introduced (docs/specs/filesystem.md, docs/adr/0056)."""

import subprocess
import sys
import time

import pytest

from coretools.errors import EditRefused
from coretools.tools.filesystem.syntax_errors import (
    MAX_BYTES,
    SHOWN_ERRORS,
    introduced_faults,
    refuse_faults,
)
from coretools.tools.grammars import grammar_for, load

VALID = {
    "a.py": 'def f(x):\n    return [x, f"{x!r}"]\n',
    "a.js": "export const f = (x) => {\n  return [x, `${x}`];\n};\n",
    "a.jsx": "export const a = <b c={{d: 1}}>e</b>;\n",
    "a.ts": "export function f<T>(x: T): T[] {\n  return [x];\n}\n",
    "a.tsx": "export const a = <b<string> c={1 as number}>e</b>;\n",
    "a.json": '{"a": [1, 2], "b": null}\n',
    "a.yaml": "a:\n  - b: 1\n    c: [2, 3]\n",
    "a.toml": "[a]\nb = [1, 2]\nc = 'd'\n",
    "a.sh": 'if [ -n "$a" ]; then\n  echo "${a%x}"\nfi\n',
    "a.go": "package a\n\nfunc f(x int) []int {\n\treturn []int{x}\n}\n",
    "a.rs": "fn f<'a>(x: &'a str) -> Vec<&'a str> {\n    vec![x]\n}\n",
    "a.java": "class A {\n  int f(int[] x) {\n    return x[0];\n  }\n}\n",
    "a.css": "a > b {\n  color: red;\n}\n",
    "a.rb": 'def f(x)\n  [x, "#{x}"]\nend\n',
    "a.php": "<?php\nfunction f($x) {\n  return [$x];\n}\n",
    "a.cs": "class A {\n  int F(int[] x) {\n    return x[0];\n  }\n}\n",
}


@pytest.mark.parametrize("name", VALID)
def test_a_missing_bracket_is_reported_and_the_text_before_is_not(name: str) -> None:
    """filesystem-50: every language that has a grammar, in the extra `code` too."""
    text = VALID[name]
    closing = "end" if name.endswith(".rb") else "fi" if name.endswith(".sh") else "]" if "]" in text else "}"
    if name.endswith("x"):
        closing = "</b>"
    broken = closing.join(text.split(closing)[:-1]) + text.split(closing)[-1]
    assert introduced_faults(name, None, text).facts()["syntax_errors"] == 0
    check = introduced_faults(name, text, broken)
    assert check.faults
    assert all(fault.text in broken for fault in check.faults)


def test_the_report_names_line_and_text() -> None:
    """filesystem-50."""
    before = "def f():\n    if x:\n        return 1\n"
    check = introduced_faults("a.py", before, before.replace("if x:", "if x"))
    assert [(fault.line, fault.text) for fault in check.faults] == [(2, "if x")]
    assert check.note("a.py") == ("[a.py: this introduced a syntax error (python):]\nline 2: not valid here: if x")
    assert "would introduce" in check.note("a.py", would=True)


def test_a_missing_token_is_named() -> None:
    """filesystem-50."""
    before = "function f() {\n  return 1;\n}\n"
    (fault,) = introduced_faults("a.js", before, before.removesuffix("}\n")).faults
    assert str(fault).startswith("line 3: missing `}`") or "missing `}`" in str(fault)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x = (\ny = 1\n", "x = (\ny = 2\n", id="the old error is still there"),
        pytest.param("x = (\ny = 1\n", "z = 0\nx = (\ny = 1\n", id="it moved"),
        pytest.param("a b\nc d\n", "a b\n", id="one of two is gone"),
        pytest.param("a b\n", "c d\n", id="as many as before: it is not known which"),
        pytest.param('print "a"\nexec "b"\n', 'print "a", 1\nexec "b"\nraise E, "x"\n', id="Python 2"),
    ],
)
def test_old_errors_are_not_reported(before: str, after: str) -> None:
    """filesystem-50: only what the change added."""
    assert introduced_faults("a.py", before, after).faults == ()


def test_a_new_error_beside_an_old_one_is_reported_alone() -> None:
    """filesystem-50."""
    before = "a b\n" + "x = 1\n" * 5
    (fault,) = introduced_faults("a.py", before, before + "def f(:\n    pass\n").faults
    assert fault.line == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("a.html.j2", "<b>{% if %}", id="template by its name"),
        pytest.param("chart/a.yaml", "{{- if .x }}\na: b\n{{- end }}\n", id="Helm"),
        pytest.param("a.py", "{% if x %}\nimport a\n{% endif %}\n", id="Python template"),
        pytest.param("tsconfig.json", '{\n  // comment\n  "a": [1, 2,],\n}\n', id="JSON with comments"),
        pytest.param("a.jsonc", '{/* a */ "a": 1,}\n', id="jsonc"),
        pytest.param("a.h", "EXPORT(int) f(void) NOEXCEPT\n", id="C, which is not checked"),
        pytest.param("a.txt", "(", id="text"),
        pytest.param("Makefile", "a: (\n", id="no ending"),
        pytest.param("a.sh", "#!/bin/zsh\nfor x (a b) { echo $x }\n", id="another shell"),
    ],
)
def test_what_no_grammar_knows_is_not_reported(name: str, text: str) -> None:
    """filesystem-50: templates, JSON with comments, other languages."""
    assert introduced_faults(name, None, text).faults == ()


def test_a_script_without_an_ending_is_known_by_its_first_line() -> None:
    """filesystem-50."""
    assert introduced_faults("tool", None, "#!/usr/bin/env python3\nx = (\n").faults
    assert introduced_faults("tool", None, "#!/bin/sh\nif\n").facts()["syntax"] == "bash"


def test_many_errors_are_counted() -> None:
    """filesystem-50."""
    check = introduced_faults("a.py", "", "def f(:\n    pass\n\n" * 50)
    assert len(check.faults) > SHOWN_ERRORS
    assert check.note("a.py").endswith(f"and {len(check.faults) - SHOWN_ERRORS} more")


def test_a_text_that_is_too_large_is_only_a_fact() -> None:
    """filesystem-50."""
    check = introduced_faults("a.json", None, "[" * (2 * MAX_BYTES + 1))
    assert check.facts() == {"syntax": "json", "syntax_unchecked": "too large"}
    assert check.note("a.json") == ""


def test_a_text_that_takes_too_long_is_only_a_fact() -> None:
    """filesystem-50: hostile text ends at the deadline."""
    started = time.process_time()
    check = introduced_faults("a.js", None, "`${" * 300_000)
    assert time.process_time() - started < 10
    assert check.unchecked in ("took too long", "")


def test_every_default_grammar_is_installed() -> None:
    """filesystem-50: nothing is downloaded when the first file is edited."""
    for name in VALID:
        grammar = grammar_for(name, "")
        assert grammar is not None
        assert load(grammar) is not None


def test_nothing_is_loaded_before_it_is_needed() -> None:
    """filesystem-50: the tools are imported at every start."""
    code = (
        "import sys, coretools.tools.filesystem.tools; "
        "assert not [name for name in sys.modules if name.startswith('tree_sitter')]; "
        "from coretools.tools.filesystem.syntax_errors import introduced_faults; "
        "introduced_faults('a.py', None, 'a'); "
        "print(sorted(name for name in sys.modules if name.startswith('tree_sitter_') and '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['tree_sitter_python']\n"


def test_the_operator_can_have_them_refused() -> None:
    """filesystem-51."""
    refuse_faults(introduced_faults("a.py", "x = 1\n", "x = 2\n"), "a.py")
    with pytest.raises(EditRefused, match="operator") as caught:
        refuse_faults(introduced_faults("a.py", "x = 1\n", "x = (\n"), "a.py")
    assert "line 1: not valid here: x = (" in str(caught.value)
