"""Which server a file gets, and which directory is its project (docs/specs/language-servers.md)."""

from pathlib import Path

import pytest

from coretools.language_servers.find import find_server, servers_by_language
from coretools.roots.root import Root, RootedPath


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def root_at(path: Path) -> Root:
    return Root(name="root", path=str(path), writable=True, fd=-1, identity=(0, 0))


def test_a_link_to_rustup_is_no_server_before_a_toolchain_has_the_component(tmp_path: Path) -> None:
    """language-servers-1: the next one on PATH is, and before there is one doctor says how to get it."""
    rustup = program(tmp_path / ".cargo" / "bin" / "rustup")
    (rustup.parent / "rust-analyzer").symlink_to("rustup")
    toolchain = tmp_path / ".rustup" / "toolchains" / "stable" / "bin"
    program(toolchain / "rustc")
    root = root_at(tmp_path)
    assert any("rustup component add rust-analyzer" in one for one in servers_by_language(root, str(rustup.parent))[1])
    other = program(tmp_path / "usr" / "rust-analyzer")
    found = find_server(RootedPath(root, "a.rs"), f"{rustup.parent}:{other.parent}")
    assert found is not None
    assert found.program == str(other)
    program(toolchain / "rust-analyzer")
    found = find_server(RootedPath(root, "a.rs"), str(rustup.parent))
    assert found is not None
    assert found.program == str(rustup.parent / "rust-analyzer")


@pytest.mark.parametrize(
    ("server", "file", "of_workspace", "of_project"),
    [("rust-analyzer", "a.rs", "Cargo.lock", "Cargo.toml"), ("gopls", "a.go", "go.work", "go.mod")],
)
def test_the_project_of_a_file_in_a_workspace_is_the_workspace(
    tmp_path: Path, server: str, file: str, of_workspace: str, of_project: str
) -> None:
    """language-servers-1: one server for all of its parts, which is told of changes in each."""
    path = str(program(tmp_path / "bin" / server).parent)
    member = tmp_path / "root" / "parts" / "member"
    member.mkdir(parents=True)
    (member / of_project).touch()
    place = RootedPath(root_at(tmp_path / "root"), f"parts/member/{file}")
    alone = find_server(place, path)
    (tmp_path / "root" / of_workspace).touch()
    within = find_server(place, path)
    assert alone is not None
    assert within is not None
    assert (alone.project.relative, within.project.relative) == ("parts/member", ".")
    assert bool(alone.limitation) is (server == "rust-analyzer")
    assert within.limitation == ""
