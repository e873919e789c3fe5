"""`code_references`, `code_rename` and `code_check` with a real language server (docs/specs/code.md)."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.peer import Peer, peer

CONFIG = '''class Config:
    def load(self, text: str) -> str:
        return text


class Other:
    def load(self) -> None:
        """Of another class: load."""
'''
APP = """from config import Config


def main() -> None:
    config = Config()
    config.load("x")  # load it
"""
USE = 'from store import put\n\nold: int = "wrong before"\nput("a")\n'
NEW_ERROR = """[use.py: a new error (ty):]
line 4: Argument to function `put` is incorrect: Expected `str`, found `Literal[1]` [invalid-argument-type]
"""


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (project / "config.py").write_text(CONFIG)
    (project / "app.py").write_text(APP)
    (project / "a.cs").write_text(
        "static class A {\n    static int parse() { return 1; }\n    static int x = parse();\n}\n"
    )
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / "outside.py").write_text("import json\njson.dumps(1)\n")
    (project / "inner").mkdir()
    (project / "inner" / "setup.py").write_text("")
    (project / "inner" / "twice.py").write_text("class A:\n    def f(self): pass\nclass B:\n    def f(self): pass\n")
    return project


@pytest.fixture(scope="module")
def client(top: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    # A home of its own: a login shell's PATH has what the user installed.
    home = tmp_path_factory.mktemp("home")
    shim = home / "shims" / "python3"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    shim.chmod(0o755)
    environment = {"PATH": f"{shim.parent}:/usr/bin:/bin", "HOME": str(home)}
    with peer(top, environment=environment) as served:
        served.start_session()
        yield served


def asked(client: Peer, tool: str, **arguments: object) -> dict[str, Any]:
    return dict(client.ask("tools/call", {"name": tool, "arguments": arguments})["result"])


def text(client: Peer, tool: str, **arguments: object) -> str:
    return str(asked(client, tool, **arguments)["content"][0]["text"])


def test_a_name_alone_finds_what_one_file_defines(client: Peer) -> None:
    """code-12, code-13"""
    by_name = text(client, "code_references", symbol="Config.load")
    assert by_name == text(client, "code_references", path="config.py", symbol="Config.load")
    several = text(client, "code_references", symbol="load")
    assert several.startswith("load: defined in several places: config.py:2 function Config.load, config.py:7 ")
    assert text(client, "code_references", symbol="absent").startswith("absent: nothing defines absent")
    assert "give the file in `path`" in text(client, "code_references", symbol="load", line=3)


def test_references_are_grouped_by_file_with_the_function_around_them(client: Peer) -> None:
    """code-12, code-14: not the method of another class."""
    found = text(client, "code_references", path="config.py", symbol="Config.load")
    assert found == (
        'app.py\n6 in main: config.load("x")  # load it\n'
        "config.py\n2 definition of Config.load: def load(self, text: str) -> str:"
    )
    by_line = text(client, "code_references", path="app.py", symbol="load", line=6)
    assert by_line == found
    callers = text(client, "code_references", path="config.py", symbol="Config.load", relation="callers")
    assert callers == 'app.py\n6 in main: config.load("x")  # load it'


def test_a_symbol_that_is_not_there_is_an_error_with_lines(client: Peer) -> None:
    """code-13"""
    line = text(client, "code_references", path="app.py", symbol="load", line=5)
    assert line == "app.py:5: no load on this line: 'config = Config()'; the text is on line 6; give one as `line`"
    several = text(client, "code_references", path="inner/twice.py", symbol="f")
    assert several == "inner/twice.py: defines several: A.f (line 2), B.f (line 4); name one, or its line"
    assert "the file does not contain it" in text(client, "code_references", path="app.py", symbol="absent")


def test_the_definition_that_a_line_means_is_shown(client: Peer) -> None:
    """code-20: without a server those of its name, marked."""
    found = text(client, "code_symbols", path="app.py", name="load", line=6)
    assert found.splitlines()[:2] == ["config.py:2-3 function Config.load", "    def load(self, text: str) -> str:"]
    assert "Other" not in found
    by_name = text(client, "code_symbols", path="a.cs", name="parse", line=3)
    assert "a.cs:2 method A.parse" in by_name
    assert "[the definition of parse at line 3 is not known: no language server for C#" in by_name
    outside = text(client, "code_symbols", path="outside.py", name="dumps", line=2)
    assert "defined at /" in outside


def test_a_language_without_a_server_is_answered_by_text_and_says_how_to_get_one(client: Peer) -> None:
    """code-15, language-servers-1"""
    found = text(client, "code_references", path="a.cs", symbol="parse")
    assert found.startswith(
        "[not known: references of parse: no language server for C# is installed (csharp-ls: dotnet"
    )
    assert found.endswith(
        "a.cs\n2 definition of A.parse: static int parse() { return 1; }\n3 in A: static int x = parse();"
    )
    assert asked(client, "code_rename", path="a.cs", symbol="parse", new_name="read")["isError"]


def test_the_project_of_a_file_is_named_if_it_is_not_the_root(client: Peer) -> None:
    """code-14, language-servers-1"""
    found = text(client, "code_references", path="inner/twice.py", symbol="A.f")
    assert found == "inner/twice.py\n2 definition of A.f: def f(self): pass\n[beneath inner, the project of this file]"


def test_a_project_without_libraries_does_not_get_ours(client: Peer, top: Path) -> None:
    """language-servers-13: nor where the interpreter on PATH is a shim, which leads to no libraries."""
    assert "/shims/python3" in text(client, "run_command", command="command -v python3")
    (top / "libraries.py").write_text("import lsprotocol\n")
    assert "Cannot resolve imported module `lsprotocol`" in text(client, "code_check", paths=["libraries.py"])
    (top / "libraries.py").unlink()


def test_changes_by_commands_are_told_before_the_next_answer(client: Peer, top: Path) -> None:
    """language-servers-8, code-16"""
    assert "no problem" in text(client, "code_check", paths=["app.py", "config.py"])
    command = "sed -i 's/text: str) -> str/text: int) -> int/' config.py && echo 'Config().load(1)' > new.py"
    text(client, "run_command", command=f"{command} && sed -i '1i from config import Config' new.py")
    (top / "notes.md").write_text("text")
    checked = text(client, "code_check")  # what is not as in the last commit
    assert "app.py:6: error: " in checked
    assert "invalid-argument-type" in checked
    assert "a.cs: only its syntax was checked: no language server for C#" in checked
    assert text(client, "code_check", paths=["notes.md"]).startswith("[notes.md: not checked: no language server")
    assert "new.py\n2: Config().load(1)" in text(client, "code_references", path="config.py", symbol="Config.load")
    (top / "new.py").unlink()
    (top / "config.py").write_text(CONFIG)
    assert "new.py" not in text(client, "code_references", path="config.py", symbol="Config.load")


def test_a_rename_changes_every_file_and_undo_takes_it_back(client: Peer, top: Path) -> None:
    """code-17: comments, strings and others of the same name stay."""
    preview = text(client, "code_rename", path="config.py", symbol="Config.load", new_name="read", dry_run=True)
    assert preview.startswith("2 replacements in 2 files\nwould edit app.py: 1 replacement\n")
    assert (top / "app.py").read_text() == APP
    done = asked(client, "code_rename", path="config.py", symbol="Config.load", new_name="read")
    assert (top / "app.py").read_text() == APP.replace("config.load(", "config.read(")
    assert (top / "config.py").read_text() == CONFIG.replace("load", "read", 1)
    assert subprocess.run(["grep", "-c", "load", top / "config.py"], capture_output=True, check=True).stdout == b"2\n"
    assert "not a name" not in str(done)
    changes = text(client, "list_changes")
    assert "code_rename" in changes
    change = int("".join(filter(str.isdigit, changes.split()[0])))
    text(client, "undo", change=change)
    assert (top / "app.py").read_text() == APP
    assert (top / "config.py").read_text() == CONFIG


def test_overriding_methods_are_renamed_with_what_they_override(client: Peer, top: Path) -> None:
    """code-14, code-19: the one below alone is refused; each names the other to who asks for its references."""
    (top / "base.py").write_text("class Base:\n    def run(self): pass\n    def other(self): self.run()\n")
    (top / "child.py").write_text(
        "from base import Base\n\nclass Child(Base):\n    def run(self): pass\n\nChild().run()\n"
    )
    above = text(client, "code_references", path="base.py", symbol="Base.run", relation="callers", line=2)
    beneath = text(client, "code_references", path="child.py", symbol="Child.run")
    assert "[overridden by Child.run at child.py:4: ask for what uses these too]" in above
    assert "\n6: Child().run()\n[overrides Base.run at base.py:2: ask for what uses that too]\n" in beneath
    refused = text(client, "code_rename", path="child.py", symbol="Child.run", new_name="go")
    assert refused == (
        "run overrides Base.run at base.py:2, which would keep its name; rename it there, and this one follows"
    )
    assert text(client, "code_rename", path="base.py", symbol="Base.run", new_name="go").startswith("4 replacements")
    assert "Child().go()" in (top / "child.py").read_text()


def test_a_long_message_of_a_server_is_cut_after_its_first_lines(client: Peer, top: Path) -> None:
    """code-16: ty adds every place where it looked for a module."""
    (top / "absent.py").write_text("import absent_module\n")
    checked = text(client, "code_check", paths=["absent.py"])
    assert checked.startswith("absent.py:1: error: Cannot resolve imported module `absent_module`")
    assert len(checked) < 300
    (top / "absent.py").unlink()


def test_a_file_that_is_larger_than_the_buffer_is_asked_about(client: Peer, top: Path) -> None:
    """code-12: files of up to 4 MiB."""
    (top / "large.py").write_text("def small(): pass\n" + "# more\n" * 300_000 + "small()\n")
    found = text(client, "code_references", path="large.py", symbol="small", line=1)
    assert "300002: small()" in found
    assert not found.startswith("[")
    (top / "large.py").unlink()


def test_a_new_name_that_is_no_name_is_refused(client: Peer) -> None:
    """code-17"""
    refused = text(client, "code_rename", path="config.py", symbol="Config", new_name="a b")
    assert refused == "new_name: 'a b' is no name; give one such as load_all"


def test_a_change_tells_its_new_errors_and_nothing_else(client: Peer, top: Path) -> None:
    """code-21, code-22: while a server runs; five in all, none that was there, none for a dry run."""
    for name, content in (("store.py", "def put(key: str) -> str:\n    return key\n"), ("use.py", USE)):
        (top / name).write_text(content)
    text(client, "code_check", paths=["use.py"])

    def edited(old: str, new: str, *, dry_run: bool = False) -> str:
        return text(client, "edit_file", path="use.py", edits=[{"old": old, "new": new}], dry_run=dry_run)

    assert "new error" not in edited('put("a")', "put(1)", dry_run=True)
    assert edited('put("a")', "put(1)").endswith(NEW_ERROR)
    assert "new error" not in edited("import put\n", "import put\n\n\n"), "only moved"
    assert "new error" not in edited("put(1)", 'put("b")')
    text(client, "run_command", command="echo 'def get() -> int: return 1' > more.py")
    assert "new error" not in edited("import put\n", "import put\nfrom more import get\n"), "a command made it"
    both = text(
        client,
        "edit_files",
        files=[
            {"path": "store.py", "edits": [{"old": "put(key: str)", "new": "put(key: int, by: str)"}]},
            {"path": "use.py", "edits": [{"old": "old: ", "new": "# the old one\nold: "}]},
        ],
    )
    assert "[store.py: a new error (" in both
    assert "[use.py: 2 new errors (" in both
    many = asked(client, "write_file", path="many.py", content="".join(f"one{n}\n" for n in range(7)))
    assert many["content"][0]["text"].endswith("\nand 2 more")
    assert "line 5: " in many["content"][0]["text"]
    assert "line 6: " not in many["content"][0]["text"]
    assert '"new_errors": 7' in json.dumps(many)
    renamed = text(client, "code_rename", path="store.py", symbol="put", new_name="get")
    assert "[use.py: a new error (" in renamed, "use.py has another get"


def test_settings_that_a_server_cannot_read_are_told_and_lead_nowhere(client: Peer, top: Path) -> None:
    """language-servers-11, code-16: broken code too, and links in circles."""
    hostile = top / "hostile"
    hostile.mkdir()
    (hostile / "ty.toml").write_text(f"[environment]\nextra-paths = ['{Path.home()}']\npython = '/root/x'\n[[[")
    (hostile / "circle").symlink_to("..")
    (hostile / "self.py").symlink_to("self.py")
    (hostile / "broken.py").write_text("def f(: int) ->\nx: int = 'a'\n")
    checked = text(client, "code_check", paths=["hostile/broken.py"])
    assert "hostile/broken.py:2: error: " in checked
    assert "ty says: Failed to load project" in checked
    assert "2 in f: x: int" in text(client, "code_references", path="hostile/broken.py", symbol="x", line=2)


def test_the_definition_of_a_parameter_is_its_line_and_that_of_a_function_has_its_overloads(
    client: Peer, top: Path
) -> None:
    """code-20: what is no symbol of an outline."""
    found = text(client, "code_symbols", path="config.py", name="text", line=3)
    assert found == "config.py:2 name Config.load.text\n    def load(self, text: str) -> str:"
    overloads = "".join(f"@overload\ndef f(x: {one}) -> None: ...\n" for one in ("int", "str"))
    code = f"from typing import overload\n\n{overloads}def f(x): return x\n\nf(1)\n"
    (top / "overloads.py").write_text(code)
    found = text(client, "code_symbols", path="overloads.py", name="f", line=9)
    assert re.findall(r"^overloads.py:(\S+) ", found, re.MULTILINE) == ["3-4", "5-6", "7"]
    (top / "overloads.py").unlink()


def test_a_name_that_is_imported_as_itself_is_renamed_too_and_lines_that_keep_the_old_one_are_named(
    client: Peer, top: Path
) -> None:
    """code-25: re-exports, which ty leaves out."""
    (top / "public.py").write_text("from config import Other as Other\n")
    (top / "user.py").write_text('from public import Other\n\nOther()  # Other\n"Other"\n')
    found = text(client, "code_rename", path="config.py", symbol="Other", new_name="Third")
    assert (top / "public.py").read_text() == "from config import Third as Third\n"
    assert (top / "user.py").read_text() == 'from public import Third\n\nThird()  # Other\n"Other"\n'
    assert (
        "[the text Other is still at user.py:3, user.py:4: other symbols, strings, comments, or code that ty" in found
    )


def test_comments_and_strings_are_renamed_on_request(client: Peer, top: Path) -> None:
    """code-26: not what code in a string, or another symbol, has."""
    code = """def {0}():  # {0}
    '''Say {0}.'''


class Other:
    grüße = 1


print(f"{0} {{Other.grüße}} grüßen")
"""
    (top / "texts.py").write_text(code.format("grüße"))
    (top / "beside.py").write_text('"""Not texts.grüße."""\n')
    text(client, "code_rename", path="texts.py", symbol="grüße", new_name="hello", line=1, include_text=True)
    assert (top / "texts.py").read_text() == code.format("hello")
    assert (top / "beside.py").read_text() == '"""Not texts.hello."""\n'
