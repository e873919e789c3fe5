"""Patches are read and applied exactly (docs/specs/filesystem.md)."""

import random
import subprocess
from pathlib import Path

import pytest

from coretools.errors import CoreError, EditRefused, InvalidArguments, Unsupported
from coretools.tools.filesystem.apply_hunks import apply_hunks
from coretools.tools.filesystem.patches import FilePatch, parse_patch


def applied(text: str, patch: str) -> str:
    (one,) = parse_patch(patch)
    return apply_hunks(text, one.hunks, display_path="a")[0].text


def marked(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def told(patch: FilePatch) -> tuple[str, str, str | None]:
    return patch.kind, patch.path, patch.new_path


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", [("update", "x", None)], id="unified"),
        pytest.param("--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", [("update", "x", None)], id="without prefixes"),
        pytest.param("--- a/x\t2026-01-01\n+++ b/x\t2026\n@@ -1 +1 @@\n-a\n+b\n", [("update", "x", None)], id="times"),
        pytest.param("--- a/x y\n+++ b/x y\n@@ -1 +1 @@\n-a\n+b\n", [("update", "x y", None)], id="space in the name"),
        pytest.param(
            '--- "a/\\303\\244\\t"\n+++ "b/\\303\\244\\t"\n@@ -1 +1 @@\n-a\n+b\n',
            [("update", "ä\t", None)],
            id="quoted",
        ),
        pytest.param("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", [("add", "x", None)], id="new file"),
        pytest.param("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", [("delete", "x", None)], id="deleted file"),
        pytest.param(
            "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
            [("update", "x", "y")],
            id="rename",
        ),
        pytest.param(
            "diff --git a/e b/e\nnew file mode 100644\nindex 0..e\n"
            "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
            [("add", "e", None), ("update", "x", None)],
            id="an empty new file before another",
        ),
        pytest.param(
            "From 1 Mon\nSubject: x\n\n---\n a | 2 +-\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39\n",
            [("update", "x", None)],
            id="a mail",
        ),
        pytest.param(
            marked("*** Update File: a", "@@", "-x", "+y", "*** Add File: b", "+z", "*** Delete File: c"),
            [("update", "a", None), ("add", "b", None), ("delete", "c", None)],
            id="marked",
        ),
        pytest.param(
            marked("*** Update File: a", "*** Move to: b", "@@", "-x", "+y"), [("update", "a", "b")], id="marked move"
        ),
    ],
)
def test_both_forms_are_read(patch: str, expected: list[tuple[str, str, str | None]]) -> None:
    """filesystem-54."""
    assert [told(one) for one in parse_patch(patch)] == expected
    assert [told(one) for one in parse_patch(patch.replace("\n", "\r\n"))] == expected


@pytest.mark.parametrize(
    ("patch", "error", "says"),
    [
        pytest.param("", InvalidArguments, "no file found", id="empty"),
        pytest.param("x = 1\n", InvalidArguments, "no file found", id="no patch"),
        pytest.param("*** Begin Patch\n*** Update File: a\n-x\n", InvalidArguments, "ends without", id="cut off"),
        pytest.param(marked("*** Update File: a"), InvalidArguments, "nothing to change", id="no hunk"),
        pytest.param(marked("*** Update File: a", "@@", "x"), InvalidArguments, "line 4", id="no mark"),
        pytest.param(marked("*** Rename File: a"), InvalidArguments, "line 2", id="unknown section"),
        pytest.param("@@ -1 +1 @@\n-a\n+b\n", InvalidArguments, "before the lines", id="hunk without a file"),
        pytest.param("--- a/x\n+++ b/x\n@@ -a +1 @@\n-a\n", InvalidArguments, "line 3", id="no numbers"),
        pytest.param("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", InvalidArguments, "both", id="no name"),
        pytest.param("diff --git a/x b/x\nGIT binary patch\nliteral 1\n", Unsupported, "binary", id="binary"),
        pytest.param("diff --git a/x b/x\nnew file mode 120000\n", Unsupported, "link", id="link"),
        pytest.param("diff --git a/x b/y\ncopy from x\ncopy to y\n", Unsupported, "copy_path", id="copy"),
        pytest.param("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", InvalidArguments, "mode", id="mode"),
    ],
)
def test_what_is_no_patch_is_refused_with_its_line(patch: str, error: type[CoreError], says: str) -> None:
    """filesystem-54."""
    with pytest.raises(error, match=says):
        parse_patch(patch)


