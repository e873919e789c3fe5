"""`completion/complete` for prompts and templates, with the SDK's client in both eras (docs/specs/completion.md)."""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError

from coretools.app.assembly import open_assembly
from coretools.config.settings import Settings
from coretools.operations.catalog import Selection, Surfaces
from coretools.operations.completion import MAX_VALUES, Completes
from coretools.operations.declare import Effect, channels, prompt, resource, tool
from coretools.operations.dispatch import Dispatcher
from coretools.operations.live_catalog import LiveCatalog
from coretools.operations.registry import Registry
from coretools.protocol.completion_handler import MAX_RETURNED
from coretools.protocol.resources import TEMPLATE
from coretools.protocol.server import ServerInfo, ServerOptions, build_server

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def numbers(typed: str, given: Mapping[str, str]) -> list[str]:
    return [str(number) for number in range(int(given.get("below", "0")))]


class Guide:
    @prompt()
    def plan(
        self, tone: Literal["calm", "clear", "loud"], number: Annotated[str, Completes(numbers)] = "", below: str = ""
    ) -> str:
        """Plan."""
        return tone

    @resource("guide://{tone}/{number}")
    def page(self, tone: Literal["calm", "loud"], number: Annotated[str, Completes(numbers)]) -> str:
        """Read."""
        return tone

    @tool(Effect.READ)
    def look(self, tone: Literal["calm"]) -> str:
        """Look."""
        return tone

    @prompt()
    @channels("command-line", "repl")
    def secret(self, tone: Literal["calm"]) -> str:
        """Be hidden."""
        return tone


def client(mode: str) -> Client:
    registry = Registry()
    registry.add_set("guide", Guide())
    catalog = LiveCatalog(registry, Selection(profile="all"))
    return Client(build_server(catalog, Dispatcher(threads=2), ServerInfo()), mode=mode)


def a_prompt(name: str) -> types.PromptReference:
    return types.PromptReference(type="ref/prompt", name=name)


def a_template(uri: str) -> types.ResourceTemplateReference:
    return types.ResourceTemplateReference(type="ref/resource", uri=uri)


@ERAS
async def test_arguments_of_prompts_and_variables_of_templates_complete(mode: str) -> None:
    """completion-1, completion-2: from the same declarations."""
    async with client(mode) as connected:
        tones = await connected.complete(a_prompt("plan"), {"name": "tone", "value": "c"})
        pages = await connected.complete(a_template("guide://{tone}/{number}"), {"name": "tone", "value": ""})
        given = await connected.complete(
            a_template("guide://{tone}/{number}"), {"name": "number", "value": "1"}, {"below": "12"}
        )
        free = await connected.complete(a_prompt("plan"), {"name": "below", "value": ""})
    assert tones.completion.values == ["calm", "clear"]
    assert pages.completion.values == ["calm", "loud"]
    assert given.completion.values == ["1", "10", "11"]
    assert (free.completion.values, free.completion.total, free.completion.has_more) == ([], 0, False)


@ERAS
@pytest.mark.parametrize(
    ("below", "listed", "total", "has_more"),
    [
        (MAX_RETURNED, MAX_RETURNED, MAX_RETURNED, False),
        (MAX_RETURNED + 1, MAX_RETURNED, MAX_RETURNED + 1, True),
        (2 * MAX_VALUES, MAX_RETURNED, None, True),
    ],
)
async def test_a_result_has_a_hundred_values_and_their_total(
    mode: str, below: int, listed: int, total: int | None, has_more: bool
) -> None:
    """completion-4: no total if not all candidates were examined."""
    async with client(mode) as connected:
        found = await connected.complete(a_prompt("plan"), {"name": "number", "value": ""}, {"below": str(below)})
    completion = found.completion
    assert (len(completion.values), completion.total, completion.has_more) == (listed, total, has_more)


@ERAS
@pytest.mark.parametrize(
    ("reference", "argument", "expected"),
    [
        (a_prompt("plans"), "tone", "did you mean plan"),
        (a_prompt("look"), "tone", "unknown prompt"),
        (a_prompt("secret"), "tone", "unknown prompt"),
        (a_prompt("plan"), "town", "there are tone, number, below"),
        (a_template("guide://{other}"), "other", "no resource"),
        (a_template("guide://calm/1"), "tone", "no resource"),
        (a_template("guide://{tone}/{number}"), "below", "there are tone, number"),
    ],
)
async def test_an_unknown_reference_is_an_error_of_the_request(
    mode: str, reference: types.PromptReference, argument: str, expected: str
) -> None:
    """completion-6: -32602 for an unknown prompt, template or argument."""
    async with client(mode) as connected:
        with pytest.raises(MCPError, match=expected) as caught:
            await connected.complete(reference, {"name": argument, "value": ""})
    assert caught.value.error.code == types.INVALID_PARAMS


@asynccontextmanager
async def workstation(root: Path, mode: str, surfaces: Surfaces | None = None) -> AsyncIterator[Client]:
    async with open_assembly(Settings(roots=(str(root),)), dict(os.environ)) as assembly:
        catalog = LiveCatalog(assembly.catalog.registry, Selection(), surfaces)
        server = build_server(catalog, assembly.dispatcher, assembly.identity, ServerOptions(runs=assembly.resources))
        async with Client(server, mode=mode) as connected:
            yield connected


@ERAS
async def test_the_files_template_completes_paths(tmp_path: Path, mode: str) -> None:
    """completion-5: below the roots; one outside has none."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("")
    (tmp_path / ".ssh").mkdir()
    async with workstation(tmp_path, mode) as connected:
        for typed, values in (("s", ["src/"]), ("src/m", ["src/main.py"]), (".s", []), ("../", []), ("/etc/p", [])):
            found = await connected.complete(a_template("coretools://files/{+path}"), {"name": "path", "value": typed})
            assert found.completion.values == values


@ERAS
async def test_the_template_of_outputs_completes_the_runs_of_the_caller(tmp_path: Path, mode: str) -> None:
    """completion-7: the newest first; an offset has no values."""
    async with workstation(tmp_path, mode) as connected:
        ids = []
        for _ in range(2):
            started = await connected.call_tool("run_command", {"command": "cat", "stdin": "", "wait_seconds": 0})
            ids.append((started.meta or {})["coretools/facts"]["run"])
        runs = await connected.complete(a_template(TEMPLATE), {"name": "run", "value": "run-"})
        one = await connected.complete(a_template(TEMPLATE), {"name": "run", "value": ids[0]})
        offset = await connected.complete(a_template(TEMPLATE), {"name": "offset", "value": ""})
    assert runs.completion.values == ids[::-1]
    assert one.completion.values == [ids[0]]
    assert offset.completion.values == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x"), ("branch", "feature/one")):
        subprocess.run([*git, *words], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


async def test_revisions_of_git_complete_to_branches(repository: Path) -> None:
    """completion-8: of the given repository; here on a promoted command."""
    async with workstation(repository, "auto", Surfaces(promote_read_only=True)) as connected:
        listed = (await connected.list_resource_templates()).resource_templates
        [log] = [one.uri_template for one in listed if "git/log" in one.uri_template]
        found = await connected.complete(a_template(log), {"name": "revision", "value": "f"})
        everything = await connected.complete(a_template(log), {"name": "revision", "value": ""}, {"repository": "."})
        elsewhere = await connected.complete(a_template(log), {"name": "revision", "value": ""}, {"repository": "x"})
    assert found.completion.values == ["feature/one"]
    assert everything.completion.values == ["feature/one", "main"]
    assert elsewhere.completion.values == []
