"""Which commands the policy file leaves, and on which surfaces (docs/specs/policy.md)."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from coretools.app.assembly import open_assembly
from coretools.config.operator_policy import CatalogPolicy, OperatorPolicy
from coretools.config.settings import PROFILES, Settings
from coretools.errors import BadSetting
from coretools.operations.declare import Effect
from coretools.operations.registry import Registry
from coretools.protocol.server import ServerOptions, build_server
from tests.protocol.peer import peer

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@asynccontextmanager
async def serving(directory: Path, mode: str, policy: CatalogPolicy, profile: str = "dev") -> AsyncIterator[Client]:
    settings = Settings(roots=(str(directory),), profile=profile, policy=OperatorPolicy(catalog=policy))
    with anyio.fail_after(60):
        async with open_assembly(settings, dict(os.environ)) as built:
            server = build_server(built.catalog, built.dispatcher, built.identity, ServerOptions(runs=built.resources))
            async with Client(server, mode=mode) as client:
                yield client


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def test_each_profile_lists_its_own_tools(tmp_path: Path) -> None:
    """declarations-7: `read` changes nothing, `ci` builds, tests and restores, `dev` also runs commands.

    catalog-7: a tool that is not listed can be called if the profile permits its effect; the error for another names
    the profiles that have it.
    """
    found = {}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    (tmp_path / "kept.txt").write_text("kept\n")
    for words in (["init", "--quiet", "--initial-branch=main"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        await anyio.run_process([*git, *words])
    for profile in PROFILES:
        async with serving(tmp_path, "auto", CatalogPolicy(), profile) as client:
            found[profile] = await names(client)
            read_only = [tool.name for tool in (await client.list_tools()).tools if _reads(tool)]
            if profile == "ci":
                with pytest.raises(MCPError, match="run_command is not offered here: it is in profile all and dev"):
                    await client.call_tool("run_command", {"command": "true"})
                with pytest.raises(MCPError, match=r"git_worktree\? It is not offered here: it is in profile all"):
                    await client.call_tool("git_worktre", {})
            if profile in ("dev", "all"):
                done = await client.call_tool("git_switch", {"branch": f"for-{profile}", "create": True})
                assert isinstance(done.content[0], types.TextContent)
                (undo,) = done.content[0].text.splitlines()[1:]
                assert "git_branch action='delete'" in undo
                await client.call_tool("git_switch", {"branch": "main"})
                gone = await client.call_tool("git_branch", {"action": "delete", "name": f"for-{profile}"})
                assert not gone.is_error
            for name in ("git_current_branch", "git_blame", "list_directory", "list_runs"):
                called = await client.call_tool(name, {"path": "kept.txt"} if name == "git_blame" else {})
                assert not called.is_error, (profile, called)
    building = ["ci_build", "ci_test", "ci_restore"]
    # Of the tools that only read, these are in larger profiles: about runs, conflicts, and rare questions about git;
    # the last four do what another one does too.
    working = ["wait_run", "read_run", "git_conflicts"]
    rare = ["git_trust_report", "git_blame", "git_reflog", "list_runs"]
    rare += ["list_directory", "file_exists", "directory_exists", "git_current_branch"]
    assert found["read"] == [name for name in read_only if name not in (*working, *rare)]
    assert found["ci"] == [name for name in found["all"] if name in found["read"] or name in building]
    # run_command does what these do, where there is one.
    replaced = {"git_branches", "ci_build"}
    assert set(found["dev"]) > {*found["ci"], "edit_file", "git_commit", "run_command", "stop_run", *working} - replaced
    assert set(found["all"]) >= {*found["dev"], *rare, *replaced}
    assert set(found["dev"]).isdisjoint({*rare, *replaced})


async def test_an_answer_says_that_a_tool_it_names_is_not_offered(tmp_path: Path) -> None:
    """catalog-7: where neither the list nor a call has it."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "first"]):
        await anyio.run_process([*git, *words])
    async with serving(tmp_path, "auto", CatalogPolicy(without=("git_branch",))) as client:
        done = await client.call_tool("git_switch", {"branch": "one", "create": True})
    assert isinstance(done.content[0], types.TextContent)
    undo, note = done.content[0].text.splitlines()[1:]
    assert "git_branch action='delete'" in undo
    assert note == "[not offered here: git_branch: the operator left it out; git in run_command may do instead]"


