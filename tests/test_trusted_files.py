"""Every place in the source that starts a program or opens a file outside a root is in the table of trust.md.

Reads the source with `ast`; imports and runs none of it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import TREE

TABLE = TREE / "docs" / "specs" / "trust.md"

STARTS = {
    *("Popen", "check_call", "check_output", "posix_spawn", "posix_spawnp", "fork", "forkpty", "popen", "os.system"),
    *("execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe", "open_process", "run_process"),
    *("create_subprocess_exec", "create_subprocess_shell", "spawn", "spawn_tracked", "exec_module", "import_module"),
}
"""Functions that start a program or load a module."""

RUNNERS = re.compile(r"(runner|confined|subprocess)$")
"""Objects whose method `run` starts a program."""

READS = {
    *("open", "os.open", "read_text", "read_bounded", "read_regular", "read_state_file", "read_own_file", "replacing"),
    *("load_cert_chain", "load_verify_locations", "create_default_context", "copyfile"),
}
"""Functions that open a file by its path."""

PATHS = re.compile(r"Path\(.*\)\.(open|read_bytes)$")

NO_FILE = re.compile(
    r"\b(dir_fd|directory|closefd)=|open\((f?['\"]/(proc|sys|dev)/|os\.devnull|'/',|handle|os\.(open|memfd_create)\()"
)
"""Opened beneath a handle, from a descriptor, or of the kernel."""

ROW = re.compile(r"^\| `(?P<modules>[^|]+)` \|(?P<what>[^|]+)\|(?P<asks>[^|]+)\|(?P<result>[^|]+)\|$", re.MULTILINE)
MODULE = re.compile(r"([a-z_/]+\.py) \((\d+)\)")


def sites(path: Path) -> Iterator[str]:
    """The calls of a module that start a program or open a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        call, name = ast.unparse(node), ast.unparse(node.func)
        holder, _, last = name.rpartition(".")
        starts = {name, last} & STARTS or (last == "run" and RUNNERS.search(holder))
        reads = name in READS or (last in READS - {"open"}) or PATHS.search(name)
        if starts or (reads and not NO_FILE.search(call)):
            yield f"{path.relative_to(TREE)}:{node.lineno}: {call[:90]}"


def test_every_program_started_and_every_file_opened_is_in_the_table() -> None:
    """trust-9: a new one fails this test until the table says who asks, and what happens."""
    paths = [path for top in ("coretools", "servers") for path in TREE.glob(f"{top}/**/*.py")]
    found = {str(path.relative_to(TREE)): list(sites(path)) for path in paths}
    counted = {module: len(calls) for module, calls in found.items() if calls}
    listed = Counter[str]()
    for row in ROW.finditer(TABLE.read_text("utf-8")):
        listed.update({module: int(count) for module, count in MODULE.findall(row["modules"])})
    wrong = {module: found.get(module) for module in counted | listed if counted.get(module) != listed.get(module)}
    assert wrong == {}


if __name__ == "__main__":
    for top in ("coretools", "servers"):
        for path in sorted(TREE.glob(f"{top}/**/*.py")):
            print(*sites(path), sep="\n")
