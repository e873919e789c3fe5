"""Every git tool in a process that records who starts a child: `-m tests.tools.git.children TOP`.

Prints JSON: the arguments of git's processes by tool, and every start that did not come from the runner.
"""

import json
import sys
from pathlib import Path

import anyio

from tests.tools.git.world import HOME_CONFIG, World

STARTS = (
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.system",
    "os.spawn",
    "pty.spawn",
)
OURS = ("coretools.process.children.spawn", "coretools.process.watchdog")


def starter() -> str:
    """The module that starts a child: the first one on the stack that is not part of Python."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("subprocess", __name__):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


async def every_tool(world: World, programs: list[str]) -> dict[str, list[str]]:
    by_tool: dict[str, list[str]] = {}
    async with world.tools() as tools:
        for name, arguments in (
            ("git_status", {}),
            ("git_log", {"limit": 1}),
            ("git_log of a range", {"revision": "HEAD~1..HEAD"}),
            ("git_diff", {}),
            ("git_branches", {"remote": True}),
            ("git_current_branch", {}),
            ("git_add", {"paths": ["."]}),
            ("git_commit", {"message": "x"}),
        ):
            programs.clear()
            await getattr(tools, name.split()[0])(repository="work", **arguments)
            by_tool[name] = [program for program in programs if program != sys.executable]
    return by_tool


def main() -> None:
    world = World(Path(sys.argv[1]), home_config=HOME_CONFIG + '[filter "lfs"]\n\tclean = cat\n').filled()
    programs: list[str] = []
    strangers: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in STARTS:
            who = starter()
            programs.append(str(arguments[0]))
            if who not in OURS:
                strangers.append(f"{event} {arguments[0]} by {who}")

    sys.addaudithook(watch)
    by_tool = anyio.run(every_tool, world, programs)
    print(json.dumps({"by_tool": by_tool, "strangers": strangers}))


if __name__ == "__main__":
    main()
