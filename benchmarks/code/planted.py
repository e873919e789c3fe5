"""A function planted in a checkout, whose references are known on two branches and after changes of other programs."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

Place = tuple[str, int]
"""A file, relative to the checkout, and a line from 1."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A function planted in a checkout, with the places that use it on two branches and after two changes."""

    path: str
    name: str
    after: Mapping[str, set[Place]]


def plant(top: Path, language: str, directory: str) -> Planted:
    """Commit a planted function on the branch `planted`, and other uses of it on the branch `other`."""
    ending, head, use = {
        "Python": ("py", "from .planted_one import planted_call\n", "\n\ndef {0}():\n    return planted_call()\n"),
        "TypeScript": (
            "ts",
            'import {{ planted_call }} from "./planted_one";\n',
            "\n\nexport function {0}() {{\n  return planted_call();\n}}\n",
        ),
    }[language]
    head = head.format()
    body = {
        "Python": "def planted_call():\n    return 1\n",
        "TypeScript": "export function planted_call() { return 1 }\n",
    }
    where = top / directory
    one, two, three, four = (f"{directory}/planted_{name}.{ending}" for name in ("one", "two", "three", "four"))

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=top, check=True)

    git("checkout", "-q", "-b", "planted")
    (where / f"planted_one.{ending}").write_text(body[language])
    (where / f"planted_two.{ending}").write_text(head + use.format("first"))
    (where / f"planted_three.{ending}").write_text(head + use.format("second"))
    git("add", directory)
    git("commit", "-q", "-m", "planted")
    git("checkout", "-q", "-b", "other")
    git("rm", "-q", three)
    (where / f"planted_two.{ending}").write_text("\n\n\n" + head + use.format("first"))  # three lines lower
    (where / f"planted_four.{ending}").write_text(head + use.format("third"))
    git("add", directory)
    git("commit", "-q", "-m", "other")
    git("checkout", "-q", "planted")
    start = {(one, 1)}
    before = {*start, (two, 1), (two, 5), (three, 1), (three, 5)}
    other = {*start, (two, 4), (two, 8), (four, 1), (four, 5)}
    edited = {*other, (four, 9 if ending == "py" else 10)}
    return Planted(
        one,
        "planted_call",
        {"before": before, "checkout": other, "edit": edited, "deletion": {p for p in edited if p[0] != two}},
    )


def changes(top: Path, planted: Planted, language: str) -> Iterable[tuple[str, Callable[[], object]]]:
    """What another program does to the checkout, by the name of its question."""
    ending = Path(planted.path).suffix
    four = (top / planted.path).parent / f"planted_four{ending}"
    more = {
        "Python": "\n\ndef again():\n    return planted_call()\n",
        "TypeScript": "\n\nexport function again() {\n  return planted_call();\n}\n",
    }
    yield "before", lambda: None
    yield "checkout", lambda: subprocess.run(["git", "checkout", "-q", "other"], cwd=top, check=True)
    yield "edit", lambda: four.write_text(four.read_text() + more[language])
    yield "deletion", (top / planted.path).with_name(f"planted_two{ending}").unlink
