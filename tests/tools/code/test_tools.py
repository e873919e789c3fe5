"""`code_symbols` through a real client (docs/specs/code.md)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.peer import Peer, peer

CODE = '''"""A module."""

LIMIT = 3


class Config:
    """A config."""

    name: str = ""

    @property
    def path(self) -> str:
        return self.name


def parse(text: str) -> Config:
    return Config()
'''


PYTHON_TOP = "src/config.py\n3 LIMIT = 3\n6-13 class Config:\n16-17 def parse(text: str) -> Config:"


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    (project / "src").mkdir()
    (project / "src" / "config.py").write_text(CODE)
    (project / "src" / "other.ts").write_text("export class Config { parse(text: string) {} }\n")
    (project / "notes.txt").write_text("parse is described here\nso is describe_only\n")
    (project / "ignored.py").write_text("def parse(): pass\n")
    (project / ".gitignore").write_text("ignored.py\n")
    (project / ".env.py").write_text("def parse(): pass\n")
    (project / "long.py").write_text("def long():\n" + "    x = 1\n" * 300)
    (project / "many.py").write_text("".join(f"def function_{number}(): pass\n" for number in range(2_000)))
    (project / "large.py").write_text("def only_in_large(): pass\n" + "# more\n" * 200_000)
    return project


@pytest.fixture(scope="module")
def client(top: Path) -> Iterator[Peer]:
    with peer(top) as served:
        served.start_session()
        yield served


def asked(client: Peer, **arguments: object) -> dict[str, Any]:
    answer = client.ask("tools/call", {"name": "code_symbols", "arguments": arguments})
    return dict(answer["result"])


def shown(client: Peer, **arguments: object) -> str:
    result = asked(client, **arguments)
    assert not result["isError"], result
    return str(result["content"][0]["text"])


def test_an_outline_of_a_file(client: Peer) -> None:
    """code-6: nested, with lines and the line of each definition."""
    assert shown(client, path="src/config.py") == (
        'src/config.py\\n3 LIMIT = 3\\n6-13 class Config:\\n  9 name: str = ""\\n  11-13 def path(self) -> str:\\n'
        "16-17 def parse(text: str) -> Config:"
    ).replace("\\n", "\n")


def test_an_outline_of_a_directory_has_the_outermost_symbols(client: Peer) -> None:
    """code-7: and leaves out what is ignored."""
    typescript = "src/other.ts\n1 export class Config { parse(text: string) {} }"
    assert shown(client, path="src") == f"{PYTHON_TOP}\n{typescript}"
    assert "ignored.py" not in shown(client)
    assert "ignored.py" in shown(client, include_ignored=True)


def test_a_definition_by_name_comes_with_its_text(client: Peer) -> None:
    """code-8: wherever it is; with a scope only there."""
    text = shown(client, name="Config.path")
    body = "    @property\n    def path(self) -> str:\n        return self.name"
    assert text == f"src/config.py:11-13 function Config.path\n{body}"
    heads = [line for line in shown(client, name="parse").split("\n") if line.startswith("src/")]
    assert heads == ["src/config.py:16-17 function parse", "src/other.ts:1 method Config.parse"]
    assert shown(client, name="parse", path="src/other.ts").startswith("src/other.ts:1 method Config.parse\n")
    assert shown(client, name="Config::parse()") == shown(client, name="Config.parse")
    long = shown(client, name="long")
    assert long.count("x = 1") == 119
    assert long.endswith("[181 more lines; read_file with offset=121 reads on]")


def test_nothing_is_never_an_empty_answer(client: Peer) -> None:
    """code-9: what is missing, and where the text is."""
    assert shown(client, name="describe_only") == (
        "[nothing defines describe_only, by syntax; the text is in notes.txt: take search_text]"
    )
    assert "no text file here contains absent_name" in shown(client, name="absent_name")
    assert "the text is in large.py: take search_text" in shown(client, name="only_in_large")
    refused = asked(client, name="a b")
    assert refused["_meta"]["coretools/error"] == "invalid-arguments"
    assert asked(client, path="notes.txt")["_meta"]["coretools/error"] == "not-text"
    assert asked(client, path="missing.py")["_meta"]["coretools/error"] == "not-found"


def test_an_answer_is_bounded_and_goes_on(client: Peer) -> None:
    """code-10: by symbols and by bytes; the pages together have each symbol once."""
    names, skip = list[str](), 0
    while True:
        result = asked(client, path="many.py", limit=900, skip=skip)
        assert len(result["content"][0]["text"].encode()) <= 20_000
        text = result["content"][0]["text"]
        names += re.findall(r"def (function_\d+)", text)
        if not result["_meta"]["coretools/facts"]["more"]:
            break
        skip = len(names)
        assert f"skip={skip} goes on" in text
    assert names == [f"function_{number}" for number in range(2_000)]


def test_hidden_files_have_no_symbols(client: Peer, top: Path) -> None:
    """code-11: deny rules hold, and links are not followed."""
    (top / ".ssh").mkdir()
    (top / ".ssh" / "id_rsa").write_text("def canary_name(): pass\n")
    (top / "link.py").symlink_to("/etc/hostname")
    assert shown(client, name="canary_name") == (
        "[nothing defines canary_name, and no text file here contains canary_name]"
    )
    assert asked(client, path=".ssh/id_rsa")["_meta"]["coretools/error"] == "denied-path"
    assert asked(client, path="link.py")["_meta"]["coretools/error"] == "outside-root"


def test_read_file_reads_a_symbol(client: Peer) -> None:
    """filesystem-70"""

    def read(**arguments: object) -> str:
        answer = client.ask("tools/call", {"name": "read_file", "arguments": {"path": "src/config.py", **arguments}})
        return str(answer["result"]["content"][0]["text"])

    lines = "    @property\n    def path(self) -> str:\n        return self.name\n"
    assert read(symbol="Config.path") == f"{lines}[lines 11 to 13 of 17; offset=14 reads on]\n"
    assert read(symbol="absent") == (
        "src/config.py: defines no absent; there are: LIMIT, Config, Config.name, Config.path, parse"
    )
    assert read(symbol="parse", head=3) == "symbol excludes offset, limit, head and tail"


def test_search_text_names_the_symbol_around_each_match_on_request(client: Peer) -> None:
    """search-33"""
    arguments = {"pattern": "name|def parse", "path": "src", "with_symbols": True}
    answer = client.ask("tools/call", {"name": "search_text", "arguments": arguments})
    assert answer["result"]["content"][0]["text"] == (
        'src/config.py\n9:    name: str = ""  [defines Config.name]\n13:        return self.name  [in Config.path]\n'
        "16:def parse(text: str) -> Config:  [defines parse]"
    )
