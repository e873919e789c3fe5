"""The symbols of source files, by syntax (docs/specs/code.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from coretools.tools.definitions import DEFINITIONS
from coretools.tools.outline import MAX_BYTES, outline_of

SOURCES = Path(__file__).parents[2] / "coretools"

FILES = {
    "a.js": """
export class A extends B {
  x = 1;
  #p() {}
  static s() { const local = 1; return () => local; }
}
export const f = (a) => a, K = 2;
function* gen() { function inner() {} }
""",
    "a.ts": """
export abstract class A<T> implements I { abstract q(): void; private g = () => 1; f(a: number): string { return "" } }
interface I { m(): void }
type T = string;
enum E { X }
namespace N { export function z() {} }
declare function d(): void;
""",
    "a.tsx": "export const Button = ({ a }: Props) => <b>{a}</b>;\nexport default function Page() { return <p/>; }\n",
    "a.go": """package p
type A[T any] struct { x int }
type I interface { M() int }
func (a *A[T]) f(x int) int { y := x; return y }
func g() {}
const K = 1
var V = 2
""",
    "a.rs": """
struct A<T> { x: T }
impl<T> A<T> { pub fn f(&self) { let local = 1; } }
impl Tr for A<i32> { fn g(&self) {} }
trait Tr { fn g(&self); }
enum E { X }
mod m { pub fn h() {} }
const K: i32 = 1;
macro_rules! mm { () => {} }
""",
    "A.java": """
package p;
public class A { int x = 1; A() {} int f(int a) { int local = a; return local; } enum E { X } interface I { void m(); }
record R(int a) {} }
""",
    "a.sh": "#!/bin/sh\nf() { local x=1; }\nfunction g { :; }\n",
    "a.rb": """
module M
  class A < B
    K = 1
    def f(a)
      local = 1
    end
    def self.g; end
    class << self
      def h; end
    end
  end
end
""",
    "a.php": "<?php\nnamespace N;\nclass A { const K = 1; function f(int $a) {} }\ntrait T {}\nfunction g() {}\n",
    "a.cs": """
namespace N { class A { int P { get; set; } A() {} int F(int a) { return a; } } interface I { void M(); } }
""",
    "a.c": """
struct s { int a; };
struct s *global;
typedef struct { int b; } t;
int *f(int a) { return 0; }
#define M 1
""",
    "a.hpp": """
namespace n { class A { public: int f(int a); }; }
int n::A::f(int a) { return 1; }
template<class T> T g(T x) { return x; }
using U = int;
""",
    "a.kt": """
class A(val x: Int) : B {
    fun f(a: Int): Int = a
    companion object {
        const val Z = 2
    }
}
object O
fun String.ext() = 1
""",
    "a.swift": """
class A { func f(a: Int) -> Int { let local = a; return local } }
extension A { func h() {} }
let q = 2
""",
    "a.scala": "class A(x: Int) { def f(a: Int): Int = a }\nobject O\ntrait T { def g(): Int }\n",
    "a.lua": "local function a() end\nfunction M.b() end\nfunction M:c() end\n",
}

SYMBOLS = {
    "a.js": "A A.x A.#p A.s f K gen gen.inner",
    "a.ts": "A A.q A.g A.f I I.m T E N N.z d",
    "a.tsx": "Button Page",
    "a.go": "A I I.M A.f g K V",
    "a.rs": "A A.f A.g Tr Tr.g E m m.h K mm",
    "A.java": "A A.x A.A A.f A.E A.I A.I.m A.R",
    "a.sh": "f g",
    "a.rb": "M M.A M.A.K M.A.f M.A.g M.A.h",
    "a.php": "A A.K A.f T g",
    "a.cs": "N.A N.A.P N.A.A N.A.F N.I N.I.M",
    "a.c": "s t f M",
    "a.hpp": "n.A n.A.f g U",
    "a.kt": "A A.f A.Z O ext",
    "a.swift": "A A.f A A.h q",
    "a.scala": "A A.f O T T.g",
    "a.lua": "a M.b M.c",
}


@pytest.mark.parametrize("name", FILES)
def test_each_language_has_its_symbols(name: str) -> None:
    """code-1, code-2: nested ones with what they are in, and no local variables."""
    outline = outline_of(name, FILES[name])
    assert outline is not None
    if "needs the extra" in outline.problem:
        pytest.skip(outline.problem)
    assert outline.problem == ""
    assert [symbol.path for symbol in outline.symbols] == SYMBOLS[name].split()


def test_every_language_is_tested() -> None:
    """code-1."""
    languages = {outline.language for name, text in FILES.items() if (outline := outline_of(name, text))}
    assert languages | {"python"} == set(DEFINITIONS)


def test_python_files_have_what_its_own_parser_finds() -> None:
    """code-2, code-3: names, first and last lines, in every source file of this project."""
    checked = 0
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        outline = outline_of(path.name, text)
        assert outline is not None
        assert outline.problem == ""
        lines = text.split("\n")
        shown = {
            # Comments at the end of a body belong to it here, and to nothing for `ast`.
            (one.path, one.line, _without_comments(lines, one.end_line))
            for one in outline.symbols
            if one.kind != "variable"
        }
        assert shown == {(*rest, _without_comments(lines, end)) for *rest, end in _defined(ast.parse(text), ())}, path
        checked += len(shown)
    assert checked > 1_000


def _without_comments(lines: list[str], end: int) -> int:
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    return end


def _defined(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here = (*scope, child.name)
            first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
            yield ".".join(here), first, child.end_lineno or 0
            yield from _defined(child, here)
        else:
            yield from _defined(child, scope)


def test_what_is_not_whole_says_so() -> None:
    """code-4, code-5: broken code keeps its other symbols; a file that is too large, or of no known language."""
    broken = outline_of("a.py", "def f():\n    return (\n\nclass A:\n    def g(self): pass\n")
    assert broken is not None
    assert "syntax errors" in broken.problem
    assert "A.g" in {symbol.path for symbol in broken.symbols}
    large = outline_of("a.py", "x = 1\n" * (MAX_BYTES // 6 + 1))
    assert large is not None
    assert large.symbols == ()
    assert "larger than" in large.problem
    assert outline_of("a.txt", "class A:\n") is None
    assert outline_of("a.json", "{}") is None


@pytest.mark.parametrize("text", ["(" * 100_000, "class A:\n" + " " * 100_000, "def f(" * 20_000, "\0\ufffd" * 50_000])
def test_hostile_text_has_an_answer(text: str) -> None:
    """code-5: nested without end, and no code at all."""
    for name in ("a.py", "a.js", "a.go", "a.rs"):
        assert outline_of(name, text) is not None
