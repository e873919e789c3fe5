"""Notebooks as cells (docs/specs/filesystem.md)."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coretools.process.decoding.notebook import OUTPUTS, NoNotebook, read_notebook
from tests.protocol.peer import Peer, peer

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


def notebook(*cells: dict[str, Any], **more: object) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}).encode()


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 3, "source": source, "outputs": list(outputs)}


def data(**forms: object) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {name.replace("_", "/"): form for name, form in forms.items()}}


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def client(top: Path) -> Iterator[Peer]:
    with peer(top) as served:
        served.start_session()
        yield served


def read(client: Peer, path: str, **arguments: object) -> dict[str, Any]:
    answer = client.ask("tools/call", {"name": "read_file", "arguments": {"path": path, **arguments}})
    return dict(answer["result"])


def test_a_notebook_comes_as_cells_with_short_outputs(client: Peer, top: Path) -> None:
    """filesystem-69: sources whole, outputs shortened, small pictures as images, others named."""
    stream = {"output_type": "stream", "name": "stdout", "text": [f"{number}\n" for number in range(1_000)]}
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["\x1b[0;31mline\x1b[0m 1"]}
    picture = data(image_png=base64.b64encode(PNG).decode() + "\n", text_plain="<Figure>")
    large = data(image_jpeg="A" * 600_000)
    table = data(text_html="<table>", text_plain="a b")
    (top / "a.ipynb").write_bytes(
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "text"]},
            code("import x\nx.run()\n", stream, error, picture),
            code([], large, table, data(application_json="{}")),
        )
    )
    result = read(client, "a.ipynb")
    text, image = result["content"]
    size = (top / "a.ipynb").stat().st_size
    lines = text["text"].splitlines()
    assert lines[0] == (f"[a.ipynb: notebook of 3 cells, {size} bytes; raw=true reads its JSON, which edit_file edits]")
    assert lines[1:4] == ["[cell 1, markdown]", "# Title", "text"]
    assert lines[4:8] == ["[cell 2, code, run 3]", "import x", "x.run()", "[output, stdout]"]
    assert lines[8:29] == [*map(str, range(15)), "[... 980 lines left out ...]", *map(str, range(995, 1_000))]
    assert lines[29:33] == ["[error]", "ValueError: no", "line 1", "[output, image 1, 1 x 1 pixels]"]
    assert lines[33:] == [
        "[cell 3, code, run 3]",
        "[output, image/jpeg, 450000 bytes, not shown]",
        "[output]",
        "a b",
        "[output, application/json, 2 characters, not shown]",
    ]
    assert (image["type"], image["mimeType"], base64.b64decode(image["data"])) == ("image", "image/png", PNG)
    assert result["_meta"]["coretools/facts"] == {"type": "application/x-ipynb+json", "bytes": size, "cells": 3}
    assert read(client, "a.ipynb", raw=True)["content"][0]["text"].startswith('{"cells": [')


def test_a_long_notebook_is_read_on_by_its_lines(client: Peer, top: Path) -> None:
    """filesystem-69: `offset` counts the lines of the cells; what follows is named."""
    (top / "long.ipynb").write_bytes(notebook(*[code(f"x = {number}") for number in range(5_000)]))
    text = read(client, "long.ipynb", limit=4)["content"][0]["text"]
    assert text.endswith(
        "[cell 1, code, run 3]\nx = 0\n[cell 2, code, run 3]\nx = 1\n[lines 1 to 4 of 10000; offset=5 reads on]\n"
    )
    assert "[cell 3, code, run 3]\nx = 2\n" in read(client, "long.ipynb", offset=5, limit=2)["content"][0]["text"]
    assert len(read(client, "long.ipynb")["content"][0]["text"].encode()) <= 20_000


def test_a_notebook_of_200_mb_is_read_outside_the_server(client: Peer, top: Path) -> None:
    """filesystem-69: by the decoder, whose memory is bounded; the answer is as short as any."""
    outputs = [data(image_png="A" * 10_000_000) for _ in range(20)]
    (top / "large.ipynb").write_bytes(notebook(code("plot()", *outputs), code("last()")))
    text = read(client, "large.ipynb")["content"][0]["text"]
    assert text.count("[output, image/png, 7500000 bytes, not shown]") == OUTPUTS
    assert text.endswith("last()\n")
    with (top / "sparse.ipynb").open("wb") as file:
        file.truncate(300_000_000)
    result = read(client, "sparse.ipynb")
    assert result["_meta"]["coretools/error"] == "too-large"
    assert "raw=true" in result["content"][0]["text"]


STRANGE = {
    "list.ipynb": b"[]",
    "text.ipynb": b"no JSON",
    "empty.ipynb": b"",
    "deep.ipynb": b"[" * 100_000,
    "other.ipynb": b'{"cells": 1, "nbformat": 4}',
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_notebook_is_text(client: Peer, top: Path, name: str) -> None:
    """filesystem-69."""
    (top / name).write_bytes(STRANGE[name])
    result = read(client, name)
    assert not result.get("isError")
    assert result["content"][0]["text"].startswith(STRANGE[name][:1].decode())


@pytest.mark.parametrize("seed", range(100))
def test_values_of_any_type_make_no_error(seed: int) -> None:
    """filesystem-69: a notebook is a file of a stranger."""
    chance = random.Random(seed)
    keys = ["cell_type", "source", "outputs", "output_type", "data", "text", "name", "image/png", "text/plain", "ename"]
    keys += ["execution_count", "traceback"]

    def value(depth: int) -> object:
        kinds = ["a\nb", "stream", "error", "code", None, 1, 1.5, True, "\ud800", "[cell 9, code]"]
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(kinds)
        if chance.random() < 0.5:
            return [value(depth - 1) for _ in range(chance.randint(0, 4))]
        return {chance.choice(keys): value(depth - 1) for _ in range(chance.randint(0, 6))}

    cells = [value(4) for _ in range(5)]
    read = read_notebook(json.dumps({"cells": cells, "nbformat": 4}).encode())
    assert read.cells == 5
    assert read.text.count("\n") >= 5


def test_no_notebook_is_told_by_type() -> None:
    """filesystem-69."""
    with pytest.raises(NoNotebook):
        read_notebook(b'{"nbformat": 4}')