def _reads(tool: types.Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True


@ERAS
async def test_the_file_removes_from_lists_and_calls(tmp_path: Path, mode: str) -> None:
    """policy-19, catalog-7: by set, by name, and by pattern; a removed command cannot be called."""
    policy = CatalogPolicy(sets=("filesystem", "search"), only=("*_file", "search_*"), without=("delete_*",))
    async with serving(tmp_path, mode, policy) as client:
        assert await names(client) == ["read_file", "write_file", "edit_file", "search_text", "search_files"]
        for name in ("delete_file", "git_status", "list_directory"):
            with pytest.raises(MCPError, match="is not offered here"):
                await client.call_tool(name, {"path": "x"})


@ERAS
async def test_the_file_turns_surfaces_on(tmp_path: Path, mode: str) -> None:
    """policy-19, catalog-5: our own reading tools as resources, and our own resource as a tool."""
    (tmp_path / "a.txt").write_text("hello\n")
    policy = CatalogPolicy(promote_read_only=True, resources_as_tools=True)
    async with serving(tmp_path, mode, policy, "all") as client:
        assert "file" in await names(client)
        result = await client.call_tool("file", {"path": "a.txt"})
        assert not result.is_error
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        assert "coretools://files/{+path}" in templates
        (promoted,) = (one for one in templates if one.startswith("coretools://file_exists"))
        (contents,) = (await client.read_resource(promoted.replace("{path}", "a.txt"))).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text
    async with serving(tmp_path, mode, CatalogPolicy()) as client:
        assert "file" not in await names(client)
        assert promoted not in [one.uri_template for one in (await client.list_resource_templates()).resource_templates]


@ERAS
@pytest.mark.parametrize("pattern", ["read_file", "read_*"])
async def test_an_excluded_tool_removes_its_equivalents(tmp_path: Path, mode: str, pattern: str) -> None:
    """policy-19: without read_file no other surface has a file's content, and no completion its name."""
    (tmp_path / "a.txt").write_text("hello\n")
    left_out = (pattern, "read_run", "delete_file")
    policy = CatalogPolicy(without=left_out, promote_read_only=True, resources_as_tools=True)
    async with serving(tmp_path, mode, policy, "all") as client:
        assert not {"file", "read_file", "delete_file", "delete_directory"} & set(await names(client))
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        assert [one for one in templates if one.startswith("coretools://file")] == ["coretools://file_exists/{path}"], (
            templates
        )
        for address in ("coretools://files/a.txt", "coretools://file/a.txt", "coretools://read_file/a.txt"):
            with pytest.raises(MCPError):
                await client.read_resource(address)
        reference = types.ResourceTemplateReference(type="ref/resource", uri="coretools://files/{+path}")
        with pytest.raises(MCPError):
            await client.complete(reference, {"name": "path", "value": "a"})
        with pytest.raises(MCPError, match="left out read_file, which does the same"):
            await client.call_tool("file", {"path": "a.txt"})


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            CatalogPolicy(sets=("gti",)),
            r"\[catalog\] sets holds the unknown tool set 'gti'; choose from ci, code, commands",
        ),
        (CatalogPolicy(only=("git_*", "red_file")), r"\[catalog\] only holds 'red_file', which matches no command"),
        (CatalogPolicy(without=("delete_fil",)), r"\[catalog\] without holds 'delete_fil', which matches no command"),
    ],
)
async def test_a_pattern_that_matches_nothing_ends_the_start(
    tmp_path: Path, policy: CatalogPolicy, expected: str
) -> None:
    """policy-19: a typing error would leave a command available."""
    with pytest.raises(BadSetting, match=expected):
        async with serving(tmp_path, "auto", policy):
            pass


async def test_commands_of_other_registries_are_filtered_too(tmp_path: Path) -> None:
    """policy-19: their names are known when the file is validated."""
    other = Registry()
    settings = Settings(roots=(str(tmp_path),), policy=OperatorPolicy(catalog=CatalogPolicy(without=("theirs",))))

    @other.tool(Effect.READ)
    def theirs() -> str:
        """Theirs."""
        return ""

    async with open_assembly(settings, dict(os.environ), [other]) as built:
        assert "read_file" in built.catalog.current.tools
        assert "theirs" not in built.catalog.current.tools


def test_a_stdio_server_reads_it(tmp_path: Path) -> None:
    """policy-19: a real file, a real process."""
    root = tmp_path / "root"
    root.mkdir()
    file = tmp_path / "policy.toml"
    file.write_text('[catalog]\nonly = ["git_[slb]*"]\nwithout = ["git_stash", "git_switch"]\n')
    file.chmod(0o600)
    with peer(root, "--policy", file, "--profile", "read") as client:
        client.start_session()
        listed = client.answer(client.send("tools/list"))["result"]["tools"]
        assert [one["name"] for one in listed] == ["git_status", "git_log", "git_branches", "git_show"]
        assert client.end() == 0