LINES = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.mark.parametrize(
    ("text", "patch", "result"),
    [
        pytest.param("a\nb\nc\n", "--- a\n+++ a\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n", id="at its line"),
        pytest.param("0\na\nb\nc\n", "--- a\n+++ a\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "0\na\nB\nc\n", id="moved"),
        pytest.param("x\nx\nx\n", "--- a\n+++ a\n@@ -2 +2 @@\n-x\n+y\n", "x\ny\nx\n", id="one of many, by its line"),
        pytest.param("a\r\nb\r\n", "--- a\n+++ a\n@@ -1,2 +1,3 @@\n a\n+x\n b\n", "a\r\nx\r\nb\r\n", id="CRLF"),
        pytest.param(
            "a\r\nb\nc\r\n", "--- a\n+++ a\n@@ -1,3 +1,3 @@\n a\n b\n-c\n+C\n", "a\r\nb\nC\r\n", id="mixed endings"
        ),
        pytest.param("a\nb", "--- a\n+++ a\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n", "a\nB", id="no newline stays so"),
        pytest.param("a", "--- a\n+++ a\n@@ -1 +1,2 @@\n a\n+b\n", "a\nb", id="added below a line without a newline"),
        pytest.param(
            "a", "--- a\n+++ a\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n", "a\n", id="newline added"
        ),
        pytest.param(
            "a\n", "--- a\n+++ a\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n", "a", id="newline removed"
        ),
        pytest.param("a\nb", "--- a\n+++ a\n@@ -1,2 +1 @@\n a\n-b\n", "a", id="the last line removed"),
        pytest.param("", "--- a\n+++ a\n@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n", id="an empty file"),
        pytest.param("a\n\nb\n", "--- a\n+++ a\n@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n", id="stripped blank line"),
        pytest.param("a\nb\n", "--- a\n+++ a\n@@ -1,9 +1,9 @@\n a\n-b\n+B\n", "a\nB\n", id="wrong counts"),
        pytest.param("a\nb\n", "--- a\n+++ a\n@@ -1 +1 @@\n a\n-b\n+B\n", "a\nB\n", id="counts too small"),
        pytest.param("-- x\ny\n", "--- a\n+++ a\n@@ -1,2 +1,1 @@\n--- x\n y\n", "y\n", id="a line that begins with --"),
        pytest.param("a\nb\n", marked("*** Update File: a", "-b", "+B"), "a\nB\n", id="marked without @@"),
        pytest.param(
            "def f():\n  x\ndef g():\n  x\n",
            marked("*** Update File: a", "@@ def g():", "-  x", "+  y"),
            "def f():\n  x\ndef g():\n  y\n",
            id="an anchor chooses",
        ),
        pytest.param(
            "class A\n def f\n  x\nclass B\n def f\n  x\n",
            marked("*** Update File: a", "@@ class B", "@@  def f", "-  x", "+  y"),
            "class A\n def f\n  x\nclass B\n def f\n  y\n",
            id="two anchors",
        ),
        pytest.param(
            "x\na\nx\n", marked("*** Update File: a", "@@", "-x", "+y", "*** End of File"), "x\na\ny\n", id="at the end"
        ),
    ],
)
def test_hunks_are_applied(text: str, patch: str, result: str) -> None:
    """filesystem-54."""
    assert applied(text, patch) == result


@pytest.mark.parametrize(
    ("text", "patch", "says"),
    [
        pytest.param("a\nb\n", "--- a\n+++ a\n@@ -1,2 +1,2 @@\n a \n-b\n+B\n", "not in the file", id="white space"),
        pytest.param("a\nb\n", "--- a\n+++ a\n@@ -1,2 +1,2 @@\n c\n-b\n+B\n", "not in the file", id="other context"),
        pytest.param("x\nx\nx\n", "--- a\n+++ a\n@@ -9 +9 @@\n-x\n+y\n", "lines 1, 2, 3", id="several places"),
        pytest.param("x\nx\n", marked("*** Update File: a", "-x", "+y"), "2 times", id="marked, several places"),
        pytest.param("x\nx\n", marked("*** Update File: a", "@@ x", "-x", "+y"), "occurs 2 times", id="anchor twice"),
        pytest.param("x\n", marked("*** Update File: a", "@@ y", "-x", "+y"), "after @@", id="no such anchor"),
        pytest.param("x\n", "--- a\n+++ a\n@@ -1,0 +2 @@\n+y\n", "no line that is in", id="no context"),
        pytest.param("a\nb\n", "--- a\n+++ a\n@@ -2 +2 @@\n-b\n+c\n@@ -1 +1 @@\n-a\n+d\n", "hunk 2", id="out of order"),
        pytest.param(
            "a\nb\n",
            "--- a\n+++ a\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
            "at the end",
            id="not the end",
        ),
    ],
)
def test_a_hunk_that_does_not_fit_exactly_is_refused(text: str, patch: str, says: str) -> None:
    """filesystem-54: no fuzz but the line."""
    with pytest.raises(EditRefused, match=says):
        applied(text, patch)


@pytest.mark.parametrize("seed", range(120))
def test_what_git_diff_writes_gives_the_file_of_git(tmp_path: Path, seed: int) -> None:
    """filesystem-54: random files with all line endings, and random changes; with lines above that shift it."""
    dice = random.Random(seed)
    endings = dice.choice([["\n"], ["\r\n"], ["\n", "\r\n"]])
    lines = [f"{dice.choice('abcdef')}{dice.randrange(40)}{dice.choice(endings)}" for _ in range(dice.randrange(1, 80))]
    changed = list(lines)
    for _ in range(dice.randrange(1, 8)):
        at = dice.randrange(len(changed) + 1)
        changed[at : at + dice.randrange(3)] = [f"new{dice.random()}{dice.choice(endings)}"] * dice.randrange(3)
    before, after = ("".join(one) for one in (lines, changed))
    before, after = (one.rstrip("\r\n") if dice.random() < 0.3 else one for one in (before, after))
    (tmp_path / "before").write_bytes(before.encode())
    (tmp_path / "after").write_bytes(after.encode())
    words = ["git", "diff", "--no-index", "--no-prefix", f"-U{dice.choice([1, 3, 8])}", "before", "after"]
    patch = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).stdout.decode()
    if not patch or not before or not after:
        return
    (one,) = parse_patch(patch)
    assert apply_hunks(before, one.hunks, display_path="a")[0].text == after
