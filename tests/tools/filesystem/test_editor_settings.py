"""Settings that editors and agents act on: file tools and commands treat them alike (filesystem-39, confinement-6)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coretools.config.settings import Limits
from coretools.errors import CoreError, DeniedPath
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.tools import FilesystemTools

Call = Callable[[FilesystemTools], object]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FilesystemTools]:
    for top in ("root", "root/inner"):
        (tmp_path / top / ".vscode" / "more").mkdir(parents=True)
        (tmp_path / top / ".vscode" / "tasks.json").write_text("{}")
        (tmp_path / top / ".mcp.json").write_text("{}")
    (tmp_path / "root" / "link").symlink_to(".vscode")
    (tmp_path / "root" / "alias").symlink_to(".mcp.json")
    (tmp_path / "root" / "kit").mkdir()
    (tmp_path / "root" / "kit" / "devcontainer.json").write_text("{}")
    (tmp_path / "root" / "f").write_text("{}")
    with Roots(
        [RootSpec(str(tmp_path / name)) for name in ("root", "root/inner")], deny=DenyRules(DEFAULT_DENY)
    ) as opened:
        yield FilesystemTools(opened, Limits())


def state(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(root.rglob("*"))}


CHANGES: dict[str, Call] = {
    "replace": lambda files: files.write_file(".mcp.json", "x"),
    "through a link": lambda files: files.write_file("alias", "x"),
    "through a linked directory": lambda files: files.write_file("link/tasks.json", "x"),
    "by ..": lambda files: files.write_file("kit/../.vscode/tasks.json", "x"),
    "in an inner root": lambda files: files.write_file("inner/.vscode/tasks.json", "x"),
    "add": lambda files: files.write_file(".vscode/launch.json", "x"),
    "add below": lambda files: files.write_file(".vscode/more/x/y", "x", create_parents=True),
    "edit": lambda files: files.edit_file(".vscode/tasks.json", [Edit(old="{}", new="x")]),
    "delete": lambda files: files.delete_file(".mcp.json"),
    "delete whole": lambda files: files.delete_directory(".vscode"),
    "delete a part": lambda files: files.delete_directory(".vscode/more"),
    "make a directory": lambda files: files.create_directory(".vscode/new"),
    "move away": lambda files: files.move_path(".vscode", "old"),
    "move in": lambda files: files.move_path("f", ".vscode/launch.json"),
    "move over": lambda files: files.move_path("f", ".mcp.json", overwrite=True),
    "move out": lambda files: files.move_path(".vscode/tasks.json", "tasks.json"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_are_there_stay_as_they_are(files: FilesystemTools, tmp_path: Path, name: str) -> None:
    """filesystem-39: no tool, link or detour changes them; the error says what would work."""
    before = state(tmp_path)
    with pytest.raises(DeniedPath, match="file tools change nothing that is there; ask the user"):
        CHANGES[name](files)
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (".devcontainer", lambda files: files.move_path("kit", ".devcontainer")),
        (".claude", lambda files: files.write_file(".claude/settings.json", "{}", create_parents=True)),
        (".cursor", lambda files: files.create_directory(".cursor/rules")),
        (".kiro", lambda files: files.write_file("inner/.kiro", "{}")),
        (".CODEX", lambda files: files.write_file(".CODEX", "{}")),
    ],
)
def test_missing_settings_can_be_created_and_the_answer_reports_it(
    files: FilesystemTools, name: str, call: Callable[[FilesystemTools], object]
) -> None:
    """filesystem-39: like the result of a command."""
    assert f"editors and agents act on {name} when they open the root" in str(call(files))


def test_what_only_looks_like_settings_is_a_file_like_any_other(files: FilesystemTools) -> None:
    """filesystem-39: in deeper directories, and with other names; reading and a dry run too."""
    for path in ("kit/.vscode/tasks.json", ".vscodium/x", "a.mcp.json", "mcp.json"):
        assert "editors" not in str(files.write_file(path, "x", create_parents=True))
    assert files.read_file(".vscode/tasks.json").content == "{}"
    assert files.edit_file(".vscode/tasks.json", [Edit(old="{}", new="[]")], dry_run=True).replaced == 1
    with pytest.raises(CoreError):
        files.read_file(".vscode/none")
