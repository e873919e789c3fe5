"""Settings that editors and agents act on: file tools and commands treat them alike (filesystem-39, confinement-6)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coretools.config.limits import Limits
from coretools.errors import CoreError, DeniedPath
from coretools.roots.hidden_files import DEFAULT_DENY, DenyRules
from coretools.roots.root import RootSpec
from coretools.roots.root_set import Roots
from coretools.tools.filesystem.edits import Edit
from coretools.tools.filesystem.tools import FilesystemTools

Call = Callable[[FilesystemTools], object]


def filled(tmp_path: Path) -> list[RootSpec]:
    """Make two roots, one in the other, and in the outer one a repository and a linked work tree."""
    root = tmp_path / "root"
    for top in ("", "inner", "repository", "deep/tree"):
        (root / top / ".vscode" / "more").mkdir(parents=True)
        (root / top / ".vscode" / "tasks.json").write_text("{}")
        (root / top / ".mcp.json").write_text("{}")
    (root / "repository" / ".git").mkdir()
    (root / "deep" / "tree" / ".git").write_text("gitdir: ../../repository/.git/worktrees/tree\n")
    (root / "link").symlink_to(".vscode")
    (root / "alias").symlink_to(".mcp.json")
    (root / "own" / "zed").mkdir(parents=True)
    (root / "own" / "zed" / "tasks.json").write_text("[]")
    (root / ".zed").symlink_to("own/zed")
    (root / ".github" / "hooks").mkdir(parents=True)
    (root / "all.code-workspace").write_text("{}")
    (root / "kit").mkdir()
    (root / "kit" / "devcontainer.json").write_text("{}")
    (root / "f").write_text("{}")
    return [RootSpec(str(root)), RootSpec(str(root / "inner"))]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FilesystemTools]:
    with Roots(filled(tmp_path), deny=DenyRules(DEFAULT_DENY)) as opened:
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
    "in a repository": lambda files: files.write_file("repository/.vscode/tasks.json", "x"),
    "in a linked work tree": lambda files: files.write_file("deep/tree/.mcp.json", "x"),
    "a workspace": lambda files: files.write_file("all.code-workspace", "x"),
    "where a link leads": lambda files: files.write_file("own/zed/tasks.json", "x"),
    "add where a link leads": lambda files: files.write_file("own/zed/new.json", "x"),
    "through such a link": lambda files: files.write_file(".zed/new.json", "x"),
    "delete the link": lambda files: files.delete_file(".zed"),
    "delete above where it leads": lambda files: files.delete_directory("own"),
    "move above where it leads": lambda files: files.move_path("own", "other"),
    "add to the inner one of two": lambda files: files.write_file(".github/hooks/x.json", "x"),
    "delete the outer one of two": lambda files: files.delete_directory(".github"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_are_there_stay_as_they_are(files: FilesystemTools, tmp_path: Path, name: str) -> None:
    """filesystem-39, editor-settings-2: no tool, link or detour changes them; the error says what would work."""
    before = state(tmp_path)
    with pytest.raises(DeniedPath, match=r"editors and agents act on .*; ask the user .* --allow-editor-settings"):
        CHANGES[name](files)
    assert state(tmp_path) == before


def test_the_operator_can_allow_changes(tmp_path: Path) -> None:
    """editor-settings-7: each of these calls succeeds then."""
    for number, call in enumerate(CHANGES.values()):
        place = tmp_path / str(number)
        with Roots(filled(place), deny=DenyRules(DEFAULT_DENY), changes_settings=True) as opened:
            before = state(place)
            call(FilesystemTools(opened, Limits()))
            assert state(place) != before


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (".devcontainer", lambda files: files.move_path("kit", ".devcontainer")),
        (".claude", lambda files: files.write_file(".claude/settings.json", "{}", create_parents=True)),
        (".cursor", lambda files: files.create_directory(".cursor/rules")),
        ("inner/.kiro", lambda files: files.write_file("inner/.kiro", "{}")),
        (".CODEX", lambda files: files.write_file(".CODEX", "{}")),
        ("repository/.roo", lambda files: files.create_directory("repository/.roo")),
        ("deep/tree/.claude", lambda files: files.move_path("kit", "deep/tree/.claude")),
        (".github/copilot", lambda files: files.create_directory(".github/copilot/x")),
        ("x.code-workspace", lambda files: files.move_path("f", "x.code-workspace")),
    ],
)
def test_missing_settings_can_be_created_and_the_answer_reports_it(
    files: FilesystemTools, name: str, call: Callable[[FilesystemTools], object]
) -> None:
    """filesystem-39, editor-settings-5: like the result of a command."""
    assert f"editors and agents act on {name} when they open the directory" in str(call(files))


def test_what_only_looks_like_settings_is_a_file_like_any_other(files: FilesystemTools) -> None:
    """filesystem-39, editor-settings-1: in deeper directories, and with other names. Reading, a dry run, and deleting a
    repository work."""
    for path in ("kit/.vscode/tasks.json", ".vscodium/x", "a.mcp.json", "mcp.json", ".github/workflows/x", "AGENTS.md"):
        assert "editors" not in str(files.write_file(path, "x", create_parents=True))
    assert files.create_directory(".github").message == ".github was there already"
    assert "deleted" in files.delete_directory("repository", with_repositories=True).message
    assert files.read_file(".vscode/tasks.json").content == "{}"
    assert files.edit_file(".vscode/tasks.json", [Edit(old="{}", new="[]")], dry_run=True).replaced == 1
    with pytest.raises(CoreError):
        files.read_file(".vscode/none")
